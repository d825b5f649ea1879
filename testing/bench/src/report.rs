//! The table and the JSON document.

use crate::counts::{Backend, DiskIo};
use crate::rows::{EMBEDDED_TARGET, Metric, Row};
use crate::run::{Column, Comparison, EMBEDDED, EXT4, FLOOR, FUSE, Outcome};
use crate::stats::Summary;
use serde::Serialize;
use std::collections::BTreeMap;

/// The whole document.
#[derive(Serialize)]
pub struct Report {
    /// Kernel, processors, load.
    pub machine: BTreeMap<&'static str, String>,
    /// One per row.
    pub rows: Vec<Entry>,
}

/// One row.
#[derive(Serialize)]
pub struct Entry {
    /// Short name.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Of the numbers: `us` (less is better), `per second` or `MiB/s` (more is).
    pub unit: &'static str,
    /// By system.
    pub systems: BTreeMap<&'static str, Numbers>,
    /// Writes per operation of the floor, and their bytes together.
    pub floor: Option<(u64, usize)>,
    /// SiftFS through FUSE to ext4, over the rounds.
    pub ratio: Option<Summary>,
    /// The ratio that is designed for.
    pub target: Option<f64>,
    /// Whether the median ratio keeps it.
    pub met: Option<bool>,
    /// SiftFS embedded to ext4, over the rounds.
    pub embedded_ratio: Option<Summary>,
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
    /// Each round's median or rate.
    pub rounds: Vec<f64>,
    /// Operations, or MiB.
    pub operations: u64,
    /// Counted at SiftFS's storage backend.
    pub backend: Option<Backend>,
    /// Counted at the disk, whoever used it.
    pub disk: Option<DiskIo>,
}

/// The unit of a row's numbers.
pub fn unit(metric: Metric) -> &'static str {
    match metric {
        Metric::Latency => "us",
        Metric::Operations => "per second",
        Metric::Bytes => "MiB/s",
    }
}

/// Round by round, for what disturbs one round disturbs both.
fn ratio(of: Option<&Column>, to: Option<&Column>) -> Option<Summary> {
    let pairs = of?.rounds.iter().zip(&to?.rounds).filter(|(_, to)| **to > 0.0);
    Some(Summary::of(pairs.map(|(of, to)| of / to))).filter(|s| s.samples > 0)
}

/// Times may not be longer than designed for, rates not lower.
pub fn met(metric: Metric, ratio: f64, target: f64) -> bool {
    if metric == Metric::Latency { ratio <= target } else { ratio >= target }
}

impl Entry {
    fn new(outcome: &Outcome) -> Self {
        let &Row { name, what, metric, target, .. } = outcome.row;
        let column = |system| outcome.column(system);
        let floor_ratio = ratio(column(EMBEDDED), column(FLOOR));
        let ratio_to_ext4 = ratio(column(FUSE), column(EXT4));
        let floor_target = floor_ratio.map(|_| EMBEDDED_TARGET);
        let judge =
            |ratio: Option<Summary>, target: Option<f64>| Some(met(metric, ratio?.median, target?));
        Self {
            name,
            what,
            unit: unit(metric),
            systems: outcome.columns.iter().map(|c| (c.system, Numbers::new(c))).collect(),
            floor: outcome.floor,
            ratio: ratio_to_ext4,
            target,
            met: judge(ratio_to_ext4, target),
            embedded_ratio: ratio(column(EMBEDDED), column(EXT4)),
            floor_ratio,
            floor_target,
            floor_met: judge(floor_ratio, floor_target),
        }
    }
}

impl Numbers {
    fn new(column: &Column) -> Self {
        Self {
            all: Summary::of(column.samples.iter().copied()),
            rounds: column.rounds.clone(),
            operations: column.operations,
            backend: column.backend,
            disk: column.disk,
        }
    }
}

impl Report {
    /// From the measurement.
    pub fn new(machine: BTreeMap<&'static str, String>, comparison: &Comparison) -> Self {
        Self { machine, rows: comparison.rows.iter().map(Entry::new).collect() }
    }

    /// Prints the tables.
    pub fn print(&self) {
        for (what, value) in &self.machine {
            println!("{what}: {value}");
        }
        self.print_ratios();
        self.print_floor();
        self.print_tails();
        self.print_counts();
    }

