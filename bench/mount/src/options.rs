//! The command line.

use crate::cell::Amount;
use crate::library;
use crate::neighbour::Neighbour;
use crate::rows::{JOBS, Job};
use crate::run::{Config, EMBEDDED, EXT4, FLOOR, Plan};
use crate::tree;
use clap::Parser;
use siftfs_rig::place::{Failed, Result};
use siftfs_rig::rings::has_rings;
use std::path::PathBuf;
use std::time::Duration;

/// The name of SiftFS's mount where no configuration is given.
pub const DEFAULT: &str = "siftfs";
/// The name of a second one there, whose requests come over `/dev/fuse`, where the kernel has
/// rings.
const DEVICE: &str = "device";
/// The name of one with private logs.
const ACCEL: &str = "accel";

/// Measures SiftFS beside ext4.
#[derive(Parser)]
#[command(name = "siftfs-bench")]
pub struct Args {
    /// All rows with few and short rounds and a smaller tree, in at most 6 minutes
    #[arg(long)]
    quick: bool,
    /// Rounds; each measures every row on every system [default: 5, quick 3]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Seconds per row, system and round [default: 1, quick 0.4]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Begins no round that would end after this many minutes [default: 25, quick 6]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1440))]
    minutes: Option<u16>,
    /// Size of the large file of the stream rows, in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1024))]
    stream_mib: u64,
    /// Mount options of SiftFS's one configuration, as after `mount -o`; without it and without
    /// `--config` there are two: with the default options and rings, and with requests=device
    #[arg(long, conflicts_with = "configs")]
    siftfs_options: Option<String>,
    /// A configuration of SiftFS, NAME=OPTIONS, such as `ring=requests=ring,write_cache=writeback`,
    /// or `NAME=` for the default options; may be given several times. The first one is compared
    /// with the targets
    #[arg(long = "config", value_parser = config)]
    configs: Vec<Config>,
    /// Loads the library of private logs into this program and all that it starts; without
    /// `--config` there are two configurations: accel, with private_logs=on, and siftfs, where the
    /// library finds nothing to do; and a few rows more
    #[arg(long)]
    pub accel: bool,
    /// Systems not to measure, with commas between: xfs, btrfs, embedded, floor
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Directory on the disk to measure [default: $TMPDIR, or /var/tmp]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Only rows whose names contain one of these words, with commas between; others that are
    /// measured together with them are shown, too
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Prints the rows' names and ends
    #[arg(long)]
    pub list: bool,
    /// Where the numbers go
    #[arg(long, default_value = "target/bench/bench.json")]
    pub json: PathBuf,
    /// Where the picture goes [default: docs/results.svg; of a quick run, of some rows or of
    /// several configurations target/bench/results.svg]
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Where the page goes [default: docs/RESULTS.md, or target/bench/RESULTS.md likewise]
    #[arg(long)]
    results: Option<PathBuf>,
    /// Works until standard input ends (what rows beside a neighbour start)
    #[arg(long, hide = true, requires = "neighbour_in")]
    pub neighbour: Option<Neighbour>,
    /// Where that works
    #[arg(long, hide = true)]
    pub neighbour_in: Option<PathBuf>,
    /// Bytes of its file
    #[arg(long, hide = true, default_value_t = 1 << 28)]
    pub neighbour_bytes: u64,
    /// Opens this directory's files, and closes them (what rows of the library start)
    #[arg(long, hide = true)]
    pub opens: Option<PathBuf>,
    /// For about this many seconds
    #[arg(long, hide = true, default_value_t = 1.0, value_parser = seconds)]
    pub opens_for: f64,
    /// Computes until standard input ends
    #[arg(long, hide = true)]
    pub busy: bool,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let n: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if (0.01..=600.0).contains(&n) { Ok(n) } else { Err("0.01 to 600 seconds".into()) }
}

fn config(text: &str) -> std::result::Result<Config, String> {
    let Some((name, options)) = text.split_once('=') else {
        return Err("NAME=OPTIONS".into());
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("{name:?} is no name: letters, digits, - and _"));
    }
    if [EXT4, EMBEDDED, FLOOR, "xfs", "btrfs"].contains(&name) {
        return Err(format!("{name} is another system's name"));
    }
    Ok(Config { name: name.to_owned(), options: options.to_owned() })
}

