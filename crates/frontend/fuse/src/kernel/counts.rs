//! How many requests of each kind the kernel sent.

use super::abi;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Opcodes up to here have a counter of their own.
const LAST: u32 = abi::STATX;

/// Name of each opcode, as `siftfs status` shows it.
const NAMES: [(u32, &str); 43] = [
    (abi::LOOKUP, "lookup"),
    (abi::FORGET, "forget"),
    (abi::GETATTR, "getattr"),
    (abi::SETATTR, "setattr"),
    (abi::READLINK, "readlink"),
    (abi::SYMLINK, "symlink"),
    (abi::MKNOD, "mknod"),
    (abi::MKDIR, "mkdir"),
    (abi::UNLINK, "unlink"),
    (abi::RMDIR, "rmdir"),
    (abi::RENAME, "rename"),
    (abi::LINK, "link"),
    (abi::OPEN, "open"),
    (abi::READ, "read"),
    (abi::WRITE, "write"),
    (abi::STATFS, "statfs"),
    (abi::RELEASE, "release"),
    (abi::FSYNC, "fsync"),
    (abi::SETXATTR, "setxattr"),
    (abi::GETXATTR, "getxattr"),
    (abi::LISTXATTR, "listxattr"),
    (abi::REMOVEXATTR, "removexattr"),
    (abi::FLUSH, "flush"),
    (abi::INIT, "init"),
    (abi::OPENDIR, "opendir"),
    (abi::READDIR, "readdir"),
    (abi::RELEASEDIR, "releasedir"),
    (abi::FSYNCDIR, "fsyncdir"),
    (abi::GETLK, "getlk"),
    (abi::SETLK, "setlk"),
    (abi::SETLKW, "setlkw"),
    (abi::CREATE, "create"),
    (abi::INTERRUPT, "interrupt"),
    (abi::DESTROY, "destroy"),
    (abi::IOCTL, "ioctl"),
    (abi::BATCH_FORGET, "batch_forget"),
    (abi::FALLOCATE, "fallocate"),
    (abi::READDIRPLUS, "readdirplus"),
    (abi::RENAME2, "rename2"),
    (abi::LSEEK, "lseek"),
    (abi::COPY_FILE_RANGE, "copy_file_range"),
    (abi::TMPFILE, "tmpfile"),
    (abi::STATX, "statx"),
];

/// A counter for each opcode. It counts a request when it is taken, before it is carried out.
pub(crate) struct Counts {
    /// By opcode. The first, which no opcode has, counts all that have no name.
    by_opcode: [AtomicU64; LAST as usize + 1],
}

impl Default for Counts {
    fn default() -> Self {
        Self { by_opcode: [const { AtomicU64::new(0) }; LAST as usize + 1] }
    }
}

impl Counts {
    /// Counts one request.
    pub(crate) fn add(&self, opcode: u32) {
        let own = usize::try_from(opcode).ok().and_then(|i| self.by_opcode.get(i));
        let [other, ..] = &self.by_opcode;
        own.unwrap_or(other).fetch_add(1, Ordering::Relaxed);
    }

    /// Requests by name, without those that never came. `other` are of kinds without a name here.
    pub(crate) fn by_name(&self) -> BTreeMap<&'static str, u64> {
        let mut all = BTreeMap::new();
        for (opcode, counter) in (0u32..).zip(&self.by_opcode) {
            let n = counter.load(Ordering::Relaxed);
            let name = NAMES.iter().find(|(o, _)| *o == opcode).map_or("other", |(_, name)| name);
            if n > 0 {
                *all.entry(name).or_default() += n;
            }
        }
        all
    }
}

#[cfg(test)]
#[path = "counts_tests.rs"]
mod tests;
