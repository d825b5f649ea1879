use super::*;

#[test]
fn lines_of_progress() {
    for (line, want) in [
        ("1 0 100 /dev/x\n", Some(0)),
        ("1 50 100 /dev/x", Some(35)),
        ("2 0 7 /dev/x", Some(70)),
        ("5 7 7 /dev/x", Some(100)),
        ("5 9 7 /dev/x", Some(100)),
        ("1 18446744073709551615 18446744073709551615 /dev/x", Some(70)),
        ("3 0 0 /dev/x", Some(90)),
        ("6 1 1 /dev/x", None),
        ("99999999999999999999 1 1", None),
        ("/dev/x: recovering", None),
        ("1 50", None),
        ("", None),
    ] {
        assert_eq!(percent(line), want, "{line:?}");
    }
}