impl Args {
    /// What to measure.
    pub fn plan(&self) -> Result<Plan> {
        let of_quick = |quick: f64, full: f64| if self.quick { quick } else { full };
        let configs = self.configs();
        for (i, config) in configs.iter().enumerate() {
            if configs[..i].iter().any(|c| c.name == config.name) {
                return Err(Failed(format!("two configurations are called {}", config.name)));
            }
        }
        let minutes = self.minutes.unwrap_or(if self.quick { 6 } else { 25 });
        Ok(Plan {
            rounds: usize::from(self.rounds.unwrap_or(if self.quick { 3 } else { 5 })),
            amount: Amount {
                time: Duration::from_secs_f64(self.seconds.unwrap_or(of_quick(0.4, 1.0))),
                stream_bytes: self.stream_mib << 20,
            },
            jobs: chosen(&self.rows, self.jobs())?,
            configs,
            without: self.without.clone(),
            others_every: if self.quick { 3 } else { 2 },
            tree_parts: if self.quick { 8 } else { tree::PARTS },
            limit: Duration::from_secs(u64::from(minutes) * 60),
        })
    }

    /// Every job that there is with these arguments.
    pub fn jobs(&self) -> impl Iterator<Item = &'static Job> {
        let more = if self.accel { library::jobs::JOBS } else { &[] };
        JOBS.iter().chain(more)
    }

    fn configs(&self) -> Vec<Config> {
        if !self.configs.is_empty() {
            return self.configs.clone();
        }
        let config =
            |name: &str, options: &str| Config { name: name.into(), options: options.into() };
        match &self.siftfs_options {
            Some(options) => vec![config(DEFAULT, options)],
            None if self.accel => vec![config(ACCEL, "private_logs=on"), config(DEFAULT, "")],
            None if has_rings() => vec![config(DEFAULT, ""), config(DEVICE, "requests=device")],
            None => vec![config(DEFAULT, "")],
        }
    }

    /// Whether the run is the one whose results are kept: all rows, of the default, in full.
    fn is_whole(&self) -> bool {
        !self.quick
            && !self.accel
            && self.rows.is_empty()
            && self.configs.is_empty()
            && self.siftfs_options.is_none()
    }

    fn or_default(&self, given: Option<&PathBuf>, kept: &str, other: &str) -> PathBuf {
        let usual = if self.is_whole() { kept } else { other };
        given.cloned().unwrap_or_else(|| usual.into())
    }

    /// Where the picture goes.
    pub fn svg(&self) -> PathBuf {
        self.or_default(self.svg.as_ref(), "docs/results.svg", "target/bench/results.svg")
    }

    /// Where the page goes.
    pub fn results(&self) -> PathBuf {
        self.or_default(self.results.as_ref(), "docs/RESULTS.md", "target/bench/RESULTS.md")
    }
}

/// The command that measures the same, from the arguments of this one; where files go does not
/// belong to it.
pub fn command(args: impl Iterator<Item = String>) -> String {
    let mut kept = Vec::new();
    let mut args = args;
    while let Some(word) = args.next() {
        let (name, value) =
            word.split_once('=').map_or((word.as_str(), None), |(n, v)| (n, Some(v)));
        if !["--json", "--svg", "--results", "--dir"].contains(&name) {
            kept.push(word);
        } else if value.is_none() {
            args.next();
        }
    }
    match kept.is_empty() {
        true => "make bench".into(),
        false => format!("make bench BENCH=\"{}\"", kept.join(" ")),
    }
}

fn chosen(words: &[String], all: impl Iterator<Item = &'static Job>) -> Result<Vec<&'static Job>> {
    let named = |name: &str| words.is_empty() || words.iter().any(|w| name.contains(w.as_str()));
    let jobs: Vec<&Job> = all.filter(|j| j.rows.iter().any(|r| named(r.name))).collect();
    if jobs.is_empty() {
        return Err(Failed(format!("no row is called like {}; see --list", words.join(", "))));
    }
    Ok(jobs)
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
