//! `siftfs-rbd`: volumes on a cluster of Ceph that runs on this machine's loopback, under deaths of
//! its daemons and of SiftFS's own processes.

mod cases;

use clap::Parser;
use siftfs_rbd_tests::stage::Stage;
use siftfs_rig::place::{Failed, Place, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Bytes that the cluster and its logs take at most.
const ROOM: u64 = 3 << 30;

/// Volumes on a cluster, under deaths of its daemons and of SiftFS's processes. What was
/// acknowledged is judged. Ends with 1 if anything is wrong.
#[derive(Parser)]
#[command(name = "siftfs-rbd")]
struct Args {
    /// The cases, by name; default: all
    cases: Vec<String>,
    /// Seconds that each case with a load goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// The command under test; default: the one beside this program
    #[arg(long)]
    siftfs: Option<PathBuf>,
    /// Where the cluster lies; default: $TMPDIR, or /var/tmp
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(what)) => {
            eprintln!("siftfs-rbd: {what}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let all = cases::ALL;
    if let Some(unknown) = args.cases.iter().find(|n| !all.iter().any(|(name, _)| name == n)) {
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        return Err(Failed(format!("{unknown} is no case: {}", names.join(", "))));
    }
    let place = Place::new("rbd", ROOM, args.dir.as_deref())?;
    let stage = Stage::new(&place, args.siftfs.clone(), Duration::from_secs(args.seconds))?;
    for (name, case) in all {
        if !args.cases.is_empty() && !args.cases.iter().any(|n| n == name) {
            continue;
        }
        place.go_on()?;
        let begun = Instant::now();
        case(&stage).map_err(|Failed(what)| Failed(format!("{name}: {what}")))?;
        println!("{name}: passed, {:.1} s", begun.elapsed().as_secs_f64());
    }
    Ok(())
}
