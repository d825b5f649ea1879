//! What a bench's figure says, and the middle of numbers.

use serde_json::{Value, json};

/// For people, and for programs.
pub struct Output {
    /// Lines.
    pub text: String,
    /// One document.
    pub json: Value,
}

/// The middle one of some numbers, with those around it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The quartiles.
    pub quartiles: [f64; 2],
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
        let last = sorted.len().saturating_sub(1);
        let quartiles = [at(last / 4), at((3 * last).div_ceil(4))];
        Self { median: at(sorted.len() / 2), quartiles, least: at(0), most: at(last) }
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

    /// The same with its quartiles.
    pub fn show_quartiles(self) -> String {
        let [low, high] = self.quartiles;
        format!("{:.2} ({low:.2} to {high:.2})", self.median)
    }

    /// For programs.
    pub fn json(self) -> Value {
        let Self { median, quartiles, least, most } = self;
        json!({"median": median, "quartiles": quartiles, "least": least, "most": most})
    }
}
