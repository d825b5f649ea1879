//! Background journal transactions: when one is due, its way through the stages of assembly to the
//! Service, and waiting until it is durable.

use crate::assembly::cut::{Cut, Handoff};
use crate::locks::relock;
use crate::runtime::{MAX_ROUNDS, Runtime};
use crate::session::direct;
use crate::staging::proof::{Committed, Durable, Settled};
use crate::state::State;
use crate::state::log::running::Push;
use crate::state::step::{Step, Stop};
use siftfs_base::{Error, InodeNr, Lsn, Result, TxnSeq, errno};
use siftfs_device::Origin;
use siftfs_wire::{DIRECT_MAX_BLOCKS, ToService, Urgency};
use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::time::Duration;

/// Longest pause for fsyncs between two records that are pushed: the assembly lock is held.
const PUSH_PAUSE: Duration = Duration::from_millis(2);

/// What a commit came to.
#[derive(Debug)]
pub struct Commit {
    /// Inodes whose pushed data did not fit.
    pub left: BTreeSet<InodeNr>,
    /// Everything cut is durable.
    pub durable: Committed,
}

impl Runtime {
    /// Assembles and journals one transaction in the background; see [`Runtime::commit_for`].
    pub fn commit(&self, push: &Push) -> Result<Commit> {
        self.commit_for(push, Origin::Background)
    }

    /// Assembles and journals one transaction; returns when its commit is durable. If there is
    /// nothing to do, everything cut so far is durable: at most one transaction is in flight, and
    /// the thread that submitted it has waited for its commit. `origin` says whether a caller
    /// waits: its writes and flushes are that caller's own then.
    pub fn commit_for(&self, push: &Push, origin: Origin) -> Result<Commit> {
        let assembly = self.assembly_lock();
        self.commit_under(&assembly, push, origin)
    }

    /// Takes the assembly lock: one transaction is made at a time, and one is in flight.
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
        // One is in flight at a time, also if the thread that submitted it had to leave.
        self.wait_for_help(|st| st.metadata.log.committed(st.metadata.log.ledger.last_cut()))?;
        for _ in 0..MAX_ROUNDS {
            self.seq.check()?;
            let st = self.lock();
            if st.metadata.log.is_still() || !st.has_work(push) {
                let durable =
                    st.metadata.log.committed(st.metadata.log.ledger.last_cut()).ok_or_else(
                        || {
                            let seq = st.metadata.log.ledger.last_cut().0;
                            Error::Latched(format!("transaction {seq} is not durable"))
                        },
                    )?;
                return Ok(Commit { left: BTreeSet::new(), durable });
            }
            let unreclaimed = !st.metadata.log.ledger.is_empty();
            let seq = st.metadata.log.next_txn();
            drop(st);
            let start = self.clock.mono_ns();
            // Pages of records that are not written stay in the cache, while this pushes others.
            self.write_out(Lsn(u64::MAX), origin);
            match self.assemble(seq, push, origin) {
                Ok(mut cut) => {
                    let left = std::mem::take(&mut cut.left);
                    let sources = self.wait_durable(cut.sources(), origin)?;
                    let durable = self.submit(cut.release(&sources), origin)?;
                    self.latency.commit.record(self.clock.mono_ns().saturating_sub(start));
                    return Ok(Commit { left, durable });
                }
                Err(Stop::Needs(_)) if unreclaimed => {}
                Err(stop) => {
                    let error = stop.into_error();
                    self.fail(&error);
                    return Err(error);
                }
            }
            self.await_checkpoint(Urgency::Emergency)?;
        }
        Err(errno(libc::EIO))
    }

    /// Takes a transaction through the stages up to its cut; everything handed over is written.
    /// Then notifies the callers that wait for the cut.
    fn assemble(&self, seq: TxnSeq, push: &Push, origin: Origin) -> Step<Cut> {
        let result = self.assemble_stages(seq, push, origin);
        let mut st = self.lock();
        st.metadata.log.running.end_assembly();
        self.progress.tell(st);
        result
    }

    fn assemble_stages(&self, seq: TxnSeq, push: &Push, origin: Origin) -> Step<Cut> {
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

    /// Runs one step of assembly under the state lock, then yields to the callers that wait for the
    /// lock.
    fn held<T>(&self, step: impl FnOnce(&mut State) -> Step<T>) -> Step<T> {
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

    /// Hands a transaction to the Service and waits until its commit is durable. The caller holds
    /// the assembly lock or is recovery. An error that is not latched leaves it in flight: the next
    /// commit waits for it first.
    fn submit(&self, txn: siftfs_log::Transaction, origin: Origin) -> Result<Committed> {
        let seq = txn.seq;
        let waited = origin == Origin::Foreground;
        self.lock().metadata.log.ledger.submitted(seq);
        self.link.send(ToService::Submit { txn: Box::new(txn), waited })?;
        self.wait_for_help(|st| st.metadata.log.committed(seq))
    }

    /// Commits until nothing that was not durable at the call (of `only`, if given) is left behind.
    /// A round that leaves as much as the one before needs log space first.
    pub(crate) fn commit_all(&self, push: &Push, only: Option<InodeNr>) -> Result<Settled> {
        let asked = self.lock().metadata.asked(only);
        let mut targets: BTreeSet<InodeNr> = asked.inodes().collect();
        let mut before = u64::MAX;
        for _ in 0..MAX_ROUNDS {
            self.check_help()?;
            let Commit { left, durable } = self.commit_for(push, Origin::Foreground)?;
            targets.retain(|ino| left.contains(ino));
            if targets.is_empty() {
                return Ok(self.lock().metadata.settled(&asked, durable));
            }
            let dirty = self.lock().metadata.log.running.data.bytes();
            if dirty >= before {
                self.checkpoint(Urgency::Emergency)?;
            }
            before = dirty;
        }
        Err(errno(libc::EIO))
    }

    /// Everything done before this call is durable and journaled when it returns.
    pub fn sync_all(&self) -> Result<Durable> {
        direct::settle_all(self)?;
        self.commit_all(&Push::All, None).map(Durable::Journaled)
    }

    /// Everything final and in the area: the log is empty afterwards. For unmount.
    pub fn settle(&self) -> Result<()> {
        self.lock().metadata.tree.inodes.forget_all();
        for _ in 0..MAX_ROUNDS {
            self.commit_all(&Push::All, None)?;
            self.checkpoint(Urgency::Emergency)?;
            self.finish_discards()?;
            let mut st = self.lock();
            st.metadata.log.forget_clients();
            if st.metadata.tidy_trees()?
                && !st.has_work(&Push::All)
                && st.metadata.log.ledger.is_empty()
                && st.metadata.tree.inodes.orphans() == 0
                && st.discards.is_idle()
            {
                return Ok(());
            }
        }
        Err(errno(libc::EIO))
    }
}
