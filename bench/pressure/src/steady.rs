//! How steadily operations were done: latencies, and a count for each tenth of a second.

use serde::Serialize;
use std::time::{Duration, Instant};

/// Length of a slot.
const SLOT: Duration = Duration::from_millis(100);

/// Operations of one thread inside a window.
pub struct Steady {
    opens: Instant,
    length: Duration,
    nanos: Vec<u64>,
    slots: Vec<u32>,
    last: Option<Instant>,
    gap: Duration,
}

/// What they came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Steadiness {
    /// Done inside the window.
    pub operations: u64,
    /// Latencies in microseconds: the median,
    pub p50_us: f64,
    /// ... the 99th percentile,
    pub p99_us: f64,
    /// ... the 99.9th,
    pub p999_us: f64,
    /// ... and the largest.
    pub max_us: f64,
    /// Longest time without an operation that ended, in milliseconds.
    pub gap_ms: f64,
    /// Operations in each tenth of a second.
    pub slots: Vec<u32>,
}

impl Steadiness {
    /// The fewest, and the tenth percentile, of operations in a tenth of a second.
    pub fn slow_slots(&self) -> (u32, u32) {
        let mut sorted = self.slots.clone();
        sorted.sort_unstable();
        let at = |i: usize| sorted.get(i).copied().unwrap_or(0);
        (at(0), at(sorted.len() / 10))
    }
}

impl Steady {
    /// None yet.
    pub fn new(opens: Instant, length: Duration) -> Self {
        let slots = vec![0; (length.as_nanos() / SLOT.as_nanos()) as usize];
        Self { opens, length, nanos: Vec::new(), slots, last: None, gap: Duration::ZERO }
    }

    /// An operation, in the order of their ends. One that reaches into the window or out of it
    /// counts for latency and gap, and as done where it ended.
    pub fn note(&mut self, begin: Instant, end: Instant) {
        if end < self.opens || begin >= self.opens + self.length {
            return;
        }
        let took = end.saturating_duration_since(begin);
        self.nanos.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let before = self.last.replace(end).unwrap_or(self.opens).max(self.opens);
        self.gap = self.gap.max(end.saturating_duration_since(before));
        let slot = (end - self.opens).as_nanos() / SLOT.as_nanos();
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            *slot += 1;
        }
    }

    /// Percentiles, and the longest gap.
    pub fn sum_up(mut self) -> Steadiness {
        self.nanos.sort_unstable();
        let end = self.opens + self.length;
        let rest = end.saturating_duration_since(self.last.unwrap_or(self.opens));
        let at = |share: f64| {
            let rank = (self.nanos.len() as f64 * share).ceil() as usize;
            self.nanos.get(rank.max(1) - 1).map_or(0.0, |n| *n as f64 / 1e3)
        };
        Steadiness {
            operations: self.slots.iter().map(|n| u64::from(*n)).sum(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: at(1.0),
            gap_ms: self.gap.max(rest).as_secs_f64() * 1e3,
            slots: self.slots,
        }
    }
}

#[cfg(test)]
#[path = "steady_tests.rs"]
mod tests;
