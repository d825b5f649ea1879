//! Sections as single calls, for a language without guards: what the C library is made of. Rust has
//! [`Section`](crate::Section), which cannot be forgotten.

use crate::call::ioctl;
use siftfs_proto::commands::{ABORT, COMMIT, START};
use std::io;
use std::os::fd::BorrowedFd;

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

/// Ends it without a trace.
///
/// # Errors
/// `EINVAL` without a section.
pub fn abort(file: BorrowedFd<'_>) -> io::Result<()> {
    ioctl(file, ABORT, &mut [])
}
