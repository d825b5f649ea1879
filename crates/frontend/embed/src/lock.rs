//! Locks of whole files, as flock(2) has them.

use crate::{File, Result};
use siftfs_base::errno;
use siftfs_proto::{LockAsk, LockKind, LockPlace, LockWait, Request, WaitUntil};
use std::sync::atomic::{AtomicU64, Ordering};

/// Locks that say to other programs that a file is in use; they keep nobody from reading and
/// writing. A lock is the open file's: another opening of the file, by whichever program, is in its
/// way, and it ends when the file is closed. Locks of a mount's programs by flock(2), and of other
/// sessions, are the same ones. A lock of the other kind is given up before the new one is waited
/// for, and is gone even if that is not to be had.
impl File {
    /// Locks the file against all others, and waits for that.
    ///
    /// # Errors
    /// `ENOLCK` if a session waits for more locks than it may; what the connection reports.
    pub fn lock(&self) -> Result<()> {
        self.wait_for(LockKind::Write)
    }

    /// Locks the file against [`File::lock`], and waits for that.
    ///
    /// # Errors
    /// As [`File::lock`].
    pub fn lock_shared(&self) -> Result<()> {
        self.wait_for(LockKind::Read)
    }

    /// Locks the file against all others, if nobody has a lock; whether it has.
    ///
    /// # Errors
    /// What the connection reports.
    pub fn try_lock(&self) -> Result<bool> {
        self.try_for(LockKind::Write)
    }

    /// Locks the file against [`File::lock`], if nobody has such a lock; whether it has.
    ///
    /// # Errors
    /// What the connection reports.
    pub fn try_lock_shared(&self) -> Result<bool> {
        self.try_for(LockKind::Read)
    }

    /// Gives the lock up, if there is one.
    ///
    /// # Errors
    /// What the connection reports.
    pub fn unlock(&self) -> Result<()> {
        self.ask_lock(None, None)
    }

    fn wait_for(&self, kind: LockKind) -> Result<()> {
        static WAITS: AtomicU64 = AtomicU64::new(0);
        let number = WAITS.fetch_add(1, Ordering::Relaxed);
        self.ask_lock(Some(kind), Some(LockWait { number, until: WaitUntil::File }))
    }

    fn try_for(&self, kind: LockKind) -> Result<bool> {
        match self.ask_lock(Some(kind), None) {
            Ok(()) => Ok(true),
            Err(error) if error == errno(libc::EAGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn ask_lock(&self, kind: Option<LockKind>, wait: Option<LockWait>) -> Result<()> {
        let (owner, pid) = (self.handle().0, std::process::id());
        let ask = LockAsk { owner, pid, place: LockPlace::Whole, kind, wait };
        self.call(Request::SetLock { file: self.handle().into(), ask }).map(drop)
    }
}
