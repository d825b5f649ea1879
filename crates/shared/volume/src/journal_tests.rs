use super::*;
use crate::test_util::*;
use siftfs_base::{Error, LaneId, Lsn};
use siftfs_device::{Device, MemDevice};
use siftfs_log::{CopyTag, StagedRef, Transaction};
use siftfs_log::{JournalData, JournalLayout, JournalParams, encode_transaction, place_record};
use std::sync::Arc;

struct Writer<'a> {
    dev: &'a MemDevice,
    end: u64,
    crc: u32,
    seq: u64,
}

impl Writer<'_> {
    fn append(&mut self, images: u64) -> u64 {
        let txn = Transaction {
            seq: TxnSeq(self.seq),
            lane_upto: vec![0],
            images: (0..images).collect(),
            image_data: vec![[self.seq as u8; BLOCK_SIZE].into(); images as usize],
            ..Default::default()
        };
        self.put(&txn, JournalData::Ref)
    }

    /// A transaction that repeats 5000 staged bytes.
    fn append_copy(&mut self) -> u64 {
        let txn = Transaction {
            seq: TxnSeq(self.seq),
            lane_upto: vec![8192],
            staged: vec![StagedRef { lane: LaneId(0), pos: 0, len: 8192, lsn: Lsn(1), crc: 0 }],
            copies: vec![CopyTag { source: 0, data_offset: 0, dst: 4096, len: 5000 }],
            images: vec![9],
            image_data: vec![[self.seq as u8; BLOCK_SIZE].into()],
            ..Default::default()
        };
        self.put(&txn, JournalData::Copy)
    }

    fn put(&mut self, txn: &Transaction, form: JournalData) -> u64 {
        let layout = JournalLayout::new(txn, form).unwrap();
        let pos = place_record(self.end, layout.len, RING).unwrap();
        let p = JournalParams { pos, prev_end: self.end, prev_crc: self.crc };
        let mut buf = vec![0; layout.len as usize];
        self.crc = encode_transaction(&KEY.journal(), &p, &layout, txn, &mut buf);
        self.dev.write(header().journal_offset + pos % RING, &buf, false).unwrap();
        self.end = pos + layout.len;
        self.seq += 1;
        pos
    }
}

fn scan(dev: &Arc<MemDevice>, tail: u64) -> Result<(Vec<u64>, JournalEnd, ReadCounts)> {
    let reader = storage(dev).journal_reader()?;
    let mut s = JournalScanner::new(&reader, KEY.journal(), tail, TxnSeq(1), Origin::Admin)?;
    let mut found = Vec::new();
    while let Some(r) = s.next_record()? {
        let seq = r.descriptor.txn.seq.0;
        assert!(r.images.iter().all(|b| *b == seq as u8));
        found.push(seq);
    }
    Ok((found, s.end(), s.counts()))
}

#[test]
fn committed_transactions_come_in_order_across_the_wrap() {
    for tail in (0..RING).step_by(4096) {
        let dev = Arc::new(volume());
        let mut w = Writer { dev: &dev, end: tail, crc: 0, seq: 1 };
        let before = w.end;
        [3, 0, 5, 1].iter().for_each(|n| {
            w.append(*n);
        });
        let (found, end, counts) = scan(&dev, tail).unwrap();
        assert_eq!((found, end.pos), (vec![1, 2, 3, 4], w.end), "tail {tail}");
        assert_eq!((end.last_crc, end.next_seq.0), (w.crc, 5));
        assert!(counts.record_bytes <= w.end - before && counts.bytes <= RING + 2 * BLOCK_BYTES);
    }
}

/// R4: a transaction without its commit, or with a torn image, is not there.
#[test]
fn r04_an_uncommitted_transaction_is_dropped() {
    for hurt in [100u64, 4096 + 9, 3 * 4096 + 9] {
        let dev = Arc::new(volume());
        let mut w = Writer { dev: &dev, end: 0, crc: 0, seq: 1 };
        w.append(1);
        let last = w.append(2);
        flip_at(&dev, header().journal_offset + last + hurt);
        let (found, end, _) = scan(&dev, 0).unwrap();
        assert_eq!((found, end.pos), (vec![1], last), "byte {hurt}");
    }
}

/// R4: the same with the data that a transaction repeats: descriptor, image, 5000 bytes, commit.
#[test]
fn r04_a_transaction_whose_data_is_torn_is_dropped() {
    for (hurt, there) in [(2 * 4096 + 9, false), (3 * 4096 + 903, false), (3 * 4096 + 904, true)] {
        let dev = Arc::new(volume());
        let mut w = Writer { dev: &dev, end: 0, crc: 0, seq: 1 };
        w.append_copy();
        let last = w.append_copy();
        assert_eq!(scan(&dev, 0).unwrap().0, vec![1, 2]);
        flip_at(&dev, header().journal_offset + last + hurt);
        // What fills the last block up means nothing.
        let expected = if there { vec![1, 2] } else { vec![1] };
        assert_eq!(scan(&dev, 0).unwrap().0, expected, "byte {hurt}");
    }
}

/// R14: the same in the middle is rot.
#[test]
fn r14_a_damaged_transaction_in_the_middle_is_an_error() {
    for hurt in [100u64, 4096 + 9, 3 * 4096 + 9] {
        let dev = Arc::new(volume());
        let mut w = Writer { dev: &dev, end: RING - 4096 * 5, crc: 0, seq: 1 };
        w.append(1);
        let middle = w.append(2);
        w.append(0);
        flip_at(&dev, header().journal_offset + (middle + hurt) % RING);
        let e = scan(&dev, RING - 4096 * 5).unwrap_err();
        assert!(matches!(&e, Error::Corrupt { .. }), "{e}");
        assert!(e.to_string().contains("lost committed metadata"), "{e}");
    }
}

#[test]
fn an_older_laps_transaction_is_not_taken_for_a_new_one() {
    let dev = Arc::new(volume());
    let mut w = Writer { dev: &dev, end: 0, crc: 0, seq: 1 };
    w.append(1);
    assert_eq!(scan(&dev, RING).unwrap().0, vec![0u64; 0]);
}
