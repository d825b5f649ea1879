//! Speed and work of the Service's replay modes, and of the interval map, by themselves.
//!
//! `siftfs-replay-bench intervals [ROUNDS]` compares the interval map with the `rangemap` crate;
//! `siftfs-replay-bench replay DIR [ROUNDS [SCALE]]` checkpoints three backlogs from a file in
//! DIR by each mode. Every round measures all candidates, each time beginning with another.
//! Prints one JSON document.

mod backlog;
mod intervals;
mod replay;
mod volume;

use std::path::Path;

fn number(args: &[String], i: usize, usual: u64) -> Result<u64, String> {
    args.get(i).map_or(Ok(usual), |a| a.parse().map_err(|_| format!("'{a}' is no number")))
}

fn run(args: &[String]) -> Result<serde_json::Value, String> {
    match args.first().map(String::as_str) {
        Some("intervals") => Ok(intervals::run(number(args, 1, 5)?)),
        Some("replay") => {
            let dir = args.get(1).ok_or("replay needs a directory for its file")?;
            replay::run(Path::new(dir), number(args, 2, 3)?, number(args, 3, 1)?)
                .map_err(|e| e.to_string())
        }
        _ => {
            Err("usage: siftfs-replay-bench intervals [ROUNDS] | replay DIR [ROUNDS [SCALE]]"
                .into())
        }
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
