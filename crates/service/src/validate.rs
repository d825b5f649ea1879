//! What a transaction must be before anything of it is believed, whether a Runtime sent it or
//! the journal holds it.

use crate::service::{Newest, Service};
use siftfs_base::{BLOCK_BYTES, BlockRun, Error, Result, TxnSeq, corrupt};
use siftfs_log::Transaction;
use siftfs_log::{Descriptor, JournalData, check_transaction};
use siftfs_wire::{DIRECT_MAX_BLOCKS, DirectRun};

fn bad(txn: &Transaction, why: impl Into<String>) -> Error {
    corrupt(format!("transaction {}", txn.seq.0), why)
}

impl Service {
    /// Checks `txn` against the volume's geometry, the transaction before it, and the lanes'
    /// unreclaimed windows.
    pub(crate) fn validate(&self, txn: &Transaction, before: &Newest) -> Result<()> {
        check_transaction(txn)?;
        if txn.seq.0 != before.seq.0 + 1 {
            return Err(bad(txn, format!("follows transaction {}", before.seq.0)));
        }
        if txn.ops_cut < before.ops_cut || txn.staged_cut < before.staged_cut {
            return Err(bad(txn, "its cut is older than its predecessor's"));
        }
        self.validate_lanes(txn, before)?;
        self.validate_area(txn)
    }

    /// Checks that a transaction found in the journal holds what the volume's header says.
    pub(crate) fn validate_form(&self, d: &Descriptor) -> Result<()> {
        let (found, expected) = (d.header.layout.form, self.options.journal_data);
        if found == expected {
            return Ok(());
        }
        Err(bad(&d.txn, format!("its data is journaled as {found}, the header says {expected}")))
    }

    fn validate_lanes(&self, txn: &Transaction, before: &Newest) -> Result<()> {
        let lanes = &self.parts.lanes;
        if txn.lane_upto.len() != lanes.len() {
            return Err(bad(txn, "another number of lanes than the volume has"));
        }
        for (i, upto) in txn.lane_upto.iter().enumerate() {
            let (tail, ring) = (self.durable.lane_tails[i], lanes[i].len());
            if *upto < before.lane_upto[i] || *upto - tail > ring {
                return Err(bad(txn, format!("position {upto} is not in lane {i}'s window")));
            }
        }
        if let Some(d) = &txn.digest {
            // `check_transaction` made sure that the lane exists.
            if d.from != before.lane_upto[usize::from(d.lane.0)] {
                return Err(bad(txn, "digests records of another transaction"));
            }
            if self.options.journal_data != JournalData::Ref {
                return Err(bad(
                    txn,
                    "digests records, and the header says that the journal repeats them",
                ));
            }
        }
        for s in &txn.staged {
            // `check_transaction` made sure that the lane exists and the record ends by its upto.
            let lane = usize::from(s.lane.0);
            let (tail, ring) = (self.durable.lane_tails[lane], lanes[lane].len());
            let len = u64::from(s.len);
            let medium = self.parts.mediums[lane];
            let most = medium.max_record_len(ring);
            let inside = s.pos >= tail && s.pos % ring + len <= ring && len <= most;
            let whole = s.pos.is_multiple_of(medium.unit()) && len.is_multiple_of(medium.unit());
            if !inside || !whole || s.lsn > txn.staged_cut {
                return Err(bad(txn, format!("staged record {} is not in its lane", s.lsn.0)));
            }
        }
        Ok(())
    }

    fn validate_area(&self, txn: &Transaction) -> Result<()> {
        let len = self.parts.area.len();
        let blocks = len / BLOCK_BYTES;
        let tag_ok = |dst: u64, n: u32| dst + u64::from(n) <= len;
        let run_ok = |r: &BlockRun| r.end() <= blocks;
        let inside = txn.zeros.iter().all(|z| tag_ok(z.dst, z.len))
            && txn.copies.iter().all(|c| tag_ok(c.dst, c.len))
            && txn.images.last().is_none_or(|b| *b < blocks)
            && txn.drops.iter().all(run_ok)
            && txn.direct.iter().all(run_ok);
        if inside { Ok(()) } else { Err(bad(txn, "names bytes outside the file-system area")) }
    }

    /// Checks the payload that only a message carries.
    pub(crate) fn validate_payload(&self, txn: &Transaction) -> Result<()> {
        if txn.image_data.len() != txn.images.len() {
            return Err(bad(txn, "its image data is not one block per image"));
        }
        if txn.direct != self.direct {
            return Err(bad(txn, "its direct runs are not those whose data was sent"));
        }
        Ok(())
    }

    /// Checks data sent ahead of transaction `seq`.
    pub(crate) fn validate_direct(&self, seq: TxnSeq, runs: &[DirectRun]) -> Result<()> {
        let bad = |why: &str| Err(corrupt(format!("data of transaction {}", seq.0), why));
        if seq.0 != self.newest.seq.0 + 1 {
            return bad("it is not the next transaction");
        }
        let blocks = self.parts.area.len() / BLOCK_BYTES;
        let sent: usize = runs.iter().map(|r| r.data.len()).sum();
        if sent > DIRECT_MAX_BLOCKS {
            return bad("it is more than one message may carry");
        }
        for DirectRun { run, data } in runs {
            let end = run.start.checked_add(run.len).filter(|end| *end <= blocks);
            if run.len == 0 || end.is_none() || run.len != data.len() as u64 {
                return bad("a run is empty, outside the area, or not as long as its data");
            }
        }
        Ok(())
    }
}
