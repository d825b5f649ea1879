//! A session's end, beside the requests that are carried out for it.

use crate::locks::sync::{AtomicBool, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::PoisonError;

/// Whether a session goes on, and which requests keep it from forgetting.
#[derive(Default)]
pub struct Life {
    ended: AtomicBool,
    /// Held shared by a request that names inodes which the session has looked up, and alone while
    /// it forgets some: the number of a forgotten inode may soon be another inode's.
    naming: RwLock<()>,
}

impl Life {
    /// Has the session ended? It may end at any moment.
    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// No inode is forgotten that the session has looked up, until what is returned is dropped.
    pub fn name(&self) -> RwLockReadGuard<'_, ()> {
        self.naming.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// No request names an inode, until what is returned is dropped.
    pub fn forget(&self) -> RwLockWriteGuard<'_, ()> {
        self.naming.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session ends, once; nothing if it has ended before. `first` gives up what requests may
    /// wait for that name inodes. `act` takes all else that the session has, when none does.
    pub fn end<T>(&self, first: impl FnOnce(), act: impl FnOnce() -> T) -> Option<T> {
        if self.ended.swap(true, Ordering::SeqCst) {
            return None;
        }
        first();
        let _naming = self.forget();
        Some(act())
    }
}
