//! Figure 1, as far as it can be had without LevelDB: the rate of what its log does, with four
//! threads, and whose processor time that is.

use crate::Plan;
use crate::job::{Done, Op};
use crate::stage::{Served, Stage};
use serde_json::json;
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::Result;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Client threads, as in the paper.
const THREADS: usize = 4;
const LENGTHS: [usize; 3] = [256, 1024, 4096];
const OPS: [(Op, &str); 2] = [(Op::AppendChecksum, "log write"), (Op::Read, "read")];
const SIDES: [&str; 3] = ["ext4", "SiftFS, single", "SiftFS, compound"];

const PAPER: &str = "the paper (LevelDB's db_bench, 4 threads, 100,000 keys of 16 bytes, ext4-DAX and SplitFS): writes far \
                     below reads; close to 65 % of the time in the kernel at 4 KiB; data copies 9 %, updates of \
                     metadata 15 %, locks 16 %; checksums first among the user's own";

/// One side in one round: the job's numbers, and the server's processor time by operation.
#[derive(Clone, Copy, Default)]
struct Cell {
    done: Done,
    server: (f64, f64),
}

fn run(stage: &Stage<'_>, served: &Served, what: (Op, usize, usize)) -> Result<Cell> {
    let (op, bytes, side) = what;
    let at = if side == 0 { &stage.ext4 } else { &served.address };
    let mut job = stage.job(at, op, bytes, side == 2);
    job.threads = THREADS;
    let before = served.time()?;
    let done = stage.run(&job)?;
    let after = served.time()?;
    let operations = done.rate * job.time as f64 / 1e3;
    let each = |time: f64| time * 1e6 / operations.max(1.0);
    let server = match side {
        0 => (0.0, 0.0),
        _ => (each(after.0 - before.0), each(after.1 - before.1)),
    };
    Ok(Cell { done, server })
}

/// Measures it.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan)?;
    let served = stage.serve("volume", &[])?;
    let mut all: BTreeMap<(usize, usize, usize), Vec<Cell>> = BTreeMap::new();
    for round in 0..plan.rounds as usize {
        for (which, (op, _)) in OPS.into_iter().enumerate() {
            for bytes in LENGTHS {
                // A read is one call as it is.
                let sides = if op == Op::Read { SIDES.len() - 1 } else { SIDES.len() };
                for i in 0..sides {
                    let side = (i + round) % sides;
                    let cell = run(&stage, &served, (op, bytes, side))?;
                    all.entry((which, bytes, side)).or_default().push(cell);
                }
            }
        }
    }
    served.end()?;
    let (mut text, mut rows) = (String::new(), Vec::new());
    for ((which, bytes, side), cells) in &all {
        let spread = |of: fn(&Cell) -> f64| Spread::of(&cells.iter().map(of).collect::<Vec<_>>());
        let rate = spread(|cell| cell.done.rate);
        let (user, system) = (spread(|cell| cell.done.user), spread(|cell| cell.done.system));
        let (own, kernel) = (spread(|cell| cell.server.0), spread(|cell| cell.server.1));
        let (name, system_name) = (OPS[*which].1, SIDES[*side]);
        let _ = writeln!(
            text,
            "{name:<10} {bytes:>5} bytes {system_name:<17} {:>8.0}/s; us of processors by operation: program {:.1}, \
             kernel {:.1}; server {:.1}, kernel {:.1}",
            rate.median, user.median, system.median, own.median, kernel.median
        );
        rows.push(json!({
            "operation": name,
            "bytes": bytes,
            "system": system_name,
            "rate": rate.json(),
            "program_us": user.json(),
            "program_kernel_us": system.json(),
            "server_us": own.json(),
            "server_kernel_us": kernel.json(),
        }));
    }
    let ext4 = stage.ext4_name;
    let _ = writeln!(
        text,
        "{}\n{PAPER}\nwhat differs: not LevelDB but what its log does (a record is appended, and its checksum), without \
         compaction; {ext4} and its page cache for ext4-DAX on Optane; SplitFS does not run here; the kernel's \
         functions are not told apart; ends that spin use processor time while they wait",
        plan.pin.label()
    );
    Ok(Output { text, json: json!({"rows": rows, "pinned": plan.pin.label(), "paper": PAPER}) })
}
