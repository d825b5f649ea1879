//! Times and what is said of many of them.

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Seconds of this clock.
pub fn cpu_seconds(clock: ClockId) -> f64 {
    let t = clock_gettime(clock);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// The middle one, the upper of two; of at least one.
pub fn median(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Median, quartiles, least and most.
pub fn spread(mut all: Vec<f64>) -> Value {
    all.sort_by(f64::total_cmp);
    let last = all.len() - 1;
    json!({
        "median": median(&all),
        "quartiles": [all[last / 4], all[(3 * last).div_ceil(4)]],
        "min": all[0],
        "max": all[last],
    })
}
