//! Compounds: many steps whose changes are one ("Compounds" in `docs/design/operations.md`).
//!
//! One try is one hold of the state lock: the steps are carried out on a view of the volume
//! ([`plan`], [`mod@file`], [`names`]), what they would change is checked ([`check`]), applied
//! ([`apply`]) and staged. A try that stops for something starts again from its first step. What a
//! step computes ([`compute`]) is kept for the next try.

mod apply;
mod check;
mod compute;
mod file;
mod names;
mod need;
mod plan;

use crate::operations::ROUNDS;
use crate::runtime::Runtime;
use crate::staging::pause::Pause;
use crate::staging::sequencer::Writer;
use crate::staging::unwritten::Staged;
use crate::state::Metadata;
use crate::state::State;
use crate::state::log::names::Unstageable;
use crate::state::log::running::Push;
use crate::state::step::{Need, Step, Stop};
use check::{Checked, Ready, files_of, names_of, written_of};
use compute::{Job, Memo};
use plan::{Halt, Plan};
use siftfs_base::{InodeNr, Lsn, Result, errno};
use siftfs_device::Origin;
use siftfs_proto::compound::{Compound, Compounded, MOST_STEPS, StepNr};
use siftfs_proto::{Credentials, Level, SessionId};

/// What a try came to.
enum Tried {
    /// A step is refused.
    Refused(StepNr, i32),
    /// Applied, and staged unless that is not needed; and is there an inode to free?
    Done(Compounded, Option<Placed>, bool),
    /// Compute this without the lock.
    Compute(Job),
    /// Sync these files first.
    Sync(Vec<InodeNr>),
    /// Commit what is pending first.
    Commit(Unstageable),
}

/// A staged record, and how long to pause once it is written.
enum Placed {
    /// The caller writes it and waits.
    Here(Staged, Pause),
    /// It waits in memory for the next caller that waits for something durable; so much waits that
    /// this thread is to write all up to it.
    Queued(Lsn, bool, Pause),
}

impl Runtime {
    /// Carries out a compound.
    ///
    /// # Errors
    /// `EINVAL` without a step, `E2BIG` with too many, or if no record takes the changes;
    /// `ENOSPC`, `EROFS`; `EAGAIN` if what kept them out of a record came back again and again, or
    /// there was no memory left for callers.
    /// Nothing was changed then. After a failure of the storage, `EIO`.
    pub(crate) fn compound(
        &self,
        session: SessionId,
        cred: &Credentials,
        compound: &Compound,
    ) -> Result<Compounded> {
        if compound.steps.is_empty() {
            return Err(errno(libc::EINVAL));
        }
        if compound.steps.len() > MOST_STEPS {
            return Err(errno(libc::E2BIG));
        }
        let mut charge = self.allowance.wait(cred.uid, need::of(compound))?;
        let mut memo = Memo::default();
        let mut rounds = 0;
        while rounds < ROUNDS {
            match self.drive_compound((session, cred), compound, &memo)? {
                Tried::Refused(step, errno) => return Ok(Compounded::Refused { step, errno }),
                Tried::Done(done, placed, orphan) => {
                    // Only the results are left, for as long as the storage takes.
                    drop(memo);
                    charge.shrink_to(done.bytes());
                    return self.finish_compound(placed, orphan).map(|()| done);
                }
                // Each step's job comes a bounded number of times.
                Tried::Compute(job) => {
                    memo.carry_out(job);
                    continue;
                }
                Tried::Sync(files) => {
                    for file in files {
                        drop(self.fsync(file, false)?);
                    }
                }
                Tried::Commit(reason) => {
                    self.lock().stats.full_commit(reason);
                    drop(self.commit_for(&Push::Aged, Origin::Foreground)?);
                }
            }
            rounds += 1;
        }
        Err(errno(libc::EAGAIN))
    }

    fn drive_compound(
        &self,
        caller: (SessionId, &Credentials),
        compound: &Compound,
        memo: &Memo,
    ) -> Result<Tried> {
        let mut space_tried = false;
        self.drive(libc::EAGAIN, || {
            self.seq.check()?;
            let mut st = self.lock();
            st.metadata.log.running.begin_operation(space_tried);
            let mut applying = false;
            let tried = self.try_compound((&mut st, &mut applying), caller, compound, memo);
            space_tried |= matches!(tried, Err(Stop::Needs(Need::Space)));
            self.leave(st);
            // What was checked did not apply: a part of a compound must never reach the journal.
            if let Err(Stop::Failed(error)) = &tried
                && applying
            {
                self.fail(error);
            }
            tried
        })
    }

