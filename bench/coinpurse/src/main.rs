//! CoinPurse's microbenchmarks (figure 5), without a mount: operations of 512 bytes, each with an
//! fsync, on a volume with a record area in memory, on one without, and on the disk's own file
//! system; and what the dispatcher did (table II). The paper's read-back of the device, 1 us, is
//! modelled on one more volume.

mod limits;
mod report;
mod side;

use clap::Parser;
use report::Report;
use side::{Op, Side, System};
use siftfs::Result;
use siftfs_base::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Measures CoinPurse's microbenchmarks with a record area, without one, and on the disk's file
/// system
#[derive(Parser)]
#[command(name = "siftfs-coinpurse-bench", version)]
struct Args {
    /// Directory on the disk: the volumes are files in it, and the file system is the one below
    dir: PathBuf,
    /// Directory in memory for the record areas
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Milliseconds of each operation on each system in a round
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    time: u64,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// Operations in a second, and the median time of one in microseconds.
fn measure(system: &mut System, op: Op, time: Duration) -> Result<(f64, f64)> {
    system.prepare(op)?;
    let (mut times, start) = (Vec::new(), Instant::now());
    let mut n = 0;
    while start.elapsed() < time && system.has_more(op, n) {
        let one = Instant::now();
        system.run(op, n)?;
        times.push(one.elapsed().as_secs_f64() * 1e6);
        n += 1;
    }
    let rate = n as f64 / start.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    system.tidy(op)?;
    Ok((rate, times.get(times.len() / 2).copied().unwrap_or_default()))
}

fn run(args: &Args) -> Result<Report> {
    let temporary = |dir: &PathBuf| {
        let made = tempfile::Builder::new().prefix("siftfs-coinpurse-").tempdir_in(dir);
        made.map_err(|e| Error::Refused(format!("{}: {e}", dir.display())))
    };
    let (disk, memory) = (temporary(&args.dir)?, temporary(&args.memory)?);
    let mut systems = Vec::new();
    for side in Side::ALL {
        systems.push(System::new(side, disk.path(), memory.path())?);
    }
    let mut report = Report::default();
    let time = Duration::from_millis(args.time);
    for round in 0..args.rounds as usize {
        for op in Op::ALL {
            // Each round begins with another system.
            for i in 0..systems.len() {
                let system = &mut systems[(i + round) % Side::ALL.len()];
                let (rate, us) = measure(system, op, time)?;
                report.add(system.side(), op, rate, us);
            }
        }
    }
    for system in systems {
        report.dispatch(system.side(), system.close()?);
    }
    report.limits(limits::measure(disk.path(), memory.path(), args.rounds, time)?);
    Ok(report)
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(report) if args.json => println!("{:#}", report.json()),
        Ok(report) => print!("{}", report.text()),
        Err(error) => {
            eprintln!("siftfs-coinpurse-bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
