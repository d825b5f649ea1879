//! NICFS's figures, measured here and printed beside the paper's: reads and writes of 4 and 16 KiB
//! (figure 8), of 256 bytes (figure 9), and by four programs at once (figure 10), what several
//! front ends have taken in (figure 12), the back end by itself (figures 11, 13 and 14), and what
//! crosses where the Runtime is in another process (`placement`).
//! `siftfs bench nicfs-...` runs it.
//!
//! One file has one figure. A figure is a function of [`Plan`] that answers an [`Output`]; its
//! measurements are jobs of worker processes ([`job`]) on the systems of a [`stage`].

mod back;
mod fig10;
mod fig11;
mod fig12;
mod fig13;
mod fig14;
mod fig8;
mod fig9;
mod job;
mod placement;
mod stage;
mod table;
mod turns;

use clap::{Args, Parser, Subcommand};
use job::Job;
use siftfs_rig::figure::Output;
use siftfs_rig::place::{Failed, Place, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use turns::Appender;

/// Bytes that must be free in the memory.
const NEEDED: u64 = 4 << 30;

/// Measures NICFS's figures with programs that have private logs in memory, and on ext4 there
#[derive(Parser)]
#[command(name = "siftfs-nicfs-bench", version)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Reads and writes of 4 and 16 KiB, sequential and at random
    Fig8(Common),
    /// Reads and writes of 256 bytes
    Fig9(Common),
    /// Four programs at once that read or write 4 KiB at random
    Fig10(Common),
    /// What the back end takes in, to what a program writes
    Fig11(Common),
    /// 1, 2 and 4 programs that write at random: what the daemon takes in
    Fig12(Common),
    /// The back end without its index cache, and without its pipeline
    Fig13(Common),
    /// What part of the back end's time each step takes, and what lists of free blocks spare
    Fig14(Common),
    /// 1, 2 and 4 mounts of a served volume: what crosses to its Runtime
    Placement(Common),
    /// One job, which a figure has started
    #[command(hide = true)]
    Work(Job),
    /// A program that appends, which a figure has started
    #[command(hide = true)]
    Append(Appender),
}

#[derive(Args)]
struct Common {
    /// Directory in memory
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Milliseconds of each job on each system in a round
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    time: u64,
    /// More options of the mount, with commas between
    #[arg(long, default_value = "")]
    options: String,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// What a figure is measured with.
pub struct Plan<'a> {
    /// In memory.
    pub place: &'a Place,
    /// How often each job is done on each system, in turn.
    pub rounds: u32,
    /// How long one takes.
    pub time: Duration,
    /// More options of the mount.
    pub options: &'a str,
}

fn figure(common: &Common, measure: fn(&Plan<'_>) -> Result<Output>) -> Result<()> {
    let place = Place::new("siftfs-nicfs", NEEDED, Some(&common.memory))?;
    let (rounds, time) = (common.rounds, Duration::from_millis(common.time));
    let output = measure(&Plan { place: &place, rounds, time, options: &common.options })?;
    match common.json {
        true => println!("{:#}", output.json),
        false => print!("{}", output.text),
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = match Cli::parse().what {
        What::Fig8(common) => figure(&common, fig8::measure),
        What::Fig9(common) => figure(&common, fig9::measure),
        What::Fig10(common) => figure(&common, fig10::measure),
        What::Fig11(common) => figure(&common, fig11::measure),
        What::Fig12(common) => figure(&common, fig12::measure),
        What::Fig13(common) => figure(&common, fig13::measure),
        What::Fig14(common) => figure(&common, fig14::measure),
        What::Placement(common) => figure(&common, placement::measure),
        What::Work(job) => job.work(),
        What::Append(appender) => appender.work(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(message)) => {
            eprintln!("siftfs-nicfs-bench: {message}");
            ExitCode::FAILURE
        }
    }
}
