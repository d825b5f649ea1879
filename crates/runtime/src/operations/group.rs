//! The one driver of operations that change several things together: everything that can refuse the
//! change is looked at first, under the hold of the state lock under which it is then applied.
//! What keeps it out of one record is brought out of the way without the lock, and all is looked at
//! again (rule R25).

use crate::runtime::Runtime;
use crate::session::Doing;
use crate::staging::capture::Asked;
use crate::staging::not_staged::NotStaged;
use crate::state::State;
use crate::state::log::names::Unstageable;
use crate::state::log::running::Push;
use crate::state::step::{Need, Step, Stop};
use siftfs_base::{Error, InodeNr, Result, corrupt, errno};
use siftfs_device::Origin;

/// How often what keeps a group out of one record is brought out of the way before the caller is
/// told to come back later. Others may bring it back each time: a round is lost only if they do so
/// in the moment between the commit and the next try.
const ROUNDS: u32 = 64;

/// What a check came to that found nothing in the way.
pub enum Checked<G: Group + ?Sized, R> {
    /// All of it can be applied, and nothing of that can fail.
    Ready(R),
    /// There is nothing to apply: this is the answer.
    Answer(G::Done),
    /// This must be computed first, without the lock.
    Compute(G::Job),
}

/// Why a check did not come to its end.
pub enum Hindrance {
    /// Unsynced data of these files keeps the group out of one record: they are synced first.
    Unsynced(Vec<InodeNr>),
    /// Only a transaction takes what is pending: it is committed first.
    Pending(Unstageable),
    /// As any step.
    Stop(Stop),
}

impl From<Stop> for Hindrance {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<Error> for Hindrance {
    fn from(error: Error) -> Self {
        Self::Stop(error.into())
    }
}

impl From<NotStaged> for Hindrance {
    fn from(reason: NotStaged) -> Self {
        match reason {
            NotStaged::Unstageable(reason) => Self::Pending(reason),
            NotStaged::Stop(stop) => Self::Stop(stop),
        }
    }
}

/// An operation that changes several things together.
pub trait Group {
    /// What the operation is, for a message.
    const NAME: &'static str;
    /// What a check hands to the change.
    type Ready<'a>
    where
        Self: 'a;
    /// What is left to do when the change is applied.
    type Done;
    /// What the operation computes without the lock.
    type Job;

    /// Looks at everything that can refuse the change. Nothing that another operation sees changes.
    ///
    /// # Errors
    /// What is in the way, or why the operation is refused.
    fn check<'a>(
        &'a self,
        st: &mut State,
    ) -> std::result::Result<Checked<Self, Self::Ready<'a>>, Hindrance>;

    /// Makes the change, under the same hold of the lock.
    ///
    /// # Errors
    /// A mistake of the check: a part of the change may be applied, and the volume stops.
    fn apply(&self, st: &mut State, ready: Self::Ready<'_>) -> Step<Self::Done>;

    /// Computes, without the lock.
    fn compute(&mut self, job: Self::Job);
}

/// What a try came to.
enum Tried<D, J> {
    Done(D),
    Compute(J),
    Unsynced(Vec<InodeNr>),
    Pending(Unstageable),
}

impl Runtime {
    /// Carries a group out.
    ///
    /// # Errors
    /// Those of its check, after which nothing has changed; `EAGAIN` if what kept it out of a
    /// record came back again and again. After a failure of the storage, `EIO`.
    pub(crate) fn drive_group<G: Group>(&self, doing: &Doing, group: &mut G) -> Result<G::Done> {
        let mut rounds = 0;
        while rounds < ROUNDS {
            match self.drive_try(doing, group)? {
                Tried::Done(done) => return Ok(done),
                // A group has a bounded number of jobs.
                Tried::Compute(job) => {
                    group.compute(job);
                    continue;
                }
                Tried::Unsynced(files) => {
                    for file in files {
                        drop(self.fsync(file, Asked::default())?);
                    }
                }
                Tried::Pending(reason) => {
                    self.lock().stats.full_commit(reason);
                    drop(self.commit_for(&Push::Aged, Origin::Foreground)?);
                }
            }
            rounds += 1;
        }
        Err(errno(libc::EAGAIN))
    }

    fn drive_try<G: Group>(&self, doing: &Doing, group: &G) -> Result<Tried<G::Done, G::Job>> {
        let mut space_tried = false;
        self.drive(libc::EAGAIN, || {
            let tried = self.try_group(doing, group, space_tried);
            space_tried |= matches!(tried, Err(Stop::Needs(Need::Space)));
            tried
        })
    }

    fn try_group<G: Group>(
        &self,
        doing: &Doing,
        group: &G,
        space_tried: bool,
    ) -> Step<Tried<G::Done, G::Job>> {
        self.seq.check()?;
        let mut st = self.lock();
        st.metadata.log.enter_call(doing.origin())?;
        st.metadata.log.running.begin_operation(space_tried);
        let checked = group.check(&mut st);
        let tried = match checked {
            Ok(Checked::Ready(ready)) => {
                st.begin_changes(doing.untold());
                let applied = group.apply(&mut st, ready);
                let notices = st.end_changes(doing.untold());
                if let (Ok(_), Some(origin)) = (&applied, doing.origin()) {
                    st.metadata.log.replies.changed(origin);
                }
                self.leave(st);
                doing.tell(notices);
                return applied.map(Tried::Done).map_err(|stop| self.half_done::<G>(stop).into());
            }
            Ok(Checked::Answer(done)) => Ok(Tried::Done(done)),
            Ok(Checked::Compute(job)) => Ok(Tried::Compute(job)),
            Err(Hindrance::Unsynced(files)) => Ok(Tried::Unsynced(files)),
            Err(Hindrance::Pending(reason)) => Ok(Tried::Pending(reason)),
            Err(Hindrance::Stop(stop)) => Err(stop),
        };
        self.leave(st);
        tried
    }

    /// What was checked did not apply. That is a mistake of ours, and a part of the change must
    /// never reach the journal: the volume stops.
    fn half_done<G: Group>(&self, stop: Stop) -> Error {
        let error = match stop {
            Stop::Failed(error) => error,
            _ => corrupt(G::NAME, "a step that was checked needs more than was reserved"),
        };
        self.fail(&error);
        error
    }
}
