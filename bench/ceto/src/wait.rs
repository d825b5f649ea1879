//! Waiting for injected times of a few microseconds, which a sleep would miss by far: the waiting
//! thread offers its processor to others again and again. What that costs is counted, so that a
//! process can tell its own work from what the bench has injected.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Processor time of all waits of this process, in nanoseconds.
static SPENT: AtomicU64 = AtomicU64::new(0);
/// A longer wait sleeps for all but this.
const LAST: Duration = Duration::from_micros(500);

/// Processor time that this process has used, its waits included.
pub fn of_process() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// Processor time that all waits of this process have used.
pub fn spent() -> Duration {
    Duration::from_nanos(SPENT.load(Ordering::Relaxed))
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// A wait of the calling thread, whose processor time is counted when it is dropped.
pub struct Waiting(Duration);

impl Waiting {
    /// Begins now.
    pub fn begin() -> Self {
        Self(read(ClockId::ThreadCPUTime))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let own = read(ClockId::ThreadCPUTime).saturating_sub(self.0);
        let nanos = u64::try_from(own.as_nanos()).unwrap_or(u64::MAX);
        SPENT.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// Returns at this moment, or at once if it has passed.
pub fn until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return;
    }
    if left > 2 * LAST {
        thread::sleep(left - LAST);
    }
    let _waiting = Waiting::begin();
    while Instant::now() < due {
        thread::yield_now();
    }
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
