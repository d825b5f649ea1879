//! What the measurement says: ratios, and whether targets are met.

use crate::counts::Counts;
use crate::library::versus::Compared;
use crate::row::{Metric, Row};
use crate::rows::EMBEDDED_TARGET;
use crate::run::{Column, Comparison, Config, EMBEDDED, EXT4, FLOOR, Outcome};
use crate::stats::Summary;
use serde::Serialize;
use std::collections::BTreeMap;

/// The whole document.
#[derive(Serialize)]
pub struct Report {
    /// Names and values: kernel, processors, load.
    pub machine: Vec<(&'static str, String)>,
    /// SiftFS's configurations; the first is the one that targets are about.
    pub configs: Vec<Config>,
    /// Other file systems that were measured.
    pub peers: Vec<String>,
    /// The results, one entry per row.
    pub rows: Vec<Entry>,
    /// What the library of private logs is compared with apart from ext4, in a run with it.
    pub library: Vec<Compared>,
}

/// One row.
#[derive(Serialize)]
pub struct Entry {
    /// Short name.
    pub name: &'static str,
    /// What the row does.
    pub what: &'static str,
    /// Of the numbers: `us` or `bytes/byte` (less is better), `per second` or `MiB/s` (more is).
    pub unit: &'static str,
    /// Less is better.
    #[serde(skip)]
    pub falls: bool,
    /// By system.
    pub systems: BTreeMap<String, Numbers>,
    /// Each other system to ext4, over the rounds.
    pub ratios: BTreeMap<String, Summary>,
    /// Writes per operation of the floor, and their bytes together.
    pub floor: Option<(u64, usize)>,
    /// SiftFS's first configuration to ext4, over the rounds.
    pub ratio: Option<Summary>,
    /// The ratio that is designed for.
    pub target: Option<f64>,
    /// Whether the median ratio keeps it.
    pub met: Option<bool>,
    /// SiftFS embedded to the floor, over the rounds.
    pub floor_ratio: Option<Summary>,
    /// The ratio to the floor that is designed for.
    pub floor_target: Option<f64>,
    /// Whether the median ratio keeps it.
    pub floor_met: Option<bool>,
}

/// A row on one system.
#[derive(Serialize)]
pub struct Numbers {
    /// Of all samples: every operation's latency, or one rate per round.
    #[serde(flatten)]
    pub all: Summary,
    /// A round's number, and its median or rate.
    pub rounds: Vec<(usize, f64)>,
    /// Operations, or MiB.
    pub operations: u64,
    /// What they cost.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The unit of a row's numbers.
pub fn unit(metric: Metric) -> &'static str {
    match metric {
        Metric::Latency => "us",
        Metric::Operations => "per second",
        Metric::Bytes => "MiB/s",
        Metric::Written => "bytes/byte",
    }
}

impl Entry {
    /// `subject` is the system that the target is about.
    pub fn new(outcome: &Outcome, subject: &str) -> Self {
        let &Row { name, what, metric, target } = outcome.row;
        let ratio = |of: &Column, to: &str| outcome.column(to).and_then(|to| of.ratio_to(to));
        let floor_ratio = outcome.column(EMBEDDED).and_then(|c| ratio(c, FLOOR));
        let others = outcome.columns.iter().filter(|c| c.system != EXT4 && c.system != FLOOR);
        let ratios: BTreeMap<String, Summary> =
            others.filter_map(|c| Some((c.system.clone(), ratio(c, EXT4)?))).collect();
        let to_ext4 = ratios.get(subject).copied();
        let floor_target = floor_ratio.map(|_| EMBEDDED_TARGET);
        let judge =
            |ratio: Option<Summary>, target: Option<f64>| Some(metric.met(ratio?.median, target?));
        Self {
            name,
            what,
            unit: unit(metric),
            falls: metric.falls(),
            systems: outcome.columns.iter().map(|c| (c.system.clone(), Numbers::new(c))).collect(),
            ratios,
            floor: outcome.floor,
            ratio: to_ext4,
            target,
            met: judge(to_ext4, target),
            floor_ratio,
            floor_target,
            floor_met: judge(floor_ratio, floor_target),
        }
    }

    /// How far the ratio is from its target, as a factor: above 1 it is missed.
    pub fn distance(&self) -> Option<f64> {
        let (ratio, target) = (self.ratio?.median, self.target?);
        Some(if self.falls { ratio / target } else { target / ratio })
    }
}

impl Numbers {
    fn new(column: &Column) -> Self {
        Self {
            all: Summary::of(column.samples.iter().copied()),
            rounds: column.rounds.clone(),
            operations: column.operations,
            counts: column.counts.clone(),
        }
    }
}

impl Report {
    /// From the measurement.
    pub fn new(machine: Vec<(&'static str, String)>, comparison: &Comparison) -> Self {
        let subject = comparison.configs.first().map_or("", |c| c.name.as_str());
        let there = comparison.peers.iter().filter(|(_, version)| version.is_ok());
        Self {
            machine,
            configs: comparison.configs.clone(),
            peers: there.map(|(name, _)| name.clone()).collect(),
            rows: comparison.rows.iter().map(|o| Entry::new(o, subject)).collect(),
            library: Vec::new(),
        }
    }

    /// The system that targets are about.
    pub fn subject(&self) -> &str {
        self.configs.first().map_or("", |c| c.name.as_str())
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
