//! Checkpointing and reclamation in bounded steps.

use crate::ordered::Io;
use crate::service::{Journaled, ReplayMode, Service};
use siftfs_base::{Result, TxnSeq, corrupt};
use siftfs_device::AlignedBuf;
use siftfs_log::{ServiceRecord, decode_journal_record};
use siftfs_wire::{CheckpointReport, FromService, Transaction, Urgency};
use std::collections::VecDeque;

/// A reading buffer longer than this is given back after a step.
const KEEP_BUF: usize = 1 << 20;

/// One `Checkpoint` message and what was done for it.
struct Request {
    id: u64,
    upto: TxnSeq,
    urgency: Urgency,
    report: CheckpointReport,
}

/// Waiting requests; emergency ones have their own gate, so that no background request stands
/// before them (SIFT §4.2.5).
#[derive(Default)]
pub(crate) struct Requests {
    emergency: VecDeque<Request>,
    background: VecDeque<Request>,
}

impl Requests {
    pub fn add(&mut self, id: u64, upto: TxnSeq, urgency: Urgency) {
        let request = Request { id, upto, urgency, report: CheckpointReport::default() };
        match urgency {
            Urgency::Emergency => self.emergency.push_back(request),
            Urgency::Background => self.background.push_back(request),
        }
    }
    pub fn is_empty(&self) -> bool {
        self.emergency.is_empty() && self.background.is_empty()
    }
    /// The request to work for next.
    fn next(&mut self) -> Option<&mut Request> {
        self.emergency.front_mut().or(self.background.front_mut())
    }
}

/// What a step reached: the last transaction applied, its end, how many.
struct Reached {
    txn: Transaction,
    end: u64,
    count: usize,
}

impl Service {
    /// Answers requests that need nothing any more. A number beyond the newest journaled
    /// transaction means all that are journaled when the request is first looked at.
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

    /// Replays some transactions of the most urgent request, makes them durable, and only then
    /// returns their space (rule R11).
    pub(crate) fn checkpoint_step(&mut self) -> Result<()> {
        let start = self.options.clock.mono_ns();
        let Some(request) = self.requests.next() else { return Ok(()) };
        let waited = request.urgency == Urgency::Emergency;
        let upto = request.upto;
        let most = match waited {
            false => self.options.step_transactions,
            true => self.options.emergency_transactions,
        };
        self.count_as(waited);
        let mut report = CheckpointReport::default();
        let reached = self.replay_some(upto, most, &mut report)?;
        self.parts.area.flush(self.origin)?;
        let record = ServiceRecord {
            epoch: self.greeted_keys()?.journal.epoch,
            journal_tail: reached.end,
            next_seq: TxnSeq(reached.txn.seq.0 + 1),
            ops_cut: reached.txn.ops_cut,
            staged_cut: reached.txn.staged_cut,
            lane_tails: reached.txn.lane_upto,
            ..self.durable.clone()
        };
        self.write_record(record)?;
        report.flushes += 2;
        report.nanos = self.options.clock.mono_ns().saturating_sub(start);
        self.pending.drain(..reached.count);
        self.out.push_back(FromService::Reclaimed {
            seq: reached.txn.seq,
            journal_tail: self.durable.journal_tail,
            lane_tails: self.durable.lane_tails.clone(),
        });
        add(&mut self.stats.checkpoint_total, &report);
        if let Some(request) = self.requests.next() {
            add(&mut request.report, &report);
        }
        self.answer_finished();
        Ok(())
    }

    /// Applies transactions from the tail up to `upto`, at most `most`, until the step's byte
    /// budget is used.
    fn replay_some(
        &mut self,
        upto: TxnSeq,
        most: u64,
        report: &mut CheckpointReport,
    ) -> Result<Reached> {
        let mut buf = std::mem::take(&mut self.buf);
        let mut reached = None;
        let mut count = 0;
        while let Some(entry) = self.pending.get(count).copied().filter(|e| e.seq <= upto) {
            let txn = self.replay_one(&entry, &mut buf, report)?;
            count += 1;
            reached = Some((txn, entry.pos + entry.len));
            if count as u64 >= most || report.read_bytes >= self.options.step_bytes {
                break;
            }
        }
        if buf.len() <= KEEP_BUF {
            self.buf = buf;
        }
        let (txn, end) = reached.expect("unfinished requests have transactions to replay");
        Ok(Reached { txn, end, count })
    }

    /// Reads one journal record, validates it and applies it.
    fn replay_one(
        &mut self,
        entry: &Journaled,
        buf: &mut AlignedBuf,
        report: &mut CheckpointReport,
    ) -> Result<Transaction> {
        let keys = self.greeted_keys()?;
        let journal = &self.parts.journal;
        let len = entry.len as usize;
        if buf.len() < len {
            *buf = AlignedBuf::zeroed(len);
        }
        journal.read(self.origin, entry.pos % journal.len(), &mut buf[..len])?;
        report.reads += 1;
        report.read_bytes += entry.len;
        let what = || format!("journal record of transaction {}", entry.seq.0);
        let record = decode_journal_record(&buf[..len], &keys.journal, entry.pos, entry.len)?
            .map_err(|i| i.into_error(what()))?;
        if record.descriptor.header.seq != entry.seq {
            return Err(corrupt(what(), "another transaction lies there"));
        }
        let txn = record.descriptor.txn;
        let mut io = Io {
            area: &self.parts.area,
            lanes: &self.parts.lanes,
            lane_key: keys.lanes,
            origin: self.origin,
            report,
        };
        match self.options.mode {
            ReplayMode::Ordered => self.replay.apply(&mut io, &txn, record.images)?,
        }
        Ok(txn)
    }
}

/// Adds one report to another.
pub(crate) fn add(to: &mut CheckpointReport, r: &CheckpointReport) {
    to.batch += r.batch;
    to.raw_tags += r.raw_tags;
    to.surviving_tags += r.surviving_tags;
    to.raw_blocks += r.raw_blocks;
    to.surviving_blocks += r.surviving_blocks;
    to.raw_images += r.raw_images;
    to.surviving_images += r.surviving_images;
    to.reads += r.reads;
    to.read_bytes += r.read_bytes;
    to.writes += r.writes;
    to.write_bytes += r.write_bytes;
    to.flushes += r.flushes;
    to.windows += r.windows;
    to.nanos += r.nanos;
}
