//! Which files the kernel may hold dirty pages of, on whose account, and what could not be written.
//!
//! Only a file that is open for writing can be dirty in the kernel: closing and unmapping write
//! its pages back. So the handles opened for writing answer all three questions.

use siftfs_base::{Error, InodeNr};
use siftfs_proto::{Credentials, Handle};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The files that are open for writing.
#[derive(Default)]
pub(crate) struct DirtyFiles {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    handles: HashMap<Handle, InodeNr>,
    files: HashMap<InodeNr, File>,
}

/// A file with at least one handle opened for writing.
#[derive(Default)]
struct File {
    /// Each handle with its opener: pages that the kernel writes back carry no credentials.
    openers: Vec<(Handle, Credentials)>,
    lost: Option<Lost>,
}

/// Pages that the kernel sent and that could not be written. The kernel marks them clean and tells
/// the next fsync(2) or close(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Requests that failed since the file was first opened for writing.
    pub(crate) times: u64,
    /// Why the last one did.
    pub(crate) error: Error,
    /// No write(2) has been told since.
    untold: bool,
}

impl DirtyFiles {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `handle` of `ino` was opened for writing by `cred`.
    pub(crate) fn opened(&self, cred: &Credentials, handle: Handle, ino: InodeNr) {
        let mut inner = self.lock();
        inner.handles.insert(handle, ino);
        inner.files.entry(ino).or_default().openers.push((handle, cred.clone()));
    }

    /// `handle` is closed. One that was not opened for writing is none of ours.
    pub(crate) fn closed(&self, handle: Handle) {
        let mut inner = self.lock();
        let Some(ino) = inner.handles.remove(&handle) else { return };
        if let Some(file) = inner.files.get_mut(&ino) {
            file.openers.retain(|(h, _)| *h != handle);
            if file.openers.is_empty() {
                inner.files.remove(&ino);
            }
        }
    }

    /// May the kernel hold pages of this file that it has not sent yet?
    pub(crate) fn may_be_dirty(&self, ino: InodeNr) -> bool {
        self.lock().files.contains_key(&ino)
    }

    /// Is any file open for writing?
    pub(crate) fn any(&self) -> bool {
        !self.lock().files.is_empty()
    }

    /// On whose account the kernel's pages of this file are written: root's if root has it open for
    /// writing, else that of somebody who has; `None` if nobody has.
    pub(crate) fn account(&self, ino: InodeNr) -> Option<Credentials> {
        let inner = self.lock();
        let openers = inner.files.get(&ino)?.openers.iter();
        openers.min_by_key(|(_, cred)| cred.uid != 0).map(|(_, cred)| cred.clone())
    }

    /// Has this user the file open for writing?
    pub(crate) fn is_opened_by(&self, ino: InodeNr, uid: u32) -> bool {
        let inner = self.lock();
        inner.files.get(&ino).is_some_and(|f| f.openers.iter().any(|(_, cred)| cred.uid == uid))
    }

    /// Pages of this file could not be written. Is the caller the first to say so since a write(2)
    /// was told?
    pub(crate) fn failed(&self, ino: InodeNr, error: &Error) -> bool {
        let mut inner = self.lock();
        let Some(file) = inner.files.get_mut(&ino) else { return false };
        let before = file.lost.take();
        let times = before.as_ref().map_or(0, |l| l.times) + 1;
        file.lost = Some(Lost { times, error: error.clone(), untold: true });
        before.is_none_or(|l| !l.untold)
    }

    /// Why pages of this file could not be written, if no write(2) has been told: this one is.
    pub(crate) fn tell(&self, ino: InodeNr) -> Option<Error> {
        let mut inner = self.lock();
        let lost = inner.files.get_mut(&ino)?.lost.as_mut()?;
        std::mem::take(&mut lost.untold).then(|| lost.error.clone())
    }

    /// What of this file could not be written while it has been open.
    pub(crate) fn lost(&self, ino: InodeNr) -> Option<Lost> {
        self.lock().files.get(&ino)?.lost.clone()
    }
}

#[cfg(test)]
#[path = "dirty_tests.rs"]
mod tests;
