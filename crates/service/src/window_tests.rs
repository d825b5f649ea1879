use super::*;
use crate::batch::{Batch, Committed, Part};
use crate::digested::NOTHING;
use crate::images::InodeTables;
use siftfs_base::{LaneId, Lsn, TxnSeq};
use siftfs_log::{CopyTag, Transaction};
use siftfs_wire::CheckpointReport;

const MIB: u64 = 1 << 20;
/// A record of 256 blocks, with its head.
const LONG: u64 = MIB + 8192;
/// A record of 16 blocks.
const SHORT: u64 = (16 + 1) * BLOCK_BYTES;

/// A batch of transactions, each with one record of `len` bytes whose blocks go to these places.
fn batch(txns: u64, len: u64, place: impl Fn(u64, u64) -> u64) -> Batch {
    let mut batch = Batch::light();
    let blocks = if len == LONG { 256 } else { 16 };
    for t in 0..txns {
        let copy = |b: u64| CopyTag {
            source: 0,
            data_offset: (b * BLOCK_BYTES) as u32,
            dst: place(t, b) * BLOCK_BYTES,
            len: BLOCK_SIZE as u32,
        };
        let (pos, lsn) = (t * 2 * MIB, Lsn(t + 1));
        let staged = StagedRef { lane: LaneId(0), pos, len: len as u32, lsn, crc: 0 };
        let txn = Transaction {
            seq: TxnSeq(t + 1),
            lane_upto: vec![(t + 1) * 2 * MIB],
            staged: vec![staged],
            copies: (0..blocks).map(copy).collect(),
            ..Transaction::default()
        };
        let committed =
            Committed { txn: &txn, digested: &NOTHING, images: &[], end: t * 8192, data: None };
        let mut report = CheckpointReport::default();
        batch.add(&InodeTables::default(), &committed, Part::Both, &mut report);
    }
    batch.seal();
    batch
}

/// Bytes of each window of a batch, of at most `limit` bytes, or `short`.
fn windows(batch: &mut Batch, limit: u64, short: u64) -> Vec<u64> {
    let (mut window, mut sizes) = (Window::default(), Vec::new());
    while batch.cursor < batch.pieces.len() {
        window.plan(batch, limit, short);
        sizes.push(window.bytes());
        batch.cursor += window.pieces();
    }
    sizes
}

/// What lies in its places as it was staged takes the same number of writes from short windows,
/// also when several files grow side by side.
#[test]
fn a_window_that_orders_nothing_is_short() {
    let mut in_order = batch(32, LONG, |t, b| t * 256 + b);
    assert_eq!(windows(&mut in_order, 16 * LONG, 4 * LONG), vec![4 * LONG; 8]);
    let mut files = batch(32, LONG, |t, b| (t % 4) * 100_000 + t / 4 * 256 + b);
    assert_eq!(windows(&mut files, 16 * LONG, 4 * LONG), vec![4 * LONG; 8]);
}

/// What neighbours in the area have far between them in the log comes together in a long window.
#[test]
fn a_window_that_brings_neighbours_together_is_long() {
    let mut woven = batch(64, SHORT, |t, b| b * 1000 + t);
    assert_eq!(windows(&mut woven, 32 * SHORT, 4 * SHORT), vec![32 * SHORT; 2]);
    // Files side by side, of which a short window has less than the longest write.
    let mut files = batch(64, SHORT, |t, b| (t % 4) * 100_000 + t / 4 * 16 + b);
    assert_eq!(windows(&mut files, 32 * SHORT, 4 * SHORT), vec![32 * SHORT; 2]);
}

/// Single blocks far apart are no fewer in a long window, but in the order of their places.
#[test]
fn scattered_blocks_are_sorted_over_a_long_window() {
    let mut scattered = batch(64, SHORT, |t, b| (t * 16 + b) * 7919 % 1031 * 3);
    let (limit, short) = (32 * SHORT, 4 * SHORT);
    assert!(short / LONG_WRITES > BLOCK_BYTES);
    assert_eq!(windows(&mut scattered, limit, short), vec![limit; 2]);
}

/// A change is noticed when a long window's bytes are through.
#[test]
fn each_long_window_is_judged_by_itself() {
    let weave = |t: u64, b: u64| if t < 16 { t * 256 + b } else { 9000 + b * 1000 + t };
    let mut mixed = batch(32, LONG, weave);
    let mut expected = vec![4 * LONG; 4];
    expected.push(16 * LONG);
    assert_eq!(windows(&mut mixed, 16 * LONG, 4 * LONG), expected);
}

/// Where the caller wants no more than a step, nothing is shortened.
#[test]
fn no_window_is_shorter_than_a_step() {
    let mut in_order = batch(16, LONG, |t, b| t * 256 + b);
    assert_eq!(windows(&mut in_order, 2 * LONG, 4 * LONG), vec![2 * LONG; 8]);
}

/// Neighbours are one write, up to the longest.
#[test]
fn writes_are_counted_as_they_are_made() {
    let work = |ranges: &[(u64, u64)]| -> Vec<Work> {
        let piece = |(start, len): &(u64, u64)| Piece {
            start: *start,
            len: *len as u32,
            source: crate::piece::Src::zero(0),
        };
        ranges.iter().map(|r| Work { piece: piece(r), at: 0 }).collect()
    };
    assert_eq!(writes(&[]), 0);
    assert_eq!(writes(&work(&[(8192, 4096), (0, 4096)])), 2);
    assert_eq!(writes(&work(&[(8192, 4096), (0, 8192)])), 1);
    assert_eq!(writes(&work(&[(0, MIB), (MIB, 4096)])), 2);
    assert_eq!(writes(&work(&[(0, MIB - 4096), (MIB - 4096, MIB)])), 2);
    assert_eq!(writes(&work(&[(0, 3 * MIB), (8 * MIB, 4096)])), 4);
}
