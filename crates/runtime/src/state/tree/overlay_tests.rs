use super::*;
use crate::state::log::lane::Lane;
use siftfs_base::{BLOCK_BYTES, LaneId, Lsn};

fn record(lsn: u64) -> Arc<RecordRef> {
    let mut lane = Lane::new(8 * BLOCK_BYTES, 0);
    let place = lane.place(BLOCK_BYTES).expect("an empty lane has room");
    Arc::new(lane.fix(place, LaneId(0), Lsn(lsn), 0, 0))
}

/// Random inserts and removes agree with an array that says, per byte, which record and offset.
#[test]
fn agrees_with_a_naive_map() {
    let mut rng = siftfs_base::Rng::new(1);
    let mut next = move |n: u64| rng.below(n);
    for _ in 0..300 {
        let mut overlay = Overlay::default();
        let mut naive: Vec<Option<(u64, u64)>> = vec![None; 100];
        for lsn in 1..50 {
            let (a, b) = (next(100), next(101));
            let (s, e) = (a.min(b), a.max(b));
            match next(3) {
                0 => {
                    overlay.remove(s, e);
                    naive[s as usize..e as usize].fill(None);
                }
                _ => {
                    overlay.insert(s, e, Source::Staged { record: record(lsn), offset: 7 });
                    for i in s..e {
                        naive[i as usize] = Some((lsn, 7 + i - s));
                    }
                }
            }
            let mut seen: Vec<Option<(u64, u64)>> = vec![None; 100];
            for Part { start: s, end: e, source } in overlay.overlapping(0, 100) {
                let Source::Staged { record, offset } = source else { panic!("no zeroes here") };
                for i in s..e {
                    seen[i as usize] = Some((record.lsn.0, u64::from(offset) + i - s));
                }
            }
            assert_eq!(seen, naive);
            assert_eq!(overlay.unjournaled(), overlay.unjournaled_ranges().len());
        }
    }
}

#[test]
fn the_same_range_again_replaces_the_entry() {
    let mut overlay = Overlay::default();
    for txn in 1..4 {
        overlay.insert(10, 20, Source::Zero);
        overlay.insert(10, 20, Source::Staged { record: record(txn), offset: 0 });
        assert_eq!((overlay.unjournaled(), overlay.unjournaled_ranges().len()), (1, 1));
        overlay.mark_journaled(TxnSeq(txn));
        assert_eq!(overlay.unjournaled(), 0);
    }
    overlay.insert(10, 20, Source::Staged { record: record(9), offset: 5 });
    overlay.reclaimed(TxnSeq(3));
    let newest = Source::Staged { record: record(9), offset: 5 };
    assert_eq!(overlay.unjournaled_ranges(), [Part { start: 10, end: 20, source: newest }]);
}

#[test]
fn entries_leave_when_their_transaction_is_reclaimed() {
    let mut overlay = Overlay::default();
    overlay.insert(0, 10, Source::Zero);
    overlay.mark_journaled(TxnSeq(1));
    overlay.insert(4, 6, Source::Staged { record: record(9), offset: 0 });
    assert_eq!(overlay.unjournaled(), 1);
    overlay.reclaimed(TxnSeq(1));
    assert_eq!(overlay.unjournaled_ranges().len(), 1);
    overlay.mark_journaled(TxnSeq(2));
    assert_eq!(overlay.unjournaled(), 0);
    overlay.reclaimed(TxnSeq(2));
    assert!(overlay.is_empty());
}

#[test]
fn unjournaled_ranges_are_found_from_a_byte_on() {
    let mut o = Overlay::default();
    o.insert(0, 10, Source::Zero);
    o.mark_journaled(TxnSeq(1));
    o.insert(20, 30, Source::Zero);
    o.insert(40, 50, Source::Zero);
    let from = |byte| o.unjournaled_from(byte).collect::<Vec<_>>();
    for (byte, expected) in [(0, 2), (5, 2), (20, 2), (29, 2), (30, 1), (40, 1), (49, 1), (50, 0)] {
        assert_eq!(from(byte), [(20, 30), (40, 50)][2 - expected..], "from byte {byte}");
    }
}

/// A physical range belongs to its transaction at once, and needs a tag of it only when its home is
/// lost before the cut.
#[test]
fn physical_ranges_need_no_tags() {
    let staged = |lsn| Source::Staged { record: record(lsn), offset: 0 };
    let mut overlay = Overlay::default();
    overlay.insert_physical(0, 100, staged(1), TxnSeq(4));
    overlay.insert_physical(200, 300, staged(2), TxnSeq(3));
    overlay.insert(400, 500, staged(3));
    assert_eq!(overlay.unjournaled(), 1);
    overlay.insert(50, 60, staged(4));
    let unjournaled = |o: &Overlay| o.unjournaled_from(0).collect::<Vec<_>>();
    assert_eq!(unjournaled(&overlay), [(50, 60), (400, 500)]);
    assert_eq!(overlay.needs_tags(80, 600, TxnSeq(4)), [(60, 100)]);
    assert_eq!(unjournaled(&overlay), [(50, 60), (60, 100), (400, 500)]);
    overlay.mark_journaled(TxnSeq(4));
    overlay.insert_physical(50, 60, staged(5), TxnSeq(5));
    overlay.reclaimed(TxnSeq(4));
    let left: Vec<u64> = overlay.overlapping(0, 600).map(|part| part.start).collect();
    assert_eq!((left, overlay.unjournaled()), (vec![50], 0));
}
