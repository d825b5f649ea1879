//! Calls on open files of a mount.

use crate::convert::{Name, REPLACE, bytes, refuse, slice, status};
use siftfs_client::{Entry, Level, Publish, Source};
use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;

/// `enum siftfs_level`.
pub(crate) fn level(level: c_int) -> io::Result<Level> {
    match level {
        0 => Ok(Level::Visible),
        1 => Ok(Level::Atomic),
        2 => Ok(Level::Durable),
        _ => Err(refuse(libc::EINVAL)),
    }
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
        if dirfd < 0 {
            return Err(refuse(libc::EBADF));
        }
        // SAFETY: the caller keeps the descriptor open during the call, as for any system call.
        let dir = unsafe { BorrowedFd::borrow_raw(dirfd) };
        siftfs_client::publish(dir, &Publish { entries, level })
    };
    status(publish())
}
