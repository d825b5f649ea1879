//! What programs have of files at the storage's target: how it ends, and how it is made durable
//! (`docs/design/target.md`, "The data plane"). The target is asked without the state lock.

use crate::data::appended;
use crate::direct_plane::Written;
use crate::runtime::Runtime;
use crate::session::readers;
use crate::state::State;
use crate::state::leases::direct::Directs;
use crate::state::leases::direct::End;
use crate::state::step::Step;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::LeaseId;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

/// How long a wait for another thread's answer from the target takes, before the state is looked at
/// again.
const LOOK: Duration = Duration::from_millis(20);

/// Takes back what is granted of a file, if anything is. Returns when no program reads or writes it
/// any more, what was written is durable, and the page cache has nothing that is older.
pub(crate) fn take_back(runtime: &Runtime, ino: InodeNr) {
    readers::take_back(runtime, ino);
    let Some(lease) = begin_to_take_back(runtime, ino) else { return };
    let plane = runtime.direct.as_ref().expect("something was granted");
    if let Err(error) = note_all(runtime, ino, || plane.revoke(lease)) {
        // A program may write to what the volume believes its own (rules R21 and R29).
        runtime.fail(&error);
    }
    forget_grant(runtime, ino);
}

/// Asks the target what was written until it has told all, and notes that. What was written for the
/// first time is journaled when this returns (rule R30). Is the grant lost?
fn note_all(
    runtime: &Runtime,
    ino: InodeNr,
    mut ask: impl FnMut() -> Result<Written>,
) -> Result<bool> {
    let (mut lost, mut fresh) = (false, false);
    loop {
        let written = ask()?;
        let more = written.more;
        (lost, fresh) = (lost || written.lost, fresh || written.has_fresh());
        told(runtime, note_written(runtime, ino, written))?;
        if !more {
            break;
        }
    }
    if fresh {
        let _journaled = told(runtime, runtime.full_commit(ino))?;
    }
    Ok(lost)
}

/// What the target has told it does not tell again: where that cannot be kept, the volume stops.
fn told<T>(runtime: &Runtime, kept: Result<T>) -> Result<T> {
    kept.inspect_err(|error| runtime.fail(error))
}

/// The lease whose grant the target is to be told to end. Waits for another thread that is at
/// it; nothing, if nothing is granted then.
fn begin_to_take_back(runtime: &Runtime, ino: InodeNr) -> Option<LeaseId> {
    begin(runtime, |directs| directs.end(ino))
}

/// The lease that the target is to be asked about, once no other thread asks about the file.
fn begin(runtime: &Runtime, mut end: impl FnMut(&mut Directs) -> End) -> Option<LeaseId> {
    let mut st = runtime.lock();
    loop {
        match end(&mut st.leases.direct) {
            End::Nothing => return None,
            End::Revoke(lease) => return Some(lease),
            End::Wait => {
                let woken = runtime.lease_ended.wait_timeout(st, LOOK);
                st = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

/// The state, when what is granted of the file by this lease may grow: no other thread asks the
/// target about it. Waits for one that does.
///
/// # Errors
/// `ESTALE`: nothing is granted by it any more.
pub(crate) fn once_granted(
    runtime: &Runtime,
    ino: InodeNr,
    lease: LeaseId,
) -> Result<MutexGuard<'_, State>> {
    let mut st = runtime.lock();
    while !st.leases.direct.may_extend(ino, lease)? {
        let woken = runtime.lease_ended.wait_timeout(st, LOOK);
        st = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
    Ok(st)
}

/// Nothing is granted of the file any more. Pages that were read meanwhile may be older than
/// what was written.
pub(crate) fn forget_grant(runtime: &Runtime, ino: InodeNr) {
    let pages = 0..u64::MAX;
    loop {
        let mut st = runtime.lock();
        if st.fills.meets(ino, &pages) {
            drop(st);
            runtime.wait_filled(ino, &pages);
            continue;
        }
        for (first, end) in st.leases.direct.forget(ino).iter() {
            st.pages.remove_range(ino, first, end);
        }
        break;
    }
    runtime.lease_ended.notify_all();
}

fn note_written(runtime: &Runtime, ino: InodeNr, written: Written) -> Result<()> {
    if written.lost {
        runtime.lock().leases.direct.note_lost(ino);
    }
    if written.has_fresh() {
        note_fresh(runtime, ino, &written)?;
    }
    if written.some { move_times(runtime, ino) } else { Ok(()) }
}

/// What was written for the first time becomes the file's.
///
/// # Errors
/// Refused if the target tells what cannot be.
fn note_fresh(runtime: &Runtime, ino: InodeNr, written: &Written) -> Result<()> {
    let mut fresh = written.fresh.clone();
    runtime.lock().leases.direct.check_fresh(ino, written)?;
    runtime.drive(libc::EIO, || {
        let mut st = runtime.lock();
        let noted = appended::note_appended(&mut st, ino, &mut fresh, written.end);
        runtime.leave(st);
        noted
    })
}

/// The lease of the file is ending, and nothing is granted of it: what was set aside for it and is
/// not used is free again.
pub(crate) fn give_room_back(runtime: &Runtime, ino: InodeNr) {
    let room = runtime.lock().leases.direct.rooms.take(ino);
    let given = runtime.drive(libc::EIO, || {
        let mut st = runtime.lock();
        let given = appended::give_room_back(&mut st.metadata, ino, &room);
        runtime.leave(st);
        given
    });
    if let Err(error) = given {
        runtime.fail(&error);
    }
}

/// A file was written without the Runtime.
fn move_times(runtime: &Runtime, ino: InodeNr) -> Result<()> {
    runtime.drive(libc::EIO, || {
        let mut st = runtime.lock();
        let moved: Step<()> = st.metadata.tree.load(ino).map_err(Into::into).and_then(|()| {
            st.metadata.room_in_transaction(1)?;
            let now = st.metadata.log.now();
            let node = st.metadata.tree.node_mut(ino);
            (node.inode.mtime, node.inode.ctime) = (now, now);
            node.delta.running_mut().times = true;
            st.metadata.mark_delta(ino);
            Ok(())
        });
        runtime.leave(st);
        moved
    })
}

/// What programs have written of the file at the target, and what was answered, is durable, and
/// has moved the file's times.
///
/// # Errors
/// `EIO`, once, if some of it was lost with the target.
pub(crate) fn settle(runtime: &Runtime, ino: InodeNr) -> Result<()> {
    settle_one(runtime, ino)?;
    match runtime.lock().leases.direct.take_lost(ino) {
        true => Err(errno(libc::EIO)),
        false => Ok(()),
    }
}

/// As [`settle`], of every file. What is lost the holders' own fsyncs tell:
/// nobody else was shown anything of it.
pub(crate) fn settle_all(runtime: &Runtime) -> Result<()> {
    let files = runtime.lock().leases.direct.files();
    files.into_iter().try_for_each(|ino| settle_one(runtime, ino))
}

fn settle_one(runtime: &Runtime, ino: InodeNr) -> Result<()> {
    let Some(lease) = begin(runtime, |directs| directs.settle(ino)) else { return Ok(()) };
    let plane = runtime.direct.as_ref().expect("something was granted");
    let settled = note_all(runtime, ino, || plane.settle(lease));
    runtime.lock().leases.direct.settled(ino);
    runtime.lease_ended.notify_all();
    if settled? {
        // The grant has ended; its end finds the same.
        take_back(runtime, ino);
    }
    Ok(())
}