    fn try_compound(
        &self,
        (st, applying): (&mut State, &mut bool),
        (session, cred): (SessionId, &Credentials),
        compound: &Compound,
        memo: &Memo,
    ) -> Step<Tried> {
        let mut plan = Plan::new(st, (session, cred), compound, memo);
        match plan.run(st, compound) {
            Ok(Ok(())) => {}
            Ok(Err((step, errno))) => return Ok(Tried::Refused(step, errno)),
            Err(Halt::Compute(job)) => return Ok(Tried::Compute(job)),
            Err(Halt::Stop(stop)) => return Err(stop),
        }
        if plan.changing == 0 {
            let (names, files, written) = (Vec::new(), Vec::new(), Vec::new());
            let values = st.metadata.tree.answer_compound(plan);
            let orphan = st.metadata.tree.inodes.has_to_free();
            let done = Compounded::Done { values, names, files, written };
            return Ok(Tried::Done(done, None, orphan));
        }
        if st.metadata.log.config.read_only {
            return Err(errno(libc::EROFS).into());
        }
        // One change alone is as whole as it is by itself.
        let staged = plan.changing > 1 || compound.level != Level::Visible;
        let ready = match st.check_compound(&plan, staged, st.metadata.tree.privileged(cred))? {
            Checked::Ready(ready) => ready,
            Checked::Sync(files) => return Ok(Tried::Sync(files)),
            Checked::Commit(reason) => return Ok(Tried::Commit(reason)),
        };
        let written = written_of(&plan, st);
        *applying = true;
        st.apply_compound(&mut plan)?;
        let files = files_of(&plan);
        let placed = staged.then(|| self.stage_compound(st, &files, &ready, compound.level));
        let names = names_of(&plan);
        let values = st.metadata.tree.answer_compound(plan);
        let orphan = st.metadata.tree.inodes.has_to_free();
        let done = Compounded::Done { values, names, files, written };
        Ok(Tried::Done(done, placed.flatten(), orphan))
    }

    /// Stages what was applied, under the same hold of the lock.
    fn stage_compound(
        &self,
        st: &mut State,
        files: &[InodeNr],
        ready: &Ready,
        level: Level,
    ) -> Option<Placed> {
        let draft = st.metadata.draft_compound(ready.lane, files);
        let draft = draft?;
        assert!(draft.len() <= ready.longest, "a record is as long as the check said, or shorter");
        let len = draft.len();
        let durable = level == Level::Durable;
        let writer = if durable { Writer::Caller } else { Writer::Ticket };
        let staged = st.stage_draft(&self.seq, draft, writer);
        let pause = Pause::at(st.metadata.fill(ready.lane), len);
        for ino in files {
            st.metadata.tree.node_mut(*ino).fsynced = true;
        }
        if durable {
            return Some(Placed::Here(staged, pause));
        }
        let lsn = staged.published.lsn();
        Some(Placed::Queued(lsn, self.unwritten.push(staged), pause))
    }

    /// What is left to do without the lock.
    fn finish_compound(&self, placed: Option<Placed>, orphan: bool) -> Result<()> {
        match placed {
            None => {}
            Some(Placed::Here(staged, pause)) => {
                self.make_durable(staged, pause).map(drop)?;
            }
            Some(Placed::Queued(lsn, full, pause)) => {
                let start = self.clock.mono_ns();
                if full {
                    self.write_out(lsn, Origin::Foreground);
                }
                self.pause(pause, None, start);
            }
        }
        if orphan { self.run_evictions().map(drop) } else { Ok(()) }
    }
}

impl Metadata {
    /// What a compound changed, as one record; `None` if nothing of it is to be staged.
    fn draft_compound(
        &mut self,
        lane: usize,
        files: &[InodeNr],
    ) -> Option<crate::staging::stage::Draft> {
        let selection = crate::staging::capture::Selection::All;
        match self.draft_in(lane, files, false, &selection) {
            Ok(Ok(draft)) => draft,
            _ => panic!("what was checked is staged"),
        }
    }
}
