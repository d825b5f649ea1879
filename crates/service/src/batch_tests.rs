use super::*;
use siftfs_base::LaneId;
use siftfs_wire::{CopyTag, ZeroTag};

const MIB: u64 = 1 << 20;

fn staged(lsn: u64) -> StagedRef {
    StagedRef { lane: LaneId(0), pos: lsn * MIB, len: 1 << 20, lsn: Lsn(lsn), crc: 0 }
}

/// A transaction with one staged record whose data goes to these blocks, one after the other.
fn txn(seq: u64, blocks: &[u64]) -> Transaction {
    let tag = |(i, b): (u32, &u64)| CopyTag {
        source: 0,
        data_offset: i * 4096,
        dst: b * BLOCK_BYTES,
        len: 4096,
    };
    Transaction {
        seq: TxnSeq(seq),
        lane_upto: vec![seq * MIB],
        staged: vec![staged(seq)],
        copies: (0..).zip(blocks).map(tag).collect(),
        ..Transaction::default()
    }
}

fn image(txn: &mut Transaction, block: u64) -> Vec<u8> {
    txn.images.push(block);
    vec![txn.seq.0 as u8; BLOCK_SIZE]
}

fn add(batch: &mut Batch, txn: &Transaction, images: &[u8]) -> CheckpointReport {
    let mut report = CheckpointReport::default();
    batch.add(&InodeTables::default(), txn, images, txn.seq.0 * 8192, &mut report);
    report
}

/// What is left, as (first block, blocks, transaction), by destination.
fn left(batch: &mut Batch) -> Vec<(u64, u64, u32)> {
    batch.seal();
    let mut all: Vec<_> = batch
        .pieces
        .iter()
        .map(|p| (p.start / BLOCK_BYTES, u64::from(p.len) / BLOCK_BYTES, batch.txn_of(p)))
        .collect();
    all.sort_unstable();
    all
}

fn both() -> [Batch; 2] {
    [Batch::coalescing(), Batch::light()]
}

#[test]
fn the_last_transaction_wins_and_runs_join() {
    for mut batch in both() {
        add(&mut batch, &txn(1, &[10, 11, 12, 13]), &[]);
        add(&mut batch, &txn(2, &[11, 12]), &[]);
        assert_eq!(left(&mut batch), [(10, 1, 0), (11, 2, 1), (13, 1, 0)]);
    }
}

/// R22: freed blocks are dropped with everything older, and only that.
#[test]
fn r22_drops_kill_what_is_older() {
    for mut batch in both() {
        add(&mut batch, &txn(1, &[10, 11, 12, 13]), &[]);
        let freed = BlockRun { start: 11, len: 2 };
        add(&mut batch, &Transaction { drops: vec![freed], ..txn(2, &[]) }, &[]);
        add(&mut batch, &txn(3, &[12]), &[]);
        assert_eq!(left(&mut batch), [(10, 1, 0), (12, 1, 2), (13, 1, 0)]);
    }
}

/// R20: a direct run's bytes are in the area already.
#[test]
fn r20_direct_runs_kill_what_is_older() {
    for mut batch in both() {
        let mut one = txn(1, &[10, 11]);
        let bytes = image(&mut one, 20);
        add(&mut batch, &one, &bytes);
        let direct = vec![BlockRun { start: 11, len: 10 }];
        add(&mut batch, &Transaction { direct, ..txn(2, &[]) }, &[]);
        assert_eq!(left(&mut batch), [(10, 1, 0)]);
    }
}

#[test]
fn images_fold_and_staged_state_comes_before_them() {
    for mut batch in both() {
        for seq in 1..=3 {
            let mut t = txn(seq, if seq == 2 { &[30] } else { &[] });
            let bytes = image(&mut t, 30);
            add(&mut batch, &t, &bytes);
        }
        assert_eq!(left(&mut batch), [(30, 1, 2)]);
        let Origin::Image { slot, .. } = batch.pieces[0].source.origin() else { panic!() };
        assert_eq!(batch.images.data(slot)[..2], [3, 3]);
    }
}

/// A later tag covers a part of an image, whichever collector holds them.
#[test]
fn a_tag_over_an_image_leaves_the_rest_of_it() {
    for mut batch in both() {
        let mut t = txn(1, &[]);
        let bytes = image(&mut t, 30);
        add(&mut batch, &t, &bytes);
        let zero = ZeroTag { dst: 30 * BLOCK_BYTES + 100, len: 50 };
        add(&mut batch, &Transaction { zeros: vec![zero], ..txn(2, &[]) }, &[]);
        batch.seal();
        let lens: Vec<u32> = batch.pieces.iter().map(|p| p.len).collect();
        assert_eq!(lens, [100, BLOCK_SIZE as u32 - 150, 50], "the older transaction first");
    }
}

/// R11: a transaction is reclaimable when no piece of it or an older one is left.
#[test]
fn r11_reclaiming_follows_the_cursor() {
    let mut batch = Batch::coalescing();
    for seq in 1..=4 {
        add(&mut batch, &txn(seq, &[seq * 10]), &[]);
    }
    add(&mut batch, &txn(5, &[10, 20]), &[]);
    batch.seal();
    // The first two have nothing left.
    let (end, count) = batch.reclaim().unwrap();
    assert_eq!((end.seq, end.pos, count), (TxnSeq(2), 2 * 8192, 2));
    assert!(batch.reclaim().is_none() && !batch.is_done());
    batch.cursor = 2;
    assert_eq!(batch.reclaim().unwrap().1, 2);
    batch.cursor = batch.pieces.len();
    let (end, count) = batch.reclaim().unwrap();
    assert_eq!((end.lane_upto, count), (vec![5 * MIB], 1));
    assert!(batch.is_done());
}

#[test]
fn memory_is_counted() {
    for mut batch in both() {
        let mut t = txn(1, &(0..50_000).map(|b| 2 * b).collect::<Vec<_>>());
        t.copies.iter_mut().for_each(|c| c.data_offset = 0);
        add(&mut batch, &t, &[]);
        let open = batch.memory();
        batch.seal();
        let pieces = 50_000 * size_of::<Piece>() as u64;
        assert!((pieces..open).contains(&batch.memory()), "{open}, then {}", batch.memory());
    }
}
