//! `siftfs-fronts`: several front ends of one volume.

use clap::Parser;
use siftfs_fronts::appends::together;
use siftfs_fronts::killed::kills;
use siftfs_fronts::killed::serve::serve;
use siftfs_fronts::programs::crowd;
use siftfs_fronts::recall_times;
use siftfs_fronts::recalls::each_call;
use siftfs_fronts::stage::Stage;
use siftfs_fronts::turns::Turns;
use siftfs_fuse::Requests;
use siftfs_rig::descriptors::own_table;
use siftfs_rig::place::{Failed, Result};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Several mounts of one SiftFS volume, and a program that embeds it.
#[derive(Parser)]
#[command(name = "siftfs-fronts")]
struct Args {
    /// Of the first history
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mounts of the volume
    #[arg(long, default_value_t = 2)]
    mounts: u32,
    /// How long
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Calls of a history in which front ends take turns
    #[arg(long, default_value_t = 400)]
    calls: u64,
    /// Number of calls after which everything is compared
    #[arg(long, default_value_t = 1)]
    each: u64,
    /// This many programs work at once, instead of in turns
    #[arg(long)]
    programs: Option<u64>,
    /// This many programs on each mount append to one file, instead
    #[arg(long)]
    appenders: Option<u64>,
    /// A mount goes while files of it are open, instead
    #[arg(long)]
    detached: bool,
    /// Make each call on files that the embedding program holds alone, instead
    #[arg(long)]
    leases: bool,
    /// Times of this many recalls of a write lease, instead
    #[arg(long)]
    recall_times: Option<usize>,
    /// Rounds in which the process with all front ends is killed, instead
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    kills: Option<u64>,
    /// Seconds that a call may take
    #[arg(long, default_value_t = 20)]
    patience: u64,
    /// Requests by rings
    #[arg(long)]
    ring: bool,
    /// As the programs, on these mounts
    #[arg(long, hide = true)]
    on: Vec<PathBuf>,
    /// As the process that is killed, with this volume
    #[arg(long, hide = true, requires = "socket")]
    serve: Option<PathBuf>,
    /// Where that process listens
    #[arg(long, hide = true)]
    socket: Option<PathBuf>,
}

fn one_history(args: &Args, seed: u64, requests: Requests) -> Result<u64> {
    let stage = Stage::new(args.mounts, requests)?;
    // Threads of the mounts copy the table of descriptors that they have, and close the copies: of
    // what programs have open there is to be nothing in it.
    let calls = std::thread::scope(|scope| {
        let turns = scope.spawn(|| {
            own_table().map_err(|e| Failed(e.to_string()))?;
            take_turns(args, &stage, seed)
        });
        turns.join().map_err(|_| Failed("a turn panicked".into()))?
    });
    let told = |e: Failed| Failed(format!("seed {seed}: {}", e.0));
    let calls = calls.map_err(told)?;
    stage.end().map_err(told)?;
    Ok(calls)
}

fn take_turns(args: &Args, stage: &Stage, seed: u64) -> Result<u64> {
    let mut turns = Turns::new(stage, seed).map_err(|e| Failed(e.to_string()))?;
    for call in 1..=args.calls {
        turns.step().map_err(|e| Failed(format!("call {call}: {e}")))?;
        if call % args.each == 0 {
            turns.compare().map_err(|e| Failed(format!("call {call}: {e}")))?;
        }
    }
    turns.compare().map_err(Failed)?;
    Ok(turns.calls)
}

fn in_turns(args: &Args, requests: Requests) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let (mut seed, mut calls) = (args.seed, 0);
    while Instant::now() < end {
        calls += one_history(args, seed, requests)?;
        seed += 1;
    }
    println!("{} histories, {calls} calls", seed - args.seed);
    Ok(())
}

fn at_once(args: &Args, programs: u64, requests: Requests) -> Result<()> {
    let stage = Stage::new(args.mounts, requests)?;
    let program = std::env::current_exe().map_err(|e| Failed(e.to_string()))?;
    let mut command = Command::new(program);
    for (option, value) in [
        ("--seed", args.seed),
        ("--programs", programs),
        ("--seconds", args.seconds),
        ("--patience", args.patience),
    ] {
        command.arg(option).arg(value.to_string());
    }
    for dir in &stage.dirs {
        command.arg("--on").arg(dir);
    }
    let mut child = command.spawn().map_err(|e| Failed(e.to_string()))?;
    let status = child.wait().map_err(|e| Failed(e.to_string()))?;
    if !status.success() {
        return Err(Failed(format!("the programs ended with {status}")));
    }
    stage.agree().map_err(Failed)?;
    stage.end()
}

