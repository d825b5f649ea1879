//! The Runtime: the state under its lock, and the steps that run without it.
//!
//! Starts no threads. A host drives [`Runtime::tick`] and delivers the Service's messages to
//! [`Runtime::on_service`]; any caller that needs background progress makes it on its own thread.

use crate::config::Config;
use crate::direct_plane::DirectPlane;
use crate::locks::allowance::Allowance;
use crate::locks::fair_mutex::FairMutex;
use crate::locks::gate::{Alarm, Gate};
use crate::locks::relock;
use crate::session::demand::Demand;
use crate::session::locks::FileLocks;
use crate::session::{Doing, Sessions};
use crate::staging::pause::{BulkCallers, PauseDebt};
use crate::staging::sequencer::Sequencer;
use crate::staging::unwritten::Unwritten;
use crate::state::buffers::{Pool, RecordBuffers};
use crate::state::caches::meta_cache::MetaCache;
use crate::state::caches::page_cache::PageCache;
use crate::state::discards::Discards;
use crate::state::fills::FillPlan;
use crate::state::heap::Trimmer;
use crate::state::leases::Leases;
use crate::state::log::lane::Lane;
use crate::state::sections::Sections;
use crate::state::sharing::Sharing;
use crate::state::step::{Ends, Need, Step, Stop};
use crate::state::{Inodes, Ledger, Log, Metadata, Readers, Running, Staging, State, Time, Tree};
use siftfs_base::{Clock, Error, InodeNr, Lsn, Result, Timestamp, TxnSeq, errno};
use siftfs_device::{Counters, StagingWriter};
use siftfs_ext4::Fs;
use siftfs_log::{JournalData, LaneMedium};
use siftfs_status::Link;
use siftfs_wire::{FromService, ToService};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The Runtime's end of the block protocol.
pub trait ServiceLink: Send + Sync {
    /// Hands a message over; answers come through [`Runtime::on_service`], possibly before this
    /// returns. Never called with the state lock held.
    fn send(&self, message: ToService) -> Result<()>;
    /// Notes that a small durable step begins; an fsync calls this. A link to another process tells
    /// its Service now and then, because that Service does not see the step otherwise. Never waits:
    /// what cannot be said at once is not said. `now` is [`Clock::mono_ns`].
    fn expect_urgent(&self, now: u64) {
        let _ = now;
    }
    /// Is the Service's process away for longer than it may, and cannot be replaced? Never waits. A
    /// change of it is told by [`Runtime::look_again`].
    fn is_overdue(&self) -> bool {
        false
    }
    /// Where the Service is and how the connection to it fares, for the status report.
    fn describe(&self) -> Link;
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
    /// What each lane lies on.
    pub mediums: Vec<LaneMedium>,
    /// Position of each lane's first record.
    pub lane_heads: Vec<u64>,
    /// Length of the journal ring in bytes.
    pub journal_len: u64,
    /// What the journal holds of staged data, as the header says.
    pub journal_data: JournalData,
    /// The Service.
    pub link: Arc<dyn ServiceLink>,
    /// The target that has the storage, if programs may reach it.
    pub direct: Option<Arc<dyn DirectPlane>>,
    /// Newest transaction the Service has.
    pub txn_seq: TxnSeq,
    /// LSNs drawn are larger.
    pub lsn_floor: Lsn,
    /// Storage counters, for the status report.
    pub counters: Arc<Counters>,
}

