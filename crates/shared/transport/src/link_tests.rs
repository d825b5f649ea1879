use super::*;

#[test]
fn spinning_is_as_long_as_it_helps() {
    let most = Duration::from_micros(160);
    let long = Duration::from_millis(5);
    let mut spin = most;
    for expected in [80, 40, 20, 10, 10] {
        spin = adapted(spin, most, long);
        assert_eq!(spin, Duration::from_micros(expected));
    }
    // Answers that take longer than the spin has become, and no longer than it may be.
    for expected in [20, 40, 80, 160, 160] {
        spin = adapted(spin, most, Duration::from_micros(150));
        assert_eq!(spin, Duration::from_micros(expected));
    }
}

#[test]
fn who_is_not_to_spin_does_not() {
    assert_eq!(adapted(Duration::ZERO, Duration::ZERO, Duration::ZERO), Duration::ZERO);
}
