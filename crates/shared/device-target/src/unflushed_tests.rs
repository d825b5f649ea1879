use super::*;

fn written(offset: u64, len: u32) -> Written {
    Written { offset, len, blocks: vec![] }
}

fn places(of: &Unflushed) -> Vec<u64> {
    of.all().iter().map(|w| w.offset).collect()
}

#[test]
fn a_flush_lets_go_what_was_answered_before_it_began() {
    let mut kept = Unflushed::default();
    let (a, b) = (kept.keep(written(0, 10)), kept.keep(written(100, 10)));
    kept.answered(a, false);
    let covered = kept.covered(0);
    kept.answered(b, false);
    let c = kept.keep(written(200, 10));
    kept.flushed(&covered);
    assert_eq!((places(&kept), kept.bytes()), (vec![100, 200], 20));
    kept.answered(c, false);
    let covered = kept.covered(0);
    kept.flushed(&covered);
    assert_eq!((places(&kept), kept.bytes()), (vec![], 0));
}

#[test]
fn a_durable_write_goes_unless_an_older_one_would_come_over_it() {
    let mut kept = Unflushed::default();
    let old = kept.keep(written(0, 100));
    kept.answered(old, false);
    let beside = kept.keep(written(100, 10));
    kept.answered(beside, true);
    assert_eq!(places(&kept), [0]);
    let over = kept.keep(written(50, 10));
    kept.answered(over, true);
    assert_eq!(places(&kept), [0, 50]);
    let covered = kept.covered(0);
    kept.flushed(&covered);
    assert_eq!(places(&kept), []);
}

#[test]
fn what_was_refused_is_not_tried_again() {
    let mut kept = Unflushed::default();
    let (a, _) = (kept.keep(written(0, 10)), kept.keep(written(10, 5)));
    kept.refused(a);
    assert_eq!((places(&kept), kept.bytes()), (vec![10], 5));
}

/// A write whose answer was lost has ended, when one of a later group was answered: the flush that
/// covers that one covers it, too. Otherwise it would be written again, over the later one.
#[test]
fn a_flush_covers_what_has_ended_without_an_answer() {
    let mut kept = Unflushed::default();
    let (lost, late) = (written(0, 10), written(40, 10));
    kept.keep_request(lost, Some(5));
    let over = kept.keep_request(written(5, 10), Some(6));
    kept.keep_request(late, Some(7));
    kept.answered(over, false);
    let covered = kept.covered(6);
    kept.flushed(&covered);
    assert_eq!(places(&kept), [40]);
    let open: Vec<_> = kept.unanswered().into_iter().map(|(_, at, _)| at).collect();
    assert_eq!(open, [Some(7)]);
}
