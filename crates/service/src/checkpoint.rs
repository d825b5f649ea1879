//! Checkpointing and reclamation in bounded steps.

use crate::batch::{Batch, Committed, TxnEnd};
use crate::mode::{Budget, ReplayMode};
use crate::reuse;
use crate::service::{Journaled, Replaying, Service};
use siftfs_base::{BLOCK_BYTES, Result, TxnSeq, corrupt};
use siftfs_device::{AlignedBuf, ReadOp};
use siftfs_log::{COPY_TAG_BYTES, JournalRecord, LogKey, ServiceRecord, decode_journal_head};
use siftfs_wire::{CheckpointReport, FromService, Urgency};

/// A reading buffer longer than this is given back after a step.
const KEEP_BUF: usize = 1 << 20;
/// Journal records read together, in bytes, unless one is longer.
const JOURNAL_READ: u64 = 1 << 20;
/// Read window of `ordered`: the longest staged record.
pub(crate) const ORDERED_WINDOW: u64 = siftfs_log::MAX_RECORD_LEN;
/// A transaction in a batch takes at most this many times its journal record, which holds 24 bytes
/// per tag.
const GROWTH: u64 = 4;

impl Journaled {
    /// Bytes of the record that are read to index it, and as many more as tags for the physical
    /// ranges would have.
    fn indexed(&self) -> u64 {
        let digested = u64::from(self.digested) * COPY_TAG_BYTES;
        self.len - (self.data.end - self.data.start) + digested
    }
}

/// A journal record as it was read: its head and its commit block, without the data between.
struct Indexed {
    seq: TxnSeq,
    pos: u64,
    len: u64,
    head: u64,
}

/// Journal records as they were read, one behind the other.
struct JournalRead {
    buf: AlignedBuf,
    entries: Vec<Indexed>,
}

impl JournalRead {
    /// The records, verified.
    fn records<'a>(&'a self, key: &'a LogKey) -> impl Iterator<Item = Result<JournalRecord<'a>>> {
        let mut rest = &self.buf[..];
        self.entries.iter().map(move |e| {
            let (head, more) = rest.split_at(e.head as usize);
            let (commit, more) = more.split_at(BLOCK_BYTES as usize);
            rest = more;
            let what = || format!("journal record of transaction {}", e.seq.0);
            let record = decode_journal_head(head, commit, key, e.pos, e.len);
            let record = record.map_err(|e| e.into_error(what()))?;
            let h = &record.descriptor.header;
            let same = h.seq == e.seq && h.layout.len == e.len && h.layout.data_offset == e.head;
            match same {
                true => Ok(record),
                false => Err(corrupt(what(), "another transaction lies there")),
            }
        })
    }
}

impl Service {
    /// Answers requests that need nothing any more. A number beyond the newest journaled
    /// transaction means all that are journaled when the request is first checked.
    pub(crate) fn answer_finished(&mut self) {
        let checkpointed = TxnSeq(self.durable.next_seq.0 - 1);
        for queue in [&mut self.requests.emergency, &mut self.requests.background] {
            for r in queue.iter_mut() {
                r.upto = r.upto.min(self.newest.seq);
            }
            while queue.front().is_some_and(|r| r.upto <= checkpointed) {
                let Some(r) = queue.pop_front() else { break };
                match r.urgency {
                    Urgency::Background => self.stats.checkpoints_background += 1,
                    Urgency::Emergency => self.stats.checkpoints_emergency += 1,
                }
                self.stats.checkpoint_last = r.report.clone();
                self.stats.checkpoint_last_s = self.options.clock.now().sec;
                self.out.push_back(FromService::CheckpointDone {
                    id: r.id,
                    urgency: r.urgency,
                    report: r.report,
                });
            }
        }
    }

    /// Does a bounded piece of the most urgent request's work.
    pub(crate) fn checkpoint_step(&mut self) -> Result<()> {
        let start = self.options.clock.mono_ns();
        let Some(request) = self.requests.next() else { return Ok(()) };
        let waited = request.urgency == Urgency::Emergency;
        let upto = request.upto;
        self.count_as(waited);
        let mut report = CheckpointReport::default();
        match self.options.mode {
            ReplayMode::Ordered => self.ordered_step(upto, waited, &mut report)?,
            ReplayMode::Coalesce | ReplayMode::Auto => {
                self.batch_step(upto, waited, &mut report)?;
            }
        }
        report.nanos = self.options.clock.mono_ns().saturating_sub(start);
        self.stats.checkpoint_total.add(&report);
        if let Some(request) = self.requests.next() {
            request.report.add(&report);
        }
        self.answer_finished();
        Ok(())
    }

    /// Most transactions of one step.
    fn most(&self, waited: bool) -> usize {
        let most = match waited {
            false => self.options.step_transactions,
            true => self.options.emergency_transactions,
        };
        usize::try_from(most).unwrap_or(usize::MAX).max(1)
    }

