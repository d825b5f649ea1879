//! What a run with the library of private logs is about beside the ratio to ext4: the same on a
//! plain mount, or the same program without the library.

use crate::row::Metric;
use crate::run::{Config, Outcome};
use crate::stats::Summary;
use serde::Serialize;

/// What a row of the first configuration is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// The row of the second configuration, a plain mount.
    Plain,
    /// The row of this name, of the same configuration.
    Row(&'static str),
}

/// A comparison, and its target: of rates at least, of bytes written at most.
struct Versus(&'static str, To, f64);

const ALL: &[Versus] = &[
    Versus("wal-beside-mail", To::Plain, 1.0),
    Versus("log-700-rival", To::Plain, 0.9),
    Versus("pgbench", To::Plain, 0.95),
    Versus("library-opens", To::Row("library-opens-off"), 0.95),
    Versus("library-untar", To::Row("library-untar-off"), 0.95),
    Versus("library-compile", To::Row("library-compile-off"), 0.95),
    Versus("device-bytes-log", To::Plain, 1.5),
    Versus("device-bytes-wal", To::Plain, 1.5),
];

/// What came out of one.
#[derive(Serialize)]
pub struct Compared {
    /// The row's name.
    pub name: &'static str,
    /// What the row does.
    pub what: &'static str,
    /// What it is compared with: a configuration, or a row.
    pub to: String,
    /// What the number is.
    #[serde(skip)]
    pub metric: Metric,
    /// Median of the row.
    pub ours: f64,
    /// Median of what it is compared with.
    pub theirs: f64,
    /// Over the rounds.
    pub ratio: Summary,
    /// What is designed for.
    pub target: f64,
    /// Whether the median ratio keeps it.
    pub met: bool,
}

/// Everything that can be compared of what was measured.
pub fn compare(outcomes: &[Outcome], configs: &[Config]) -> Vec<Compared> {
    ALL.iter().filter_map(|versus| one(versus, outcomes, configs)).collect()
}

fn one(
    &Versus(name, to, target): &Versus,
    all: &[Outcome],
    configs: &[Config],
) -> Option<Compared> {
    let row = |name| all.iter().find(|o| o.row.name == name);
    let subject = configs.first()?.name.as_str();
    let outcome = row(name)?;
    let ours = outcome.column(subject)?;
    let (to, theirs) = match to {
        To::Plain => {
            let plain = configs.get(1)?.name.as_str();
            (plain.to_owned(), outcome.column(plain)?)
        }
        To::Row(other) => (other.to_owned(), row(other)?.column(subject)?),
    };
    let median = |samples: &[f64]| Summary::of(samples.iter().copied()).median;
    let ratio = ours.ratio_to(theirs)?;
    let metric = outcome.row.metric;
    Some(Compared {
        name,
        what: outcome.row.what,
        to,
        metric,
        ours: median(&ours.samples),
        theirs: median(&theirs.samples),
        ratio,
        target,
        met: metric.met(ratio.median, target),
    })
}

#[cfg(test)]
#[path = "versus_tests.rs"]
mod tests;
