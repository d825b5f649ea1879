//! Rows of a figure: what each side took or did in each round, and ratios of sides.

use crate::figure::{Output, Spread};
use serde_json::{Value, json};
use std::fmt::Write;

/// What a ratio is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Times.
    AtMost(f64),
    /// Rates.
    AtLeast(f64),
}

impl Target {
    fn is_met(self, number: f64) -> bool {
        match self {
            Self::AtMost(most) => number <= most,
            Self::AtLeast(least) => number >= least,
        }
    }

    fn words(self) -> String {
        match self {
            Self::AtMost(most) => format!("at most {most}"),
            Self::AtLeast(least) => format!("at least {least}"),
        }
    }
}

/// One side of a row.
pub struct Side {
    /// What it is.
    pub name: String,
    /// A number for each round.
    pub numbers: Vec<f64>,
    /// What else there is to say.
    pub note: String,
}

/// A number that is compared.
pub struct Compared {
    /// Of what, and to what.
    pub what: String,
    /// One for each round.
    pub rounds: Vec<f64>,
    /// What its median is to be.
    pub target: Option<Target>,
    /// What a paper says of the same, in its own words.
    pub paper: Option<&'static str>,
}

/// A row.
pub struct Row {
    /// What is done.
    pub name: String,
    /// Of the sides' numbers.
    pub unit: &'static str,
    /// What was measured.
    pub sides: Vec<Side>,
    /// What follows.
    pub compared: Vec<Compared>,
}

impl Side {
    /// Without a note.
    pub fn new(name: impl Into<String>, numbers: Vec<f64>) -> Self {
        Self { name: name.into(), numbers, note: String::new() }
    }
}

impl Compared {
    /// The rounds' ratios.
    pub fn ratio(what: &str, of: &[f64], to: &[f64], target: Option<Target>) -> Self {
        let rounds = of.iter().zip(to).map(|(of, to)| of / to).collect();
        Self { what: what.into(), rounds, target, paper: None }
    }

    /// The same beside what a paper says.
    #[must_use]
    pub fn beside(self, paper: &'static str) -> Self {
        Self { paper: Some(paper), ..self }
    }

    fn spread(&self) -> Spread {
        Spread::of(&self.rounds)
    }

    fn met(&self) -> Option<bool> {
        self.target.map(|target| target.is_met(self.spread().median))
    }
}

impl Row {
    fn text(&self, text: &mut String) {
        let _ = writeln!(text, "{}", self.name);
        for Side { name, numbers, note } in &self.sides {
            let Spread { median, quartiles: [low, high], .. } = Spread::of(numbers);
            let _ = write!(text, "  {name:<34} {median:>10.1} {}", self.unit);
            let _ = write!(text, " ({low:.1} to {high:.1})");
            let _ = writeln!(text, "{}{note}", if note.is_empty() { "" } else { ", " });
        }
        for one in &self.compared {
            let _ = write!(text, "  {}: {}", one.what, one.spread().show_quartiles());
            if let (Some(target), Some(met)) = (one.target, one.met()) {
                let word = if met { "met" } else { "missed" };
                let _ = write!(text, "; target {}: {word}", target.words());
            }
            if let Some(paper) = one.paper {
                let _ = write!(text, "; the paper: {paper}");
            }
            let _ = writeln!(text);
        }
    }

    fn json(&self) -> Value {
        let side = |side: &Side| {
            let spread = Spread::of(&side.numbers).json();
            json!({"name": side.name, self.unit: spread, "note": side.note})
        };
        let compared = |one: &Compared| {
            json!({
                "what": one.what,
                "ratio": one.spread().json(),
                "target": one.target.map(Target::words),
                "met": one.met(),
                "paper": one.paper,
            })
        };
        json!({
            "name": self.name,
            "sides": self.sides.iter().map(side).collect::<Vec<_>>(),
            "compared": self.compared.iter().map(compared).collect::<Vec<_>>(),
        })
    }
}

/// All rows, with what is to be said below them.
pub fn show(rows: &[Row], below: &str) -> Output {
    let mut text = String::new();
    rows.iter().for_each(|row| row.text(&mut text));
    let _ = writeln!(text, "{below}");
    let rows: Vec<_> = rows.iter().map(Row::json).collect();
    Output { text, json: json!({"rows": rows, "below": below}) }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
