//! The table at the end.

use crate::commits::{FIRST, Rates};
use std::time::Duration;

/// One workload on both file systems.
#[derive(Default)]
pub struct Row {
    /// The workload's name.
    pub what: &'static str,
    /// Latencies on SiftFS.
    pub ours: Vec<Duration>,
    /// Latencies on ext4.
    pub ext4: Vec<Duration>,
    /// fsyncs on SiftFS.
    pub fsyncs: u64,
    /// Writes that SiftFS waited for.
    pub writes: u64,
    /// Flushes that SiftFS waited for.
    pub flushes: u64,
}

/// Everything measured and counted.
pub struct Table {
    ext4: &'static str,
    rows: Vec<Row>,
    facts: Vec<(&'static str, String)>,
    commits: Rates,
    shares: Vec<(&'static str, [String; 2])>,
}

impl Table {
    /// An empty table; `ext4` says which ext4 it compares with.
    pub fn new(ext4: &'static str) -> Self {
        let (rows, facts, shares) = (Vec::new(), Vec::new(), Vec::new());
        Self { ext4, rows, facts, commits: Rates::default(), shares }
    }

    /// Adds a workload.
    pub fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Adds a number of its own.
    pub fn fact(&mut self, what: &'static str, value: String) {
        self.facts.push((what, value));
    }

    /// Says how many transactions SQLite commits in a second.
    pub fn commits(&mut self, rates: Rates) {
        self.commits = rates;
    }

    /// Adds what host and device process had of something.
    pub fn share(&mut self, what: &'static str, [host, device]: [String; 2]) {
        self.shares.push((what, [host, device]));
    }

    /// Prints it.
    pub fn print(&self) {
        self.print_latencies();
        println!();
        for (what, value) in &self.facts {
            println!("{what:42} {value:>12}");
        }
        self.print_commits();
        println!("\n{:42} {:>12} {:>12}", "With a device process:", "host", "device");
        for (what, [host, device]) in &self.shares {
            println!("{what:42} {host:>12} {device:>12}");
        }
    }

    fn print_commits(&self) {
        let Rates { ext4, plain, accelerated } = self.commits;
        println!(
            "\n{:42} {:>12} {:>12} {:>12}",
            "SQLite, WAL, synchronous=FULL:", "ext4", "SiftFS", "accelerated"
        );
        let what = format!("commits a second, after the first {FIRST}");
        println!("{what:42} {ext4:>12.0} {plain:>12.0} {accelerated:>12.0}");
        let of = |rate: f64| rate / ext4;
        let (what, plain, accelerated) = ("of ext4's", of(plain), of(accelerated));
        println!("{what:42} {:>12.2} {plain:>12.2} {accelerated:>12.2}", 1.0);
    }

    fn print_latencies(&self) {
        println!("\nfsync latency in microseconds, SiftFS against {}:\n", self.ext4);
        println!(
            "{:30} {:>8} {:>8} {:>8} {:>8} {:>12} {:>13}",
            "", "SiftFS", "", "ext4", "", "writes per", "flushes per"
        );
        println!(
            "{:30} {:>8} {:>8} {:>8} {:>8} {:>12} {:>13}",
            "", "p50", "p99", "p50", "p99", "fsync", "fsync"
        );
        for row in &self.rows {
            let (ours, ext4) = (sorted(&row.ours), sorted(&row.ext4));
            let each = |n: u64| n as f64 / row.fsyncs.max(1) as f64;
            println!(
                "{:30} {:>8} {:>8} {:>8} {:>8} {:>12.2} {:>13.2}",
                row.what,
                percentile(&ours, 50),
                percentile(&ours, 99),
                percentile(&ext4, 50),
                percentile(&ext4, 99),
                each(row.writes),
                each(row.flushes)
            );
        }
    }
}

fn sorted(times: &[Duration]) -> Vec<u128> {
    let mut us: Vec<u128> = times.iter().map(Duration::as_micros).collect();
    us.sort_unstable();
    us
}

fn percentile(sorted: &[u128], p: usize) -> u128 {
    sorted.get((sorted.len() * p / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}
