//! `make bench`: SiftFS through FUSE and embedded, beside ext4, XFS and btrfs on the same disk and
//! beside synchronous direct writes of what SiftFS stages. Nothing is asserted about time: the exit
//! status says whether it ran.

mod area;
mod cell;
mod counts;
mod embedded;
mod helper;
mod library;
mod machine;
mod neighbour;
mod operations;
mod options;
mod peers;
mod picture;
mod pressure;
mod programs;
mod report;
mod results;
mod row;
mod rows;
mod run;
mod stats;
mod system;
mod table;
mod tree;
mod usage;
mod varmail;

use area::CHUNK;
use clap::Parser;
use options::Args;
use report::Report;
use siftfs_rig::place::{Failed, Place, Result, failed};
use siftfs_rig::rings::{Offer, has_rings};
use std::path::Path;
use std::process::ExitCode;

/// Space needed in the directory, in bytes, with one mount of SiftFS.
const NEEDED: u64 = 14 << 30;
/// ... for each further one.
const NEEDED_EACH: u64 = 3 << 30;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(message)) => {
            eprintln!("siftfs-bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if args.busy {
        helper::busy_loop();
        return Ok(());
    }
    if let (Some(what), Some(dir)) = (args.neighbour, &args.neighbour_in) {
        return neighbour::process(what, dir, args.neighbour_bytes.max(CHUNK as u64));
    }
    if let Some(dir) = &args.opens {
        return library::opens::process(dir, args.opens_for);
    }
    if args.list {
        for row in args.jobs().flat_map(|j| j.rows) {
            println!("{:22} {}", row.name, row.what);
        }
        return Ok(());
    }
    if args.accel && !helper::is_accelerated() {
        return helper::accelerate();
    }
    let plan = args.plan()?;
    let needed = NEEDED + NEEDED_EACH * (plan.configs.len() as u64 - 1);
    let place = Place::new("siftfs-bench", needed, args.dir.as_deref())?;
    let before = machine::before();
    let _rings = has_rings().then(Offer::new).transpose()?;
    let comparison = run::compare(&place, &plan)?;
    let machine = machine::describe(&before, &plan, &comparison)?;
    let mut report = Report::new(machine, &comparison);
    if args.accel {
        report.library = library::versus::compare(&comparison.rows, &comparison.configs);
    }
    drop(place);
    let command = options::command(std::env::args().skip(1));
    let svg = args.svg();
    let picture = svg.file_name().unwrap_or_default().to_string_lossy();
    let results = results::markdown(&report, &command, &picture);
    println!("\n{results}");
    let json = serde_json::to_string_pretty(&report).map_err(|e| Failed(e.to_string()))?;
    save(&args.json, &json)?;
    save(&svg, &picture::svg(&report))?;
    save(&args.results(), &results)
}

fn save(path: &Path, text: &str) -> Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(failed(dir.display()))?;
    }
    std::fs::write(path, text).map_err(failed(path.display()))?;
    println!("written: {}", path.display());
    Ok(())
}
