//! Waiting for the background, without a wake-up that gets lost: commits, credits and checkpoints
//! that the Service answers, and the thread that has work to do.

use crate::locks::sync::{Condvar, Mutex, MutexGuard};
use siftfs_base::Result;
use std::sync::PoisonError;
use std::time::Duration;

/// Where callers wait for a change of a state that is under a lock of its own.
#[derive(Default)]
pub struct Gate {
    changed: Condvar,
}

impl Gate {
    /// Waits until `ready` returns a value; the lock `st` is free meanwhile. A thread that changes
    /// what `ready` or `check` reads calls [`Gate::tell`] afterwards.
    ///
    /// # Errors
    /// Those of `check`, which is called whenever `ready` has returned nothing.
    pub fn wait_until<S, T>(
        &self,
        mut st: MutexGuard<'_, S>,
        check: impl Fn() -> Result<()>,
        mut ready: impl FnMut(&mut S) -> Option<T>,
    ) -> Result<T> {
        loop {
            if let Some(value) = ready(&mut st) {
                return Ok(value);
            }
            check()?;
            st = self.changed.wait(st).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes all waiters, which check again. The state's lock must have been taken *after* the
    /// change, or around it: a caller then either has not checked yet, or waits already.
    pub fn tell<S>(&self, st: MutexGuard<'_, S>) {
        drop(st);
        self.changed.notify_all();
    }
}

/// Wakes one thread that works when there is something to do.
#[derive(Default)]
pub struct Alarm {
    pending: Mutex<bool>,
    rung: Condvar,
}

impl Alarm {
    /// Returns when the alarm has been rung since the last return, or after `timeout`.
    pub fn wait(&self, timeout: Duration) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if !*pending {
            pending = match self.rung.wait_timeout(pending, timeout) {
                Ok((guard, _)) => guard,
                Err(p) => p.into_inner().0,
            };
        }
        *pending = false;
    }

    /// Wakes the thread in [`Alarm::wait`], or makes its next call return at once.
    pub fn ring(&self) {
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rung.notify_one();
    }
}
