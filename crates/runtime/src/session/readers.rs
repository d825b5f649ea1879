//! How what programs may read of files at the storage's target ends (`docs/design/target.md`,
//! "Readers"). The target is asked without the state lock.

use crate::runtime::Runtime;
use crate::state::State;
use crate::state::leases::readers::{Next, Whose};
use siftfs_base::InodeNr;
use siftfs_proto::LeaseId;
use std::sync::PoisonError;
use std::time::Duration;

/// How long a wait for another thread's answer from the target takes, before the state is looked at
/// again.
const LOOK: Duration = Duration::from_millis(20);

/// The file is about to be changed, or leased: no program reads it any more when this returns, and
/// none is granted it for a while.
pub(crate) fn take_back(runtime: &Runtime, ino: InodeNr) {
    {
        let mut st = runtime.lock();
        if !st.leases.direct.readers.has(ino) {
            return;
        }
        let now = st.metadata.log.time.mono_ns();
        st.leases.direct.readers.note_change(ino, now);
    }
    end(runtime, Whose::File(ino));
}

/// Ends grants. Returns when nothing is read by them any more.
pub(crate) fn end(runtime: &Runtime, whose: Whose) {
    while let Some(id) = next(runtime, whose) {
        let plane = runtime.direct.as_ref().expect("something was granted");
        if let Err(error) = plane.revoke(id) {
            // A program may read what will be another file's (rules R21 and R29).
            runtime.fail(&error);
        }
        forget(runtime, id);
    }
}

/// The grant that the target is to be told to end. Waits for another thread that is at one;
/// nothing, if none is left then.
fn next(runtime: &Runtime, whose: Whose) -> Option<LeaseId> {
    let mut st = runtime.lock();
    loop {
        let State { leases, metadata, .. } = &mut *st;
        match leases.direct.readers.end(whose, &mut metadata.tree.inodes) {
            Next::Nothing => return None,
            Next::Revoke(id) => return Some(id),
            Next::Wait => {
                let woken = runtime.lease_ended.wait_timeout(st, LOOK);
                st = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

/// The grant is not there any more, if it was.
pub(crate) fn forget(runtime: &Runtime, id: LeaseId) {
    let mut st = runtime.lock();
    let State { leases, metadata, .. } = &mut *st;
    leases.direct.readers.forget(id, &mut metadata.tree.inodes);
    drop(st);
    runtime.lease_ended.notify_all();
}
