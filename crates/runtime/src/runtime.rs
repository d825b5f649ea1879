//! The Runtime: the state under its lock, and the steps that run without it.
//!
//! Starts no threads. A host drives [`Runtime::tick`] and delivers the Service's messages to
//! [`Runtime::on_service`]; any caller that needs background progress makes it on its own thread.

use crate::assembly::{Cut, Handoff, Push};
use crate::buffers::RecordBuffers;
use crate::capture::{Outcome, Selection, Staged};
use crate::config::Config;
use crate::credits::Committed;
use crate::fill::FillPlan;
use crate::gate::{Alarm, Gate};
use crate::lane::Lane;
use crate::meta_cache::MetaCache;
use crate::page_cache::PageCache;
use crate::pause::{Company, Owed, Pause, is_bulk};
use crate::sequencer::{Flushed, Sequencer, WriteMode};
use crate::state::{self, Readers, State};
use crate::turns::Turns;
use siftfs_base::{Clock, Error, InodeNr, Lsn, Result, TxnSeq, errno};
use siftfs_device::{AlignedBuf, Counters, Origin, StagingWriter};
use siftfs_ext4::Fs;
use siftfs_log::JournalData;
use siftfs_wire::{DIRECT_MAX_BLOCKS, FromService, ToService, Urgency};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The Runtime's end of the block protocol.
pub trait ServiceLink: Send + Sync {
    /// Hands a message over; answers come through [`Runtime::on_service`], possibly before this
    /// returns. Never called with the state lock held.
    fn send(&self, message: ToService) -> Result<()>;
    /// A small durable step begins. A link to another process says so to its Service now and then,
    /// which does not see it otherwise. Called by an fsync: never waits, and what cannot be said at
    /// once is not said. `now` is [`Clock::mono_ns`].
    fn expect_urgent(&self, now: u64) {
        let _ = now;
    }
    /// Where the Service is and how the connection to it fares, for the status report.
    fn describe(&self) -> serde_json::Value;
}

/// What a Runtime is made of.
pub struct Parts {
    /// Settings.
    pub config: Config,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Device readers.
    pub readers: Readers,
    /// The right to write the lanes.
    pub lanes: Vec<StagingWriter>,
    /// Position of each lane's first record.
    pub lane_heads: Vec<u64>,
    /// Length of the journal ring in bytes.
    pub journal_len: u64,
    /// What the journal holds of staged data, as the header says.
    pub journal_data: JournalData,
    /// The Service.
    pub link: Arc<dyn ServiceLink>,
    /// Newest transaction the Service has.
    pub txn_seq: TxnSeq,
    /// LSNs drawn are larger.
    pub lsn_floor: Lsn,
    /// Storage counters, for the status report.
    pub counters: Arc<Counters>,
}

/// Why a caller may be told that what it did is durable. There is no other way to make one than to have
/// the proof, and no acknowledgement without one: [`Runtime::fsync`] and [`Runtime::sync_all`] give it, the
/// endpoint takes it for the answer.
#[derive(Debug)]
#[must_use = "an acknowledgement takes it"]
pub enum Durable {
    /// By a staged transaction.
    Staged(Flushed),
    /// By a background journal transaction.
    Journaled(Committed),
}

/// What a commit came to.
#[derive(Debug)]
pub struct Commit {
    /// Inodes whose pushed data did not fit.
    pub left: BTreeSet<InodeNr>,
    /// Everything cut is durable.
    pub durable: Committed,
}

/// See the module's text.
pub struct Runtime {
    state: Turns<State>,
    pub(crate) progress: Gate,
    /// A fill of the page cache has ended.
    filled: Condvar,
    /// Memory that fills read into.
    buffers: Mutex<Vec<AlignedBuf>>,
    /// Memory that records are encoded into.
    records: Arc<RecordBuffers>,
    pub(crate) seq: Sequencer,
    lanes: Vec<StagingWriter>,
    readers: Arc<Readers>,
    pub(crate) link: Arc<dyn ServiceLink>,
    /// One assembly at a time, and one transaction in flight.
    assembly: Mutex<()>,
    pub(crate) next_checkpoint: AtomicU64,
    bulk: Company,
    owed: Owed,
    /// Held while the Service is asked for statistics.
    asking: Mutex<()>,
    wake: Alarm,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) latency: crate::stats::Latencies,
}

