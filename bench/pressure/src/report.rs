//! Medians and spreads over the rounds, as text and as JSON.

use crate::cell::{Case, Found};
use serde::Serialize;
use serde_json::{Value, json};
use siftfs_placement::JournalData;
use siftfs_pressure::load::Shape;

/// The paper's figures at i = 128 (§5.2.1): foreground operations per second and whole-machine host
/// utilisation in percent.
const PAPER: [(&str, f64, f64); 3] =
    [("vanilla", 95.0, 4.75), ("offload", 611.0, 1.40), ("coalesce", 3365.0, 3.72)];

/// Median and range over the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of any samples; zeros for none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
        Self { median: f64::midpoint(sorted[low], sorted[high]), min: *min, max: *max }
    }
}

/// What is reported of a configuration: name, decimals, value.
type Figure = (&'static str, usize, fn(&Found) -> f64);

const FIGURES: [Figure; 23] = [
    ("foreground_ops_per_s", 0, Found::ops_per_second),
    ("fsync_p50_us", 0, |f| f.foreground.p50_us),
    ("fsync_p99_us", 0, |f| f.foreground.p99_us),
    ("fsync_p999_us", 0, |f| f.foreground.p999_us),
    ("fsync_max_us", 0, |f| f.foreground.max_us),
    ("longest_gap_ms", 1, |f| f.foreground.gap_ms),
    ("ops_in_slowest_tenth_of_a_second", 0, |f| f64::from(f.foreground.slow_slots().0)),
    ("ops_in_slow_tenths_p10", 0, |f| f64::from(f.foreground.slow_slots().1)),
    ("credit_wait_max_ms", 1, |f| f.counts.credit_wait_max_us / 1e3),
    ("credit_waits", 0, |f| f.counts.credit_waits as f64),
    ("bulk_wait_max_ms", 0, |f| f.counts.bulk_wait_max_us / 1e3),
    ("background_mib_per_s", 1, Found::background_mib_s),
    ("host_cpu_s", 2, Found::host_cpu),
    ("daemon_user_s", 2, |f| f.daemon.map_or(0.0, |d| d.user)),
    ("daemon_system_s", 2, |f| f.daemon.map_or(0.0, |d| d.system)),
    ("load_cpu_s", 2, |f| f.load.total()),
    ("host_background_cpu_s", 2, |f| f.background.total()),
    ("device_cpu_s", 2, |f| f.device.map_or(0.0, |d| d.total())),
    ("host_us_per_op", 0, Found::host_us_per_op),
    ("lane_laps", 1, |f| f.counts.laps()),
    ("checkpoints_background", 0, |f| f.counts.checkpoints_background as f64),
    ("checkpoints_emergency", 0, |f| f.counts.checkpoints_emergency as f64),
    ("blocks_replayed_share", 3, |f| {
        f.counts.surviving_blocks as f64 / f.counts.raw_blocks.max(1) as f64
    }),
];

/// Ratios to vanilla of the same round, with the same interval and load.
const RATIOS: [Figure; 4] = [
    ("host_cpu_to_vanilla", 2, |f| f.host_cpu() / f.seconds),
    ("host_background_cpu_to_vanilla", 2, |f| f.background.total() / f.seconds),
    ("host_cpu_per_op_to_vanilla", 2, Found::host_us_per_op),
    ("foreground_to_vanilla", 2, Found::ops_per_second),
];

/// All that was found.
pub struct Report {
    shape: Shape,
    journal_data: JournalData,
    seconds: u64,
    cases: Vec<(Case, Vec<Found>)>,
}

impl Report {
    pub fn new(shape: &Shape, journal_data: JournalData, seconds: u64, cases: &[Case]) -> Self {
        let cases = cases.iter().map(|c| (c.clone(), Vec::new())).collect();
        Self { shape: *shape, journal_data, seconds, cases }
    }

    /// A round's result of the configuration with this index.
    pub fn add(&mut self, case: usize, found: Found) {
        self.cases[case].1.push(found);
    }

    /// The host that serves itself under the same load.
    fn vanilla(&self, like: &Case) -> Option<&[Found]> {
        let same = |c: &Case| {
            c.quota.is_none() && c.interval == like.interval && c.offered_mib == like.offered_mib
        };
        self.cases.iter().find(|(c, _)| same(c)).map(|(_, found)| &found[..])
    }

    fn ratio(&self, case: &Case, found: &[Found], of: fn(&Found) -> f64) -> Option<Spread> {
        let base = self.vanilla(case).filter(|_| case.quota.is_some())?;
        Some(Spread::of(found.iter().zip(base).map(|(f, b)| of(f) / of(b))))
    }

    /// Every figure and ratio of a configuration, in order.
    fn figures(&self, case: &Case, found: &[Found]) -> Vec<(&'static str, usize, Spread)> {
        let own = FIGURES
            .iter()
            .map(|(name, decimals, of)| (*name, *decimals, Spread::of(found.iter().map(of))));
        let ratios = RATIOS.iter().filter_map(|(name, decimals, of)| {
            Some((*name, *decimals, self.ratio(case, found, *of)?))
        });
        own.chain(ratios).collect()
    }

    /// For people.
    pub fn print(&self) {
        for (case, found) in &self.cases {
            println!("\n{} (median of {} rounds, range)", case.name(), found.len());
            for (name, d, s) in self.figures(case, found) {
                println!("  {name:34} {:12.d$}   {:.d$} to {:.d$}", s.median, s.min, s.max);
            }
        }
        println!("\nThe paper, against its vanilla:");
        for (name, raw, per_op) in paper_ratios() {
            println!("  {name:10} host CPU {raw:.2}, per operation {per_op:.3}");
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let cases = self.cases.iter().map(|(case, found)| {
            let figures = self.figures(case, found).into_iter();
            let figures: serde_json::Map<_, _> =
                figures.map(|(name, _, s)| (name.to_owned(), json!(s))).collect();
            let value = json!({ "case": case, "figures": figures, "rounds": found });
            (case.name(), value)
        });
        let paper = paper_ratios().map(|(name, raw, per_op)| {
            (
                name.to_owned(),
                json!({ "host_cpu_to_vanilla": raw, "host_cpu_per_op_to_vanilla": per_op }),
            )
        });
        json!({
            "shape": self.shape,
            "journal_data": self.journal_data.to_string(),
            "seconds": self.seconds,
            "paper": paper.collect::<serde_json::Map<_, _>>(),
            "configurations": cases.collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// Raw and per operation, against vanilla.
fn paper_ratios() -> impl Iterator<Item = (&'static str, f64, f64)> {
    let (_, ops, busy) = PAPER[0];
    PAPER[1..].iter().map(move |(name, o, b)| (*name, b / busy, (b / o) / (busy / ops)))
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
