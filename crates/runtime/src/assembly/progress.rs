//! Waiting for the background: commits, credits, checkpoints. No lock that assembly needs is held
//! (rule R10).

use crate::assembly::freeze::await_thaw;
use crate::runtime::Runtime;
use crate::state::State;
use crate::state::log::running::Push;
use crate::state::step::Need;
use siftfs_base::{Result, TxnSeq};
use siftfs_device::Origin;
use siftfs_wire::{CheckpointReport, ToService, Urgency};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Sleep between two checks of [`Runtime::await_forgets`].
const LOOK: Duration = Duration::from_millis(1);

impl Runtime {
    /// Makes the progress that an operation asked for, on the calling thread.
    pub(crate) fn make_progress(&self, need: Need) -> Result<()> {
        self.check_help()?;
        self.lock().stats.stalled(need);
        match need {
            Need::Commit => self.await_cut(),
            Need::Push => self.await_push(),
            Need::Thaw => await_thaw(self),
            Need::Log => self.await_credits(Urgency::Emergency),
            Need::Credits => self.await_credits(Urgency::Background),
            Need::Space => {
                self.await_forgets();
                self.commit_for(&Push::Aged, Origin::Foreground)?;
                self.checkpoint(Urgency::Emergency)?;
                self.end_discards()
            }
        }
    }

    /// Makes room in the running transaction. If another thread is assembling it, waits for the
    /// cut; else journals it. The room is there at the cut, before what was cut is in the journal.
    fn await_cut(&self) -> Result<()> {
        let full = self.lock().metadata.log.ledger.last_cut();
        let cut = |st: &mut State| {
            let last = st.metadata.log.ledger.last_cut();
            (last != full || !st.metadata.log.running.is_assembling()).then_some(last)
        };
        if self.wait_for_help(cut)? != full {
            return Ok(());
        }
        let assembly = self.assembly_lock();
        if self.lock().metadata.log.ledger.last_cut() != full {
            return Ok(());
        }
        self.commit_under(&assembly, &Push::Aged, Origin::Foreground).map(drop)
    }

    /// Makes room for unsynced data: one transaction takes what it can of it, unless another thread
    /// has made one meanwhile. If it leaves as much as there was, it needs log space first.
    fn await_push(&self) -> Result<()> {
        let now =
            |st: &State| (st.metadata.log.ledger.last_cut(), st.metadata.log.running.data.bytes());
        let (seq, dirty) = now(&self.lock());
        let assembly = self.assembly_lock();
        if self.lock().metadata.log.ledger.last_cut() != seq {
            return Ok(());
        }
        self.commit_under(&assembly, &Push::All, Origin::Foreground)?;
        drop(assembly);
        if self.lock().metadata.log.running.data.bytes() >= dirty {
            self.checkpoint(Urgency::Emergency)?;
        }
        Ok(())
    }

    /// Waits, for [`crate::Config::late_forgets`] at most, for the kernel's RELEASEs and FORGETs of
    /// removed files, after which their blocks can be freed. Whether one is on its way cannot be
    /// known: a program may keep a removed file open.
    fn await_forgets(&self) {
        let (start, longest) = (self.clock.mono_ns(), self.lock().metadata.log.config.late_forgets);
        for _ in 0..longest.as_nanos().div_ceil(LOOK.as_nanos()) {
            let passed = Duration::from_nanos(self.clock.mono_ns().saturating_sub(start));
            if passed >= longest || !self.lock().metadata.tree.inodes.is_removed_in_use() {
                return;
            }
            self.clock.sleep(LOOK);
        }
    }

    /// Waits until some credits have come back. If no transaction is journaled that could return
    /// them, journals one first.
    fn await_credits(&self, urgency: Urgency) -> Result<()> {
        if self.lock().metadata.log.ledger.oldest_journaled().is_none() {
            let assembly = self.assembly_lock();
            // The thread that had the lock before may have journaled something.
            if self.lock().metadata.log.ledger.oldest_journaled().is_none() {
                self.commit_under(&assembly, &Push::Aged, Origin::Foreground)?;
            }
        }
        self.await_checkpoint(urgency)
    }

    /// Waits for the next credits of what is journaled, not for all that are to come: credits
    /// return in steps, and one may be enough. At most one request of each urgency is open at a
    /// time, however many callers wait. Returns at once if nothing is journaled.
    pub(crate) fn await_checkpoint(&self, urgency: Urgency) -> Result<()> {
        let mut st = self.lock();
        let Some(oldest) = st.metadata.log.ledger.oldest_journaled() else { return Ok(()) };
        let before = st.metadata.log.ledger.last_reclaimed();
        let under_way = |st: &State| st.metadata.log.ledger.questions.is_open(urgency);
        let ask = !under_way(&st);
        let id = self.checkpoint_id();
        if ask {
            match urgency {
                Urgency::Background => st.metadata.log.ledger.questions.ask_background(),
                Urgency::Emergency => st.metadata.log.ledger.questions.ask_for_credits(id),
            }
        }
        drop(st);
        if ask {
            let upto = match urgency {
                Urgency::Background => TxnSeq(u64::MAX),
                Urgency::Emergency => oldest,
            };
            self.ask(upto, urgency, id)?;
        }
        self.wait_for_help(|st| {
            (st.metadata.log.ledger.last_reclaimed() > before || !under_way(st)).then_some(())
        })
    }

    /// Checkpoints and reclaims everything journaled now.
    pub fn checkpoint(&self, urgency: Urgency) -> Result<CheckpointReport> {
        let start = self.clock.mono_ns();
        let id = self.checkpoint_id();
        self.ask(TxnSeq(u64::MAX), urgency, id)?;
        let report = self.wait_for_help(|st| st.metadata.log.ledger.questions.take_report(id))?;
        self.latency.checkpoint.record(self.clock.mono_ns().saturating_sub(start));
        Ok(report)
    }

    /// The number of the next checkpoint request.
    pub(crate) fn checkpoint_id(&self) -> u64 {
        self.next_checkpoint.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks the Service for a checkpoint of what is journaled up to `upto`.
    pub(crate) fn ask(&self, upto: TxnSeq, urgency: Urgency, id: u64) -> Result<()> {
        self.link.send(ToService::Checkpoint { id, upto, urgency })
    }

    /// As [`Runtime::wait_until`], as long as there is help: see [`Runtime::check_help`]. What was
    /// asked for may still come.
    pub(crate) fn wait_for_help<T>(&self, ready: impl FnMut(&mut State) -> Option<T>) -> Result<T> {
        let check = || self.seq.check().and_then(|()| self.check_help());
        self.progress.wait_until(self.lock(), check, ready)
    }

    /// Waits for what a message of the Service brings, or a latched failure.
    pub(crate) fn wait_until<T>(&self, ready: impl FnMut(&mut State) -> Option<T>) -> Result<T> {
        self.progress.wait_until(self.lock(), || self.seq.check(), ready)
    }
}