/// Buffers of fills that are kept, of 4 MiB at most each.
const FILL_BUFFERS: usize = 2;

/// Longest pause for fsyncs between two records that are pushed: the assembly lock is held.
const PUSH_PAUSE: Duration = Duration::from_millis(2);

/// Staged ranges after which a commit does not wait any longer: the cut tags each of them under the
/// state lock, and their credits come back together.
const CUT_RANGES: usize = 4096;

/// Most rounds of background progress one operation waits for.
const MAX_ROUNDS: u32 = 10_000;

pub(crate) fn relock<T>(r: std::result::Result<T, PoisonError<T>>) -> T {
    r.unwrap_or_else(PoisonError::into_inner)
}

impl Runtime {
    /// Opens the ext4 layer on the area (and what the journal overlays, which is nothing now).
    pub fn open(parts: Parts) -> Result<Self> {
        let readers = Arc::new(parts.readers);
        let mut meta = MetaCache::new(readers.clone(), parts.config.meta_cache);
        let mut fs = Fs::open(&mut meta)?;
        let orphans: BTreeSet<InodeNr> = fs.read_orphans(&mut meta)?.into_iter().collect();
        let lanes = readers
            .lanes
            .iter()
            .zip(&parts.lane_heads)
            .map(|(r, head)| Lane::new(r.len(), *head))
            .collect();
        let seq = Sequencer::new(parts.config.group_wait, parts.lsn_floor);
        let pages = PageCache::new(parts.config.page_cache);
        let records = Arc::new(RecordBuffers::default());
        let mut state = State {
            fs,
            meta,
            pages,
            nodes: Default::default(),
            versions: 0,
            lookups: Default::default(),
            node_clock: Default::default(),
            names: Default::default(),
            perms: Default::default(),
            perms_in_flight: Default::default(),
            perms_staged: Lsn(0),
            handles: Default::default(),
            next_handle: 1,
            lsn: parts.lsn_floor.0,
            lanes,
            inode_dirty: Default::default(),
            overlay_dirty: Default::default(),
            overlay_added: 0,
            overlay_blocks: 0,
            overlay_bytes: 0,
            untidy: Default::default(),
            data_dirty: Default::default(),
            delta_dirty: Default::default(),
            replacing: 0,
            dirty_bytes: 0,
            reserved: 0,
            freed_inodes: Vec::new(),
            evict_queue: orphans.iter().copied().collect(),
            orphans,
            unjournaled_since: None,
            txns: Default::default(),
            txn_seq: parts.txn_seq,
            reclaimed: parts.txn_seq,
            journal_len: parts.journal_len,
            journal_data: parts.journal_data,
            checkpoints_done: Default::default(),
            service_statistics: None,
            space_tried: false,
            last_staged: Lsn(0),
            evicted_staged: Lsn(0),
            pushed: Default::default(),
            assembling: false,
            in_flight: Vec::new(),
            background_checkpoint: false,
            credit_checkpoint: None,
            replaying: false,
            fills: Vec::new(),
            next_fill: 0,
            keep_orphans: false,
            recovery: None,
            made_last: None,
            clock: parts.clock.clone(),
            last_time: Default::default(),
            config: parts.config,
            readers: readers.clone(),
            record_buffers: records.clone(),
            stats: Default::default(),
        };
        // Clocks step back; inode times of this volume must not run ahead of the superblock's.
        state.last_time = siftfs_base::Timestamp { sec: state.fs.write_time(), nsec: 0 };
        Ok(Self {
            state: Turns::new(state),
            progress: Gate::default(),
            filled: Condvar::new(),
            buffers: Mutex::default(),
            records,
            seq,
            lanes: parts.lanes,
            readers,
            link: parts.link,
            assembly: Mutex::new(()),
            bulk: Company::default(),
            owed: Owed::default(),
            next_checkpoint: AtomicU64::new(1),
            asking: Mutex::new(()),
            wake: Alarm::default(),
            clock: parts.clock,
            counters: parts.counters,
            latency: Default::default(),
        })
    }

