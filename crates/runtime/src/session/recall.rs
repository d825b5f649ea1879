//! The end of write leases: recalled, silent, over, or because the volume closes. Nobody waits for
//! a holder under a lock, nor for longer than a term. For the daemon's own sessions, which lend, a
//! request waits as for storage.

use crate::runtime::Runtime;
use crate::session::direct;
use crate::state::State;
use crate::state::leases::Recalled;
use crate::state::step::Ends;
use crate::state::tree::references::SessionId;
use siftfs_base::InodeNr;
use siftfs_proto::{LeaseId, Owed};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

/// How long a wait for a lease's end takes, before the clock is looked at again: the machine may
/// have slept.
const LOOK: Duration = Duration::from_millis(20);

impl Runtime {
    /// Has the lease of a file end, or what is granted of it. Returns when it has: the lease's
    /// holder gave it back, or its term was over, which is not waited for where the holder lends.
    pub(crate) fn recall(&self, ino: InodeNr, ends: Ends) {
        match ends {
            Ends::Grant => {
                self.lock().leases.direct.recalls += 1;
                direct::take_back(self, ino);
            }
            Ends::Lease => {
                if let Some(lease) = begin(self, ino) {
                    await_end(self, (ino, lease), false);
                }
            }
        }
    }
}

/// Recalls every write lease, and ends those that are not returned within a term. Nobody gets one
/// until the volume is made writable again.
pub fn end_leases(runtime: &Runtime) {
    let due = {
        let mut st = runtime.lock();
        st.leases.close(true);
        st.leases.due(None)
    };
    let begun = due.into_iter().filter_map(|ino| Some((ino, begin(runtime, ino)?)));
    let recalled: Vec<_> = begun.collect();
    recalled.into_iter().for_each(|lease| await_end(runtime, lease, true));
}

/// The session's leases are to end, and its holder is told so. Nobody waits for that.
pub(crate) fn tell_all(runtime: &Runtime, session: SessionId) {
    let files = runtime.lock().leases.of_session(session);
    for ino in files {
        let _recalled = begin(runtime, ino);
    }
}

/// The session has no lease any more, if that is so: what it has set aside is free.
pub(crate) fn give_space_back(st: &mut State, session: SessionId) {
    if !st.leases.has_any(session) {
        st.metadata.log.reserves.give_back(session);
    }
}

/// Ends the leases whose terms are over.
pub(crate) fn sweep(runtime: &Runtime) {
    let st = runtime.lock();
    let mut due = st.leases.due(Some(st.metadata.log.time.boot_ns()));
    // The background does not wait for one who asks for blocks: that may take a checkpoint.
    due.retain(|ino| !st.leases.direct.is_asked(*ino));
    let _owed = end(runtime, st, &due);
}

/// The leases of these files end: those who wait for that go on, and the other sessions are told.
/// What is returned is owed to those; they know nothing of the files that is older.
pub(crate) fn end(runtime: &Runtime, st: MutexGuard<'_, State>, files: &[InodeNr]) -> Owed {
    let mut owed = Owed::default();
    if files.is_empty() {
        return owed;
    }
    let (mut st, files) = take_back(runtime, st, files);
    let mut notices = Vec::new();
    for ino in &files {
        let State { leases, sharing, metadata, .. } = &mut *st;
        let inodes = &mut metadata.tree.inodes;
        if let Some(ended) = leases.end(*ino, inodes) {
            let told = sharing.after_lease(ended, inodes);
            leases.settles(*ino, told.owed());
            notices.push(told);
            give_space_back(&mut st, ended.session);
        }
    }
    drop(st);
    runtime.lease_ended.notify_all();
    notices.into_iter().for_each(|notices| owed.add(notices.send()));
    owed
}

/// What programs have of these files is taken back, and nothing more is granted of them. Which of
/// their leases are to end: one that has ended meanwhile may be another session's by now.
fn take_back<'a>(
    runtime: &'a Runtime,
    mut st: MutexGuard<'a, State>,
    files: &[InodeNr],
) -> (MutexGuard<'a, State>, Vec<InodeNr>) {
    let leases = files.iter().filter_map(|ino| Some((*ino, st.leases.ends(*ino)?)));
    let mut leases: Vec<_> = leases.collect();
    let has = |st: &State, ino| st.leases.direct.has(ino) || st.leases.direct.rooms.has(ino);
    let granted = |st: &State| files.iter().copied().find(|ino| has(st, *ino));
    while let Some(ino) = granted(&st) {
        drop(st);
        direct::take_back(runtime, ino);
        direct::give_room_back(runtime, ino);
        st = runtime.lock();
    }
    leases.retain(|(ino, lease)| st.leases.is_of(*ino, *lease));
    (st, leases.into_iter().map(|(ino, _)| ino).collect())
}

/// Tells the holder, unless that was done before. Nothing if no lease has to end.
fn begin(runtime: &Runtime, ino: InodeNr) -> Option<LeaseId> {
    let mut st = runtime.lock();
    let now = st.metadata.log.time.boot_ns();
    let Recalled { lease, holder } = st.leases.recall(ino, now)?;
    drop(st);
    if let Some(holder) = holder {
        holder.recall(lease);
    }
    Some(lease)
}

/// Waits until the lease has ended, and ends it when its term is over. A lease of a session that
/// lends has no term, but while the volume `closes`: no program's log counts any more by then.
fn await_end(runtime: &Runtime, (ino, lease): (InodeNr, LeaseId), closes: bool) {
    let mut st = runtime.lock();
    loop {
        let now = st.metadata.log.time.boot_ns();
        let Some(left) = st.leases.left(ino, lease, now) else { return };
        let ends = closes || !st.leases.is_lent(ino);
        if left.is_zero() && ends {
            st.leases.note_silence(ino, now);
            let _owed = end(runtime, st, &[ino]);
            return;
        }
        let next = if ends { left.min(LOOK) } else { LOOK };
        let woken = runtime.lease_ended.wait_timeout(st, next);
        st = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
}
