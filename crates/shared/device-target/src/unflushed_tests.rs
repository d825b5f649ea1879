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
    let covered = kept.covered();
    kept.answered(b, false);
    let c = kept.keep(written(200, 10));
    kept.flushed(&covered);
    assert_eq!((places(&kept), kept.bytes()), (vec![100, 200], 20));
    kept.answered(c, false);
    let covered = kept.covered();
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
    let covered = kept.covered();
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
