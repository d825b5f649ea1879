//! fstrim(8): FITRIM, which the kernel passes on like any other ioctl(2).

use crate::serve::caller::administers;
use crate::serve::server::Server;
use siftfs_base::{Result, errno};
use siftfs_proto::{Credentials, Reply, Request};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What FITRIM is given, and gives back: `struct fstrim_range` of <linux/fs.h>.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct TrimRange {
    start: u64,
    len: u64,
    least: u64,
}

impl Server {
    /// Gives free blocks back for a caller that administers the system.
    pub(crate) fn trim(&self, cred: &Credentials, input: &[u8]) -> Result<Reply> {
        let range = TrimRange::read_from_bytes(input).map_err(|_| errno(libc::ENOTTY))?;
        if !administers(cred) {
            return Err(errno(libc::EPERM));
        }
        let TrimRange { start, len, least } = range;
        let done = self.call(cred, Request::Trim { start, len, least })?.trimmed()?;
        let range = TrimRange { len: done.bytes, ..range };
        Ok(Reply::Data(range.as_bytes().to_vec()))
    }
}
