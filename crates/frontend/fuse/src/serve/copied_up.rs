//! Files that overlayfs copies up: their owner is set inside of the kernel, which takes no set-id
//! bits and no capabilities away, and chown(2) does.
//!
//! The kernel sends both as the same SETATTR, with FATTR_KILL_SUIDGID, in the name of the same
//! user. What comes before it differs. chown(2), on our mount or through overlayfs, asks for the
//! file's capabilities and then sends SETATTR, all under the lock of the inode. A copy-up sets the
//! mode, alone, and then user and group, and asks for no capabilities in between. (chown(2) through
//! overlayfs of a file that it copies up first asks the lower layer; but then the last thing that
//! we see before it is no mode.) So a SETATTR of user and group is a copy-up's if the last that its
//! thread asked for, of these three, was the mode of the same file. Whatever is not known for sure
//! is a chown(2).

use crate::serve::privileges::CAPABILITY;
use siftfs_base::InodeNr;
use siftfs_proto::{Credentials, SetAttr};
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads that are remembered. Of two with the same place the one that came last counts.
const PLACES: usize = 1024;

/// Threads that have set a file's mode last, and the file: the thread's number in the upper half.
pub(crate) struct CopiedUp(Box<[AtomicU64]>);

impl Default for CopiedUp {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl CopiedUp {
    fn place(&self, pid: u32) -> &AtomicU64 {
        let at = usize::try_from(pid).unwrap_or(0) % PLACES;
        self.0.get(at).expect("less than the number of places")
    }

    /// The caller has set the mode of a file, and nothing else.
    pub(crate) fn note_mode(&self, cred: &Credentials, ino: InodeNr) {
        // Threads of other process namespaces are all number 0, and cannot be told apart.
        if cred.pid != 0 {
            self.place(cred.pid).store(word(cred.pid, ino), Ordering::SeqCst);
        }
    }

    /// getxattr(2), or the kernel's own question before it changes an owner or data: the caller
    /// may ask for a file's capabilities.
    pub(crate) fn note_question(&self, cred: &Credentials, name: &[u8]) {
        if name != CAPABILITY {
            return;
        }
        let place = self.place(cred.pid);
        let noted = place.load(Ordering::SeqCst);
        if noted >> 32 == u64::from(cred.pid) {
            let _ = place.compare_exchange(noted, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Is this the change of a file's owner by which a copy-up ends?
    pub(crate) fn gets_owner(&self, cred: &Credentials, ino: InodeNr, set: &SetAttr) -> bool {
        if set.uid.is_none() && set.gid.is_none() {
            return false;
        }
        let noted = word(cred.pid, ino);
        let place = self.place(cred.pid);
        let taken = place.compare_exchange(noted, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let owner = SetAttr { uid: set.uid, gid: set.gid, ..SetAttr::default() };
        let alone = SetAttr { kill_priv: false, ..set.clone() } == owner;
        taken && cred.pid != 0 && alone && set.uid.is_some() && set.gid.is_some()
    }
}

fn word(pid: u32, ino: InodeNr) -> u64 {
    u64::from(pid) << 32 | u64::from(ino)
}

#[cfg(test)]
#[path = "copied_up_tests.rs"]
mod tests;
