use super::*;

fn run(start: u64, len: u64) -> BlockRun {
    BlockRun { start, len }
}

fn online(unit: u64) -> Discards {
    Discards::new(DiscardConfig { unit: unit * BLOCK_BYTES, online: true })
}

#[test]
fn without_storage_that_can_or_a_wish_the_quarantine_ends_at_once() {
    assert!(!online(0).take(run(10, 100)));
    let off = DiscardConfig { unit: BLOCK_BYTES, online: false };
    assert!(!Discards::new(off).take(run(10, 100)));
    let mut d = online(1);
    assert!(d.take(run(10, 100)) && d.is_due());
    d.set_online(false);
    assert!(!d.take(run(200, 100)), "from now on");
}

#[test]
fn neighbours_are_asked_for_together_and_one_request_is_open() {
    let mut d = online(1);
    assert!([run(10, 8), run(26, 8), run(18, 8)].into_iter().all(|r| d.take(r)));
    let (request, small) = d.next();
    assert_eq!((request, small), (Some((1, vec![run(10, 24)])), vec![]));
    assert!(d.take(run(100, 8)));
    assert!(!d.is_due() && d.next() == (None, vec![]), "the first is not answered");
    let ended = d.ended(1, 24, 0, false).unwrap();
    assert_eq!((ended.free, ended.refused), (vec![run(10, 24)], false));
    assert_eq!(d.next().0, Some((2, vec![run(100, 8)])));
    assert!(d.is_open(2) && !d.is_open(1) && !d.is_idle());
}

#[test]
fn what_is_too_short_is_free_without_a_discard() {
    let mut d = online(1);
    assert!(d.take(run(10, LEAST_BLOCKS - 1)) && d.take(run(50, LEAST_BLOCKS)));
    let (request, small) = d.next();
    assert_eq!(request, Some((1, vec![run(50, LEAST_BLOCKS)])));
    assert_eq!(small, vec![run(10, LEAST_BLOCKS - 1)]);
    assert_eq!(d.report().passed_over_blocks, LEAST_BLOCKS - 1);
}

/// Edges that are no whole unit are in quarantine until the rest of their run is, and are no part
/// of the discard.
#[test]
fn requests_keep_to_the_units_of_the_storage() {
    let mut d = online(16);
    assert!(d.take(run(10, 40)) && d.take(run(60, 15)));
    let (request, small) = d.next();
    assert_eq!(request, Some((1, vec![run(16, 32)])));
    assert_eq!(small, vec![run(60, 15)]);
    assert_eq!(d.ended(1, 32, 0, false).unwrap().free, vec![run(10, 40)]);
}

#[test]
fn a_request_is_bounded() {
    let mut d = online(1);
    assert!(d.take(run(0, MOST_BLOCKS + 100)));
    assert_eq!(d.next().0, Some((1, vec![run(0, MOST_BLOCKS)])));
    d.ended(1, MOST_BLOCKS, 0, false).unwrap();
    assert_eq!(d.next().0, Some((2, vec![run(MOST_BLOCKS, 100)])));
    d.ended(2, 100, 0, false).unwrap();
    let many = (0..DISCARD_MAX_RUNS as u64 + 1).map(|i| run(i * 20, 10));
    assert!(many.into_iter().all(|r| d.take(r)));
    assert_eq!(d.next().0.map(|(_, runs)| runs.len()), Some(DISCARD_MAX_RUNS));
}

#[test]
fn what_waits_is_bounded() {
    let mut d = online(1);
    let ranges = (0..MOST_WAITING as u64).map(|i| run(i * 20, 10));
    assert!(ranges.into_iter().all(|r| d.take(r)));
    assert!(!d.take(run(MOST_WAITING as u64 * 20, 10)));
    assert_eq!(d.report().passed_over_blocks, 10);
}

#[test]
fn a_caller_without_space_gets_what_waits() {
    let mut d = online(1);
    assert!(d.take(run(10, 20)));
    let (request, _) = d.next();
    assert!(request.is_some() && d.take(run(100, 20)));
    assert_eq!(d.run_short(5), vec![run(100, 20)]);
    assert!(d.is_short() && !d.take(run(200, 20)), "what is freed now is wanted now");
    assert!(d.is_open(1), "what the Service is at must be waited for");
    d.forget_shortage(5 + SHORT_NS - 1);
    assert!(d.is_short());
    d.forget_shortage(5 + SHORT_NS);
    assert!(d.take(run(200, 20)));
}

#[test]
fn answers_that_cannot_be_are_refused() {
    let mut d = online(1);
    assert!(d.ended(1, 0, 0, false).is_err());
    assert!(d.take(run(10, 20)));
    d.next();
    assert!(d.ended(1, 21, 0, false).is_err());
    assert!(d.is_open(1), "a refused answer changed something");
    d.ended(1, 20, 0, false).unwrap();
    assert!(d.ended(1, 20, 0, false).is_err());
}

#[test]
fn storage_that_cannot_is_not_asked_again() {
    let mut d = online(1);
    assert!(d.take(run(10, 20)));
    d.next();
    assert!(d.take(run(100, 20)));
    let ended = d.ended(1, 0, 0, true).unwrap();
    assert_eq!((ended.free, ended.refused), (vec![run(10, 20), run(100, 20)], true));
    assert!(!d.take(run(10, 20)) && d.unit().is_none());
    assert_eq!(d.report().unit_bytes, 0);
}

#[test]
fn a_trims_requests_are_its_own() {
    let mut d = online(1);
    let id = d.depart(vec![run(500, 30)], true);
    assert!(d.take(run(10, 20)) && d.is_due(), "a trim is under way beside it");
    assert_eq!(d.take_trimmed(id), None);
    assert_eq!(d.ended(id, 30, 0, false).unwrap().free, vec![run(500, 30)]);
    let bytes = 30 * BLOCK_BYTES;
    let done = Trimmed { bytes, failed: 0, incomplete: false };
    assert_eq!((d.take_trimmed(id), d.take_trimmed(id)), (Some(done), None));
}
