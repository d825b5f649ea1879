//! Calls on open files of a mount.

use crate::convert::{Name, REPLACE, bytes, give, refuse, slice, status, truth};
use crate::ticket::timeout;
use siftfs_client::{Entry, Level, Publish, Source, Ticket};
use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;

/// `enum siftfs_level`.
pub(crate) fn level(level: c_int) -> io::Result<Level> {
    let known = u32::try_from(level).ok().and_then(|level| Level::from_number(level).ok());
    known.ok_or_else(|| refuse(libc::EINVAL))
}

/// The caller's descriptor, for the length of a call.
pub(crate) fn descriptor(fd: &c_int) -> io::Result<BorrowedFd<'_>> {
    if *fd < 0 {
        return Err(refuse(libc::EBADF));
    }
    // SAFETY: the caller keeps the descriptor open during the call, as for any system call.
    Ok(unsafe { BorrowedFd::borrow_raw(*fd) })
}

/// # Safety
/// The names' strings are null or end with NUL.
unsafe fn entries(names: &[Name]) -> io::Result<Vec<Entry>> {
    let entry = |name: &Name| {
        let source = match name.from.is_null() {
            true => {
                let number = u32::try_from(name.from_fd).map_err(|_| refuse(libc::EBADF))?;
                Source::Descriptor(number)
            }
            // SAFETY: the caller's promise.
            false => Source::Path(unsafe { bytes(name.from) }?.to_vec()),
        };
        if name.flags & !REPLACE != 0 {
            return Err(refuse(libc::EINVAL));
        }
        // SAFETY: the caller's promise.
        let to = unsafe { bytes(name.to) }?.to_vec();
        Ok(Entry { source, to, replace: name.flags & REPLACE != 0 })
    };
    names.iter().map(entry).collect()
}

/// `siftfs_publish`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_publish(
    dirfd: c_int,
    names: *const Name,
    count: usize,
    wanted: c_int,
) -> c_int {
    let publish = || {
        let level = level(wanted)?;
        // SAFETY: the header asks for `count` names whose strings end with NUL.
        let entries = unsafe { entries(slice(names, count)?) }?;
        siftfs_client::publish(descriptor(&dirfd)?, &Publish { entries, level })
    };
    status(publish())
}

/// `siftfs_stage`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_stage(fd: c_int, ticket: *mut u64) -> c_int {
    let stage = || siftfs_client::stage(descriptor(&fd)?).map(Ticket::number);
    // SAFETY: the header asks for room for a ticket.
    status(unsafe { give(ticket, stage) })
}

/// `siftfs_barrier`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_barrier(fd: c_int, ticket: *mut u64) -> c_int {
    let barrier = || siftfs_client::barrier(descriptor(&fd)?).map(Ticket::number);
    // SAFETY: the header asks for room for a ticket.
    status(unsafe { give(ticket, barrier) })
}

/// `siftfs_poll`.
#[unsafe(no_mangle)]
pub extern "C" fn siftfs_poll(fd: c_int, ticket: u64) -> c_int {
    truth(descriptor(&fd).and_then(|fd| Ticket::from_number(ticket).is_durable(fd)))
}

/// `siftfs_wait`.
#[unsafe(no_mangle)]
pub extern "C" fn siftfs_wait(fd: c_int, ticket: u64, nanoseconds: i64) -> c_int {
    let ticket = Ticket::from_number(ticket);
    status(descriptor(&fd).and_then(|fd| match timeout(nanoseconds) {
        None => ticket.wait(fd),
        Some(time) => ticket.wait_timeout(fd, time),
    }))
}

/// `siftfs_atomic_start`.
#[unsafe(no_mangle)]
pub extern "C" fn siftfs_atomic_start(fd: c_int) -> c_int {
    status(descriptor(&fd).and_then(siftfs_client::raw::start))
}

/// `siftfs_atomic_commit`.
#[unsafe(no_mangle)]
pub extern "C" fn siftfs_atomic_commit(fd: c_int) -> c_int {
    status(descriptor(&fd).and_then(siftfs_client::raw::commit))
}

/// `siftfs_atomic_commit_all`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_atomic_commit_all(
    fds: *const c_int,
    count: usize,
    wanted: c_int,
) -> c_int {
    let commit = || {
        let level = level(wanted)?;
        // SAFETY: the header asks for `count` descriptors.
        let fds = unsafe { slice(fds, count) }?;
        let files = fds.iter().map(descriptor).collect::<io::Result<Vec<_>>>()?;
        siftfs_client::raw::commit_all(&files, level)
    };
    status(commit())
}

/// `siftfs_atomic_abort`.
#[unsafe(no_mangle)]
pub extern "C" fn siftfs_atomic_abort(fd: c_int) -> c_int {
    status(descriptor(&fd).and_then(siftfs_client::raw::abort))
}
