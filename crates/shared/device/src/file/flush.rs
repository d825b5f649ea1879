//! One flush at a time, shared by its waiters, with failures that stay.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct State {
    running: bool,
    /// Flushes started so far; they are numbered from 1.
    started: u64,
    /// Number of the newest flush that succeeded.
    done: u64,
    /// errno of the first failure.
    failed: Option<i32>,
}

/// Lets one flush run at a time and gives its result to every caller that waited for it.
///
/// The kernel reports a failed writeback to one fdatasync only: two callers with an fdatasync
/// each could be told "failed" and "fine" about the same lost write.
#[derive(Default)]
pub(super) struct FlushGate {
    state: Mutex<State>,
    changed: Condvar,
}

impl FlushGate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once a flush that started after this call succeeded; runs it if no other thread
    /// does.
    ///
    /// # Errors
    /// The errno of the first failure ever noted.
    pub fn run(&self, flush: impl Fn() -> Result<(), i32>) -> Result<(), i32> {
        let mut state = self.lock();
        let mine = state.started + 1;
        loop {
            if let Some(errno) = state.failed {
                return Err(errno);
            }
            if state.done >= mine {
                return Ok(());
            }
            if state.running {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.running = true;
            state.started += 1;
            let number = state.started;
            drop(state);
            let result = flush();
            state = self.lock();
            state.running = false;
            match result {
                Ok(()) => state.done = number,
                Err(errno) => state.failed = state.failed.or(Some(errno)),
            }
            self.changed.notify_all();
        }
    }

    /// Fails when an earlier failure was noted.
    pub fn check(&self) -> Result<(), i32> {
        self.lock().failed.map_or(Ok(()), Err)
    }

    /// A write that was to be durable failed. Unless the errno shows that the write was
    /// refused before it reached the medium, every later flush fails.
    pub fn note_failure(&self, errno: i32) {
        let refused = [libc::ENOSPC, libc::EDQUOT, libc::EINVAL, libc::EFBIG, libc::EBADF];
        if refused.contains(&errno) {
            return;
        }
        let mut state = self.lock();
        state.failed = state.failed.or(Some(errno));
    }
}

#[cfg(test)]
#[path = "flush_tests.rs"]
mod tests;