    /// The state lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Reads the pages of a plan without the state lock and puts them in. Others who want the same
    /// pages wait meanwhile.
    pub(crate) fn fill(&self, plan: &FillPlan) -> Result<()> {
        if !self.fill_ahead(plan)? {
            let (ino, pages) = plan.pages();
            self.wait_filled(ino, &pages);
        }
        Ok(())
    }

    /// As [`Runtime::fill`]; false, and nothing is done, if somebody reads one of the pages already.
    pub(crate) fn fill_ahead(&self, plan: &FillPlan) -> Result<bool> {
        let Some(id) = self.lock().begin_fill(plan) else { return Ok(false) };
        let mut buf = relock(self.buffers.lock()).pop().unwrap_or_default();
        let base = plan.read(&self.readers, &mut buf);
        let mut buffers = relock(self.buffers.lock());
        if buffers.len() < FILL_BUFFERS {
            buffers.push(buf);
        }
        drop(buffers);
        let mut st = self.lock();
        st.end_fill(id);
        let result = base.and_then(|base| st.finish_fill(plan, base));
        drop(st);
        self.filled.notify_all();
        result.map(|()| true)
    }

    /// Waits until nobody reads one of these pages.
    pub(crate) fn wait_filled(&self, ino: InodeNr, pages: &Range<u64>) {
        let mut st = self.lock();
        while st.is_filling(ino, pages) {
            st = relock(self.filled.wait(st));
        }
    }

    /// Latches a failure: nothing is promised any more (rule R21).
    pub fn fail(&self, error: &Error) {
        if self.seq.check().is_ok() {
            tracing::error!(%error, "the volume stops: an update could not be made durable");
        }
        self.seq.fail(error);
        self.progress.tell(self.lock());
    }

    /// The latched failure, if there is one.
    pub fn check(&self) -> Result<()> {
        self.seq.check()
    }

    /// Runs a mutating operation under the lock, making background progress where it asks for it.
    pub(crate) fn mutate<T>(&self, mut op: impl FnMut(&mut State) -> Result<T>) -> Result<T> {
        let mut space_tried = false;
        for _ in 0..MAX_ROUNDS {
            self.seq.check()?;
            let mut st = self.lock();
            if st.config.read_only {
                return Err(errno(libc::EROFS));
            }
            st.space_tried = space_tried;
            let before = st.meta.mutations();
            let result = op(&mut st).and_then(|value| st.run_evictions().map(|()| value));
            let changed = st.meta.mutations() != before;
            st.shrink_caches(self.seq.oldest_unwritten());
            let wake = st.should_wake();
            drop(st);
            if wake {
                self.wake();
            }
            match result {
                Err(Error::NeedsProgress(why)) => {
                    space_tried |= why == state::NEEDS_SPACE;
                    self.make_progress(why)?;
                }
                // An operation that failed half-way left cached metadata behind that is not one
                // operation's effect: it must never reach the journal.
                Err(e) if changed => {
                    self.fail(&e);
                    return Err(e);
                }
                other => return other,
            }
        }
        Err(errno(libc::ENOSPC))
    }

    /// Writes a staged transaction into its lane.
    fn write_staged(&self, staged: Staged, origin: Origin) -> Result<()> {
        let Staged { published, lane, offset, buf } = staged;
        let lane = &self.lanes[lane];
        let result = match published.mode() {
            WriteMode::Fua => lane.write_fua(origin, offset, &buf),
            WriteMode::Plain => lane.write(origin, offset, &buf),
        };
        self.seq.completed(published, result)?;
        self.records.give(buf);
        Ok(())
    }

    fn wait_durable(&self, lsn: Lsn, origin: Origin) -> Result<Flushed> {
        self.seq.wait_durable(lsn, || self.lanes[0].flush(origin))
    }

