//! Speed and work of the Service's replay modes, and of the interval map, by themselves.
//!
//! Every round measures all candidates, each time beginning with another. Prints one JSON document.

mod backlog;
mod intervals;
mod memory;
mod replay;
mod spread;
mod volume;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Measures the replay modes of checkpoints, and the interval map, by themselves
#[derive(Parser)]
#[command(name = "siftfs-replay-bench", version)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Compare the interval map with the rangemap crate
    Intervals {
        #[arg(default_value_t = 5)]
        rounds: u64,
    },
    /// Checkpoint backlogs, each by every mode
    Replay {
        /// Directory for the file that is the volume
        dir: PathBuf,
        #[arg(default_value_t = 6)]
        rounds: u64,
        /// Backlogs are this many times as long
        #[arg(default_value_t = 1)]
        scale: u64,
        /// Only this one
        #[arg(value_parser = replay::KINDS.map(|(name, _)| name))]
        backlog: Option<String>,
    },
    /// Say which memory a process takes for a checkpoint of a backlog much larger than its budget
    Memory {
        /// Directory for the file that is the volume
        dir: PathBuf,
        /// The backlog is this many times as long
        #[arg(default_value_t = 4)]
        scale: u64,
        /// Budgets in MiB
        #[arg(default_values_t = [64, 128, 256])]
        budgets: Vec<u64>,
    },
    /// What `memory` runs in a process of its own
    #[command(hide = true)]
    Checkpoint { path: PathBuf, budget: u64, mode: String },
}

fn run(what: What) -> siftfs_base::Result<serde_json::Value> {
    match what {
        What::Intervals { rounds } => Ok(intervals::run(rounds)),
        What::Replay { dir, rounds, scale, backlog } => {
            replay::run(&dir, rounds, scale, backlog.as_deref())
        }
        What::Memory { dir, scale, budgets } => memory::run(&dir, &budgets, scale),
        What::Checkpoint { path, budget, mode } => memory::one(&path, budget, &mode),
    }
}

fn main() -> std::process::ExitCode {
    match run(Args::parse().what) {
        Ok(json) => {
            println!("{json:#}");
            std::process::ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("siftfs-replay-bench: {e}");
            std::process::ExitCode::FAILURE
        }
    }
}
