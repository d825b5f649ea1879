//! A device that stops to answer for a while, again and again.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// When a device stalls: at the begin of each period, the first one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// From the begin of one stall to that of the next.
    pub every: Duration,
    /// How long a stall lasts; less than a period.
    pub lasts: Duration,
    /// Reads stall, too, and not only what changes something.
    pub reads: bool,
}

impl Stalls {
    /// Writes, flushes and discards stall.
    ///
    /// # Panics
    /// If a stall lasts for its whole period.
    pub fn new(every: Duration, lasts: Duration) -> Self {
        assert!(lasts < every, "between two stalls the device answers");
        Self { every, lasts, reads: false }
    }

    /// How long the stall still lasts that is under way at `at`, counted from the begin of the
    /// first; zero if none is.
    pub fn left(&self, at: Duration) -> Duration {
        let into = at.as_nanos() % self.every.as_nanos();
        let into = u64::try_from(into).map_or(Duration::MAX, Duration::from_nanos);
        self.lasts.saturating_sub(into)
    }
}

#[derive(Default)]
struct State {
    stalls: Option<(Stalls, Instant)>,
    /// Calls that stalled.
    calls: u64,
}

impl State {
    fn left(&self, reads: bool) -> Duration {
        let stalls = self.stalls.filter(|(stalls, _)| stalls.reads || !reads);
        stalls.map_or(Duration::ZERO, |(stalls, since)| stalls.left(since.elapsed()))
    }
}

/// Where the calls of a device wait that stalls.
#[derive(Default)]
pub(super) struct Stalling {
    state: Mutex<State>,
    changed: Condvar,
}

impl Stalling {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first stall begins now. Without stalls, calls that wait go on.
    pub fn set(&self, stalls: Option<Stalls>) {
        self.lock().stalls = stalls.map(|stalls| (stalls, Instant::now()));
        self.changed.notify_all();
    }

    /// How many calls have stalled.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Returns when no stall is under way.
    pub fn pass(&self, reads: bool) {
        let mut state = self.lock();
        let mut left = state.left(reads);
        state.calls += u64::from(!left.is_zero());
        while !left.is_zero() {
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            left = state.left(reads);
        }
    }
}

#[cfg(test)]
#[path = "stalls_tests.rs"]
mod tests;
