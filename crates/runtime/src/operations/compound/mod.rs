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
pub mod need;
mod plan;

use crate::endpoint::Call;
use crate::operations::group::{Checked, Group, Hindrance};
use crate::runtime::Runtime;
use crate::staging::capture::{Asked, Selection};
use crate::staging::pause::Pause;
use crate::staging::sequencer::Writer;
use crate::staging::stage::Draft;
use crate::staging::unwritten::Staged;
use crate::state::Metadata;
use crate::state::State;
use crate::state::step::Step;
use crate::state::tree::references::SessionId;
use check::{Ready, files_of, names_of, written_of};
use compute::{Job, Memo};
use plan::{Halt, Plan};
use siftfs_base::{InodeNr, Lsn, Result, corrupt, errno};
use siftfs_device::Origin;
use siftfs_proto::compound::{Compound, Compounded, MOST_STEPS, WrittenFile};
use siftfs_proto::{Credentials, Level};

/// A compound, whose it is, and what was computed for it so far.
struct Steps<'a> {
    runtime: &'a Runtime,
    session: SessionId,
    cred: &'a Credentials,
    compound: &'a Compound,
    memo: Memo,
}

/// A plan that can be applied.
struct Checkable<'a> {
    plan: Plan<'a>,
    /// What it is staged with, if it is.
    ready: Option<Ready>,
}

/// A compound that is applied, or refused.
struct Answered {
    answer: Compounded,
    /// Its record, unless that is not needed.
    placed: Option<Placed>,
    /// Is there an inode to free?
    orphan: bool,
}

/// A staged record, and how long to pause once it is written.
enum Placed {
    /// The caller writes it and waits.
    Here(Staged, Pause),
    /// It waits in memory for the next caller that waits for something durable; so much waits that
    /// this thread is to write all up to it.
    Queued(Lsn, bool, Pause),
}

impl Call<'_> {
    /// Carries out a compound.
    ///
    /// # Errors
    /// `EINVAL` without a step, `E2BIG` with too many, or if no record takes the changes;
    /// `ENOSPC`, `EROFS`; `EAGAIN` if what kept them out of a record came back again and again, or
    /// there was no memory left for callers.
    /// Nothing was changed then. After a failure of the storage, `EIO`.
    pub(crate) fn compound(&self, compound: &Compound) -> Result<Compounded> {
        let Self { runtime, session, cred, ref doing } = *self;
        if compound.steps.is_empty() {
            return Err(errno(libc::EINVAL));
        }
        if compound.steps.len() > MOST_STEPS {
            return Err(errno(libc::E2BIG));
        }
        let mut charge = runtime.allowance.wait(cred.uid, need::of(compound))?;
        let memo = Memo::default();
        let mut steps = Steps { runtime, session: session.id, cred, compound, memo };
        let Answered { answer, placed, orphan } = runtime.drive_group(doing, &mut steps)?;
        // Only the results are left, for as long as the storage takes.
        drop(steps);
        charge.shrink_to(answer.bytes());
        self.finish_compound(placed, orphan).map(|()| answer)
    }

    /// What is left to do without the lock.
    fn finish_compound(&self, placed: Option<Placed>, orphan: bool) -> Result<()> {
        match placed {
            None => {}
            Some(Placed::Here(staged, pause)) => {
                self.runtime.make_durable(staged, pause).map(drop)?;
            }
            Some(Placed::Queued(lsn, full, pause)) => {
                let start = self.runtime.clock.mono_ns();
                if full {
                    self.runtime.write_out(lsn, Origin::Foreground);
                }
                self.runtime.pause(pause, None, start);
            }
        }
        if orphan { self.runtime.run_evictions().map(drop) } else { Ok(()) }
    }
}

impl Group for Steps<'_> {
    const NAME: &'static str = "compound";
    type Ready<'a>
        = Checkable<'a>
    where
        Self: 'a;
    type Done = Answered;
    type Job = Job;

    fn check<'a>(
        &'a self,
        st: &mut State,
    ) -> std::result::Result<Checked<Self, Checkable<'a>>, Hindrance> {
        let mut plan = Plan::new(st, (self.session, self.cred), self.compound, &self.memo);
        match plan.run(st, self.compound) {
            Ok(()) => {}
            Err(Halt::Refused(step, errno)) => {
                let answer = Compounded::Refused { step, errno };
                return Ok(Checked::Answer(Answered { answer, placed: None, orphan: false }));
            }
            Err(Halt::Compute(job)) => return Ok(Checked::Compute(job)),
            Err(Halt::Stop(stop)) => return Err(stop.into()),
        }
        if plan.changing == 0 {
            return Ok(Checked::Answer(Answered::of(st, plan, Vec::new(), None)));
        }
        st.metadata.log.may_change()?;
        // One change alone is as whole as it is by itself.
        let staged = plan.changing > 1 || self.compound.level != Level::Visible;
        let privileged = st.metadata.tree.privileged(self.cred);
        let ready = st.check_compound(&plan, staged, privileged)?;
        Ok(Checked::Ready(Checkable { plan, ready: staged.then_some(ready) }))
    }

    fn apply(
        &self,
        st: &mut State,
        Checkable { mut plan, ready }: Checkable<'_>,
    ) -> Step<Answered> {
        let written = written_of(&plan, st);
        st.apply_compound(&mut plan)?;
        let files = files_of(&plan);
        let placed = match ready {
            Some(ready) => self.stage(st, &files, &ready)?,
            None => None,
        };
        Ok(Answered::of(st, plan, written, placed))
    }

    fn compute(&mut self, job: Job) {
        self.memo.carry_out(job);
    }
}

impl Answered {
    /// The answer of a plan that is carried out.
    fn of(
        st: &mut State,
        plan: Plan<'_>,
        written: Vec<WrittenFile>,
        placed: Option<Placed>,
    ) -> Self {
        let changed = plan.changing > 0;
        let names = if changed { names_of(&plan) } else { Vec::new() };
        let files = if changed { files_of(&plan) } else { Vec::new() };
        let values = st.metadata.tree.answer_compound(plan);
        let orphan = st.metadata.tree.inodes.has_to_free();
        Self { answer: Compounded::Done { values, names, files, written }, placed, orphan }
    }
}

impl Steps<'_> {
    /// Stages what was applied, under the same hold of the lock.
    fn stage(&self, st: &mut State, files: &[InodeNr], ready: &Ready) -> Step<Option<Placed>> {
        let Some(draft) = st.metadata.draft_compound(ready.lane, files)? else { return Ok(None) };
        assert!(draft.len() <= ready.longest, "a record is as long as the check said, or shorter");
        let len = draft.len();
        let durable = self.compound.level == Level::Durable;
        let writer = if durable { Writer::Caller } else { Writer::Ticket };
        let staged = st.stage_draft(&self.runtime.seq, draft, writer);
        let pause = Pause::at(st.metadata.fill(ready.lane), len);
        for ino in files {
            st.metadata.tree.node_mut(*ino).fsynced = true;
        }
        if durable {
            return Ok(Some(Placed::Here(staged, pause)));
        }
        let lsn = staged.published.lsn();
        Ok(Some(Placed::Queued(lsn, self.runtime.unwritten.push(staged), pause)))
    }
}

impl Metadata {
    /// What a compound changed, as one record; `None` if nothing of it is to be staged.
    fn draft_compound(&mut self, lane: usize, files: &[InodeNr]) -> Result<Option<Draft>> {
        self.draft_in(lane, files, Asked::default(), &Selection::All)
            .map_err(|_| corrupt(Steps::NAME, "what was checked is not staged"))
    }
}
