//! `siftfs-fronts`: several front ends of one volume.

use clap::Parser;
use siftfs_fronts::appends::together;
use siftfs_fronts::creates::creates;
use siftfs_fronts::killed::kills;
use siftfs_fronts::killed::serve::serve;
use siftfs_fronts::logs::program::{Sessions, await_child, fork_leased, work_for};
use siftfs_fronts::logs::records::{judge, prepare};
use siftfs_fronts::programs::{Crowd, crowd};
use siftfs_fronts::recall_times;
use siftfs_fronts::recalls::each_call;
use siftfs_fronts::stage::{By, Remote, Stage};
use siftfs_fronts::turns::Turns;
use siftfs_fuse::Requests;
use siftfs_rig::descriptors::own_table;
use siftfs_rig::place::{Failed, Result};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
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
    /// This many of them are remote: their sessions go over a wire
    #[arg(long, default_value_t = 0, conflicts_with_all = ["logs", "kills"])]
    remote: u32,
    /// How these reach their server
    #[arg(long, value_enum, default_value = "unix")]
    by: By,
    /// Their ways to it break at random, in turns and while programs append
    #[arg(long, requires = "remote")]
    cuts: bool,
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
    /// All mounts open this many names at once, with O_CREAT, instead
    #[arg(long)]
    creates: Option<u64>,
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
    /// The mounts' programs may have private logs, and some do
    #[arg(long)]
    logs: bool,
    /// As a program with private logs, which is told here what to do
    #[arg(long, hide = true)]
    accelerated: Option<PathBuf>,
    /// As the programs that take turns on mounts with private logs, with files in this directory
    #[arg(long, hide = true)]
    beside: Option<PathBuf>,
    /// As programs that append records, of which the first has this number
    #[arg(long, hide = true)]
    records: Option<u64>,
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

impl Args {
    fn stage(&self, requests: Requests) -> Result<Stage> {
        let remote = Remote { mounts: self.remote, by: self.by, breaks: self.cuts };
        Stage::with_remote(self.mounts, remote, requests)
    }
}

/// A history with private logs. The programs are no threads of the mounts' process: what that has
/// open is no other program's.
fn one_logged(args: &Args, seed: u64, requests: Requests) -> Result<u64> {
    let stage = Stage::with_logs(args.mounts, requests)?;
    let mut options = vec![("--seed", seed), ("--calls", args.calls), ("--each", args.each)];
    options.push(("--patience", args.patience));
    let beside = stage.beside("turns");
    std::fs::create_dir(&beside).map_err(|e| Failed(e.to_string()))?;
    let more = ["--beside".as_ref(), beside.as_ref()];
    let calls = stage.while_synced(|| programs_on(&stage, &options, &more));
    let calls = calls.map(|said| print!("{said}"));
    let told = |e: Failed| Failed(format!("seed {seed}: {}", e.0));
    calls.and_then(|()| stage.end()).map_err(told)?;
    Ok(args.calls)
}

/// The process that has turns taken on mounts with private logs.
fn take_logged_turns(args: &Args, beside: &std::path::Path) -> Result<()> {
    let said = |e: std::io::Error| Failed(e.to_string());
    let turns = Turns::with_logs(args.on.clone(), beside, args.seed, args.each).map_err(said)?;
    let mut turns = Box::new(turns);
    for call in 1..=args.calls {
        if let Err(e) = turns.step() {
            abort_all(&args.on);
            return Err(Failed(format!("call {call}: {e}")));
        }
    }
    turns.compare().map_err(Failed)?;
    let calls = turns.calls;
    let leased = turns.end_logs().map_err(Failed)?;
    println!("{calls} calls, {leased} of them under a lease");
    match leased * 20 > calls {
        true => Ok(()),
        false => Err(Failed("there were hardly any leases".into())),
    }
}

fn abort_all(dirs: &[PathBuf]) {
    for dir in dirs {
        if let Ok(Some(entry)) = siftfs_fuse::top_mount(dir) {
            let _ = siftfs_fuse::abort(&entry);
        }
    }
}