    /// fsync and fdatasync (the page "Foreground: fsync").
    pub fn fsync(&self, ino: InodeNr, datasync: bool) -> Result<Durable> {
        let start = self.clock.mono_ns();
        let result = self.fsync_inner(ino, datasync);
        self.latency.fsync.record(self.clock.mono_ns().saturating_sub(start));
        result
    }

    fn fsync_inner(&self, ino: InodeNr, datasync: bool) -> Result<Durable> {
        self.seq.check()?;
        let (mut stalled, mut encoded) = (None, None);
        for _ in 0..MAX_ROUNDS {
            let mut st = self.lock();
            let outcome = st.stage(&self.seq, ino, datasync, &Selection::All, encoded.take());
            let wake = st.should_wake();
            let pause = match &outcome {
                Ok(Outcome::Staged(s)) => Pause::at(st.fill(s.lane), s.buf.len() as u64),
                _ => Pause::Fixed(Duration::ZERO),
            };
            drop(st);
            if let Some(since) = stalled.take_if(|_| outcome.is_ok()) {
                self.note_wait(since, &outcome);
            }
            match outcome {
                Ok(Outcome::Nothing(lsn)) => {
                    return self.wait_durable(lsn, Origin::Foreground).map(Durable::Staged);
                }
                Ok(Outcome::Plan(plan)) => {
                    encoded = Some(plan.encode(&self.records));
                }
                Ok(Outcome::Staged(staged)) => {
                    if wake {
                        self.wake();
                    }
                    return self.make_durable(staged, pause).map(Durable::Staged);
                }
                Ok(Outcome::FullCommit(reason)) => {
                    self.lock().stats.full_commit(reason);
                    return self.full_commit(ino).map(Durable::Journaled);
                }
                Err(Error::NeedsProgress(why)) => {
                    stalled.get_or_insert_with(|| self.clock.mono_ns());
                    self.make_progress(why)?;
                }
                Err(e) => return Err(e),
            }
        }
        Err(errno(libc::EIO))
    }

    /// Writes a record that its caller waits for, who then pauses as what is left demands.
    fn make_durable(&self, staged: Staged, pause: Pause) -> Result<Flushed> {
        let bulk = is_bulk(staged.buf.len() as u64).then(|| self.bulk.join());
        let (start, lsn) = (self.clock.mono_ns(), staged.published.lsn());
        if bulk.is_none() {
            self.link.expect_urgent(start);
        }
        self.write_staged(staged, Origin::Foreground)?;
        let flushed = match bulk {
            Some(_) => self.seq.wait_durable(lsn, || self.lanes[0].flush_bulk(Origin::Foreground)),
            None => self.wait_durable(lsn, Origin::Foreground),
        }?;
        let took = Duration::from_nanos(self.clock.mono_ns().saturating_sub(start));
        let pause = match &bulk {
            Some(member) => pause.among(member.count()).after(took),
            None => self.owed.add(pause.after(took)),
        };
        if !pause.is_zero() {
            self.lanes[0].give_way(pause);
        }
        Ok(flushed)
    }

    /// A wait for room in the log, or in the running transaction, has ended.
    fn note_wait(&self, since: u64, outcome: &Result<Outcome>) {
        let bulk = match outcome {
            Ok(Outcome::Plan(_)) => true,
            Ok(Outcome::Staged(s)) => is_bulk(s.buf.len() as u64),
            _ => false,
        };
        let latency = if bulk { &self.latency.bulk_wait } else { &self.latency.credit_wait };
        latency.record(self.clock.mono_ns().saturating_sub(since));
    }

    /// Makes an inode durable through background journal transactions.
    fn full_commit(&self, ino: InodeNr) -> Result<Committed> {
        self.commit_all(&Push::Inode(ino), Some(ino))
    }

    /// Assembles and journals one transaction in the background; see [`Runtime::commit_for`].
    pub fn commit(&self, push: &Push) -> Result<Commit> {
        self.commit_for(push, Origin::Background)
    }

