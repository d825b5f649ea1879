//! Replaying what a dead epoch left in the journal (rule R18, first step).

use crate::batch::{Batch, Committed};
use crate::blocks::Io;
use crate::checkpoint::ORDERED_WINDOW;
use crate::mode::{Budget, ReplayMode};
use crate::replay::Replay;
use crate::service::{Newest, Service};
use siftfs_base::{Lsn, Result, TxnSeq};
use siftfs_log::{EpochKey, ServiceRecord};
use siftfs_volume::{JournalScanner, ReadCounts};
use siftfs_wire::CheckpointReport;

/// What [`Service::replay_committed`] found and did.
#[derive(Clone, Debug)]
pub struct ReplaySummary {
    /// Committed transactions replayed.
    pub transactions: u64,
    /// Everything up to this LSN is in the area's metadata.
    pub ops_cut: Lsn,
    /// Staged transactions up to this LSN are in the area.
    pub staged_cut: Lsn,
    /// Sequence number of the next transaction.
    pub next_seq: TxnSeq,
    /// Journal reads; each journal byte is read once.
    pub journal: ReadCounts,
    /// What the replay did.
    pub report: CheckpointReport,
}

impl Service {
    /// Replays every committed transaction that `journal_key`'s epoch left, flushes the area,
    /// and makes the journal durably empty. Uncommitted transactions are dropped. Running it
    /// again, or after a crash inside it, gives the same area. With nothing to replay, nothing
    /// is written.
    ///
    /// # Errors
    /// Corrupt if journal or staged records fail their checks, or a committed transaction
    /// rotted (rule R14); the Service has latched it.
    pub fn replay_committed(
        &mut self,
        journal_key: EpochKey,
        lane_key: EpochKey,
    ) -> Result<ReplaySummary> {
        self.check_latched()?;
        assert!(self.pending.is_empty(), "recovery precedes service");
        let summary = self.replay_all(journal_key, lane_key);
        self.latch(summary.as_ref().map(|_| ()).map_err(Clone::clone));
        summary
    }

    fn replay_all(&mut self, journal_key: EpochKey, lane_key: EpochKey) -> Result<ReplaySummary> {
        let start = self.options.clock.mono_ns();
        let mut report = CheckpointReport::default();
        let mut replay = std::mem::take(&mut self.replay);
        let origin = self.origin;
        let (tail, next_seq) = (self.durable.journal_tail, self.durable.next_seq);
        let mut scanner = JournalScanner::new(
            &self.parts.journal,
            journal_key.journal(),
            tail,
            next_seq,
            origin,
        )?;
        let mut newest = Newest::of_record(&self.durable);
        let (mut batch, mut transactions) = (Batch::coalescing(), 0);
        let budget = Budget::new(self.options.memory, self.options.window_bytes);
        while let Some(record) = scanner.next_record()? {
            self.validate(&record.descriptor.txn, &newest)?;
            self.validate_form(&record.descriptor)?;
            let digested = self.digested(&record.descriptor.txn, lane_key, &mut report)?;
            let committed = Committed::new(&record, &digested);
            newest = Newest::of_txn(committed.txn);
            let ordered = self.options.mode == ReplayMode::Ordered;
            for part in committed.parts(ordered) {
                batch.add(&self.options.inode_tables, &committed, *part, &mut report);
                if ordered || batch.memory() >= budget.batch {
                    self.replay_batch(&mut replay, &mut batch, lane_key, &mut report)?;
                }
            }
            transactions += 1;
        }
        self.replay_batch(&mut replay, &mut batch, lane_key, &mut report)?;
        let (end, counts) = (scanner.end(), scanner.counts());
        if end.transactions > 0 {
            self.parts.area.flush(origin)?;
            let record = ServiceRecord {
                epoch: journal_key.epoch,
                journal_tail: end.pos,
                next_seq: end.next_seq,
                ops_cut: newest.ops_cut,
                staged_cut: newest.staged_cut,
                lane_tails: newest.lane_upto.clone(),
                ..self.durable.clone()
            };
            self.write_record(record)?;
            report.flushes += 2;
        }
        report.batch += transactions;
        report.reads += counts.reads;
        report.read_bytes += counts.bytes;
        report.nanos = self.options.clock.mono_ns().saturating_sub(start);
        (self.replay, self.head, self.newest) = (replay, end.pos, newest);
        self.stats.checkpoint_total.add(&report);
        Ok(ReplaySummary {
            transactions: end.transactions,
            ops_cut: self.durable.ops_cut,
            staged_cut: self.durable.staged_cut,
            next_seq: self.durable.next_seq,
            journal: counts,
            report,
        })
    }

    /// Replays what was added to the batch, and empties it.
    fn replay_batch(
        &self,
        replay: &mut Replay,
        batch: &mut Batch,
        lane_key: EpochKey,
        report: &mut CheckpointReport,
    ) -> Result<()> {
        let budget = Budget::new(self.options.memory, self.options.window_bytes);
        let window = match self.options.mode {
            ReplayMode::Ordered => ORDERED_WINDOW,
            ReplayMode::Coalesce | ReplayMode::Auto => budget.window,
        };
        let coalesced = self.options.mode != ReplayMode::Ordered && batch.len() > 0;
        report.coalesced_batches += u64::from(coalesced);
        let map = batch.seal();
        let mut io = Io {
            area: &self.parts.area,
            journal: &self.parts.journal,
            lanes: &self.parts.lanes,
            lane_key,
            origin: self.origin,
            report,
        };
        replay.run(&mut io, &*self.options.clock, batch, window)?;
        // A large map's memory is given back, for the next batch is as large again.
        let small = map.filter(|m| m.memory() < 1 << 20);
        batch.restart(small);
        Ok(())
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