    /// Flushes the area and moves the durable tail behind `end`, the last of `count` transactions
    /// that are in the area; only then returns their space (rule R11).
    fn reclaim(&mut self, end: TxnEnd, count: usize, report: &mut CheckpointReport) -> Result<()> {
        let start = self.options.clock.mono_ns();
        self.parts.area.flush(self.origin)?;
        let before = self.durable.clone();
        let record = ServiceRecord {
            epoch: self.greeted_keys()?.journal.epoch,
            journal_tail: end.pos,
            next_seq: TxnSeq(end.seq.0 + 1),
            ops_cut: end.ops_cut,
            staged_cut: end.staged_cut,
            lane_tails: end.lane_upto,
            ..before.clone()
        };
        self.write_record(record)?;
        self.pending.drain(..count);
        let tails = before.lane_tails.iter().zip(&self.durable.lane_tails);
        report.staging_credits += tails.map(|(old, new)| new - old).sum::<u64>();
        report.journal_credits += self.durable.journal_tail - before.journal_tail;
        report.batch += count as u64;
        report.flushes += 2;
        report.flush_nanos += self.options.clock.mono_ns().saturating_sub(start);
        self.out.push_back(FromService::Reclaimed {
            seq: end.seq,
            journal_tail: self.durable.journal_tail,
            lane_tails: self.durable.lane_tails.clone(),
        });
        Ok(())
    }

    /// Replays transactions one by one, at most a step's number, until the step's byte budget is
    /// used, and reclaims them.
    fn ordered_step(
        &mut self,
        upto: TxnSeq,
        waited: bool,
        report: &mut CheckpointReport,
    ) -> Result<()> {
        let mut batch = self.batch.take().unwrap_or_else(Batch::coalescing);
        let mut map = None;
        let (mut last, mut count) = (None, 0);
        while count < self.most(waited) && report.read_bytes < self.options.step_bytes {
            let due = self.pending.get(count).is_some_and(|e| e.seq <= upto);
            if !due {
                break;
            }
            let mut start = self.options.clock.mono_ns();
            let read = self.read_records(count, 1, report)?;
            let keys = self.greeted_keys()?;
            for record in read.records(&keys.journal) {
                let record = record?;
                self.validate_form(&record.descriptor)?;
                let digested = self.digested(&record.descriptor.txn, keys.lanes, report)?;
                let committed = Committed::new(&record, &digested);
                for part in committed.parts(true) {
                    batch.restart(map.take());
                    batch.add(&self.options.inode_tables, &committed, *part, report);
                    map = batch.seal();
                    report.index_nanos += self.options.clock.mono_ns().saturating_sub(start);
                    let Replaying { mut io, replay, clock } = self.replaying(report)?;
                    replay.run(&mut io, clock, &mut batch, ORDERED_WINDOW)?;
                    start = self.options.clock.mono_ns();
                }
            }
            self.keep_buf(read.buf);
            count += 1;
            last = batch.reclaim();
        }
        batch.restart(map);
        self.batch = Some(batch);
        let (end, _) = last.expect("unfinished requests have transactions to replay");
        self.reclaim(end, count, report)
    }

    /// Goes on with the batch, or begins one: adds transactions, or does a part of a window.
    fn batch_step(
        &mut self,
        upto: TxnSeq,
        waited: bool,
        report: &mut CheckpointReport,
    ) -> Result<()> {
        let mut batch = match self.batch.take() {
            Some(batch) => batch,
            None => self.begin_batch(upto),
        };
        if batch.is_sealed() {
            self.replay_step(&mut batch, waited, report)?;
        } else {
            self.index_step(&mut batch, upto, waited, report)?;
        }
        if !batch.is_done() {
            self.batch = Some(batch);
        }
        Ok(())
    }

    fn begin_batch(&self, upto: TxnSeq) -> Batch {
        let prefix = self.pending.iter().take_while(|e| e.seq <= upto);
        let map = self.options.mode == ReplayMode::Coalesce
            || reuse::worth_a_map(prefix.flat_map(|e| e.notes.iter()));
        if map { Batch::coalescing() } else { Batch::light() }
    }

    /// Adds transactions, at most a step's number and bytes. Closes the batch at the end of the
    /// ready prefix, at the end of its memory, and when a caller waits for credits.
    fn index_step(
        &mut self,
        batch: &mut Batch,
        upto: TxnSeq,
        waited: bool,
        report: &mut CheckpointReport,
    ) -> Result<()> {
        let start = self.options.clock.mono_ns();
        let (mut count, most) = (0, self.most(waited));
        let mut open = !waited || batch.len() == 0;
        while open && count < most && report.read_bytes < self.options.step_bytes {
            let together = self.readable_together(batch, upto, most - count);
            open = together > 0;
            self.index(batch, together, report)?;
            count += together;
        }
        if waited || !open {
            report.coalesced_batches += u64::from(!batch.is_light());
            report.light_batches += u64::from(batch.is_light());
            batch.seal();
        }
        report.index_nanos += self.options.clock.mono_ns().saturating_sub(start);
        Ok(())
    }