/// The state under its lock, and the steps that run without it. A Runtime starts no threads.
pub struct Runtime {
    pub(crate) state: FairMutex<State>,
    pub(crate) progress: Gate,
    /// Notified when a fill of the page cache has ended.
    filled: Condvar,
    /// Notified when a write lease has ended.
    pub(crate) lease_ended: Condvar,
    /// How many write leases there are.
    pub(crate) leases: Arc<AtomicUsize>,
    /// How many open sessions lend.
    pub(crate) lenders: Arc<AtomicUsize>,
    /// Memory that fills read into, of 4 MiB at most each.
    pub(crate) fill_buffers: Pool<2>,
    /// Memory that records are encoded into.
    pub(crate) record_buffers: Arc<RecordBuffers>,
    pub(crate) seq: Sequencer,
    /// Records of tickets that nobody has written yet.
    pub(crate) unwritten: Unwritten,
    /// Memory for what callers write and compute beside the files.
    pub(crate) allowance: Allowance,
    /// The open sessions, and the tickets of each.
    pub(crate) sessions: Sessions,
    /// Locks on files. Taken alone.
    pub(crate) file_locks: FileLocks,
    /// What is wanted durable soon, and nobody waits for.
    pub(crate) demand: Demand,
    pub(crate) lanes: Vec<StagingWriter>,
    /// Index of the record area, if there is one.
    pub(crate) record_area: Option<usize>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) link: Arc<dyn ServiceLink>,
    /// The target that has the storage, if programs may reach it.
    pub(crate) direct: Option<Arc<dyn DirectPlane>>,
    /// Held by the thread that assembles and submits: one assembly at a time, and one transaction
    /// in flight.
    pub(crate) assembly: Mutex<()>,
    pub(crate) next_checkpoint: AtomicU64,
    pub(crate) bulk: BulkCallers,
    pub(crate) owed: PauseDebt,
    /// Held while the Service is asked for statistics.
    asking: Mutex<()>,
    pub(crate) wake: Alarm,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) trimmer: Mutex<Trimmer>,
    pub(crate) latency: Arc<crate::state::stats::Latencies>,
}

/// Most rounds of background progress one operation waits for.
pub(crate) const MAX_ROUNDS: u32 = 10_000;

impl Runtime {
    /// Opens the ext4 layer on the area (and what the journal overlays, which is nothing now).
    pub fn open(parts: Parts) -> Result<Self> {
        let readers = Arc::new(parts.readers);
        let mut meta = MetaCache::new(readers.clone(), parts.config.meta_cache);
        let mut fs = Fs::open(&mut meta)?;
        let orphans: BTreeSet<InodeNr> = fs.read_orphans(&mut meta)?.into_iter().collect();
        let made = readers.lanes.iter().zip(parts.mediums.iter().zip(&parts.lane_heads));
        let lanes = made.map(|(r, (medium, head))| Lane::on(*medium, r.len(), *head)).collect();
        let (wait, group) = (parts.config.group_wait, parts.config.group);
        let seq = Sequencer::new(wait, parts.lsn_floor, group, parts.clock.clone());
        let pages = PageCache::new(parts.config.page_cache);
        let (allowance, record_buffers) = (Allowance::default(), Arc::<RecordBuffers>::default());
        // Clocks step back; inode times of this volume must not run ahead of the superblock's.
        let at_least = Timestamp { sec: fs.superblock.write_time(), nsec: 0 };
        let (held, sharing) = (Leases::new(parts.config.lease_term), Sharing::default());
        let (leases, lenders, discard) = (held.live(), sharing.order.live(), parts.config.discard);
        let log = Log {
            config: parts.config,
            running: Running::default(),
            names: Default::default(),
            ledger: Ledger::new(parts.txn_seq, parts.journal_len, parts.journal_data),
            staging: Staging::new(lanes, parts.lsn_floor, record_buffers.clone()),
            time: Time::new(parts.clock.clone(), at_least),
            changes: Default::default(),
            replies: Default::default(),
            reserves: Default::default(),
            hold: Default::default(),
            recovery: None,
        };
        let state = State {
            metadata: Metadata { tree: Tree { fs, meta, inodes: Inodes::new(orphans) }, log },
            pages,
            fills: Default::default(),
            stats: Default::default(),
            discards: Discards::new(discard),
            sharing,
            leases: held,
            sections: Sections::new(allowance.clone()),
        };
        Ok(Self {
            state: FairMutex::new(state, parts.clock.clone()),
            progress: Gate::default(),
            filled: Condvar::new(),
            lease_ended: Condvar::new(),
            leases,
            lenders,
            fill_buffers: Pool::default(),
            record_buffers,
            seq,
            unwritten: Unwritten::default(),
            allowance,
            sessions: Sessions::default(),
            file_locks: FileLocks::default(),
            demand: Demand::default(),
            lanes: parts.lanes,
            record_area: parts.mediums.iter().position(|medium| *medium == LaneMedium::Bytes),
            readers,
            link: parts.link,
            direct: parts.direct,
            assembly: Mutex::new(()),
            bulk: BulkCallers::default(),
            owed: PauseDebt::default(),
            next_checkpoint: AtomicU64::new(1),
            asking: Mutex::new(()),
            wake: Alarm::default(),
            clock: parts.clock,
            counters: parts.counters,
            latency: Default::default(),
            trimmer: Default::default(),
        })
    }

