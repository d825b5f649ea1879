//! Descriptors of a caller's, as numbers in an ioctl's argument.

use crate::convert::inode;
use crate::mountinfo::{MountEntry, mounts_in};
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::Credentials;
use std::path::PathBuf;

/// What a caller has open. Its thread waits for our answer; what its other threads do to a
/// descriptor meanwhile only gives another file that it has open.
pub(crate) struct Descriptors {
    process: PathBuf,
    /// Numbers that the mount has in the caller's mount namespace.
    mounts: Vec<u64>,
}

impl Descriptors {
    /// # Errors
    /// EXDEV if nobody knows what is mounted where the caller is.
    pub(crate) fn of(cred: &Credentials, mount: &MountEntry) -> Result<Self> {
        let process = PathBuf::from(format!("/proc/{}", cred.pid));
        let all = mounts_in(&process.join("mountinfo")).map_err(|_| errno(libc::EXDEV))?;
        let mounts = all.iter().filter(|m| m.is_same_as(mount)).map(|m| m.id).collect();
        Ok(Self { process, mounts })
    }

    /// The file of the mount that is open as `number`, with flags that `may` accepts.
    ///
    /// # Errors
    /// EBADF if there is none, or it is not open so; EXDEV if it is a file of another mount.
    pub(crate) fn file(&self, number: u32, may: impl Fn(u32) -> bool) -> Result<InodeNr> {
        self.opened(number, may).map(|(ino, _)| ino)
    }

    /// As [`Descriptors::file`], with the flags that the descriptor has.
    pub(crate) fn opened(&self, number: u32, may: impl Fn(u32) -> bool) -> Result<(InodeNr, u32)> {
        let text = std::fs::read_to_string(self.process.join(format!("fdinfo/{number}")));
        let text = text.map_err(|_| errno(libc::EBADF))?;
        let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
        let flags = field("flags:").and_then(|f| u32::from_str_radix(f, 8).ok());
        let flags = flags.filter(|f| f & libc::O_PATH.cast_unsigned() == 0);
        let flags = flags.filter(|flags| may(*flags)).ok_or(errno(libc::EBADF))?;
        let id: u64 = field("mnt_id:").and_then(|id| id.parse().ok()).ok_or(errno(libc::EBADF))?;
        if !self.mounts.contains(&id) {
            return Err(errno(libc::EXDEV));
        }
        let node = field("ino:").and_then(|ino| ino.parse().ok()).ok_or(errno(libc::EBADF))?;
        Ok((inode(node)?, flags))
    }
}
