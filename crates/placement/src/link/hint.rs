//! When a device process is to be told of small durable steps.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds between two hints at least. Each one counts for five times as long.
const INTERVAL: u64 = 20_000_000;

/// Hints sent, and when the next one may be.
#[derive(Default)]
pub(crate) struct Hints {
    next: AtomicU64,
    sent: AtomicU64,
}

impl Hints {
    /// Is a hint due at `now`, in nanoseconds of a clock that does not go back? To one caller per
    /// interval, whether its hint leaves or not.
    pub fn is_due(&self, now: u64) -> bool {
        let (order, next) = (Ordering::Relaxed, self.next.load(Ordering::Relaxed));
        let after = now.saturating_add(INTERVAL);
        now >= next && self.next.compare_exchange(next, after, order, order).is_ok()
    }

    /// Counts a hint that has left.
    pub fn count(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// How many hints have left.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[path = "hint_tests.rs"]
mod tests;
