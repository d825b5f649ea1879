//! `siftfs-remote-bench`, which `siftfs bench remote-...` becomes.

use clap::{Args, Parser, Subcommand};
use siftfs_remote_bench::{Beside, Measure, Pin, Plan, cached, death, direct, programs, sync, two};
use siftfs_rig::place::{Failed, Place, Result, failed};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Bytes that must be free.
const NEEDED: u64 = 2 << 30;

/// Measures a volume that another process serves, beside one of the program's or mount's own
#[derive(Parser)]
#[command(name = "siftfs-remote-bench", version)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// 4 KiB written and made durable: shared memory to embedded, TCP with keys to without
    Sync(Common),
    /// Cached reads, stat and readdir: a remote mount to a local one
    Cached(Common),
    /// tar, git and SQLite: remote mounts to a local one
    Programs(Common),
    /// Two mounts that write files of their own, to one mount with two writers
    Two(Common),
    /// Blocks overwritten durably: direct files at a target, to the same by its host
    Direct(Common),
    /// A server killed under load: until its clients are answered again
    Death(Common),
}

#[derive(Args)]
struct Common {
    /// Directory for the volumes; default: $TMPDIR, or /var/tmp
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How often each job is done on each side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Milliseconds of each job in a round that is bounded by time
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    time: u64,
    /// Processors of server and client in "sync", which then spin; "none" pins nothing
    #[arg(long, default_value = "0,1")]
    pin: Pin,
    /// Files of the archive in "programs"; the other programs' work follows from it
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    files: u32,
    /// An empty directory of another file system, such as NFS, which "programs" works in as well;
    /// how many times its rate a remote mount is to have
    #[arg(long, value_name = "NAME=DIR[=RATIO]")]
    beside: Vec<Beside>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

fn figure(common: &Common, measure: Measure) -> Result<()> {
    let place = Place::new("siftfs-remote", NEEDED, common.dir.as_deref())?;
    let own = std::env::current_exe().map_err(failed("own path"))?;
    let siftfs = own.with_file_name("siftfs");
    let Common { rounds, pin, files, .. } = *common;
    let (time, files) = (Duration::from_millis(common.time), files as usize);
    let (place, siftfs, beside) = (&place, &*siftfs, &*common.beside);
    let output = measure(&Plan { place, siftfs, rounds, time, pin, files, beside })?;
    match common.json {
        true => println!("{:#}", output.json),
        false => print!("{}", output.text),
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = match Cli::parse().what {
        What::Sync(common) => figure(&common, sync::measure),
        What::Cached(common) => figure(&common, cached::measure),
        What::Programs(common) => figure(&common, programs::measure),
        What::Two(common) => figure(&common, two::measure),
        What::Direct(common) => figure(&common, direct::measure),
        What::Death(common) => figure(&common, death::measure),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(message)) => {
            eprintln!("siftfs-remote-bench: {message}");
            ExitCode::FAILURE
        }
    }
}
