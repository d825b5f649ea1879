//! Pauses that fsyncs make once their records are durable, so that each slows down before it has to
//! stop, and bulk before small fsyncs (`docs/design/persistence-path.md`, "Credits").

use crate::state::buffers::is_bulk;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Pauses of bulk callers in multiples of what their writes take: while half is free, and at the
/// last quarter.
const BULK_PAUSES: [f64; 2] = [2.0, 32.0];
/// The pause after a small fsync that takes the last there is.
const SMALL_PAUSE: Duration = Duration::from_millis(4);

/// How long a caller pauses once its record is durable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pause {
    /// A multiple of the time that making the record durable took.
    Times(f64),
    /// A fixed time.
    Fixed(Duration),
}

impl Pause {
    /// The pause of a caller whose record has `len` bytes, where the share `fill` of what it took
    /// from is in use. Bulk always gives way to small fsyncs, and more beyond half; those slow down
    /// in the quarter that is theirs.
    pub fn at(fill: f64, len: u64) -> Self {
        let beyond = |part: f64| ((fill - part) * 4.0).clamp(0.0, 1.0).powi(2);
        if is_bulk(len) {
            let [least, most] = BULK_PAUSES;
            Self::Times(least + (most - least) * beyond(0.5))
        } else {
            Self::Fixed(SMALL_PAUSE.mul_f64(beyond(0.75)))
        }
    }

    /// The pause of one of `callers`, so that they take together what one alone would: a caller
    /// that pauses `n` times as long as it writes has the disk for one part in `n + 1`.
    pub fn among(self, callers: u32) -> Self {
        match self {
            Self::Times(n) => Self::Times((n + 1.0) * f64::from(callers) - 1.0),
            fixed => fixed,
        }
    }

    /// The length of the pause after a record that took `took`.
    pub fn after(self, took: Duration) -> Duration {
        match self {
            Self::Times(n) => took.mul_f64(n),
            Self::Fixed(pause) => pause,
        }
    }
}

/// The callers that are syncing bulk.
#[derive(Default)]
pub struct BulkCallers(AtomicU32);

/// One of the callers that are syncing bulk, as long as this lives.
pub struct Member<'a>(&'a BulkCallers);

impl BulkCallers {
    /// Counts the caller in, until the result is dropped.
    pub fn join(&self) -> Member<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Member(self)
    }
}

impl Member<'_> {
    /// How many callers are syncing bulk, this one included.
    pub fn count(&self) -> u32 {
        self.0.0.load(Ordering::Relaxed)
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Pauses of small fsyncs that are too short to be worth a sleep, put together.
#[derive(Default)]
pub struct PauseDebt(AtomicU64);

impl PauseDebt {
    /// The shortest that is worth one.
    const LEAST: Duration = Duration::from_millis(1);

    /// Adds a pause. Returns how long the caller is to sleep for all pauses that were added and not
    /// slept; zero while they are too short together.
    pub fn add(&self, pause: Duration) -> Duration {
        if pause.is_zero() {
            return pause;
        }
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let (before, pause) = (self.0.fetch_add(nanos(pause), Ordering::Relaxed), nanos(pause));
        if before.saturating_add(pause) < nanos(Self::LEAST) {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
#[path = "pause_tests.rs"]
mod tests;
