use super::*;

/// A wait ends no earlier than it is to, and its processor time is counted as such.
#[test]
fn waits_are_as_long_as_they_are_to_be() {
    let before = spent();
    for micros in [0, 7, 300, 3000] {
        let due = Instant::now() + Duration::from_micros(micros);
        until(due);
        assert!(Instant::now() >= due, "{micros} us");
    }
    let counted = spent().checked_sub(before).unwrap();
    assert!(counted > Duration::ZERO);
    assert!(spent() <= of_process());
}
