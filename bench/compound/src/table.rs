//! Rows of a figure, each with some sides that are measured in turn.

use crate::Plan;
use crate::job::{Done, Job};
use crate::stage::Stage;
use serde_json::{Value, json};
use siftfs_rig::figure::Spread;
use siftfs_rig::place::Result;
use std::fmt::Write;

/// A row: what is done, and by what. The first side is compared with each other one.
pub struct Row {
    /// What is done.
    pub name: String,
    /// Names, and jobs.
    pub sides: Vec<(&'static str, Job)>,
    /// What the first is to reach, to which side.
    pub target: Option<(&'static str, f64)>,
}

/// All that was measured of a row's sides, a number per round.
pub struct Measured {
    row: Row,
    done: Vec<Vec<Done>>,
}

/// Measures all rows in rounds, which begin with another side each.
pub fn measure(plan: &Plan<'_>, stage: &Stage<'_>, rows: Vec<Row>) -> Result<Vec<Measured>> {
    let empty = |row: Row| Measured { done: vec![Vec::new(); row.sides.len()], row };
    let mut all: Vec<_> = rows.into_iter().map(empty).collect();
    for round in 0..plan.rounds as usize {
        for Measured { row, done } in &mut all {
            for i in 0..row.sides.len() {
                let side = (i + round) % row.sides.len();
                done[side].push(stage.run(&row.sides[side].1)?);
            }
        }
    }
    Ok(all)
}

impl Measured {
    fn numbers(&self, side: usize, of: fn(&Done) -> f64) -> Vec<f64> {
        self.done[side].iter().map(of).collect()
    }

    /// How many times as fast the first is, by the median time of an operation in each round: what
    /// others do to a part of the operations counts for little.
    fn to(&self, side: usize) -> Spread {
        let time = |side| self.numbers(side, |done| done.p50);
        Spread::of_ratios(&time(side), &time(0))
    }

    /// The same by operations in a second.
    fn rates_to(&self, side: usize) -> Spread {
        let rate = |side| self.numbers(side, |done| done.rate);
        Spread::of_ratios(&rate(0), &rate(side))
    }

    /// The ratio that a target is for, and whether it is reached.
    fn judged(&self) -> Option<(&'static str, f64, bool)> {
        let (to, target) = self.row.target?;
        let side = self.row.sides.iter().position(|(name, _)| *name == to)?;
        Some((to, target, self.to(side).median >= target))
    }

    fn text(&self, text: &mut String) {
        let first = self.row.sides.first().map_or("", |(name, _)| name);
        let _ = writeln!(text, "{}", self.row.name);
        for (side, (name, _)) in self.row.sides.iter().enumerate() {
            let rate = Spread::of(&self.numbers(side, |done| done.rate)).median;
            let p50 = Spread::of(&self.numbers(side, |done| done.p50)).median;
            let to = match side {
                0 => String::new(),
                _ => format!(
                    "{first} to it: {}, by rate {:.2}",
                    self.to(side).show_quartiles(),
                    self.rates_to(side).median
                ),
            };
            let _ = writeln!(text, "  {name:<28} {rate:>9.0}/s {p50:>8.1} us  {to}");
        }
        if let Some((to, target, met)) = self.judged() {
            let word = if met { "met" } else { "missed" };
            let _ = writeln!(text, "  target to {to}: {target}, {word}");
        }
    }

    fn json(&self) -> Value {
        let sides = self.row.sides.iter().enumerate().map(|(side, (name, _))| {
            let all = |of| Spread::of(&self.numbers(side, of)).json();
            json!({
                "system": name,
                "rate": all(|done| done.rate),
                "p50_us": all(|done| done.p50),
                "p99_us": all(|done| done.p99),
                "first_to_it": self.to(side).json(),
                "first_to_it_by_rate": self.rates_to(side).json(),
            })
        });
        let target =
            self.judged().map(|(to, target, met)| json!({"to": to, "target": target, "met": met}));
        json!({"name": self.row.name, "sides": sides.collect::<Vec<_>>(), "target": target})
    }
}

/// All rows, for people and for programs.
pub fn show(all: &[Measured]) -> (String, Vec<Value>) {
    let mut text = String::new();
    all.iter().for_each(|row| row.text(&mut text));
    (text, all.iter().map(Measured::json).collect())
}
