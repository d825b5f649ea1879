//! `siftfs-kills`: kills host, device process and server under load, for as long as one likes.

use clap::Parser;
use siftfs_kills::plan::Only;
use siftfs_kills::{Length, Options, kills};
use siftfs_rig::place::Failed;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
A seed decides the volume, the mounts, the operations of each thread, and what is killed after how many calls or \
milliseconds. How threads and processes interleave it cannot decide: a round that failed may have to be run several \
times to fail again. Volumes live for 12 rounds; --from N runs those of its volume that come before N, too. A \
failure keeps volume, logs and what each thread did, and the exit status is 1.";

/// Kills host, device process and server of SiftFS under load, and judges what was acknowledged.
#[derive(Parser)]
#[command(name = "siftfs-kills", after_help = HELP)]
struct Args {
    /// What everything is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// First round
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many rounds; default: 24
    #[arg(long, conflicts_with = "time", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// For how long, such as 90s, 10m or 1h
    #[arg(long = "for", id = "time", value_name = "TIME", value_parser = siftfs_kills::duration)]
    time: Option<Duration>,
    /// Only these: mounts with programs that have private logs, without, or of a volume that a
    /// server has (accel,plain,served), placements (local,unix,tcp,fallback,target), deaths of the
    /// device process (kill,twice,term,stop,away) and of the server
    /// (server,server-twice,server-recovering,server-term,server-stop,server-and-device), files
    /// without a name in each served round (nameless), ends of a round
    /// (unmount,host,host-then-device,device-then-host,takeover,host-in-unmount,device-in-unmount)
    /// and of a served one (unmount,client,client-then-server,server-then-client,all,
    /// client-in-unmount,server-in-unmount)
    #[arg(long, default_value = "", value_parser = Only::parse)]
    only: Only,
    /// The command under test; default: the one beside this program
    #[arg(long)]
    siftfs: Option<PathBuf>,
    /// Where volumes are made; default: $TMPDIR, or /var/tmp
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where what failed is kept; default: there
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Show every round's plan
    #[arg(long, short)]
    verbose: bool,
    /// The summary as JSON; everything else goes to standard error
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(why)) => {
            eprintln!("siftfs-kills: FAILED: {why}");
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
        (rounds, None) => Length::Rounds(rounds.unwrap_or(24)),
    };
    let options = Options {
        seed: args.seed,
        from: args.from,
        length,
        only: args.only,
        siftfs: args.siftfs.map_or_else(beside, Ok)?,
        dir: args.dir,
        keep: args.keep,
        verbose: args.verbose,
    };
    let summary = kills(&options, &|line| eprintln!("{line}"))?;
    let json = serde_json::to_string_pretty(&summary);
    let json = json.map_err(|e| Failed(format!("summary: {e}")))?;
    if args.json {
        println!("{json}");
    } else {
        println!("{json}\nNothing acknowledged was lost.");
    }
    Ok(())
}
