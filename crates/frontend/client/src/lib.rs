//! What a program may ask of a SiftFS mount besides POSIX: ioctls on its open files and
//! directories, with no right but those of the file and of the caller.
//!
//! Names of several files change together by [`publish`], bytes of a file by a [`Section`], many
//! steps that use each other's results by a [`Compound`], and a [`Ticket`] tells later what is
//! durable. `docs/design/operations.md` says what each call
//! promises. Every call may be made by several threads at once.

#![warn(clippy::missing_errors_doc)]
#![allow(unsafe_code)] // ioctl(2) has no safe wrapper

mod call;
mod compound;
pub mod escapes;
mod grant;
pub mod raw;
mod section;
mod ticket;

pub use compound::{
    Access, BytesOperand, BytesStep, Checksum, Codec, Coming, Compound, CompoundError, FileOperand,
    FileStep, NewAttributes, NumberOperand, NumberStep, Results, Width,
};
pub use grant::{Grant, grant};
pub use section::{Section, commit_all};
pub use siftfs_base::Timestamp;
use siftfs_proto::ioctl;
pub use siftfs_proto::ioctl::{Entry, Publish, Source};
pub use siftfs_proto::{Level, SetTime};
use std::io;
use std::os::fd::BorrowedFd;
pub use ticket::{Ticket, barrier, stage};

/// Gives files new names, all of them or none. Paths begin at the directory `dir` of the mount.
///
/// # Errors
/// As `docs/design/operations.md` has them: nothing has changed then. `ENOTTY` if `dir` is not on a
/// SiftFS mount, or is no directory; `EINTR` if a signal came, and it may or may not have happened.
pub fn publish(dir: BorrowedFd<'_>, publish: &ioctl::Publish) -> io::Result<()> {
    let error = |e: i32| io::Error::from_raw_os_error(e);
    let (command, mut argument) = publish.encode().map_err(|e| error(e.errno()))?;
    call::ioctl(dir, command, &mut argument)
}