    /// Assembles and journals one transaction; returns when its commit is durable. With nothing to
    /// do, everything cut so far is: one transaction is in flight at most, and whoever had it has
    /// waited for it. `origin` says whether a caller waits: its writes and flushes are that caller's
    /// own then.
    pub fn commit_for(&self, push: &Push, origin: Origin) -> Result<Commit> {
        let assembly = self.assembly_lock();
        self.commit_under(&assembly, push, origin)
    }

    /// One transaction is made at a time, and one is in flight.
    pub(crate) fn assembly_lock(&self) -> MutexGuard<'_, ()> {
        relock(self.assembly.lock())
    }

    /// As [`Runtime::commit_for`], with the assembly lock held.
    pub(crate) fn commit_under(
        &self,
        _assembly: &MutexGuard<'_, ()>,
        push: &Push,
        origin: Origin,
    ) -> Result<Commit> {
        for _ in 0..MAX_ROUNDS {
            self.seq.check()?;
            let st = self.lock();
            if st.config.read_only || !st.has_work(push) {
                let durable = st.committed(st.txn_seq).ok_or_else(|| {
                    Error::Latched(format!("transaction {} is not durable", st.txn_seq.0))
                })?;
                return Ok(Commit { left: BTreeSet::new(), durable });
            }
            let unreclaimed = !st.txns.is_empty();
            let seq = st.next_txn();
            drop(st);
            let start = self.clock.mono_ns();
            match self.assemble(seq, push, origin) {
                Ok(mut cut) => {
                    let left = std::mem::take(&mut cut.left);
                    let sources = self.wait_durable(cut.sources(), origin)?;
                    let durable = self.submit(cut.release(&sources), origin)?;
                    self.latency.commit.record(self.clock.mono_ns().saturating_sub(start));
                    return Ok(Commit { left, durable });
                }
                Err(Error::NeedsProgress(_)) if unreclaimed => {}
                Err(e) => {
                    self.fail(&e);
                    return Err(e);
                }
            }
            self.await_checkpoint(Urgency::Emergency)?;
        }
        Err(errno(libc::EIO))
    }

    /// Takes a transaction through the stages up to its cut; everything handed over is written. Who
    /// waits for the cut is told.
    fn assemble(&self, seq: TxnSeq, push: &Push, origin: Origin) -> Result<Cut> {
        let result = self.assemble_stages(seq, push, origin);
        let mut st = self.lock();
        st.assembling = false;
        self.progress.tell(st);
        result
    }

    fn assemble_stages(&self, seq: TxnSeq, push: &Push, origin: Origin) -> Result<Cut> {
        let mut assembly = self.held(|st| st.begin_assembly(push))?;
        loop {
            let more = self.held(|st| st.assembly_step(&self.seq, &mut assembly));
            self.hand_over(seq, std::mem::take(&mut assembly.out), origin)?;
            if !more? {
                break;
            }
        }
        let cut = self.held(|st| st.cut(&self.seq, &mut assembly));
        self.progress.tell(self.lock());
        self.hand_over(seq, std::mem::take(&mut assembly.out), origin)?;
        cut
    }

    /// One step of assembly under the state lock; callers who wait for it meanwhile go before the next.
    fn held<T>(&self, step: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut st = self.lock();
        let start = self.clock.mono_ns();
        let result = step(&mut st);
        drop(st);
        self.latency.hold.record(self.clock.mono_ns().saturating_sub(start));
        self.state.give_way();
        result
    }

    /// Writes what a step made: records to their lanes, direct data through the Service.
    fn hand_over(&self, seq: TxnSeq, out: Handoff, origin: Origin) -> Result<()> {
        let start = self.clock.mono_ns();
        let records = out.staged.len();
        for staged in out.staged {
            self.write_staged(staged, origin)?;
        }
        if records > 0 {
            // Here, where no record is on its way: an fsync would wait for that one too.
            let took = Duration::from_nanos(self.clock.mono_ns().saturating_sub(start));
            self.lanes[0].give_way((2 * took).min(PUSH_PAUSE));
        }
        let waited = origin == Origin::Foreground;
        let (mut runs, mut blocks) = (Vec::new(), 0);
        for run in out.direct {
            if blocks + run.data.len() > DIRECT_MAX_BLOCKS {
                let runs = std::mem::take(&mut runs);
                self.link.send(ToService::Direct { seq, runs, waited })?;
                blocks = 0;
            }
            blocks += run.data.len();
            runs.push(run);
        }
        if runs.is_empty() {
            return Ok(());
        }
        self.link.send(ToService::Direct { seq, runs, waited })
    }

    /// Commits until nothing dirty at the call (of `only`, if given) is left behind. A round
    /// that leaves as much as the one before needs log space first.
    pub(crate) fn commit_all(&self, push: &Push, only: Option<InodeNr>) -> Result<Committed> {
        let mut targets: BTreeSet<InodeNr> = match only {
            Some(ino) => BTreeSet::from([ino]),
            None => self.lock().data_dirty.clone(),
        };
        let mut before = u64::MAX;
        for _ in 0..MAX_ROUNDS {
            let Commit { left, durable } = self.commit_for(push, Origin::Foreground)?;
            targets.retain(|ino| left.contains(ino));
            if targets.is_empty() {
                return Ok(durable);
            }
            let dirty = self.lock().dirty_bytes;
            if dirty >= before {
                self.checkpoint(Urgency::Emergency)?;
            }
            before = dirty;
        }
        Err(errno(libc::EIO))
    }

    /// Hands a transaction to the Service and waits until its commit is durable. The caller holds
    /// the assembly lock or is recovery.
    fn submit(&self, txn: siftfs_wire::Transaction, origin: Origin) -> Result<Committed> {
        let seq = txn.seq;
        let waited = origin == Origin::Foreground;
        if let Some(info) = self.lock().txns.get_mut(&seq) {
            info.submitted = true;
        }
        self.link.send(ToService::Submit { txn: Box::new(txn), waited })?;
        self.wait_until(|st| st.committed(seq))
    }

    /// A message from the Service.
    ///
    /// # Errors
    /// Refused if it cannot be true; nothing was changed. Who delivers it ends the connection, or the
    /// mount where there is none.
    pub fn on_service(&self, message: FromService) -> Result<()> {
        let mut st = self.lock();
        match message {
            FromService::Welcome { .. } | FromService::Bye => {}
            FromService::Journaled { seq, bytes, image_pos } => {
                st.on_journaled(seq, bytes, image_pos)?;
            }
            FromService::Reclaimed { seq, lane_tails, .. } => st.on_reclaimed(seq, &lane_tails)?,
            FromService::CheckpointDone { id, urgency, report } => {
                if urgency == Urgency::Background {
                    st.background_checkpoint = false;
                } else if st.credit_checkpoint == Some(id) {
                    st.credit_checkpoint = None;
                } else {
                    st.checkpoints_done.insert(id, report);
                }
            }
            FromService::Statistics(s) => st.service_statistics = Some(*s),
            FromService::Failed { error } => {
                drop(st);
                self.fail(&error);
                return Ok(());
            }
            FromService::Refused { reason } => {
                drop(st);
                self.fail(&Error::Refused(reason));
                return Ok(());
            }
        }
        self.progress.tell(st);
        Ok(())
    }

    /// One round of background work that is due: aged state is journaled, and a checkpoint is asked
    /// for when staging or journal pass the low watermark.
    pub fn tick(&self) -> Result<()> {
        let (commit, reclaim) = {
            let mut st = self.lock();
            let reclaim = st.reclaim_due();
            if reclaim {
                st.background_checkpoint = true;
            }
            (st.commit_due(), reclaim)
        };
        if commit {
            self.commit(&Push::Aged)?;
        }
        if reclaim {
            self.ask(TxnSeq(u64::MAX), Urgency::Background, self.checkpoint_id())?;
        }
        Ok(())
    }

    /// Waits until there may be background work, at most `timeout`.
    pub fn wait_for_work(&self, timeout: Duration) {
        self.wake.wait(timeout);
    }

    /// Wakes whoever is in [`Runtime::wait_for_work`].
    pub fn wake(&self) {
        self.wake.ring();
    }

    /// Everything done before this call is durable and journaled when it returns.
    pub fn sync_all(&self) -> Result<Durable> {
        self.commit_all(&Push::All, None).map(Durable::Journaled)
    }

    /// Where the Service is and how the connection to it fares.
    pub(crate) fn link_status(&self) -> serde_json::Value {
        self.link.describe()
    }

    /// Asks the Service for its statistics.
    pub(crate) fn service_statistics(&self) -> Result<siftfs_wire::ServiceStatistics> {
        // The answer carries no id: one question at a time.
        let _asking = relock(self.asking.lock());
        self.link.send(ToService::Statistics)?;
        self.wait_until(|st| st.service_statistics.take())
    }

    /// Everything final and in the area: the log is empty afterwards. For unmount.
    pub fn settle(&self) -> Result<()> {
        {
            let mut st = self.lock();
            st.lookups.clear();
            let open: Vec<InodeNr> = st.orphans.iter().copied().collect();
            for ino in open {
                if let Some(node) = st.nodes.get_mut(&ino) {
                    node.opens = 0;
                }
                st.evict_queue.push_back(ino);
            }
        }
        for _ in 0..MAX_ROUNDS {
            self.commit_all(&Push::All, None)?;
            self.checkpoint(Urgency::Emergency)?;
            let mut st = self.lock();
            if st.tidy_trees()?
                && !st.has_work(&Push::All)
                && st.txns.is_empty()
                && st.orphans.is_empty()
            {
                return Ok(());
            }
        }
        Err(errno(libc::EIO))
    }

    /// Bytes that are still to be brought into the area, about: dirty pages, lanes and journal in use. It
    /// waits for nobody, and falls to zero while [`Runtime::settle`] runs.
    pub fn backlog(&self) -> u64 {
        let st = self.lock();
        let staged: u64 = st.lanes.iter().map(crate::lane::Lane::used).sum();
        st.dirty_bytes + st.journal_used() + staged
    }

    /// Heads of the lanes and the last LSN drawn.
    pub fn log_position(&self) -> (Vec<u64>, Lsn) {
        let st = self.lock();
        (st.lanes.iter().map(|l| l.head).collect(), Lsn(st.lsn))
    }

    /// The superblock as the area has it once everything is settled.
    pub fn superblock(&self) -> [u8; 1024] {
        self.lock().fs.super_image()
    }
}