fn recall_times(args: &Args, requests: Requests) -> Result<()> {
    let stage = Stage::new(args.mounts, requests)?;
    let count = args.recall_times.unwrap_or(0).max(1);
    let (half, most) = recall_times::measure(&stage, count)?;
    println!("{count} recalls: {half:.1?} at the middle, {most:.1?} at 99 of 100");
    stage.end()
}

/// A file that is open on a mount without a place is told of changes, too.
fn detached(args: &Args, requests: Requests) -> Result<()> {
    let mut stage = Stage::new(args.mounts, requests)?;
    let dir = stage.dirs.remove(0);
    let said = |e: std::io::Error| Failed(e.to_string());
    std::thread::scope(|scope| {
        let stage = &stage;
        let reads = scope.spawn(move || {
            own_table().map_err(said)?;
            std::fs::write(dir.join("f"), b"old bytes").map_err(said)?;
            let file = std::fs::File::open(dir.join("f")).map_err(said)?;
            let mut bytes = [0; 9];
            file.read_exact_at(&mut bytes, 0).map_err(said)?;
            siftfs_fuse::detach(&dir).map_err(said)?;
            for turn in 0..20u8 {
                let wanted = [turn; 9];
                let write = move |volume: &siftfs::Volume| {
                    volume.open_file("/f").and_then(|f| f.write_at(0, &wanted))
                };
                stage.embed(write).map_err(|e| Failed(e.to_string()))?;
                file.read_exact_at(&mut bytes, 0).map_err(said)?;
                if bytes != wanted {
                    return Err(Failed(format!("turn {turn}: {bytes:?}")));
                }
            }
            Ok(())
        });
        reads.join().map_err(|_| Failed("a turn panicked".into()))?
    })?;
    stage.end()
}

fn appending(args: &Args, requests: Requests) -> Result<()> {
    let stage = Stage::new(args.mounts, requests)?;
    let records = together(&stage, args.appenders.unwrap_or(1), args.calls)?;
    println!("{records} records");
    stage.agree().map_err(Failed)?;
    stage.end()
}

fn recalling(args: &Args, requests: Requests) -> Result<()> {
    let stage = Stage::new(args.mounts, requests)?;
    let calls = std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            own_table().map_err(|e| Failed(e.to_string()))?;
            each_call(&stage)
        });
        calls.join().map_err(|_| Failed("a call panicked".into()))?
    })?;
    println!("{calls} calls");
    stage.agree().map_err(Failed)?;
    stage.end()
}

fn killing(args: &Args, rounds: u64, requests: Requests) -> Result<()> {
    let did = kills(args.seed, rounds, requests)?;
    println!("{did:?}");
    Ok(())
}

fn work_on(args: &Args, programs: u64) -> ExitCode {
    let [length, patience] = [args.seconds, args.patience].map(Duration::from_secs);
    match crowd(&args.on, args.seed, programs, length, patience) {
        Ok(calls) => {
            println!("{calls} calls");
            ExitCode::SUCCESS
        }
        Err(stuck) => {
            println!("{stuck}");
            for dir in &args.on {
                if let Ok(Some(entry)) = siftfs_fuse::top_mount(dir) {
                    let _ = siftfs_fuse::abort(&entry);
                }
            }
            // Threads that wait in the kernel end with their mounts.
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let requests = if args.ring { Requests::Ring } else { Requests::Device };
    if let (Some(volume), Some(socket)) = (&args.serve, &args.socket) {
        return ended(serve((volume, args.seed), &args.on, socket, requests));
    }
    let result = match args.programs {
        None if args.kills.is_some() => killing(&args, args.kills.unwrap_or(1), requests),
        None if args.recall_times.is_some() => recall_times(&args, requests),
        None if args.detached => detached(&args, requests),
        None if args.leases => recalling(&args, requests),
        None if args.appenders.is_some() => appending(&args, requests),
        Some(programs) if !args.on.is_empty() => return work_on(&args, programs),
        Some(programs) => at_once(&args, programs, requests),
        None => in_turns(&args, requests),
    };
    ended(result)
}

fn ended(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("{}", failed.0);
            ExitCode::FAILURE
        }
    }
}