fn one_history(args: &Args, seed: u64, requests: Requests) -> Result<u64> {
    if args.logs {
        return one_logged(args, seed, requests);
    }
    let stage = args.stage(requests)?;
    // Threads of the mounts copy the table of descriptors that they have, and close the copies: of
    // what programs have open there is to be nothing in it.
    let turns = || {
        std::thread::scope(|scope| {
            let turns = scope.spawn(|| {
                own_table().map_err(|e| Failed(e.to_string()))?;
                take_turns(args, &stage, seed)
            });
            turns.join().map_err(|_| Failed("a turn panicked".into()))?
        })
    };
    let calls = stage.while_breaking(seed, turns);
    let told = |e: Failed| Failed(format!("seed {seed}: {}", e.0));
    let calls = calls.map_err(told)?;
    if args.cuts && stage.breaks() == 0 {
        return Err(Failed("no way was broken".into()));
    }
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

/// Runs this program once more, as the programs on the stage's mounts. Returns what they say.
fn programs_on(
    stage: &Stage,
    options: &[(&str, u64)],
    more: &[&std::ffi::OsStr],
) -> Result<String> {
    let program = std::env::current_exe().map_err(|e| Failed(e.to_string()))?;
    let mut command = Command::new(program);
    for (option, value) in options {
        command.arg(option).arg(value.to_string());
    }
    for dir in &stage.dirs {
        command.arg("--on").arg(dir);
    }
    let command = command.args(more).stdout(Stdio::piped());
    // Ended when all are that write there.
    let out = command.spawn().and_then(Child::wait_with_output);
    let out = out.map_err(|e| Failed(e.to_string()))?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    match out.status.success() {
        true => Ok(said),
        false => Err(Failed(format!("{said}the programs ended with {}", out.status))),
    }
}

fn at_once(args: &Args, programs: u64, requests: Requests) -> Result<()> {
    let stage = match args.logs {
        true => Stage::with_logs(args.mounts, requests)?,
        false => args.stage(requests)?,
    };
    let options = |programs, records| {
        let seed = args.seed + records;
        let mut options = vec![("--seed", seed), ("--programs", programs)];
        options.extend([("--seconds", args.seconds), ("--patience", args.patience)]);
        options.extend((records > 0).then_some(("--records", records)));
        options
    };
    if args.logs {
        // Half of the programs know nothing of private logs.
        let (some, others) = (programs.div_ceil(2), programs / 2);
        let plain = options(others, 1_000_000);
        prepare(&stage.dirs[0])?;
        let both = std::thread::scope(|scope| {
            let plain = scope.spawn(|| programs_on(&stage, &plain, &[]));
            let logged = programs_on(&stage, &options(some, 1), &["--logs".as_ref()]);
            (logged, plain.join().expect("no panic"))
        });
        let said = both.0? + &both.1?;
        match judge(&stage.dirs, &records_of(&said)?) {
            Ok((all, leased)) => println!("{all} records, {leased} of them under a lease"),
            Err(e) => return Err(Failed(format!("{}; end: {:?}", e.0, stage.end().err()))),
        }
    } else {
        programs_on(&stage, &options(programs, 0), &[])?;
    }
    stage.agree().map_err(Failed)?;
    stage.end()
}

/// The records that programs say they have appended.
fn records_of(said: &str) -> Result<Vec<[u64; 3]>> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("records "));
    let numbers = lines.map(|line| {
        let words: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        words?.try_into().ok()
    });
    let all: Option<Vec<_>> = numbers.collect();
    all.ok_or_else(|| Failed(said.into()))
}

fn recall_times(args: &Args, requests: Requests) -> Result<()> {
    let stage = args.stage(requests)?;
    let count = args.recall_times.unwrap_or(0).max(1);
    let (half, most) = recall_times::measure(&stage, count)?;
    println!("{count} recalls: {half:.1?} at the middle, {most:.1?} at 99 of 100");
    stage.end()
}

/// A file that is open on a mount without a place is told of changes, too.
fn detached(args: &Args, requests: Requests) -> Result<()> {
    let mut stage = args.stage(requests)?;
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

fn creating(args: &Args, names: u64, requests: Requests) -> Result<()> {
    let stage = args.stage(requests)?;
    creates(&stage, names)?;
    stage.agree().map_err(Failed)?;
    stage.end()
}

fn appending(args: &Args, requests: Requests) -> Result<()> {
    let stage = args.stage(requests)?;
    let append = || together(&stage, args.appenders.unwrap_or(1), args.calls);
    let records = stage.while_breaking(args.seed, append)?;
    println!("{records} records");
    stage.agree().map_err(Failed)?;
    stage.end()
}

fn recalling(args: &Args, requests: Requests) -> Result<()> {
    let stage = args.stage(requests)?;
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
    let (seed, records) = (args.seed, args.records);
    let mut wanted = Crowd { programs, seed, length, patience, records, sessions: None };
    let mut first = None;
    if args.logs {
        let sessions = Arc::new(Sessions::default());
        match fork_leased(&args.on[0].join("first"), &sessions) {
            Ok(forked) => first = Some(forked),
            Err(e) => return ended(Err(Failed(e.to_string()))),
        }
        wanted.sessions = Some(sessions);
        if let Some((_, _, 0)) = first {
            wanted.seed += 500;
            wanted.records = records.map(|first| first + 500_000);
        }
    }
    let code = crowd_on(args, &wanted);
    match first {
        Some((_, _, child)) if child > 0 => match await_child(child) {
            Ok(()) => code,
            Err(e) => ended(Err(Failed(e.to_string()))),
        },
        _ => code,
    }
}

fn crowd_on(args: &Args, wanted: &Crowd) -> ExitCode {
    match crowd(&args.on, wanted) {
        Ok((calls, records)) => {
            println!("{calls} calls");
            for [program, count, leased] in records {
                println!("records {program} {count} {leased}");
            }
            ExitCode::SUCCESS
        }
        Err(stuck) => {
            eprintln!("{stuck}");
            abort_all(&args.on);
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
    if let (Some(socket), [file]) = (&args.accelerated, &args.on[..]) {
        return ended(work_for(socket, file).map_err(|e| Failed(e.to_string())));
    }
    if let Some(beside) = &args.beside {
        return ended(take_logged_turns(&args, beside));
    }
    let result = match args.programs {
        None if args.kills.is_some() => killing(&args, args.kills.unwrap_or(1), requests),
        None if args.recall_times.is_some() => recall_times(&args, requests),
        None if args.creates.is_some() => creating(&args, args.creates.unwrap_or(0), requests),
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
