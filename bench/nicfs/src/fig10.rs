//! Figure 10: four programs at once, each with a file of its own, read or write 4 KiB at random.

use crate::Plan;
use crate::job::{Job, Op};
use crate::stage::{Stage, System};
use serde_json::json;
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::{Result, failed};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Stdio;

const PROGRAMS: usize = 4;
const BYTES: usize = 4 << 10;

/// Its name, the system, and whether each write is made durable.
const WAYS: [(&str, System, bool); 4] = [
    ("SiftFS", System::Sift, false),
    ("SiftFS, fsync", System::Sift, true),
    ("ext4", System::Ext4, false),
    ("ext4, fsync", System::Ext4, true),
];
const OPS: [Op; 2] = [Op::RandWrite, Op::RandRead];

const PAPER: &str = "the paper (figure 10, no numbers in its text): with four processes NICFS better than \
                     raw memory in random writes, since its log is written in sequence, and closer to it in \
                     reads than with one process";

/// What all programs did together, in a second.
fn run(stage: &Stage<'_>, plan: &Plan<'_>, op: Op, (system, sync): (System, bool)) -> Result<f64> {
    plan.place.go_on()?;
    stage.settle(system)?;
    let time = plan.time.as_millis() as u64;
    let mut programs = Vec::new();
    for number in 0..PROGRAMS {
        let file = stage.file(system, number);
        let job = Job { file, op, bytes: BYTES, sync, raw: false, time };
        let mut command = stage.command(system, &job);
        programs.push(command.stdout(Stdio::piped()).spawn().map_err(failed("a job"))?);
    }
    let mut rate = 0.0;
    for program in programs {
        let output = program.wait_with_output().map_err(failed("a job"))?;
        rate += Job::done(&String::from_utf8_lossy(&output.stdout))?.rate;
    }
    if system == System::Sift {
        stage.ended()?;
    }
    Ok(rate)
}

/// Measures it.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan, PROGRAMS)?;
    let mut rates: BTreeMap<(Op, usize), Vec<f64>> = BTreeMap::new();
    for round in 0..plan.rounds as usize {
        for op in OPS {
            for turn in 0..WAYS.len() {
                let at = (turn + round) % WAYS.len();
                let (_, system, sync) = WAYS[at];
                if op.writes() || !sync {
                    let rate = run(&stage, plan, op, (system, sync))?;
                    rates.entry((op, at)).or_default().push(rate);
                }
            }
        }
    }
    stage.close()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let of = |op: Op, name: &str| {
        let at = WAYS.iter().position(|(other, ..)| *other == name).unwrap_or_default();
        rates.get(&(op, at)).map(Vec::as_slice).unwrap_or_default()
    };
    let (mut text, mut rows) = (String::new(), Vec::new());
    let _ = writeln!(text, "{:9} {:14} {:>9} {:>24}", "", "system", "MiB/s", "to ext4 likewise");
    for ((op, at), all) in &rates {
        let (name, _, sync) = WAYS[*at];
        let ext4 = of(*op, if sync { "ext4, fsync" } else { "ext4" });
        let (to_ext4, rate) = (Spread::of_ratios(all, ext4), Spread::of(all));
        let mib = rate.median * BYTES as f64 / f64::from(1 << 20);
        let _ = writeln!(text, "{:9} {name:14} {mib:>9.0} {:>24}", op.name(), to_ext4.show());
        rows.push(json!({
            "operation": op.name(),
            "system": name,
            "rate": rate.json(),
            "to_ext4": to_ext4.json(),
        }));
    }
    let _ = writeln!(
        text,
        "{PAPER}\nwhat differs: the {PROGRAMS} programs and the daemon share the {processors} processors of \
         this machine, in ordinary memory; a write of NICFS's is durable, which is \"SiftFS, fsync\" here"
    );
    let (programs, paper) = (PROGRAMS, PAPER);
    Ok(Output {
        text,
        json: json!({"rows": rows, "programs": programs, "processors": processors, "paper": paper}),
    })
}