    /// The state lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Reads the pages of a plan without the state lock and puts them into the page cache. Other
    /// threads that want the same pages wait meanwhile.
    pub(crate) fn fill(&self, plan: &FillPlan) -> Result<()> {
        if !self.fill_ahead(plan)? {
            let (ino, pages) = plan.pages();
            self.wait_filled(ino, &pages);
        }
        Ok(())
    }

    /// As [`Runtime::fill`], but does nothing and returns false if another thread already reads one
    /// of the pages.
    pub(crate) fn fill_ahead(&self, plan: &FillPlan) -> Result<bool> {
        let (ino, pages) = plan.pages();
        let Some(id) = self.lock().fills.begin(ino, pages) else { return Ok(false) };
        let mut buf = self.fill_buffers.take();
        let pages = plan.read(&self.readers, &mut buf);
        self.fill_buffers.give(buf);
        let mut st = self.lock();
        st.fills.end(id);
        let result = pages.map(|pages| st.finish_fill(plan, pages));
        drop(st);
        self.filled.notify_all();
        result.map(|()| true)
    }

    /// Waits until no thread reads one of these pages.
    pub(crate) fn wait_filled(&self, ino: InodeNr, pages: &Range<u64>) {
        let mut st = self.lock();
        while st.fills.meets(ino, pages) {
            st = relock(self.filled.wait(st));
        }
    }

    /// Latches a failure: nothing is promised any more (rule R21).
    pub fn fail(&self, error: &Error) {
        if self.seq.check().is_ok() {
            tracing::error!(%error, "the volume stops: an update could not be made durable");
        }
        self.seq.fail(error);
        self.wait_for_no_room();
        self.progress.tell(self.lock());
    }

    /// The background waits for room below no more: a write that finds none fails.
    pub fn wait_for_no_room(&self) {
        self.counters.room().give_up();
    }

    /// Something outside of the state changed that callers may wait for: they look again.
    pub fn look_again(&self) {
        self.progress.tell(self.lock());
    }

    /// What needs the background's help is told so, and does not wait without an end, while that
    /// waits for room below, or for a device process that neither answers nor gives its place up.
    /// What needs no help goes on, and nothing is latched.
    ///
    /// # Errors
    /// ENOSPC, ETIMEDOUT.
    pub(crate) fn check_help(&self) -> Result<()> {
        if self.counters.room().is_short() {
            return Err(errno(libc::ENOSPC));
        }
        if self.link.is_overdue() { Err(errno(libc::ETIMEDOUT)) } else { Ok(()) }
    }

    /// The latched failure, if there is one.
    pub fn check(&self) -> Result<()> {
        self.seq.check()
    }

