use super::*;

#[test]
fn quartiles_of_five() {
    let s = Summary::of([50.0, 10.0, 30.0, 20.0, 40.0]);
    assert_eq!((s.p25, s.median, s.p75, s.max, s.samples), (20.0, 30.0, 40.0, 50.0, 5));
}

#[test]
fn between_two_samples() {
    let s = Summary::of([1.0, 2.0]);
    assert_eq!((s.median, s.p25), (1.5, 1.25));
}

#[test]
fn one_and_none() {
    assert_eq!(Summary::of([7.0]).p99, 7.0);
    assert_eq!(Summary::of([]), Summary::default());
}
