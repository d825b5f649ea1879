//! Leases of the direct kind: files that are read and written at their volume's target
//! (`docs/design/target.md`, "Programs that are not changed"). The connections to it are
//! descriptors of the library's own.

use super::inode::{Key, identity, mark};
use super::{pace, table};
use crate::below::renew::Renewable;
use rustix::fs::{Mode, OFlags};
use siftfs_accel::{Hold, Session};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The descriptors of connections, and what they are. Nothing else is locked while this is.
static CONNECTIONS: Renewable<Mutex<BTreeMap<RawFd, Key>>> =
    Renewable::new(Mutex::new(BTreeMap::new()));

fn connections() -> MutexGuard<'static, BTreeMap<RawFd, Key>> {
    CONNECTIONS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins anew in the child of a fork.
///
/// # Safety
/// There is no other thread, and this one is not in the library.
pub unsafe fn renew() {
    // SAFETY: the caller's promise.
    unsafe { CONNECTIONS.renew(Mutex::new(BTreeMap::new())) };
}

/// Takes the lease of a file, of the direct kind if that is wanted and can be.
///
/// # Errors
/// Those of [`Session::lease`].
pub fn lease(session: &Session, fd: BorrowedFd<'_>, reads: bool) -> io::Result<Hold> {
    if !pace::is_direct() {
        return session.lease(fd).map(Hold::Log);
    }
    let hold = |by: BorrowedFd<'_>| {
        let leased = session.lease_direct(by, note)?;
        Ok(leased.map_or_else(Hold::Log, Hold::Direct))
    };
    if reads {
        return hold(fd);
    }
    // What admits at the target admits to read as well: the kernel says whether this program may.
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::open(name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(both) => hold(both.as_fd()),
        Err(_) => session.lease(fd).map(Hold::Log),
    }
}

/// A descriptor of a connection is the library's own from now on.
fn note(fd: RawFd) {
    let Some(identity) = identity(fd) else { return };
    connections().insert(fd, identity);
    table::set_own(fd, mark(identity));
}

/// Is this the descriptor of a connection, and still what it was?
pub fn keeps(fd: RawFd) -> bool {
    let known = connections().get(&fd).copied();
    known.is_some_and(|was| identity(fd) == Some(was))
}

/// Forgets the descriptors that are connections no more.
pub fn forget_closed() {
    let all: Vec<_> = connections().keys().copied().collect();
    for fd in all.into_iter().filter(|fd| !keeps(*fd)) {
        connections().remove(&fd);
        if table::tag(fd) == table::OWN {
            table::forget(fd);
        }
    }
}