    /// Tries an operation until it is done. Between two tries it makes the progress that the
    /// operation stopped for, on the calling thread and without the state lock. Every operation of
    /// a caller's that may stop goes through here.
    ///
    /// # Errors
    /// The operation's own; `tired`, an errno, after too many tries.
    pub(crate) fn drive<T>(&self, tired: i32, mut attempt: impl FnMut() -> Step<T>) -> Result<T> {
        for _ in 0..MAX_ROUNDS {
            match attempt() {
                Ok(value) => return Ok(value),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Needs(need)) => self.make_progress(need)?,
                Err(Stop::Read(plan)) => self.fill(&plan)?,
                Err(Stop::Wait(ino, pages)) => self.wait_filled(ino, &pages),
                Err(Stop::Recall(ino)) => self.recall(ino, Ends::Lease),
                Err(Stop::TakeBack(ino)) => self.recall(ino, Ends::Grant),
            }
        }
        Err(errno(tired))
    }

    /// Runs an operation that changes something, as often as it takes.
    pub(crate) fn mutate<T>(
        &self,
        doing: &Doing,
        mut op: impl FnMut(&mut State) -> Step<T>,
    ) -> Result<T> {
        let mut space_tried = false;
        self.drive(libc::ENOSPC, || {
            let result = self.mutate_once(doing, space_tried, &mut op);
            space_tried |= matches!(result, Err(Stop::Needs(Need::Space)));
            result
        })
    }

    pub(crate) fn mutate_once<T>(
        &self,
        doing: &Doing,
        space_tried: bool,
        op: &mut impl FnMut(&mut State) -> Step<T>,
    ) -> Step<T> {
        self.seq.check()?;
        let mut st = self.lock();
        st.metadata.log.may_change()?;
        doing.touch(&mut st)?;
        st.metadata.log.enter_call(doing.origin())?;
        st.metadata.log.running.begin_operation(space_tried);
        st.begin_changes(doing.told());
        let before = st.metadata.tree.meta.mutations();
        let result = op(&mut st).and_then(|value| st.run_evictions().map(|()| value));
        let changed = st.metadata.tree.meta.mutations() != before;
        let notices = st.end_changes(doing.told());
        if let (Ok(_), Some(origin)) = (&result, doing.origin()) {
            st.metadata.log.replies.changed(origin);
        }
        self.leave(st);
        doing.tell(notices);
        // An operation that failed half-way left cached metadata behind that is not one operation's
        // effect: it must never reach the journal.
        if let Err(Stop::Failed(error)) = &result
            && changed
        {
            self.fail(error);
        }
        result
    }

    /// An operation that may have changed something lets go of the lock.
    pub(crate) fn leave(&self, mut st: MutexGuard<'_, State>) {
        st.metadata.log.replies.leave();
        st.shrink_caches(self.seq.oldest_unwritten());
        let wake = st.should_wake();
        drop(st);
        if wake {
            self.wake();
        }
    }

    /// Handles a message from the Service.
    ///
    /// # Errors
    /// Refused if the message cannot be true; nothing was changed. The thread that delivers it ends
    /// the connection, or the mount if there is no connection.
    pub fn on_service(&self, message: FromService) -> Result<()> {
        let mut st = self.lock();
        match message {
            FromService::Welcome { .. } | FromService::Bye => {}
            FromService::Journaled { seq, bytes, image_pos } => {
                st.metadata.on_journaled(seq, bytes, image_pos)?;
            }
            FromService::Reclaimed { seq, lane_tails, .. } => st.on_reclaimed(seq, &lane_tails)?,
            FromService::CheckpointDone { id, urgency, report } => {
                st.metadata.log.ledger.questions.checkpointed(id, urgency, report);
            }
            FromService::Discarded { id, blocks, failed, unsupported } => {
                st.on_discarded(id, (blocks, failed), unsupported)?;
                if st.discards.is_due() {
                    self.wake();
                }
            }
            FromService::Statistics(s) => st.metadata.log.ledger.questions.counted(*s),
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
            FromService::Storage { .. } => {
                let what = "an answer about the storage to one who did not ask it";
                return Err(Error::Refused(what.into()));
            }
        }
        self.progress.tell(st);
        Ok(())
    }

    /// Where the Service is and how the connection to it fares.
    pub(crate) fn link_status(&self) -> Link {
        self.link.describe()
    }

    /// Asks the Service for its statistics.
    pub(crate) fn service_statistics(&self) -> Result<siftfs_wire::ServiceStatistics> {
        // The answer carries no id: one question at a time.
        let _asking = relock(self.asking.lock());
        if self.check_help().is_err() {
            return Ok(self.lock().metadata.log.ledger.questions.last_statistics());
        }
        self.link.send(ToService::Statistics)?;
        self.wait_until(|st| {
            let questions = &mut st.metadata.log.ledger.questions;
            let answer = questions.take_statistics();
            // A Service that waits, or is away, answers afterwards.
            answer.or_else(|| self.check_help().is_err().then(|| questions.last_statistics()))
        })
    }

    /// About how many bytes are still to be brought into the area: dirty pages, and lanes and
    /// journal in use. Does not wait for other threads. The number falls to zero while
    /// [`Runtime::settle`] runs.
    pub fn backlog(&self) -> u64 {
        let st = self.lock();
        st.metadata.log.running.data.bytes()
            + st.metadata.log.ledger.journal_used()
            + st.metadata.log.staging.used()
    }

    /// Heads of the lanes and the last LSN drawn.
    pub fn log_position(&self) -> (Vec<u64>, Lsn) {
        let st = self.lock();
        (st.metadata.log.staging.heads(), st.metadata.log.staging.last_drawn())
    }

    /// The superblock as the area has it once everything is settled.
    pub fn superblock(&self) -> [u8; 1024] {
        self.lock().metadata.tree.fs.super_image()
    }
}
