use super::*;
use std::sync::atomic::AtomicBool;

#[test]
fn without_small_writes_nothing_is_sliced() {
    let pace = Pace::new();
    assert!(!pace.busy());
    assert_eq!(pace.slice(|| Ok::<_, ()>(7)), Ok(7));
}

#[test]
fn a_small_write_makes_bulk_wait_its_turn() {
    let pace = Pace::new();
    pace.urgent(true);
    assert!(pace.busy());
    let ended = AtomicBool::new(false);
    std::thread::scope(|s| {
        // Longer than any pause: the slice goes on although the small write never ends.
        let bulk = s.spawn(|| pace.slice(|| Ok::<_, ()>(ended.load(Ordering::SeqCst))));
        assert_eq!(bulk.join().unwrap(), Ok(false), "bulk is not starved");
        let bulk =
            s.spawn(|| while !pace.slice(|| Ok::<_, ()>(ended.load(Ordering::SeqCst))).unwrap() {});
        ended.store(true, Ordering::SeqCst);
        pace.urgent(false);
        bulk.join().unwrap();
    });
    assert!(pace.last.load(Ordering::SeqCst) > 0);
    assert_eq!(pace.waiting.load(Ordering::SeqCst), 0);
}

#[test]
fn the_last_of_several_small_writes_counts() {
    let pace = Pace::new();
    pace.urgent(true);
    pace.urgent(true);
    pace.urgent(false);
    assert!(pace.busy(), "another one is under way");
    pace.urgent(false);
    assert!(pace.busy(), "the next one is expected");
    pace.last.store(0, Ordering::SeqCst);
    assert!(!pace.busy());
}

#[test]
fn bulk_rests_as_long_as_it_asked_for_and_small_writes_come() {
    let (pace, now) = (Pace::new(), Instant::now());
    let until = now + RECENT + Duration::from_millis(1);
    assert_eq!(pace.rest(until, now), None, "there are no small writes");
    pace.urgent(true);
    assert_eq!(pace.rest(until, now), Some(RECENT));
    assert_eq!(pace.rest(until, now + RECENT), Some(Duration::from_millis(1)));
    assert_eq!(pace.rest(until, until), None);
    // Bounded, although the small write never ends and much more was asked for.
    pace.give_way(Duration::MAX);
    pace.urgent(false);
    pace.last.store(0, Ordering::SeqCst);
    assert_eq!(pace.rest(until, now), None, "small writes have ceased");
}

#[test]
fn a_failed_slice_says_so() {
    assert_eq!(Pace::new().slice(|| Err::<(), _>(5)), Err(5));
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn bulk_is_paced_as_long_as_another_process_expects_small_writes() {
    let pace = Pace::new();
    pace.expect(HOUR);
    assert!(pace.busy());
    assert_eq!(pace.slice(|| Ok::<_, ()>(7)), Ok(7), "nobody here ends a small write");
    let now = Instant::now();
    assert_eq!(pace.rest(now + PAUSE_MAX, now), Some(PAUSE_MAX));
    pace.expect(Duration::ZERO);
    assert!(!pace.busy(), "the newest word counts");
    pace.expect(Duration::MAX);
    assert!(pace.busy());
}

#[test]
fn what_was_expected_is_over_when_its_time_is() {
    let pace = Pace::new();
    pace.expect(Duration::from_nanos(1));
    while pace.now() <= pace.expected.load(Ordering::SeqCst) {}
    assert!(!pace.busy());
}
