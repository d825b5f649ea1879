use crate::test_util::*;
use siftfs_base::{BLOCK_BYTES, Error, LaneId, Lsn, Result, TxnSeq};
use siftfs_device::{Device, MemDevice};
use siftfs_log::{Digest, Transaction};
use siftfs_wire::Urgency;

const LANE_ID: LaneId = LaneId(1);
const DST: u64 = 3 * BLOCK_BYTES + 100;

/// A transaction of one physical range, 600 bytes at `dst`.
fn digesting(d: &mut Driver, dst: u64) -> Transaction {
    d.stage_in(LANE_ID, &[7; 600], Some(dst)).unwrap();
    let digest = d.digest(LANE_ID, 1);
    d.seq += 1;
    let cut = d.next_lsn();
    Transaction {
        seq: TxnSeq(d.seq),
        ops_cut: cut,
        staged_cut: cut,
        lane_upto: d.cut(),
        digest,
        ..Transaction::default()
    }
}

/// The outcome of journaling and replaying a transaction that was `changed`, and what lies at
/// `dst`.
fn replayed(dst: u64, change: impl Fn(&mut Transaction, &MemDevice)) -> (Result<()>, u64, Vec<u8>) {
    let (mem, dev) = mem();
    let mut d = Driver::with(&dev, 1, COALESCE).unwrap();
    let mut txn = digesting(&mut d, dst);
    change(&mut txn, &mem);
    d.submit(&txn);
    d.pump();
    let journaled = d.service.statistics().journaled_transactions;
    d.checkpoint(u64::MAX, Urgency::Background);
    d.settle();
    let mut found = vec![0; 600];
    dev.read(dst.min(AREA - 600), &mut found).unwrap();
    (d.failed.clone().map_or(Ok(()), Err), journaled, found)
}

fn digest(txn: &mut Transaction) -> &mut Digest {
    txn.digest.as_mut().expect("made with one")
}

#[test]
fn physical_ranges_reach_their_blocks() {
    let (result, journaled, found) = replayed(DST, |_, _| {});
    result.unwrap();
    assert_eq!((journaled, found), (1, vec![7; 600]));
}

/// What cannot be seen before the records are read stops the checkpoint, and nothing is written.
#[test]
fn r42_other_records_than_were_meant_are_not_replayed() {
    let changes: [fn(&mut Transaction); 4] = [
        |txn| digest(txn).prev_crc ^= 1,
        |txn| digest(txn).crc ^= 1,
        |txn| digest(txn).ranges += 1,
        // The record is newer than the cut.
        |txn| (txn.ops_cut, txn.staged_cut) = (Lsn(100), Lsn(100)),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let (result, journaled, found) = replayed(DST, |txn, _| change(txn));
        assert!(matches!(result, Err(Error::Corrupt { .. })), "change {i}: {result:?}");
        assert_eq!((journaled, found), (1, vec![0; 600]), "change {i}");
    }
    let (result, _, found) = replayed(AREA - 100, |_, _| {});
    assert!(matches!(result, Err(Error::Corrupt { .. })), "outside the area: {result:?}");
    assert_eq!(found, [0; 600]);
}

/// A digest that does not begin where the transaction before ended is refused before it is
/// journaled.
#[test]
fn r42_a_digest_of_another_transaction_is_refused() {
    let (result, journaled, _) = replayed(DST, |txn, _| digest(txn).from += 64);
    assert!(result.is_err());
    assert_eq!(journaled, 0);
}

/// A record that rotted, in its head or in its data, is found before anything is written.
#[test]
fn r42_a_damaged_record_is_not_digested() {
    let at = |txn: &Transaction| AREA_END + txn.digest.as_ref().expect("made with one").from % LANE;
    for offset in [20, 130, 300] {
        let (result, journaled, found) = replayed(DST, |txn, mem| {
            let mut byte = [0];
            mem.read(at(txn) + offset, &mut byte).unwrap();
            mem.write(at(txn) + offset, &[byte[0] ^ 1], false).unwrap();
        });
        assert!(matches!(result, Err(Error::Corrupt { .. })), "byte {offset}: {result:?}");
        assert_eq!((journaled, found), (1, vec![0; 600]), "byte {offset}");
    }
}

/// Where the second lane begins.
const AREA_END: u64 = AREA + siftfs_log::HEADER_LEN + JOURNAL + LANE;

/// The reading is one of bounded memory: a digest that claims few ranges ends at the first too
/// many.
#[test]
fn r42_no_more_ranges_than_were_meant_are_kept() {
    let (_, dev) = mem();
    let mut d = Driver::with(&dev, 1, COALESCE).unwrap();
    for i in 0..20 {
        d.stage_in(LANE_ID, &[7; 10], Some(i * BLOCK_BYTES)).unwrap();
    }
    let txn = digesting(&mut d, DST);
    let mut report = Default::default();
    let err = d.service.digested(&txn, KEY, &mut report).unwrap_err();
    assert!(err.to_string().contains("others than were meant"), "{err}");
}
