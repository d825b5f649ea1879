//! `make pressure`: SIFT's online pressure workload (§5.1.3, Table 4) on the paper's three
//! configurations, with host and device CPU apart. Nothing is asserted about time: the exit status
//! says whether it ran. `docs/design/pressure.md` has the method and what was found.

mod cell;
mod cpu;
mod report;
mod status;

use cell::{Bench, Case, Way};
use clap::Parser;
use report::Report;
use siftfs_placement::{JournalData, ReplayMode};
use siftfs_pressure::load::Shape;
use siftfs_rig::place::{Failed, Place, Result, failed};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures foreground fsyncs under sustained checkpoint pressure.
#[derive(Parser)]
#[command(name = "siftfs-pressure")]
struct Args {
    /// Rounds; each measures every configuration once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Seconds measured, per configuration and round
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Seconds before that
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    warmup: u64,
    /// The paper's sizes are divided by this
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    scale: u64,
    /// Writes between two fsyncs of a background writer, with commas between
    #[arg(long, value_delimiter = ',', default_value = "128",
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    intervals: Vec<u64>,
    /// Shares of a processor that the device process gets, in percent, with commas between
    #[arg(long, value_delimiter = ',', default_value = "25,100",
          value_parser = clap::value_parser!(u64).range(1..=1600))]
    quotas: Vec<u64>,
    /// MiB per second that the background writers offer together, with commas between; 0 is as much
    /// as they can. Only what is said here is measured
    #[arg(long, value_delimiter = ',', default_value = "0",
          value_parser = clap::value_parser!(u64).range(0..=100_000))]
    offered: Vec<u64>,
    /// Only configurations whose names contain one of these words, with commas between
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// What the journal holds of staged data: ref, or copy as in the paper
    #[arg(long, default_value = "ref")]
    journal_data: JournalData,
    /// Through the library, without a mount; default: through a mount
    #[arg(long)]
    embedded: bool,
    /// Directory on the disk to measure [default: $TMPDIR, or /var/tmp]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where the numbers go
    #[arg(long, default_value = "target/bench/pressure.json")]
    json: PathBuf,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(message)) => {
            eprintln!("siftfs-pressure: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let cases = cases(args);
    if cases.is_empty() {
        return Err(Failed(format!("no configuration is called like {}", args.only.join(", "))));
    }
    let shape = Shape::of_paper(args.scale);
    let place =
        Place::new("siftfs-pressure", shape.volume_bytes() + (256 << 20), args.dir.as_deref())?;
    let bench = Bench::new(
        &place,
        shape,
        args.journal_data,
        if args.embedded { Way::Embedded } else { Way::Mounted },
        (Duration::from_secs(args.warmup), Duration::from_secs(args.seconds)),
    )?;
    let mut report = Report::new(&bench.shape, args.journal_data, args.seconds, &cases);
    for round in 0..usize::from(args.rounds) {
        for i in 0..cases.len() {
            place.go_on()?;
            let i = (i + round) % cases.len();
            let found = bench.measure(&cases[i], round as u64)?;
            println!("  round {round}, {}: {found}", cases[i].name());
            report.add(i, found);
        }
    }
    drop(bench);
    drop(place);
    report.print();
    save(args, &report)
}

/// vanilla, then offload and coalesce at each quota; each at each interval and offered load.
fn cases(args: &Args) -> Vec<Case> {
    let mut places = vec![(ReplayMode::Ordered, None)];
    for quota in &args.quotas {
        places.extend([ReplayMode::Ordered, ReplayMode::Coalesce].map(|mode| (mode, Some(*quota))));
    }
    let mut cases = Vec::new();
    for &interval in &args.intervals {
        for &offered in &args.offered {
            cases.extend(places.iter().map(|(mode, quota)| Case {
                mode: *mode,
                quota: *quota,
                interval,
                offered_mib: offered,
            }));
        }
    }
    let wanted = |c: &Case| args.only.is_empty() || args.only.iter().any(|w| c.name().contains(w));
    cases.into_iter().filter(wanted).collect()
}

fn save(args: &Args, report: &Report) -> Result<()> {
    if let Some(dir) = args.json.parent() {
        std::fs::create_dir_all(dir).map_err(failed(dir.display()))?;
    }
    let text = serde_json::to_string_pretty(&report.json()).map_err(|e| Failed(e.to_string()))?;
    std::fs::write(&args.json, text).map_err(failed(args.json.display()))?;
    println!("\nwritten: {}", args.json.display());
    Ok(())
}
