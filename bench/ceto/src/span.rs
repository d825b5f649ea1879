//! Times on the command line.

use std::time::Duration;

/// Nanoseconds of a unit.
const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
/// The longest that is taken.
const MOST: f64 = 60e9;

/// A time such as `7us`, `0.5ms` or `0ns`, one minute at most.
pub fn parse(text: &str) -> Result<Duration, String> {
    let found = UNITS.iter().find_map(|(unit, nanos)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * nanos)
    });
    match found {
        Some(nanos) if (0.0..=MOST).contains(&nanos) => Ok(Duration::from_nanos(nanos as u64)),
        _ => Err("no time such as 7us, 900ns or 0.5ms, one minute at most".into()),
    }
}

#[cfg(test)]
#[path = "span_tests.rs"]
mod tests;
