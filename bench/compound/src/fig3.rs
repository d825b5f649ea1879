//! Figures 3a and 3b: read-modify-write, and append with a checksum, as one compound and by the
//! calls that it stands for. Figures 3c and 3d are LevelDB's.

use crate::Plan;
use crate::job::Op;
use crate::stage::{Served, Stage};
use crate::table::{Row, measure as measure_rows, show};
use serde_json::json;
use siftfs_rig::figure::Output;
use siftfs_rig::place::Result;

const PAPER: &str = "the paper: compounds 2.05 times DevFS and 2.78 times ext4-DAX at append and checksum at most, \
                     with a processor of half the speed 1.25 and 1.71; read-modify-write with that processor 1.38 \
                     and 2.09, 1.68 times SplitFS (figures 3a and 3b; SplitFS does not run here)";

/// What is compared at one length.
fn row(stage: &Stage<'_>, op: (Op, &str), bytes: usize, (of, full): (&Device, &Device)) -> Row {
    let job = |at: &Served, compound| stage.job(&at.address, op.0, bytes, compound);
    let mut sides = vec![("compound", job(&of.served, true)), ("single", job(&of.served, false))];
    if of.slow {
        sides.push(("single, full speed", job(&full.served, false)));
    }
    sides.push(("ext4", stage.job(&stage.ext4, op.0, bytes, false)));
    let target = match (op.0, of.slow) {
        (Op::ReadModifyWrite, false) => 1.6,
        (_, false) => 2.0,
        (Op::ReadModifyWrite, true) => 1.38,
        (_, true) => 1.25,
    };
    let to = if of.slow { "single, full speed" } else { "single" };
    let name = format!("{}, {bytes} bytes, {}", op.1, of.name);
    Row { name, sides, target: Some((to, target)) }
}

struct Device {
    name: &'static str,
    served: Served,
    slow: bool,
}

/// Measures them.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan)?;
    let device = |name, file, more: &[&str]| -> Result<Device> {
        let slow = more.contains(&"--cpu-factor");
        Ok(Device { name, served: stage.serve(file, more)?, slow })
    };
    let devices = [
        device("full speed", "full", &[])?,
        device("doorbell of 900 ns", "bell", &["--doorbell-delay", "900ns"])?,
        device("half the speed", "slow", &["--cpu-factor", "2.0"])?,
    ];
    let [full, ..] = &devices;
    let ops =
        [(Op::ReadModifyWrite, "read-modify-write"), (Op::AppendChecksum, "append and checksum")];
    let mut rows = Vec::new();
    for of in &devices {
        for op in ops {
            rows.extend([256, 4096].map(|bytes| row(&stage, op, bytes, (of, full))));
        }
    }
    let all = measure_rows(plan, &stage, rows)?;
    let (mut text, rows) = show(&all);
    let ext4 = stage.ext4_name;
    let differs = format!(
        "what differs: a server process and shared memory here, a kernel thread per device processor there; {ext4} \
         with its page cache here, ext4-DAX on Optane there; SiftFS's calls are in the server's memory until a \
         sync, PMFS's are durable. \"single\" is the paper's DevFS: the same calls one by one. The slow processor \
         is compared with calls of a fast one, as the paper does"
    );
    text += &format!("{}\n{PAPER}\n{differs}\n", plan.pin.label());
    for device in devices {
        device.served.end()?;
    }
    Ok(Output { text, json: json!({"rows": rows, "pinned": plan.pin.label(), "paper": PAPER}) })
}
