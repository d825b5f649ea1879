//! What a figure says, and the middle of numbers.

use serde_json::{Value, json};

/// For people, and for programs.
pub struct Output {
    /// Lines.
    pub text: String,
    /// One document.
    pub json: Value,
}

/// The middle one of some numbers, with the least and the most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of these.
    pub fn of(numbers: &[f64]) -> Self {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |i: usize| sorted.get(i).copied().unwrap_or_default();
        let (median, most) = (at(sorted.len() / 2), at(sorted.len().saturating_sub(1)));
        Self { median, least: at(0), most }
    }

    /// Of the rounds' ratios.
    pub fn of_ratios(of: &[f64], to: &[f64]) -> Self {
        let ratios: Vec<f64> = of.iter().zip(to).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }

    /// For people, with two digits behind the point.
    pub fn show(self) -> String {
        format!("{:.2} ({:.2} to {:.2})", self.median, self.least, self.most)
    }

    /// For programs.
    pub fn json(self) -> Value {
        json!({"median": self.median, "least": self.least, "most": self.most})
    }
}
