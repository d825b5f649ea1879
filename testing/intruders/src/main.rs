//! `siftfs-intruders`: hostile clients of a server, for as long as one likes.

use clap::Parser;
use siftfs_intruders::{Options, campaign};
use siftfs_kills::duration;
use siftfs_rig::place::Failed;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Hostile clients of a SiftFS server, beside a canary that none of them may read.
#[derive(Parser)]
#[command(name = "siftfs-intruders")]
struct Args {
    /// What everything is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For how long, such as 90s, 10m or 1h
    #[arg(long = "for", id = "time", value_name = "TIME", default_value = "60s", value_parser = duration)]
    time: Duration,
    /// Calls of the honest come back within this time
    #[arg(long, default_value = "20s", value_name = "TIME", value_parser = duration)]
    patience: Duration,
    /// Hostile clients at a time, by each of both ways
    #[arg(long, default_value_t = 3)]
    intruders: u64,
    /// The command under test; default: the one beside this program
    #[arg(long)]
    siftfs: Option<PathBuf>,
    /// Where the volume is made; default: $TMPDIR, or /var/tmp
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(why)) => {
            eprintln!("siftfs-intruders: FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<(), Failed> {
    let beside = || {
        let exe = std::env::current_exe().map_err(|e| Failed(format!("own path: {e}")))?;
        Ok(exe.with_file_name("siftfs"))
    };
    let options = Options {
        seed: args.seed,
        length: args.time,
        patience: args.patience,
        intruders: args.intruders,
        siftfs: args.siftfs.map_or_else(beside, Ok)?,
        dir: args.dir,
    };
    let summary = campaign(&options, &|line| eprintln!("{line}"))?;
    let json = serde_json::to_string_pretty(&summary);
    println!("{}\nNothing was found.", json.map_err(|e| Failed(format!("summary: {e}")))?);
    Ok(())
}
