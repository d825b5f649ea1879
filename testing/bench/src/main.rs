//! `make bench`: SiftFS through FUSE and embedded, beside ext4 on the same disk and beside
//! synchronous direct writes of what SiftFS stages. Nothing is asserted about time: the exit status
//! says whether it ran.

mod cell;
mod counts;
mod embedded;
mod neighbour;
mod picture;
mod report;
mod rows;
mod run;
mod stats;
mod system;
mod tree;

use cell::{Amount, CHUNK};
use clap::Parser;
use neighbour::Neighbour;
use report::Report;
use rows::{ROWS, Row};
use run::{Comparison, Plan};
use siftfs_rig::place::{Failed, Place, Result, failed};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Space needed in the directory, in bytes.
const NEEDED: u64 = 8 << 30;

/// Measures SiftFS beside ext4.
#[derive(Parser)]
#[command(name = "siftfs-bench")]
struct Args {
    /// Rounds; each measures every row on every system.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Seconds per row, system and round.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Size of the large file of the stream rows, in MiB.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1024))]
    stream_mib: u64,
    /// Directory on the disk to measure [default: $TMPDIR, or /var/tmp].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Only rows whose names contain one of these words, with commas between.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Prints the rows' names and ends.
    #[arg(long)]
    list: bool,
    /// Where the numbers go.
    #[arg(long, default_value = "target/bench/bench.json")]
    json: PathBuf,
    /// Where the picture goes.
    #[arg(long, default_value = "target/bench/bench.svg")]
    svg: PathBuf,
    /// Works until standard input ends (what rows beside a neighbour start).
    #[arg(long, hide = true, requires = "neighbour_in")]
    neighbour: Option<Neighbour>,
    /// Where that works.
    #[arg(long, hide = true)]
    neighbour_in: Option<PathBuf>,
    /// Bytes of its file.
    #[arg(long, hide = true, default_value_t = 1 << 28)]
    neighbour_bytes: u64,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let n: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if (0.01..=600.0).contains(&n) { Ok(n) } else { Err("0.01 to 600 seconds".into()) }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(message)) => {
            eprintln!("siftfs-bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if let (Some(what), Some(dir)) = (args.neighbour, &args.neighbour_in) {
        return neighbour::process(what, dir, args.neighbour_bytes.max(CHUNK as u64));
    }
    if args.list {
        for row in &ROWS {
            println!("{:16} {}", row.name, row.what);
        }
        return Ok(());
    }
    let plan = Plan {
        rounds: usize::from(args.rounds),
        amount: Amount {
            time: Duration::from_secs_f64(args.seconds),
            stream_bytes: args.stream_mib << 20,
        },
        rows: chosen(&args.rows)?,
    };
    let place = Place::new("siftfs-bench", NEEDED, args.dir.as_deref())?;
    let load = load();
    let comparison = run::compare(&place, &plan)?;
    let report = Report::new(machine(args, &comparison, &load), &comparison);
    drop(place);
    report.print();
    let json = serde_json::to_string_pretty(&report).map_err(|e| Failed(e.to_string()))?;
    save(&args.json, &json)?;
    save(&args.svg, &picture::svg(&report))
}

fn chosen(words: &[String]) -> Result<Vec<&'static Row>> {
    let wanted = |row: &&Row| words.is_empty() || words.iter().any(|w| row.name.contains(w));
    let rows: Vec<&Row> = ROWS.iter().filter(wanted).collect();
    if rows.is_empty() {
        return Err(Failed(format!("no row is called like {}; see --list", words.join(", "))));
    }
    Ok(rows)
}

fn save(path: &Path, text: &str) -> Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(failed(dir.display()))?;
    }
    std::fs::write(path, text).map_err(failed(path.display()))?;
    println!("\nwritten: {}", path.display());
    Ok(())
}

/// Average numbers of runnable processes over 1, 5 and 15 minutes.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// What the numbers depend on. A load of others before the start means that they are not worth much.
fn machine(args: &Args, comparison: &Comparison, load: &str) -> BTreeMap<&'static str, String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    BTreeMap::from([
        ("kernel", kernel.trim().to_string()),
        ("processors", processors.to_string()),
        ("load before", load.to_string()),
        ("compared with", comparison.ext4.to_string()),
        ("disk", comparison.disk.clone()),
        ("rounds", args.rounds.to_string()),
        ("seconds", args.seconds.to_string()),
        ("stream MiB", args.stream_mib.to_string()),
    ])
}
