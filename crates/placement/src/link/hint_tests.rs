use super::*;

#[test]
fn one_caller_per_interval_is_told_that_a_hint_is_due() {
    let (hints, now) = (Hints::default(), 7 * INTERVAL);
    assert!(hints.is_due(now), "the first at once");
    assert!(!hints.is_due(now));
    assert!(!hints.is_due(now + INTERVAL - 1));
    assert!(hints.is_due(now + INTERVAL));
    assert!(!hints.is_due(now + INTERVAL), "counted from the last one");
    assert!(hints.is_due(now + INTERVAL * 9));
    assert!(!hints.is_due(now + INTERVAL * 9));
    assert!(hints.is_due(u64::MAX));
}

#[test]
fn many_threads_together_have_one() {
    let hints = Hints::default();
    for now in (1..50).map(|round| INTERVAL * round) {
        let due = std::thread::scope(|s| {
            let all = [(); 4].map(|()| s.spawn(|| u32::from(hints.is_due(now))));
            all.into_iter().map(|t| t.join().unwrap()).sum::<u32>()
        });
        assert_eq!(due, 1, "at {now}");
    }
}
