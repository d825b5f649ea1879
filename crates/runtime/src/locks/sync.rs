//! The locks of the sources that are also run under every order of their threads
//! (`testing/interleave` gives them others under this name).

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use std::thread::{ThreadId, current};
