//! Figure 12: several front ends write at random, each to a file of its own; what the back end
//! takes in meanwhile.

use crate::Plan;
use crate::job::{Job, Op};
use crate::stage::{Stage, System};
use serde_json::json;
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::{Failed, Result, failed};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Stdio;
use std::time::Instant;

/// Numbers of programs that write at once.
const FRONTS: [usize; 3] = [1, 2, 4];
const LENGTHS: [usize; 2] = [4 << 10, 16 << 10];

const PAPER: &str = "the paper (figure 12, no numbers in its text): at 4 KiB twice as much with two front \
                     ends, and less again with four, for which its SmartNIC has too few processors; at 16 KiB \
                     more with four as well";

/// What the back end took in of one run, in bytes a second: until the last program's end, when all
/// that was written is taken in.
fn run(stage: &Stage<'_>, plan: &Plan<'_>, fronts: usize, bytes: usize) -> Result<f64> {
    plan.place.go_on()?;
    stage.settle(System::Sift)?;
    let (before, start) = (stage.logs()?.bytes, Instant::now());
    let time = plan.time.as_millis() as u64;
    let mut programs = Vec::new();
    for number in 0..fronts {
        let file = stage.file(System::Sift, number);
        let job = Job { file, op: Op::RandWrite, bytes, sync: false, raw: false, time };
        let mut command = stage.command(System::Sift, &job);
        programs.push(command.stdout(Stdio::null()).spawn().map_err(failed("a job"))?);
    }
    for mut program in programs {
        let status = program.wait().map_err(failed("a job"))?;
        if !status.success() {
            return Err(Failed(format!("a job ended: {status}")));
        }
    }
    stage.ended()?;
    let took = start.elapsed().as_secs_f64();
    Ok((stage.logs()?.bytes - before) as f64 / took)
}

/// Measures it.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let most = FRONTS.into_iter().max().unwrap_or_default();
    let stage = Stage::new(plan, most)?;
    let mut rates: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for round in 0..plan.rounds as usize {
        for bytes in LENGTHS {
            for i in 0..FRONTS.len() {
                let fronts = FRONTS[(i + round) % FRONTS.len()];
                let rate = run(&stage, plan, fronts, bytes)?;
                rates.entry((bytes, fronts)).or_default().push(rate);
            }
        }
    }
    stage.close()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut text, mut rows) = (String::new(), Vec::new());
    let _ = writeln!(text, "{:>6} {:>7} {:>9} {:>24}", "bytes", "fronts", "MiB/s", "to one front");
    for ((bytes, fronts), all) in &rates {
        let one = rates.get(&(*bytes, 1)).map(Vec::as_slice).unwrap_or_default();
        let (to_one, rate) = (Spread::of_ratios(all, one), Spread::of(all));
        // A program writes, and the daemon takes in: more than one of each share processors.
        let more = if *fronts > processors { "  more programs than processors" } else { "" };
        let mib = rate.median / f64::from(1 << 20);
        let _ = writeln!(text, "{bytes:>6} {fronts:>7} {mib:>9.0} {:>24}{more}", to_one.show());
        rows.push(json!({
            "bytes": bytes,
            "fronts": fronts,
            "bytes_per_second": rate.json(),
            "to_one": to_one.json(),
            "more_than_processors": fronts > &processors,
        }));
    }
    let _ = writeln!(
        text,
        "{PAPER}\nwhat differs: front ends and back end share the {processors} processors of this machine; \
         there the back end has eight of its own. The programs' start is within the time"
    );
    Ok(Output { text, json: json!({"rows": rows, "processors": processors, "paper": PAPER}) })
}
