//! The present time.

use siftfs_base::{Clock, Timestamp};
use std::sync::Arc;

/// The clock, and the latest time it gave: times never step back within a mount.
pub struct Time {
    clock: Arc<dyn Clock>,
    last: Timestamp,
}

impl Time {
    /// `start` is the earliest time that is given.
    pub fn new(clock: Arc<dyn Clock>, start: Timestamp) -> Self {
        Self { clock, last: start }
    }

    /// The present time; never before an earlier one (future times upset e2fsck).
    pub fn now(&mut self) -> Timestamp {
        self.last = self.last.max(self.clock.now());
        self.last
    }

    /// Monotonic nanoseconds that go on while the machine is suspended.
    pub fn boot_ns(&self) -> u64 {
        self.clock.boot_ns()
    }

    /// Monotonic nanoseconds.
    pub fn mono_ns(&self) -> u64 {
        self.clock.mono_ns()
    }
}
