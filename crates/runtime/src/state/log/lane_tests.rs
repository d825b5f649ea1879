use super::*;

fn fix(lane: &mut Lane, lsn: u64, len: u64) {
    let place = lane.place(len).expect("there is room");
    let head = place.end();
    let record = lane.fix(place, LaneId(0), Lsn(lsn), lsn as u32, 64);
    assert_eq!((record.pos + u64::from(record.len), lane.head), (head, head));
}

fn position(lane: &Lane, len: u64) -> Option<u64> {
    lane.place(len).map(|p| p.pos())
}

#[test]
fn the_last_quarter_is_for_fsyncs() {
    let mut lane = Lane::new(64 * BLOCK_BYTES, 0);
    assert!(!lane.would_crowd(48 * BLOCK_BYTES) && lane.would_crowd(49 * BLOCK_BYTES));
    assert!(!lane.is_crowded());
    fix(&mut lane, 1, 41 * BLOCK_BYTES);
    assert!(lane.is_crowded(), "the longest record has eight blocks");
    assert_eq!(position(&lane, 8 * BLOCK_BYTES), Some(41 * BLOCK_BYTES), "an fsync's has room");
    lane.reclaim(BLOCK_BYTES);
    assert!(!lane.is_crowded());
}

#[test]
fn wraps_with_a_gap_and_keeps_the_sentinel() {
    let block = BLOCK_BYTES;
    let mut lane = Lane::new(8 * block, 0);
    assert_eq!(position(&lane, 7 * block), Some(0));
    assert_eq!(position(&lane, 8 * block), None, "the sentinel block is never used");
    fix(&mut lane, 1, 6 * block);
    assert_eq!(position(&lane, 2 * block), None);
    lane.reclaim(100 * block);
    assert_eq!(lane.tail, 6 * block, "over-release is clamped");
    assert_eq!(position(&lane, 3 * block), Some(8 * block), "a record never crosses the end");
    fix(&mut lane, 2, 3 * block);
    assert_eq!(lane.used(), 5 * block);
    assert_eq!(lane.fill(), 0.625);
    assert_eq!(position(&lane, 2 * block), Some(11 * block));
    assert_eq!(position(&lane, 3 * block), None);
}

#[test]
fn what_is_kept_free_has_room_for_one_record_alone() {
    let block = BLOCK_BYTES;
    let mut lane = Lane::new(16 * block, 0);
    assert!(lane.keep(4 * block));
    assert!(lane.keep(block), "less is kept already");
    fix(&mut lane, 1, 11 * block);
    assert_eq!(position(&lane, block), None, "the rest is kept");
    assert_eq!(lane.place_kept(2 * block).map(|place| place.pos()), Some(11 * block));
    assert!(!lane.keep(5 * block), "there is no room for more");
    lane.reclaim(block);
    assert!(lane.keep(5 * block));
}
