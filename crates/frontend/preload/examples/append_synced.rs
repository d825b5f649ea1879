//! A program that knows nothing of private logs: `append_synced FILE COUNT` appends lines to a file
//! and makes each durable before it says so, and then stays. `testing/guest` has it run under
//! `siftfs accel`, and cuts the power.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

fn run(path: &str, count: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    for n in 0..count {
        file.write_all(format!("line {n}\n").as_bytes())?;
        file.sync_all()?;
        println!("acknowledged {n}");
    }
    std::thread::sleep(Duration::from_secs(100));
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.as_slice() {
        [path, count] => count.parse().map(|count| run(path, count)),
        _ => {
            eprintln!("usage: append_synced FILE COUNT");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("append_synced: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("append_synced: {error}");
            ExitCode::from(2)
        }
    }
}
