//! The physical ranges of a transaction, read from the lane that its digest names (rule R42).

use crate::digested::Digested;
use crate::service::Service;
use siftfs_base::{Result, corrupt};
use siftfs_log::{EpochKey, Transaction};
use siftfs_volume::{LaneScanner, ScanData};
use siftfs_wire::CheckpointReport;

impl Service {
    /// Reads what `txn`, which was validated, digests: nothing if it has no digest.
    ///
    /// # Errors
    /// Corrupt if the records are not all there, are others than were meant, or name bytes outside
    /// the area.
    pub(crate) fn digested(
        &self,
        txn: &Transaction,
        lane_key: EpochKey,
        report: &mut CheckpointReport,
    ) -> Result<Digested> {
        let mut found = Digested::default();
        let Some(digest) = &txn.digest else { return Ok(found) };
        let what = || format!("transaction {}, digest of lane {}", txn.seq.0, digest.lane.0);
        let lane = usize::from(digest.lane.0);
        let (region, medium) = (&self.parts.lanes[lane], self.parts.mediums[lane]);
        let (from, upto) = (digest.from, txn.lane_upto[lane]);
        let (place, key) = ((digest.lane, medium), lane_key.lane(digest.lane));
        let mut scanner =
            LaneScanner::new(region, place, key, from, upto, ScanData::Skip, self.options.origin)?;
        let mut prev = None;
        while let Some(record) = scanner.next_record()? {
            let params = record.head.header.params;
            prev = prev.or(Some(params.prev_crc));
            if params.lsn > txn.staged_cut {
                return Err(corrupt(what(), "a record is newer than the transaction's cut"));
            }
            found.add(&record.head);
            if found.copies.len() > digest.ranges as usize {
                break;
            }
        }
        if prev != Some(digest.prev_crc) || found.copies.len() != digest.ranges as usize {
            return Err(corrupt(what(), "its records are others than were meant"));
        }
        if scanner.end().last_crc != digest.crc {
            return Err(corrupt(what(), "its last record is another one"));
        }
        let area = self.parts.area.len();
        if found.copies.iter().any(|c| c.dst > area || u64::from(c.len) > area - c.dst) {
            return Err(corrupt(what(), "a range lies outside the file-system area"));
        }
        report.reads += scanner.counts().reads;
        report.read_bytes += scanner.counts().bytes;
        Ok(found)
    }
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
