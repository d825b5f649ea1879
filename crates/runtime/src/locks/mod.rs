//! Locks, and waiting for what other threads do. Nothing here knows the file system.

pub mod allowance;
pub mod fair_mutex;
pub mod gate;
pub mod sync;

use std::sync::PoisonError;

/// The lock, whether or not another thread panicked under it: that thread ended the process.
pub(crate) fn relock<T>(r: std::result::Result<T, PoisonError<T>>) -> T {
    r.unwrap_or_else(PoisonError::into_inner)
}