impl State {
    /// Is something old enough, or staged long enough, to be journaled?
    fn commit_due(&self) -> bool {
        let now = self.clock.mono_ns();
        let old =
            |since: u64| u128::from(now.saturating_sub(since)) >= self.config.commit_age.as_nanos();
        let aged = self.unjournaled_since.is_some_and(old)
            || self
                .data_dirty
                .iter()
                .any(|i| self.nodes.get(i).and_then(|n| n.dirty_since).is_some_and(old));
        aged || self.commit_early()
    }

    /// Enough is staged, dirty or changed that a commit should not wait for the timer. The bound of the
    /// transaction is of the worst case, in which no two changed inodes share a block and every new range
    /// splits an extent: on a volume with the smallest journal (2 MiB, transactions of 128 blocks) fifteen new
    /// files reach half of it, whatever the timer says.
    fn commit_early(&self) -> bool {
        // With the lanes full of what a checkpoint is about to free, there is nowhere to push to.
        let nowhere = self.background_checkpoint && self.lanes.iter().any(Lane::is_crowded);
        self.lanes.iter().any(|l| (l.head - l.cut_head) * 4 > l.len)
            || self.overlay_added >= CUT_RANGES
            || self.dirty_bytes > self.dirty_limit() / 2 && !nowhere
            || self.transaction_blocks() * 2 > self.max_transaction_blocks()
    }

    /// Low watermark of staging or journal passed, something to reclaim, and no checkpoint asked for.
    fn reclaim_due(&self) -> bool {
        !self.background_checkpoint
            && self.txns.values().any(|t| t.journaled)
            && self.log_fill_percent() + self.config.low_watermark > 100
    }

    fn should_wake(&self) -> bool {
        self.commit_early() || self.reclaim_due()
    }
}
