use super::*;
use crate::digested::NOTHING;
use siftfs_base::LaneId;
use siftfs_log::{CopyTag, ZeroTag};

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
    let committed =
        Committed { txn, digested: &NOTHING, images, end: txn.seq.0 * 8192, data: None };
    batch.add(&InodeTables::default(), &committed, Part::Both, &mut report);
    report
}

/// Checksums of `len` bytes that are never read.
fn sums(len: u64) -> DataSums {
    let sums = vec![0; len.div_ceil(DATA_CHUNK as u64) as usize];
    DataSums::new(&siftfs_log::LogKey::default(), len as u32, sums.into()).unwrap()
}

/// Pieces by destination: first block, blocks, where from (lane or journal), position, offset.
fn sources(batch: &Batch) -> Vec<(u64, u64, &str, u64, u32)> {
    let mut all: Vec<_> = batch
        .pieces
        .iter()
        .map(|p| {
            let Origin::Staged { record, offset } = p.source.origin() else { panic!("{p:?}") };
            let (what, pos) = match batch.record(record) {
                Place::Lane(s) => ("lane", s.pos),
                Place::Journal(r) => ("journal", r.pos),
            };
            (p.start / BLOCK_BYTES, u64::from(p.len) / BLOCK_BYTES, what, pos, offset)
        })
        .collect();
    all.sort_unstable();
    all
}

/// SIFT §5.1.3: with a map, staged ranges die under their repetition in the journal; without one
/// they are not added; `ordered` has each by itself.
#[test]
fn the_journals_repetition_wins_over_staged_state() {
    let t = txn(1, &[10, 20, 30]);
    let sums = sums(3 * BLOCK_BYTES);
    let committed = Committed {
        txn: &t,
        digested: &NOTHING,
        images: &[],
        end: 1 << 20,
        data: Some((40960, &sums)),
    };
    assert_eq!(committed.parts(false), [Part::Both]);
    assert_eq!(committed.parts(true), [Part::Staged, Part::Journaled]);
    let journal = [
        (10, 1, "journal", 40960, 0),
        (20, 1, "journal", 40960, 4096),
        (30, 1, "journal", 40960, 8192),
    ];
    for mut batch in both() {
        let mut report = CheckpointReport::default();
        batch.add(&InodeTables::default(), &committed, Part::Both, &mut report);
        assert_eq!((report.staged, report.raw_tags, report.raw_blocks), (1, 6, 6));
        batch.seal();
        assert_eq!(sources(&batch), journal);
    }
    let mut batch = Batch::coalescing();
    let mut report = CheckpointReport::default();
    batch.add(&InodeTables::default(), &committed, Part::Staged, &mut report);
    batch.seal();
    let staged = [(10, 1, "lane", MIB, 0), (20, 1, "lane", MIB, 4096), (30, 1, "lane", MIB, 8192)];
    assert_eq!(sources(&batch), staged);
    batch.restart(None);
    batch.add(&InodeTables::default(), &committed, Part::Journaled, &mut report);
    batch.seal();
    assert_eq!(sources(&batch), journal);
    assert_eq!((report.staged, report.raw_tags, report.raw_blocks), (1, 6, 6));
}

/// R22: what is freed later takes both representations along.
#[test]
fn r22_drops_kill_the_repetition_too() {
    for mut batch in both() {
        let (t, sums) = (txn(1, &[10, 11]), sums(2 * BLOCK_BYTES));
        let c = Committed {
            txn: &t,
            digested: &NOTHING,
            images: &[],
            end: 8192,
            data: Some((4096, &sums)),
        };
        let mut report = CheckpointReport::default();
        batch.add(&InodeTables::default(), &c, Part::Both, &mut report);
        let drops = vec![BlockRun { start: 10, len: 1 }];
        add(&mut batch, &Transaction { drops, ..txn(2, &[]) }, &[]);
        assert_eq!(left(&mut batch), [(11, 1, 0)]);
    }
}

/// A window holds at least one record: a long data section is several, and a tag's bytes may lie in
/// two.
#[test]
fn a_long_data_section_is_cut_into_records() {
    const SECTION: u64 = (REPEATED_CHUNKS * DATA_CHUNK) as u64;
    let len = 2 * SECTION + 3 * BLOCK_BYTES;
    let tag = |dst: u64, len: u64| CopyTag { source: 0, data_offset: 0, dst, len: len as u32 };
    let t = Transaction {
        copies: vec![
            tag(0, SECTION - BLOCK_BYTES),
            tag(2 * SECTION, SECTION + 2 * BLOCK_BYTES),
            tag(4 * SECTION, 2 * BLOCK_BYTES),
        ],
        ..txn(1, &[])
    };
    let sums = sums(len);
    let c = Committed { txn: &t, digested: &NOTHING, images: &[], end: 0, data: Some((0, &sums)) };
    let mut batch = Batch::coalescing();
    batch.add(&InodeTables::default(), &c, Part::Both, &mut CheckpointReport::default());
    let open = batch.memory();
    assert!(open >= (len / BLOCK_BYTES) * 4, "checksums are counted: {open}");
    batch.seal();
    let block = |bytes| bytes / BLOCK_BYTES;
    let expected = [
        (0, block(SECTION) - 1, "journal", 0, 0),
        (block(2 * SECTION), 1, "journal", 0, (SECTION - BLOCK_BYTES) as u32),
        (block(2 * SECTION) + 1, block(SECTION), "journal", SECTION, 0),
        (block(3 * SECTION) + 1, 1, "journal", 2 * SECTION, 0),
        (block(4 * SECTION), 2, "journal", 2 * SECTION, 4096),
    ];
    assert_eq!(sources(&batch), expected);
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
