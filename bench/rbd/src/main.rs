//! `siftfs-rbd-bench`, which `siftfs bench rbd` becomes: what a volume on images of a Ceph cluster
//! costs, beside the cluster itself (`docs/design/replicated.md`, "Numbers").
//!
//! A figure is a function of [`Plan`] and of a cluster on this machine's loopback, and answers an
//! [`Output`]. The figure of images needs no such cluster, and is what the others start as a
//! process of its own, which is then a client of the cluster like any.

mod apart;
mod disk;
mod fsync;
mod images;
mod programs;
mod sqlite;
mod tally;

use clap::{Parser, ValueEnum};
use siftfs_rbd_tests::stage::Stage;
use siftfs_rig::figure::Output;
use siftfs_rig::place::{Failed, Place, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Bytes that the cluster and its logs take at most.
const NEEDED: u64 = 4 << 30;

/// Measures volumes on images of a Ceph cluster, which it makes on this machine's loopback, beside
/// writes to images by Ceph's own library. Needs root and Ceph's daemons.
#[derive(Parser)]
#[command(name = "siftfs-rbd-bench", version)]
struct Cli {
    /// What to measure; default: all but images
    figures: Vec<Figure>,
    #[command(flatten)]
    plan: Plan,
    /// Where the cluster lies; default: $TMPDIR, or /var/tmp
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Figure {
    /// A write made durable by an embedded volume, to a write and a flush of an image
    Fsync,
    /// Writes and flushes of a transaction of SQLite and RocksDB, beside ext4's on a loop device
    Programs,
    /// The log on a pool of fast devices and the area on a pool of slow ones
    LogApart,
    /// As fsync, on images of a cluster that is there: --volume and --raw
    Images,
}

/// How it is measured.
#[derive(clap::Args)]
struct Plan {
    /// How often each job is done, in turn
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Milliseconds that each job has in a round, if it is bounded by time
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    time: u64,
    /// Transactions of SQLite in a round
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    transactions: u32,
    /// Reads, and writes, of the disk in a second that the OSDs of the pool of slow devices make
    /// together at most; default: both pools have the same devices
    #[arg(long, value_name = "IOPS", value_parser = clap::value_parser!(u32).range(20..=100_000))]
    slow_iops: Option<u32>,
    /// A volume's image (rbd:POOL/IMAGE) for "images"; may be given several times
    #[arg(long, value_name = "IMAGE")]
    volume: Vec<PathBuf>,
    /// An image for "images" that is overwritten, one for each volume
    #[arg(long, value_name = "IMAGE")]
    raw: Vec<PathBuf>,
    /// Where sockets of OSDs are (osd.*.asok), which then count the writes in "images"
    #[arg(long, value_name = "DIR")]
    osds: Option<PathBuf>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

impl Plan {
    fn time(&self) -> Duration {
        Duration::from_millis(self.time)
    }
}

impl Figure {
    /// All that a cluster of this machine is made for.
    const OF_A_CLUSTER: [Self; 3] = [Self::Fsync, Self::Programs, Self::LogApart];

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn measure(self, stage: &Stage<'_>, plan: &Plan) -> Result<Output> {
        match self {
            Self::Fsync => fsync::measure(stage, plan),
            Self::Programs => programs::measure(stage, plan),
            Self::LogApart => apart::measure(stage, plan),
            Self::Images => images::measure(plan),
        }
    }
}

/// Prints a figure for people, or all of them, by name, for programs.
fn show(all: &[(Figure, Output)], json: bool) {
    if json {
        let all: BTreeMap<_, _> = all.iter().map(|(of, said)| (of.name(), &said.json)).collect();
        println!("{:#}", serde_json::json!(all));
        return;
    }
    for (figure, said) in all {
        match figure {
            Figure::Images => print!("{}", said.text),
            _ => println!("{}:\n{}", figure.name(), said.text),
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let Cli { figures, plan, dir } = cli;
    if figures[..] == [Figure::Images] {
        show(&[(Figure::Images, images::measure(plan)?)], plan.json);
        return Ok(());
    }
    if figures.contains(&Figure::Images) {
        return Err(Failed("images is measured by itself: it needs no cluster of ours".into()));
    }
    let figures = if figures.is_empty() { &Figure::OF_A_CLUSTER } else { &figures[..] };
    let place = Place::new("siftfs-rbd-bench", NEEDED, dir.as_deref())?;
    let stage = Stage::with_slow_devices(&place, None, plan.time(), plan.slow_iops)?;
    let mut all = Vec::new();
    for figure in figures {
        place.go_on()?;
        let named = |Failed(what)| Failed(format!("{}: {what}", figure.name()));
        all.push((*figure, figure.measure(&stage, plan).map_err(named)?));
    }
    show(&all, plan.json);
    Ok(())
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(message)) => {
            eprintln!("siftfs-rbd-bench: {message}");
            ExitCode::FAILURE
        }
    }
}
