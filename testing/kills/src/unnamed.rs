//! Files without a name: made in a directory, worked on by their handle, named later or never.

use crate::calls::{Refused, entry};
use crate::posix::attr_of;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use siftfs_proto::{Attr, Reply};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// O_TMPFILE.
pub fn make(dir: &Path, perm: u16) -> Result<(OwnedFd, Attr), Refused> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::from_raw_mode(perm.into()))?;
    let attr = attr_of(&rustix::fs::fstat(&fd)?);
    Ok((fd, attr))
}

/// The file's first name. AT_EMPTY_PATH would ask for a capability that a container may not have.
pub fn link(file: &OwnedFd, name: &Path) -> Result<Reply, Refused> {
    let by_handle = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, by_handle, CWD, name, AtFlags::SYMLINK_FOLLOW)?;
    Ok(entry(name)?)
}
