//! What a program may ask of a SiftFS mount besides POSIX: ioctls on its open files and
//! directories, with no right but those of the file and of the caller.
//!
//! `docs/design/operations.md` says what each call promises.

#![allow(unsafe_code)] // ioctl(2) has no safe wrapper

pub use siftfs_proto::Level;
use siftfs_proto::ioctl;
pub use siftfs_proto::ioctl::{Entry, Publish, Source};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Gives files new names, all of them or none. Paths begin at the directory `dir` of the mount.
///
/// # Errors
/// As `docs/design/operations.md` has them: nothing has changed then. `ENOTTY` if `dir` is not on a
/// SiftFS mount, or is no directory; `EINTR` if a signal came, and it may or may not have happened.
pub fn publish(dir: BorrowedFd<'_>, publish: &ioctl::Publish) -> io::Result<()> {
    let error = |e: i32| io::Error::from_raw_os_error(e);
    let (command, argument) = publish.encode().map_err(|e| error(e.errno()))?;
    let command = libc::Ioctl::from(command);
    // SAFETY: the command says that the kernel reads as many bytes as its size bits have, which are
    // the argument's length, and writes none; the argument outlives the call.
    let result = unsafe { libc::ioctl(dir.as_raw_fd(), command, argument.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
