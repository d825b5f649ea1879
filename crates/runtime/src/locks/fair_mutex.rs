//! The state lock. A waiter spins for 25 us before it sleeps, and a thread that takes the lock step
//! after step yields to the waiters between two steps.
//!
//! The lock itself is not fair: a thread that takes it again at once mostly gets it, before a
//! waiter has woken up. Background assembly takes it step after step: before it yielded, one caller
//! waited through a third of a second of steps.
//!
//! A library's fair unlock in its place was measured: the same rates, and a longer tail
//! ("What was found" in `docs/design/pressure.md`).

use siftfs_base::Clock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Longest time [`FairMutex::give_way`] waits for other threads: a waiter may not get a processor.
const LONGEST: Duration = Duration::from_millis(5);
/// Sleep between two checks of [`FairMutex::give_way`].
const LOOK: Duration = Duration::from_micros(20);
/// How long a waiter spins before it sleeps: about as long as a call of a megabyte holds the lock
/// that needs nothing from storage. To sleep and to be woken costs both sides more.
const SPIN: Duration = Duration::from_micros(25);
/// Pauses of the processor between two tries of a spinning waiter.
const PAUSES: u32 = 8;
/// Less than one of these tries takes. Their number ends the spinning too: a clock that a test
/// holds stands still meanwhile.
const TRY: Duration = Duration::from_nanos(10);

/// A lock whose waiters are counted.
pub struct FairMutex<S> {
    lock: Mutex<S>,
    /// Threads that wait for it.
    waiting: AtomicU32,
    /// Threads that have waited and got it.
    served: AtomicU32,
    /// Zero with one processor: the holder cannot run while a waiter spins.
    spin: Duration,
    clock: Arc<dyn Clock>,
}

impl<S> FairMutex<S> {
    /// A lock around `state`, without waiters.
    pub fn new(state: S, clock: Arc<dyn Clock>) -> Self {
        let alone = std::thread::available_parallelism().is_ok_and(|n| n.get() == 1);
        Self {
            lock: Mutex::new(state),
            waiting: AtomicU32::new(0),
            served: AtomicU32::new(0),
            spin: if alone { Duration::ZERO } else { SPIN },
            clock,
        }
    }

    /// Takes the lock. A panic of a thread that had it before does not count.
    pub fn lock(&self) -> MutexGuard<'_, S> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard =
            self.spin().unwrap_or_else(|| self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
        guard
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, S>> {
        match self.lock.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Spins for `self.spin` at most; `None` if the lock has not become free.
    fn spin(&self) -> Option<MutexGuard<'_, S>> {
        let end = self.end_of(self.spin);
        for _ in 0..self.spin.as_nanos() / TRY.as_nanos() {
            if self.clock.mono_ns() >= end {
                break;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
        }
        None
    }

    /// Yields, without the lock, until every thread that waits for it now has had it, for `LONGEST`
    /// at most.
    pub fn give_way(&self) {
        let (waiting, served) =
            (self.waiting.load(Ordering::Relaxed), self.served.load(Ordering::Relaxed));
        if waiting == 0 {
            return;
        }
        let end = self.end_of(LONGEST);
        for _ in 0..LONGEST.as_nanos() / LOOK.as_nanos() {
            let all = self.served.load(Ordering::Relaxed).wrapping_sub(served) >= waiting;
            if all || self.clock.mono_ns() >= end {
                break;
            }
            self.clock.sleep(LOOK);
        }
    }

    /// What the clock shows when `time` has passed.
    fn end_of(&self, time: Duration) -> u64 {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.clock.mono_ns().saturating_add(time)
    }
}

#[cfg(test)]
#[path = "fair_mutex_tests.rs"]
mod tests;
