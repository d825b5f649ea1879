use super::*;
use std::thread::sleep;

const A_WHILE: Duration = Duration::from_millis(20);

#[test]
fn the_oldest_call_is_told_until_it_returns() {
    let waits = Waits::default();
    assert_eq!(waits.longest(), Duration::ZERO);
    let first = waits.begin();
    sleep(A_WHILE);
    let younger = Instant::now();
    let second = waits.begin();
    assert!(waits.longest() >= A_WHILE, "{:?}", waits.longest());
    drop(first);
    let said = waits.longest();
    assert!(said > Duration::ZERO && said <= younger.elapsed(), "{said:?}");
    drop(second);
    assert_eq!(waits.longest(), Duration::ZERO);
}

#[test]
fn calls_that_are_stuck_keep_their_places_and_take_no_more() {
    let waits = Waits::default();
    let stuck = waits.begin();
    sleep(A_WHILE);
    let many: Vec<_> = (0..10 * PLACES).map(|_| waits.begin()).collect();
    assert!(many.iter().filter(|call| call.0.is_some()).count() < PLACES);
    assert!(waits.longest() >= A_WHILE, "{:?}", waits.longest());
    drop(many);
    assert!(waits.longest() >= A_WHILE, "{:?}", waits.longest());
    drop(stuck);
    assert_eq!(waits.longest(), Duration::ZERO);
    assert!(waits.begin().0.is_some(), "all places are free again");
}