    fn print_ratios(&self) {
        println!(
            "\nMedian (first to third quartile). Times in us: less is better, and a ratio may"
        );
        println!("be the target at most. Rates: more is better, the target at least.\n");
        println!(
            "{:42} {:>10} {:>26} {:>10} {:>8} {:>7} {:>7}",
            "", "", "SiftFS, FUSE", "ext4", "ratio", "target", ""
        );
        for e in &self.rows {
            println!(
                "{:42} {:>10} {:>26} {:>10} {:>8} {:>7} {:>7}",
                e.what,
                e.unit,
                spread(e.systems.get(FUSE)),
                median(e.systems.get(EXT4)),
                e.ratio.map_or_else(dash, |r| format!("{:.2}", r.median)),
                e.target.map_or_else(dash, |t| format!("{t:.2}")),
                verdict(e.met)
            );
        }
    }

    fn print_floor(&self) {
        println!("\nWithout a mount, beside ext4 and beside synchronous direct writes:\n");
        println!(
            "{:42} {:>26} {:>8} {:>12} {:>10} {:>8} {:>7} {:>7}",
            "", "SiftFS, embedded", "to ext4", "floor", "", "ratio", "target", ""
        );
        for e in self.rows.iter().filter(|e| e.systems.contains_key(EMBEDDED)) {
            println!(
                "{:42} {:>26} {:>8} {:>12} {:>10} {:>8} {:>7} {:>7}",
                e.what,
                spread(e.systems.get(EMBEDDED)),
                e.embedded_ratio.map_or_else(dash, |r| format!("{:.2}", r.median)),
                e.floor.map_or_else(dash, |(n, bytes)| format!("{n}, {} KiB", bytes >> 10)),
                median(e.systems.get(FLOOR)),
                e.floor_ratio.map_or_else(dash, |r| format!("{:.2}", r.median)),
                e.floor_target.map_or_else(dash, |t| format!("{t:.2}")),
                verdict(e.floor_met)
            );
        }
    }

    fn print_tails(&self) {
        println!("\nTails in us (99th percentile, largest):\n");
        println!("{:42} {:>20} {:>20} {:>20}", "", "SiftFS, FUSE", "SiftFS, embedded", "ext4");
        for e in self.rows.iter().filter(|e| e.unit == unit(Metric::Latency)) {
            let tail = |system| {
                let numbers = e.systems.get(system);
                numbers.map_or_else(dash, |n| format!("{:.0}, {:.0}", n.all.p99, n.all.max))
            };
            println!("{:42} {:>20} {:>20} {:>20}", e.what, tail(FUSE), tail(EMBEDDED), tail(EXT4));
        }
    }

    fn print_counts(&self) {
        println!(
            "\nPer operation (per MiB of a stream) writes, flushes and KiB: at SiftFS's backend,"
        );
        println!(
            "those that a caller waited for and the background's; and at the whole disk, whoever"
        );
        println!("used it meanwhile.\n");
        println!(
            "{:42} {:>19} {:>19} {:>19} {:>19}",
            "", "SiftFS, FUSE", "background", "its disk", "ext4's disk"
        );
        for e in &self.rows {
            let (fuse, ext4) = (e.systems.get(FUSE), e.systems.get(EXT4));
            let backend = fuse.and_then(|n| Some((n.backend?, n.operations)));
            let disk = |n: Option<&Numbers>| {
                n.and_then(|n| Some((n.disk?, n.operations)))
                    .map_or_else(dash, |(d, of)| each((d.writes, d.flushes, d.write_bytes), of))
            };
            println!(
                "{:42} {:>19} {:>19} {:>19} {:>19}",
                e.what,
                backend.map_or_else(dash, |(b, of)| each((b.writes, b.flushes, b.write_bytes), of)),
                backend.map_or_else(dash, |(b, of)| each(
                    (b.background_writes, b.background_flushes, b.background_write_bytes),
                    of
                )),
                disk(fuse),
                disk(ext4)
            );
        }
    }
}

fn each((writes, flushes, bytes): (u64, u64, u64), of: u64) -> String {
    let of = of.max(1) as f64;
    let kib = bytes as f64 / 1024.0 / of;
    format!("{:.2} {:.2} {kib:.1}", writes as f64 / of, flushes as f64 / of)
}

fn dash() -> String {
    "-".into()
}

fn number(n: f64) -> String {
    if n < 100.0 { format!("{n:.1}") } else { format!("{n:.0}") }
}

fn median(numbers: Option<&Numbers>) -> String {
    numbers.map_or_else(dash, |n| number(n.all.median))
}

fn spread(numbers: Option<&Numbers>) -> String {
    numbers.map_or_else(dash, |n| {
        let Summary { p25, median, p75, .. } = n.all;
        format!("{} ({}..{})", number(median), number(p25), number(p75))
    })
}

fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "missed",
        None => "-",
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
