//! How long the calls of a storage that have not returned have been waiting.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Calls that are noted at a time. One more is not noted: those that are stuck keep their places.
const PLACES: usize = 64;
/// Places that a call looks at.
const TRIES: usize = 8;
/// A place that no call has.
const FREE: u64 = 0;

/// Which calls are under way, by when they began.
pub struct Waits {
    origin: Instant,
    /// Nanoseconds from the origin to the beginning of a call, and one more.
    places: [AtomicU64; PLACES],
    next: AtomicUsize,
}

/// A call that has not returned.
pub(crate) struct Waiting<'a>(Option<&'a AtomicU64>);

impl Default for Waits {
    fn default() -> Self {
        let places = std::array::from_fn(|_| AtomicU64::new(FREE));
        Self { origin: Instant::now(), places, next: AtomicUsize::new(0) }
    }
}

impl Waits {
    /// Notes a call until what is returned is dropped.
    pub(crate) fn begin(&self) -> Waiting<'_> {
        let now = self.now();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut places = self.places.iter().cycle().skip(first % PLACES).take(TRIES);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        Waiting(places.find(|at| at.compare_exchange(FREE, now, success, failure).is_ok()))
    }

    /// For how long the oldest call that is noted has not returned; zero: none is under way.
    pub fn longest(&self) -> Duration {
        let begun = self.places.iter().map(|place| place.load(Ordering::Relaxed));
        let oldest = begun.filter(|begun| *begun != FREE).min();
        oldest.map_or(Duration::ZERO, |at| Duration::from_nanos(self.now().saturating_sub(at)))
    }

    /// The present moment as a place has it.
    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX - 1) + 1
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|place| place.store(FREE, Ordering::Relaxed));
    }
}

#[cfg(test)]
#[path = "waits_tests.rs"]
mod tests;
