//! Medians and quartiles.

use serde::Serialize;

/// What a set of samples says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How many.
    pub samples: usize,
    /// First quartile.
    pub p25: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub p75: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

impl Summary {
    /// Of any samples; zeros for none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            samples: sorted.len(),
            p25: percentile(&sorted, 25.0),
            median: percentile(&sorted, 50.0),
            p75: percentile(&sorted, 75.0),
            p99: percentile(&sorted, 99.0),
            max: sorted.last().copied().unwrap_or(0.0),
        }
    }
}

/// Linear between the two samples around the rank.
fn percentile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = p / 100.0 * last as f64;
    let (low, part) = (rank.floor(), rank.fract());
    let at = |i: f64| sorted[(i as usize).min(last)];
    at(low) + (at(low + 1.0) - at(low)) * part
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