    /// How many of the next transactions, at most `most`, the batch takes and one read brings.
    fn readable_together(&self, batch: &Batch, upto: TxnSeq, most: usize) -> usize {
        let budget = Budget::new(self.options.memory, self.options.window_bytes);
        let room = budget.batch.saturating_sub(batch.memory());
        let (mut count, mut bytes, mut end) = (0, 0, None);
        for e in self.pending.range(batch.len()..).take(most) {
            let goes_on = end.is_none_or(|end| end == e.pos && !self.starts_a_lap(end));
            bytes += e.indexed();
            let fits = bytes.saturating_mul(GROWTH) <= room || batch.len() + count == 0;
            if e.seq > upto || !goes_on || !fits || (count > 0 && bytes > JOURNAL_READ) {
                break;
            }
            end = Some(e.pos + e.len);
            count += 1;
        }
        count
    }

    fn starts_a_lap(&self, pos: u64) -> bool {
        pos.is_multiple_of(self.parts.journal.len())
    }

    /// Adds the next `count` pending transactions to the batch; their records are neighbours.
    fn index(
        &mut self,
        batch: &mut Batch,
        count: usize,
        report: &mut CheckpointReport,
    ) -> Result<()> {
        let read = self.read_records(batch.len(), count, report)?;
        let keys = self.greeted_keys()?;
        for record in read.records(&keys.journal) {
            let record = record?;
            self.validate_form(&record.descriptor)?;
            let digested = self.digested(&record.descriptor.txn, keys.lanes, report)?;
            let committed = Committed::new(&record, &digested);
            for part in committed.parts(false) {
                batch.add(&self.options.inode_tables, &committed, *part, report);
            }
        }
        self.keep_buf(read.buf);
        Ok(())
    }

    /// Reads `count` journal records from the `first` pending one on, which are neighbours, without
    /// the data that they repeat.
    fn read_records(
        &mut self,
        first: usize,
        count: usize,
        report: &mut CheckpointReport,
    ) -> Result<JournalRead> {
        let mut entries = Vec::new();
        // Ranges of the ring, neighbours in one read.
        let mut reads: Vec<(u64, u64)> = Vec::new();
        for e in self.pending.range(first..first + count) {
            entries.push(Indexed { seq: e.seq, pos: e.pos, len: e.len, head: e.data.start });
            let at = e.pos % self.parts.journal.len();
            for part in [0..e.data.start, e.data.end..e.len] {
                let (from, len) = (at + part.start, part.end - part.start);
                match reads.last_mut() {
                    Some(last) if last.0 + last.1 == from => last.1 += len,
                    _ => reads.push((from, len)),
                }
            }
        }
        let total: u64 = reads.iter().map(|r| r.1).sum();
        let mut buf = self.journal_buf(total);
        let mut rest = &mut buf[..];
        let mut ops = Vec::new();
        for (offset, len) in reads {
            let (part, more) = rest.split_at_mut(len as usize);
            rest = more;
            ops.push(ReadOp { offset, buf: part });
        }
        report.reads += ops.len() as u64;
        report.read_bytes += total;
        self.parts.journal.read_batch(self.origin, &mut ops)?;
        Ok(JournalRead { buf, entries })
    }

    /// A buffer for this many journal bytes; for a long one the window's memory is given back.
    fn journal_buf(&mut self, len: u64) -> AlignedBuf {
        if len > KEEP_BUF as u64 && !self.replay.is_open() {
            self.replay.release();
        }
        let buf = std::mem::take(&mut self.buf);
        if buf.len() as u64 >= len { buf } else { AlignedBuf::zeroed(len as usize) }
    }

    fn keep_buf(&mut self, buf: AlignedBuf) {
        if buf.len() <= KEEP_BUF {
            self.buf = buf;
        }
    }

    /// Reads or writes a part of a window. After a long window, or several short ones, reclaims
    /// what they wrote. If a caller waits for credits, the windows are small, and each is reclaimed
    /// alone.
    fn replay_step(
        &mut self,
        batch: &mut Batch,
        waited: bool,
        report: &mut CheckpointReport,
    ) -> Result<()> {
        let budget = Budget::new(self.options.memory, self.options.window_bytes);
        // A batch of one huge transaction leaves less than planned.
        let least = self.options.step_bytes.min(budget.window);
        let window = (budget.window + budget.batch).saturating_sub(batch.memory());
        let window = if waited { least } else { window.clamp(least, budget.window) };
        let limit = self.options.step_bytes;
        if waited {
            self.replay.give_up_above(least);
        }
        if batch.cursor < batch.pieces.len() {
            if !self.replay.is_open() {
                self.replay.open(batch, window, limit);
            }
            let Replaying { mut io, replay, clock } = self.replaying(report)?;
            replay.advance(&mut io, clock, batch, limit)?;
        }
        let more = batch.cursor < batch.pieces.len();
        let enough = waited || self.replay.volatile() >= window;
        if self.replay.is_open() || (more && !enough) {
            return Ok(());
        }
        self.replay.reclaiming();
        match batch.reclaim() {
            Some((end, count)) => self.reclaim(end, count, report),
            None => Ok(()),
        }
    }
}
