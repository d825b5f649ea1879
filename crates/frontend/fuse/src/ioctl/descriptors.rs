//! Descriptors of a caller's: that of the directory on which an ioctl is called, and those whose
//! numbers are in its argument.

use crate::ioctl::view::View;
use crate::kernel::convert::inode;
use crate::mount::mountinfo::{MountEntry, mounts, mounts_in};
use crate::serve::system_call::argument;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::Credentials;
use std::cell::OnceCell;
use std::path::PathBuf;

/// What a caller has open. Its thread waits for our answer; what its other threads do to a
/// descriptor meanwhile only gives another file that it has open.
pub(crate) struct Descriptors<'a> {
    process: PathBuf,
    volume: &'a MountEntry,
    /// What is mounted where the caller is.
    mounts: Vec<MountEntry>,
    /// What is mounted where the daemon is. A caller in a root directory of its own (chroot(2)) is
    /// shown no mount from outside of that directory.
    own: OnceCell<Vec<MountEntry>>,
}

/// An open file of a caller's.
pub(crate) struct Opened {
    pub(crate) ino: InodeNr,
    pub(crate) flags: u32,
    /// The mount through which it was opened.
    pub(crate) view: View,
}

impl<'a> Descriptors<'a> {
    /// # Errors
    /// EOPNOTSUPP if nobody knows what is mounted where the caller is: its process is not to be
    /// seen from here.
    pub(crate) fn of(cred: &Credentials, volume: &'a MountEntry) -> Result<Self> {
        let process = PathBuf::from(format!("/proc/{}", cred.pid));
        let table = if cred.pid == 0 { None } else { mounts_in(&process.join("mountinfo")).ok() };
        let mounts = table.ok_or(errno(libc::EOPNOTSUPP))?;
        Ok(Self { process, volume, mounts, own: OnceCell::new() })
    }

    /// The mount through which the directory `base` was opened, on which the ioctl is called.
    ///
    /// # Errors
    /// EOPNOTSUPP if that cannot be known, or the mount maps ids; EAGAIN if the caller does not
    /// come to wait for the answer.
    pub(crate) fn view(&self, base: InodeNr) -> Result<View> {
        let unknown = || errno(libc::EOPNOTSUPP);
        let number = argument(&self.process, 0)?;
        let (found, _, id) = self.described(number).ok_or_else(unknown)?;
        // Another thread has given the number to another file. Which one the call was about is not
        // to be seen any more.
        if inode(found)? != base {
            return Err(unknown());
        }
        self.mount(id)?.ok_or_else(unknown)
    }

    /// The file of the mount that is open as `number`, with flags that `may` accepts.
    ///
    /// # Errors
    /// EBADF if the descriptor is closed, or not open so; EXDEV if it is a file of another mount;
    /// EOPNOTSUPP for a mount that maps ids.
    pub(crate) fn opened(&self, number: u32, may: impl Fn(u32) -> bool) -> Result<Opened> {
        let (node, flags, id) = self.described(number).ok_or(errno(libc::EBADF))?;
        if flags & libc::O_PATH.cast_unsigned() != 0 || !may(flags) {
            return Err(errno(libc::EBADF));
        }
        let view = self.mount(id)?.ok_or(errno(libc::EXDEV))?;
        Ok(Opened { ino: inode(node)?, flags, view })
    }

    /// Inode number, flags and mount of a descriptor.
    fn described(&self, number: u32) -> Option<(u64, u32, u64)> {
        let text = std::fs::read_to_string(self.process.join(format!("fdinfo/{number}"))).ok()?;
        let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
        let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
        Some((field("ino:")?.parse().ok()?, flags, field("mnt_id:")?.parse().ok()?))
    }

    /// The mount of this number, if it is one of the volume. No two mounts of a machine have the
    /// same number, and one has it as long as a file is open through it.
    fn mount(&self, id: u64) -> Result<Option<View>> {
        match View::of(&self.mounts, self.volume, id)? {
            None => {
                let own = self.own.get_or_init(|| mounts().unwrap_or_default());
                View::of(own, self.volume, id)
            }
            known => Ok(known),
        }
    }
}
