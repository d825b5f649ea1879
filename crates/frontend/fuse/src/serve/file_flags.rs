//! chattr(1) and lsattr(1): the kernel's requests for inode flags, in both of its forms.

use crate::ioctl::compound::Stale;
use crate::kernel::abi::FsXattr;
use crate::serve::server::Server;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::{Completion, Credentials, Reply, Request, flags};
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const FS_IOC_GETFLAGS: u32 = ioctl(READ, b'f', 1, size_of::<libc::c_long>());
const FS_IOC_SETFLAGS: u32 = ioctl(WRITE, b'f', 2, size_of::<libc::c_long>());
const FS_IOC_FSGETXATTR: u32 = ioctl(READ, b'X', 31, size_of::<FsXattr>());
const FS_IOC_FSSETXATTR: u32 = ioctl(WRITE, b'X', 32, size_of::<FsXattr>());

const WRITE: u32 = 1;
const READ: u32 = 2;

/// The number of an ioctl(2), as most machines build it.
const fn ioctl(direction: u32, kind: u8, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (kind as u32) << 8 | number
}

/// Inode flags, and the same in the other form.
const XFLAGS: [(u32, u32); 4] = [
    (flags::IMMUTABLE, 1 << 3),
    (flags::APPEND, 1 << 4),
    (flags::NOATIME, 1 << 6),
    (flags::NODUMP, 1 << 7),
];
/// As [`XFLAGS`], of a flag that is shown only: synchronous.
const SYNC: (u32, u32) = (0x8, 1 << 5);

fn to_xflags(flags: u32) -> u32 {
    let shown = XFLAGS.iter().chain(std::iter::once(&SYNC));
    shown.filter(|(flag, _)| flags & flag != 0).fold(0, |all, (_, x)| all | x)
}

impl Server {
    fn file_flags(&self, cred: &Credentials, ino: InodeNr) -> Result<u32> {
        self.call(cred, Request::GetFlags { file: ino.into() })?.flags()
    }

    /// The caller opens `ino` to write, but not to append.
    pub(crate) fn refuse_append_only(&self, cred: &Credentials, ino: InodeNr) -> Result<()> {
        let append_only = self.file_flags(cred, ino)? & flags::APPEND != 0;
        if append_only { Err(errno(libc::EPERM)) } else { Ok(()) }
    }

    /// An ioctl(2) for flags; ENOTTY for any other. The kernel has checked that the caller may
    /// change flags, and which. What was stored through mappings of a file that becomes immutable
    /// or append-only is written before, by requests of its own: afterwards it would be refused.
    pub(crate) fn flags_ioctl(
        self: &Arc<Self>,
        cred: &Credentials,
        ino: InodeNr,
        (command, input): (u32, &[u8]),
        answer: Completion,
    ) {
        let wanted = match self.file_attributes(cred, ino, command, input) {
            Ok(Wanted::Shown(bytes)) => return answer(Ok(Reply::Data(bytes))),
            Ok(Wanted::Flags(wanted)) => wanted,
            Err(e) => return answer(Err(e)),
        };
        let (server, caller) = (self.clone(), cred.clone());
        let set = move |written: bool| {
            if !written {
                return answer(Err(errno(libc::EBUSY)));
            }
            let set = Request::SetFlags { file: ino.into(), flags: wanted };
            let fixed = wanted & (flags::IMMUTABLE | flags::APPEND) != 0;
            // Times of a file that may not be changed any more are not to be set either.
            let own_times = server.agreed.writeback && !fixed;
            let turn = server.kernel_times.turn(own_times.then_some(ino));
            if let Err(e) = server.done(&caller, set) {
                return answer(Err(e));
            }
            let untold = own_times.then(|| turn.changed_ctime(ino));
            drop(turn);
            // It has another ctime, and the kernel does not see that.
            server.invalidator.forget_now(ino);
            let teller = server.clone();
            let done = Box::new(move || {
                answer(Ok(Reply::Data(Vec::new())));
                // A kernel that owns the times takes this one under the file's lock, which it holds
                // until it has the answer.
                if let Some(untold) = untold {
                    teller.refresh(vec![Stale::Ctime(untold)], Box::new(|| {}));
                }
            });
            server.seal(ino, wanted & flags::IMMUTABLE != 0, done);
        };
        if wanted & (flags::IMMUTABLE | flags::APPEND) == 0 {
            set(true);
        } else {
            self.when_written(ino, Box::new(set));
        }
    }

    fn file_attributes(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        command: u32,
        input: &[u8],
    ) -> Result<Wanted> {
        match command {
            FS_IOC_GETFLAGS => Ok(Wanted::Shown(self.file_flags(cred, ino)?.as_bytes().to_vec())),
            FS_IOC_SETFLAGS => {
                let (wanted, _) = u32::read_from_prefix(input).map_err(|_| errno(libc::EINVAL))?;
                Ok(Wanted::Flags(wanted))
            }
            FS_IOC_FSGETXATTR => {
                let flags = to_xflags(self.file_flags(cred, ino)?);
                let shown = FsXattr { flags, ..FsXattr::new_zeroed() };
                Ok(Wanted::Shown(shown.as_bytes().to_vec()))
            }
            FS_IOC_FSSETXATTR => {
                let (given, _) =
                    FsXattr::read_from_prefix(input).map_err(|_| errno(libc::EINVAL))?;
                from_xattr(&given, self.file_flags(cred, ino)?).map(Wanted::Flags)
            }
            _ => Err(errno(libc::ENOTTY)),
        }
    }
}

/// What an ioctl(2) is about.
enum Wanted {
    Shown(Vec<u8>),
    Flags(u32),
}

/// The flags that `given` asks for, of a file that has `old`.
fn from_xattr(given: &FsXattr, old: u32) -> Result<u32> {
    let known = XFLAGS.iter().fold(0, |all, (_, x)| all | x);
    if given.project != 0 || (given.flags ^ to_xflags(old)) & !known != 0 {
        return Err(errno(libc::EOPNOTSUPP));
    }
    let set = XFLAGS.iter().filter(|(_, x)| given.flags & x != 0);
    Ok(set.fold(old & !flags::SETTABLE, |all, (flag, _)| all | flag))
}

#[cfg(test)]
#[path = "file_flags_tests.rs"]
mod tests;
