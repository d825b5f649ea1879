//! Bulk writes give way to small durable ones.
//!
//! A disk serves its queue in order, and a flush waits for whatever its write cache holds: behind
//! megabytes of background writing an fsync's few kilobytes wait for milliseconds. While small
//! durable writes come, bulk writes therefore go out in slices with pauses between them, so that
//! most of the small ones meet an idle disk. Bulk alone is not slowed: without small writes a bulk
//! write is as fast as the disk.
//!
//! Small writes of another process are not seen here. A caller that knows of them says for how long
//! to expect some ([`Pace::expect`]); bulk is paced as long, and waits for none of them to end.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of bulk between two pauses.
pub(super) const SLICE: usize = 256 << 10;
/// So long after a small durable write another one is expected.
const RECENT: Duration = Duration::from_millis(5);
/// A pause, in multiples of what the slice before it took: bulk gets a third of the disk's time.
const SHARE: u32 = 2;
/// A pause at most, however long the slice took, and the longest wait for a small write under way.
const PAUSE_MAX: Duration = Duration::from_millis(2);
/// The longest pause that a caller asks for itself.
const GIVE_WAY_MAX: Duration = Duration::from_millis(200);

/// The small durable writes under way, expected, and past, and the bulk writers that wait for them.
pub(super) struct Pace {
    start: Instant,
    /// Small durable writes and flushes under way.
    urgent: AtomicU32,
    /// When the last of them ended, in nanoseconds since `start`; 0: there was none.
    last: AtomicU64,
    /// Until when small writes of another process are expected, in nanoseconds since `start`.
    expected: AtomicU64,
    /// Bulk writers that wait for the urgent ones.
    waiting: AtomicU32,
    lock: Mutex<()>,
    quiet: Condvar,
}

impl Pace {
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            urgent: AtomicU32::new(0),
            last: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            lock: Mutex::new(()),
            quiet: Condvar::new(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A small durable write begins, or has ended.
    pub fn urgent(&self, under_way: bool) {
        if under_way {
            self.urgent.fetch_add(1, Ordering::SeqCst);
            return;
        }
        self.last.store(self.now().max(1), Ordering::Relaxed);
        let before = self.urgent.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "what ends has begun");
        if before == 1 && self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.quiet.notify_all();
        }
    }

    /// Small durable writes of another process are expected for `time` from now on, whatever was
    /// said before.
    pub fn expect(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.expected.store(self.now().saturating_add(time), Ordering::Relaxed);
    }

    /// Is bulk to be sliced?
    pub fn busy(&self) -> bool {
        if self.urgent.load(Ordering::SeqCst) > 0 {
            return true;
        }
        let (now, last) = (self.now(), self.last.load(Ordering::Relaxed));
        let recent = last > 0 && u128::from(now.saturating_sub(last)) < RECENT.as_nanos();
        recent || now < self.expected.load(Ordering::Relaxed)
    }

    /// Carries out one slice of a bulk write: not beside a small write if that ends soon, and
    /// followed by a pause.
    pub fn slice<T, E>(&self, write: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.wait_for_quiet();
        let begin = Instant::now();
        let result = write()?;
        self.pause(begin.elapsed());
        Ok(result)
    }

    /// A pause between two bulk writes, as long as small ones come.
    pub fn give_way(&self, pause: Duration) {
        let until = Instant::now() + pause.min(GIVE_WAY_MAX);
        while let Some(rest) = self.rest(until, Instant::now()) {
            std::thread::sleep(rest);
        }
        self.wait_for_quiet();
    }

    /// How long to sleep before the next check; `None` when the pause is over.
    fn rest(&self, until: Instant, now: Instant) -> Option<Duration> {
        let left = until.saturating_duration_since(now);
        (self.busy() && !left.is_zero()).then(|| left.min(RECENT))
    }

    fn pause(&self, took: Duration) {
        if self.busy() {
            std::thread::sleep((took * SHARE).min(PAUSE_MAX));
        }
    }

    /// Waits until no small write is under way, but not for ever: others may follow at once.
    fn wait_for_quiet(&self) {
        if self.urgent.load(Ordering::SeqCst) == 0 {
            return;
        }
        let until = Instant::now() + PAUSE_MAX;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.urgent.load(Ordering::SeqCst) > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            held = match self.quiet.wait_timeout(held, left) {
                Ok((held, _)) => held,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        drop(held);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
