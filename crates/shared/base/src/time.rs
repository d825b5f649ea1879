//! Time as a parameter, so that a test can hold the clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Seconds and nanoseconds since the Unix epoch (ext4 covers 1901 to 2446).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Seconds, negative before 1970.
    pub sec: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: u32,
}

/// Source of wall-clock and monotonic time, and of waiting for it to pass.
pub trait Clock: Send + Sync {
    /// Wall-clock time, for inode times.
    fn now(&self) -> Timestamp;
    /// Monotonic nanoseconds since an arbitrary start, for ages and latencies.
    fn mono_ns(&self) -> u64;
    /// As [`Clock::mono_ns`], and it goes on while the machine is suspended, for terms.
    fn boot_ns(&self) -> u64 {
        self.mono_ns()
    }
    /// Lets other threads run for so long. A clock that a test holds does not move meanwhile: a
    /// loop of sleeps counts them, so that it ends under every clock.
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The machine's clock.
pub struct SystemClock {
    start: std::time::Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let d =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp { sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX), nsec: d.subsec_nanos() }
    }
    fn mono_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A clock that only the test moves; every `now` also advances it by one nanosecond, so that
/// two operations never share a time.
pub struct ManualClock {
    ns: AtomicU64,
}

impl ManualClock {
    /// A clock standing at `sec` seconds after the epoch.
    pub fn new(sec: u64) -> Self {
        Self { ns: AtomicU64::new(sec * 1_000_000_000) }
    }
    /// Moves the clock forward by `ns` nanoseconds.
    pub fn advance(&self, ns: u64) {
        self.ns.fetch_add(ns, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let ns = self.ns.fetch_add(1, Ordering::SeqCst);
        Timestamp {
            sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            nsec: u32::try_from(ns % 1_000_000_000).unwrap_or(0),
        }
    }
    fn mono_ns(&self) -> u64 {
        self.ns.load(Ordering::SeqCst)
    }
}
