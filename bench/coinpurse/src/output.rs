//! What a measurement says, and the middle of numbers.

use serde_json::Value;

/// For people, and for programs.
pub struct Output {
    /// Lines.
    pub text: String,
    /// One document.
    pub json: Value,
}

/// The middle one of some, with the least and the most.
pub fn spread(numbers: &[f64]) -> (f64, f64, f64) {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |i: usize| sorted.get(i).copied().unwrap_or_default();
    (at(sorted.len() / 2), at(0), at(sorted.len().saturating_sub(1)))
}
