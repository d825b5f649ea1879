//! Tests of the order of what is staged, and of credits.

use super::*;
use siftfs_base::BLOCK_BYTES;

const LEN: u64 = 64 * BLOCK_BYTES;

fn staging(lanes: usize) -> Staging {
    Staging::new(vec![Lane::new(LEN, 0); lanes], Lsn(5), Arc::default())
}

/// Stages a record of this many blocks; returns what it says of the one before it.
fn stage(staging: &mut Staging, lane: u16, blocks: u64) -> RecordParams {
    let lsn = staging.draw();
    let index = usize::from(lane);
    let place = staging.lanes()[index].place(blocks * BLOCK_BYTES).expect("there is room");
    let params = staging.next_record(index, &place, lsn, Lsn(0));
    let (offset, record) = staging.fix(place, LaneId(lane), lsn, 77, 64);
    assert_eq!((offset, record.pos, record.lsn), (params.pos % LEN, params.pos, lsn));
    params
}

/// Each record names the one before it in its lane, and the one before it of all lanes (rule R24).
#[test]
fn records_are_chained_by_lane_and_by_lsn() {
    let mut staging = staging(2);
    let first = stage(&mut staging, 0, 2);
    assert_eq!((first.lsn, first.prev_lsn, first.prev_end, first.prev_crc), (Lsn(6), Lsn(0), 0, 0));
    let other = stage(&mut staging, 1, 1);
    assert_eq!((other.prev_lsn, other.prev_end, other.prev_crc), (Lsn(6), 0, 0));
    let next = stage(&mut staging, 0, 1);
    assert_eq!((next.prev_lsn, next.prev_end, next.prev_crc), (Lsn(7), 2 * BLOCK_BYTES, 77));
    assert_eq!(staging.heads(), [3 * BLOCK_BYTES, BLOCK_BYTES]);
    assert_eq!(staging.used(), 4 * BLOCK_BYTES);
}

#[test]
fn lsns_only_grow() {
    let mut staging = staging(1);
    assert_eq!(staging.draw_above(Lsn(3)), Lsn(5));
    assert_eq!(staging.draw_above(Lsn(9)), Lsn(9));
    assert_eq!((staging.draw(), staging.last_drawn()), (Lsn(10), Lsn(10)));
}

#[test]
fn a_cut_is_due_after_a_quarter() {
    let mut staging = staging(2);
    assert!(!staging.is_uncut());
    for _ in 0..4 {
        stage(&mut staging, 1, 4);
    }
    assert!(staging.is_uncut() && !staging.is_cut_due() && staging.fill_percent() == 25);
    stage(&mut staging, 1, 1);
    assert!(staging.is_cut_due());
    assert_eq!(staging.cut(0), None);
    assert!(!staging.is_uncut() && !staging.is_cut_due());
}

/// A cut's digest begins where the one before ended, and says which chain of records it means.
#[test]
fn digests_follow_each_other() {
    let area = Lane::on(LaneMedium::Bytes, 16 * BLOCK_BYTES, 0);
    let lanes = vec![Lane::new(16 * BLOCK_BYTES, 0), area];
    let mut staging = Staging::new(lanes, Lsn(5), Arc::default());
    let lane = LaneId(1);
    stage(&mut staging, 1, 1);
    let first = Digest { lane, from: 0, prev_crc: 0, crc: 77, ranges: 2 };
    assert_eq!(staging.cut(2), Some(first));
    stage(&mut staging, 1, 1);
    assert_eq!(staging.cut(0), None, "a record without physical ranges");
    stage(&mut staging, 1, 1);
    let third = Digest { lane, from: 2 * BLOCK_BYTES, prev_crc: 77, crc: 77, ranges: 1 };
    assert_eq!(staging.cut(1), Some(third));
}

#[test]
fn credits_beyond_what_was_taken_are_refused() {
    let mut staging = staging(2);
    stage(&mut staging, 0, 4);
    let taken = [2 * BLOCK_BYTES, 0];
    let taken = Some(&taken[..]);
    assert!(staging.check_credits(&[2 * BLOCK_BYTES], taken).is_err(), "there are two lanes");
    assert!(staging.check_credits(&[3 * BLOCK_BYTES, 0], taken).is_err());
    assert!(staging.check_credits(&[BLOCK_BYTES, 0], None).is_err(), "it is reclaimed already");
    staging.check_credits(&[2 * BLOCK_BYTES, 0], taken).unwrap();
    staging.reclaimed(&[2 * BLOCK_BYTES, 0]);
    assert_eq!(staging.used(), 2 * BLOCK_BYTES);
    staging.check_credits(&[2 * BLOCK_BYTES, 0], None).unwrap();
}
