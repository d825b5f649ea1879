//! `siftfs-users`: users against each other on one mount, for as long as one likes.

use clap::Parser;
use siftfs_kills::{Length, duration};
use siftfs_rig::place::Failed;
use siftfs_users::scenes::Scene;
use siftfs_users::{Options, campaign};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
A seed decides each round's mount options, its scenes and what each of their users does. How the users interleave it \
cannot decide: a round with a finding may have to be run several times to show it again. The exit status is 1 after a \
finding.";

/// Users against each other on one SiftFS mount: stalls, kept privileges, and views that leak.
#[derive(Parser)]
#[command(name = "siftfs-users", after_help = HELP)]
struct Args {
    /// What everything is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// First round
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many rounds; default: 12
    #[arg(long, conflicts_with = "time", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// For how long, such as 90s, 10m or 1h
    #[arg(long = "for", id = "time", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// How long each round lasts
    #[arg(long, default_value = "6s", value_name = "TIME", value_parser = duration)]
    round: Duration,
    /// Calls of ordinary users come back within this time
    #[arg(long, default_value = "20s", value_name = "TIME", value_parser = duration)]
    patience: Duration,
    /// Only these hostile scenes
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Scene>,
    /// Mount options that come behind the drawn ones
    #[arg(long, short = 'o', default_value = "")]
    mount: String,
    /// Threads of the scenes that make many calls at once
    #[arg(long, default_value_t = 3000)]
    crowd: usize,
    /// The command under test; default: the one beside this program
    #[arg(long)]
    siftfs: Option<PathBuf>,
    /// Where volumes are made; default: $TMPDIR, or /var/tmp
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Show every round's plan
    #[arg(long, short)]
    verbose: bool,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(why)) => {
            eprintln!("siftfs-users: FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<(), Failed> {
    let beside = || {
        let exe = std::env::current_exe().map_err(|e| Failed(format!("own path: {e}")))?;
        Ok(exe.with_file_name("siftfs"))
    };
    let length = match (args.rounds, args.time) {
        (_, Some(time)) => Length::Time(time),
        (rounds, None) => Length::Rounds(rounds.unwrap_or(12)),
    };
    let options = Options {
        seed: args.seed,
        from: args.from,
        length,
        round: args.round,
        patience: args.patience,
        only: args.only,
        mount: args.mount,
        crowd: args.crowd,
        siftfs: args.siftfs.map_or_else(beside, Ok)?,
        dir: args.dir,
        verbose: args.verbose,
    };
    let summary = campaign(&options, &|line| eprintln!("{line}"))?;
    let json = serde_json::to_string_pretty(&summary);
    println!("{}\nNo finding.", json.map_err(|e| Failed(format!("summary: {e}")))?);
    Ok(())
}
