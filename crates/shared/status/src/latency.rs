//! How long something took.

use serde::{Deserialize, Serialize};

/// A latency distribution in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Distribution {
    /// Samples.
    pub count: u64,
    /// Sum of the samples.
    pub sum_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.99th percentile.
    pub p9999_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// Upper bound in nanoseconds, and how many samples do not exceed it. The bounds are always the
    /// same.
    pub buckets: Vec<(u64, u64)>,
}

impl Distribution {
    /// The latency that a share `q` (0 to 1) of the samples since `before` did not exceed, in
    /// nanoseconds, as exactly as the buckets have it; `None` without samples.
    pub fn quantile_since(&self, before: &Self, q: f64) -> Option<f64> {
        let new = self.count.saturating_sub(before.count);
        let rank = (new as f64 * q).max(1.0);
        if new == 0 {
            return None;
        }
        let (mut last_bound, mut last_count) = (0.0, 0.0);
        for (i, (bound, count)) in self.buckets.iter().enumerate() {
            let earlier = before.buckets.get(i).map_or(0, |b| b.1);
            let count = count.saturating_sub(earlier) as f64;
            if count >= rank && count > last_count {
                let part = ((rank - last_count) / (count - last_count)).clamp(0.0, 1.0);
                return Some(last_bound + (*bound as f64 - last_bound) * part);
            }
            (last_bound, last_count) = (*bound as f64, count);
        }
        Some(self.max_ns as f64)
    }
}

#[cfg(test)]
#[path = "latency_tests.rs"]
mod tests;
