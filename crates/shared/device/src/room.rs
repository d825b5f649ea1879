//! Waiting for room below: a sparse file, or a thin device, whose storage is full for a while.
//!
//! A write that finds no space has put nothing in danger: no flush was asked for yet, the bytes are
//! still in memory, and the same write is tried again before anything that builds on it. A flush
//! that fails for want of space is another matter, because what had been accepted may be gone: it
//! is latched as any failed flush is (rule R21).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use siftfs_base::{Error, Result};
use siftfs_status::NoRoom;

/// Pauses between two tries: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

#[derive(Default)]
struct State {
    /// Writers that wait.
    waiting: u64,
    since: Option<Instant>,
    /// Tries of this wait that found no space.
    tries: u64,
    why: String,
    /// The volume is closed or has stopped: nobody waits any more.
    over: bool,
}

/// Where the background's writes wait for room, one for a volume's storage.
#[derive(Default)]
pub struct Room {
    state: Mutex<State>,
    changed: Condvar,
    /// Some writer waits.
    short: AtomicBool,
    told: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Does storage below lack space, which may be there again later?
fn is_for_want_of_space(error: &Error) -> bool {
    matches!(error, Error::Io { errno: libc::ENOSPC | libc::EDQUOT, .. })
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `tell` is called whenever a wait has begun or ended; without any lock. The first one stays.
    pub fn on_change(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.told.set(Box::new(tell));
    }

    fn tell(&self) {
        if let Some(tell) = self.told.get() {
            tell();
        }
    }

    /// Does a writer wait for room now?
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    /// The wait for room, for reports.
    pub fn report(&self) -> Option<NoRoom> {
        let state = self.lock();
        let since = state.since?.elapsed().as_secs_f64();
        Some(NoRoom { why: state.why.clone(), for_s: since, tries: state.tries })
    }

    /// Nobody waits from now on: the volume is closed, or has stopped.
    pub fn give_up(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    /// Does `write`, again and again while it finds no space.
    pub(crate) fn wait_for(&self, mut write: impl FnMut() -> Result<()>) -> Result<()> {
        let first = write();
        match first {
            Err(error) if is_for_want_of_space(&error) => self.retry(error, write),
            other => other,
        }
    }

    fn retry(&self, mut error: Error, mut write: impl FnMut() -> Result<()>) -> Result<()> {
        self.begin(&error);
        let mut pause = PAUSES[0];
        let result = loop {
            if !self.pause(pause) {
                break Err(error);
            }
            pause = (2 * pause).min(PAUSES[1]);
            match write() {
                Err(again) if is_for_want_of_space(&again) => error = again,
                other => break other,
            }
        };
        self.end();
        result
    }

    fn begin(&self, error: &Error) {
        let mut state = self.lock();
        if state.waiting == 0 {
            tracing::warn!(%error, "the storage below is full: background work waits for room");
            (state.since, state.tries) = (Some(Instant::now()), 0);
        }
        state.waiting += 1;
        state.why = error.to_string();
        self.short.store(true, Ordering::Release);
        drop(state);
        self.tell();
    }

    fn end(&self) {
        let mut state = self.lock();
        state.waiting -= 1;
        if state.waiting == 0 {
            state.since = None;
            self.short.store(false, Ordering::Release);
            tracing::info!("background work goes on: nobody waits for room any more");
        }
        drop(state);
        self.tell();
    }

    /// Waits so long; false if there is nothing to wait for any more.
    fn pause(&self, time: Duration) -> bool {
        let mut state = self.lock();
        state.tries += 1;
        let waited = self.changed.wait_timeout_while(state, time, |state| !state.over);
        !waited.unwrap_or_else(PoisonError::into_inner).0.over
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
