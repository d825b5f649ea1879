//! Sections as single calls, and compounds as they are sent, for a language without guards and
//! types for results: what the C library is made of. Rust has [`Section`](crate::Section), which
//! cannot be forgotten, and [`Compound`](crate::Compound).

use crate::call::ioctl;
pub use crate::compound::carry_out;
use siftfs_proto::Level;
use siftfs_proto::commands::{ABORT, COMMIT, CommitAll, START};
pub use siftfs_proto::compound::{BytesArg, NumberArg, StepNr};
pub use siftfs_proto::ioctl::compound::{Compound as Argument, File, Step};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Starts a section.
///
/// # Errors
/// Those of [`Section::start`](crate::Section::start).
pub fn start(file: BorrowedFd<'_>) -> io::Result<()> {
    ioctl(file, START, &mut [])
}

/// Commits it. It goes on if that fails.
///
/// # Errors
/// Those of [`Section::commit`](crate::Section::commit).
pub fn commit(file: BorrowedFd<'_>) -> io::Result<()> {
    ioctl(file, COMMIT, &mut [])
}

/// Commits those of several files of one mount together, all of them or none. They go on if that
/// fails.
///
/// # Errors
/// Those of [`commit_all`](crate::commit_all); `EINVAL` for no file.
pub fn commit_all(files: &[BorrowedFd<'_>], level: Level) -> io::Result<()> {
    let on = *files.first().ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let descriptors = files.iter().map(|file| file.as_raw_fd().cast_unsigned()).collect();
    let commit = CommitAll { descriptors, level }.encode();
    let (command, mut argument) = commit.map_err(|e| io::Error::from_raw_os_error(e.errno()))?;
    ioctl(on, command, &mut argument)
}

/// Ends it without a trace.
///
/// # Errors
/// `EINVAL` without a section.
pub fn abort(file: BorrowedFd<'_>) -> io::Result<()> {
    ioctl(file, ABORT, &mut [])
}
