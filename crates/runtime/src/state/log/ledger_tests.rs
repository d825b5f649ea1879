//! Tests of the way of a transaction, and of answers that cannot be true.

use super::*;

const RING: u64 = 64 * BLOCK_BYTES;

fn info(images: usize) -> TxnInfo {
    TxnInfo {
        images: (100..).take(images).collect(),
        overlays: vec![12],
        freed: Vec::new(),
        freed_inodes: vec![13],
        ops_cut: Lsn(7),
        journal_bytes: 8 * BLOCK_BYTES,
        lane_upto: vec![4096],
    }
}

/// A ledger in which transaction 4 was cut, and submitted if wished.
fn ledger(submitted: bool) -> Ledger {
    let mut ledger = Ledger::new(TxnSeq(3), RING, JournalData::Ref);
    ledger.cut(TxnSeq(4), info(2));
    if submitted {
        ledger.submitted(TxnSeq(4));
    }
    ledger
}

#[test]
fn a_transaction_is_cut_submitted_journaled_and_reclaimed() {
    let mut ledger = ledger(true);
    let seq = TxnSeq(4);
    assert!(ledger.is_durable(TxnSeq(3)) && !ledger.is_durable(seq));
    assert!(ledger.oldest_journaled().is_none() && ledger.journal_used() == 8 * BLOCK_BYTES);
    assert!(ledger.is_news(seq, 4 * BLOCK_BYTES, BLOCK_BYTES).unwrap());
    assert_eq!(ledger.journaled(seq, Some(4 * BLOCK_BYTES)), (vec![100, 101], Lsn(7)));
    assert!(ledger.is_durable(seq) && ledger.has_journaled());
    assert_eq!((ledger.oldest_journaled(), ledger.journal_used()), (Some(seq), 4 * BLOCK_BYTES));
    assert!(!ledger.is_news(seq, 4 * BLOCK_BYTES, BLOCK_BYTES).unwrap(), "it was said before");
    assert_eq!(ledger.unanswered(seq).unwrap(), []);
    assert_eq!(ledger.reclaimed(seq).flat_map(|info| info.freed_inodes).collect::<Vec<_>>(), [13]);
    assert!(ledger.is_empty() && ledger.is_durable(seq));
    assert_eq!((ledger.last_cut(), ledger.last_reclaimed()), (seq, seq));
    assert!(!ledger.is_news(seq, 4 * BLOCK_BYTES, BLOCK_BYTES).unwrap());
}

#[test]
fn credits_stand_for_answers_that_were_lost() {
    let mut ledger = ledger(true);
    ledger.cut(TxnSeq(5), info(0));
    ledger.submitted(TxnSeq(5));
    assert_eq!(ledger.unanswered(TxnSeq(5)).unwrap(), [TxnSeq(4), TxnSeq(5)]);
    assert_eq!(ledger.lane_upto(TxnSeq(5)), Some(&[4096][..]));
    assert_eq!(ledger.unanswered(TxnSeq(4)).unwrap(), [TxnSeq(4)]);
    assert_eq!(ledger.reclaimed(TxnSeq(4)).count(), 1);
    assert_eq!((ledger.len(), ledger.last_reclaimed()), (1, TxnSeq(4)));
    // Credits that come again give nothing back.
    assert_eq!(ledger.unanswered(TxnSeq(4)).unwrap(), []);
    assert_eq!((ledger.reclaimed(TxnSeq(4)).count(), ledger.last_reclaimed()), (0, TxnSeq(4)));
    assert!(ledger.lane_upto(TxnSeq(4)).is_none());
}

#[test]
fn answers_that_cannot_be_true_are_refused() {
    let (cut, sent) = (ledger(false), ledger(true));
    let bytes = 4 * BLOCK_BYTES;
    assert!(cut.is_news(TxnSeq(4), bytes, 0).is_err(), "not submitted");
    assert!(cut.unanswered(TxnSeq(4)).is_err(), "not submitted");
    assert!(sent.is_news(TxnSeq(5), bytes, 0).is_err(), "not cut");
    assert!(sent.unanswered(TxnSeq(5)).is_err(), "not cut");
    assert!(sent.is_news(TxnSeq(4), 9 * BLOCK_BYTES, 0).is_err(), "longer than it can be");
    assert!(sent.is_news(TxnSeq(4), bytes, 100).is_err(), "not at a block");
    assert!(sent.is_news(TxnSeq(4), bytes, RING - BLOCK_BYTES).is_err(), "across the ring's end");
    assert!(sent.is_news(TxnSeq(4), bytes, 5 * RING - 2 * BLOCK_BYTES).unwrap());
}
