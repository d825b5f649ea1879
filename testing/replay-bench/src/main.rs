//! Speed and work of the Service's replay modes, and of the interval map, by themselves.
//!
//! `siftfs-replay-bench intervals [ROUNDS]` compares the interval map with the `rangemap` crate;
//! `siftfs-replay-bench replay DIR [ROUNDS [SCALE [BACKLOG]]]` checkpoints four backlogs, or
//! one, from a file in DIR by each mode; `siftfs-replay-bench memory DIR [SCALE [MIB]]` says which
//! memory a process takes for a checkpoint of a backlog much larger than its budget. Every round measures all candidates, each time beginning with another.
//! Prints one JSON document.

mod backlog;
mod intervals;
mod memory;
mod replay;
mod spread;
mod volume;

use std::path::Path;

const USAGE: &str = "usage: siftfs-replay-bench intervals [ROUNDS] \
    | replay DIR [ROUNDS [SCALE [BACKLOG]]] | memory DIR [SCALE [MIB]]";

fn number(args: &[String], i: usize, usual: u64) -> Result<u64, String> {
    args.get(i).map_or(Ok(usual), |a| a.parse().map_err(|_| format!("'{a}' is no number")))
}

fn run(args: &[String]) -> Result<serde_json::Value, String> {
    match args.first().map(String::as_str) {
        Some("intervals") => Ok(intervals::run(number(args, 1, 5)?)),
        Some("replay") => {
            let dir = args.get(1).ok_or("replay needs a directory for its file")?;
            let (rounds, scale) = (number(args, 2, 6)?, number(args, 3, 1)?);
            let only = args.get(4).map(String::as_str);
            replay::run(Path::new(dir), rounds, scale, only).map_err(|e| e.to_string())
        }
        Some("memory") => {
            let dir = args.get(1).ok_or("memory needs a directory for its file")?;
            let scale = number(args, 2, 4)?;
            let budgets = match args.get(3) {
                None => vec![64, 128, 256],
                Some(_) => vec![number(args, 3, 0)?],
            };
            memory::run(Path::new(dir), &budgets, scale).map_err(|e| e.to_string())
        }
        // What `memory` runs in a process of its own.
        Some("checkpoint") => {
            let path = args.get(1).ok_or("checkpoint needs a file")?;
            let mode = args.get(3).ok_or("checkpoint needs a mode")?;
            memory::one(Path::new(path), number(args, 2, 256)?, mode).map_err(|e| e.to_string())
        }
        _ => Err(USAGE.into()),
    }
}

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
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
