//! Locks on files: which owner has which, and which requests wait. They are the Runtime's own
//! matter, and nothing of them is on storage: `docs/design/front-ends.md`, "Locks across mounts".
//!
//! `owned` is what one owner has of one file, `space` what all owners have of it, `table` has all
//! of them and the waits, `circles` finds waits that would never end, `room` bounds the whole.

mod circles;
mod owned;
mod room;
mod space;
mod table;

pub(crate) use owned::OwnerId;
pub(crate) use table::Ask;

use crate::locks::relock;
use crate::state::tree::references::SessionId;
use siftfs_base::InodeNr;
use siftfs_proto::{Completion, HeldLock, LockKind, LockRange, Reply};
use std::sync::Mutex;
use table::{Answers, Table};

/// The locks of a volume. Their mutex is never held together with another one of the Runtime's, and
/// not while an answer is given.
#[derive(Default)]
pub(crate) struct FileLocks(Mutex<Table>);

impl FileLocks {
    fn with(&self, act: impl FnOnce(&mut Table) -> Answers) {
        let answers = {
            let mut table = relock(self.0.lock());
            act(&mut table)
        };
        for (done, result) in answers {
            done(result.map(|()| Reply::Done));
        }
    }

    /// A session that may have `most` locks and waits, and takes over what others of the same
    /// client have.
    pub(crate) fn begin(&self, session: SessionId, most: u64, client: Option<u64>) {
        relock(self.0.lock()).begin(session, most, client);
    }

    /// All that the session has ends, and so do its waits.
    pub(crate) fn end(&self, session: SessionId) {
        self.with(|table| table.end(session));
    }

    /// A handle is closed: what was taken through it ends, and with `waits` so do those who wait
    /// through it.
    pub(crate) fn close(&self, session: SessionId, handle: u64, waits: bool) {
        self.with(|table| table.close(session, handle, waits));
    }

    /// A descriptor of a handle is closed: what the owner has of the bytes ends, and what was taken
    /// through the handle may be about to.
    pub(crate) fn close_descriptor(&self, gives_up: &Ask) {
        self.with(|table| table.close_descriptor(gives_up));
    }

    /// A lock of another owner that keeps this one from being granted.
    pub(crate) fn get(
        &self,
        ino: InodeNr,
        owner: OwnerId,
        range: LockRange,
        kind: LockKind,
    ) -> Option<HeldLock> {
        relock(self.0.lock()).get(ino, owner, range, kind)
    }

    /// Takes a lock or gives it up; `done` is told when that is so, which may be later.
    pub(crate) fn set(&self, ask: &Ask, done: Completion) {
        self.with(|table| table.set(ask, done));
    }

    /// How many locks there are, and requests that wait for one.
    pub(crate) fn count(&self) -> (u64, u64) {
        relock(self.0.lock()).count()
    }

    /// A wait ends without its lock, if it is there.
    pub(crate) fn cancel(&self, session: SessionId, number: u64) {
        self.with(|table| table.cancel(session, number));
    }
}
