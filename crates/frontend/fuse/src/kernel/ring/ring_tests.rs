use super::*;

#[test]
fn processors_are_counted() {
    for (list, want) in [
        ("0\n", Some(1)),
        ("0-1\n", Some(2)),
        ("0-3,6,8-9", Some(7)),
        ("", None),
        ("3-1", None),
        ("x", None),
        ("0-65535", None),
        ("0-65534,1-2", None),
    ] {
        assert_eq!(count(list), want, "{list:?}");
    }
    let here = std::fs::read_to_string(POSSIBLE).unwrap();
    let online = std::thread::available_parallelism().unwrap().get();
    assert!(usize::from(count(&here).unwrap()) >= online);
}
