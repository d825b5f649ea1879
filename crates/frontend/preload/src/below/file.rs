//! Which file a descriptor is of.

use rustix::fs::{AtFlags, StatxFlags, statx};
use std::os::fd::BorrowedFd;

/// Device and inode number of a regular file. The kernel says it without a request to the daemon.
pub fn key(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(fd, c"", flags, StatxFlags::INO | StatxFlags::TYPE).ok()?;
    let regular = u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFREG;
    let dev = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
    regular.then_some((dev, stat.stx_ino))
}
