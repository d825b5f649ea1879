//! Figure 14: what part of the back end's time each step takes; and what the paper's next steps
//! spare.

use crate::Plan;
use crate::back::{STEPS, work};
use crate::job::Op;
use crate::stage::Stage;
use crate::turns;
use serde_json::{Value, json};
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::Result;
use std::fmt::Write;

const OPS: [Op; 2] = [Op::RandWrite, Op::SeqWrite];
const LENGTHS: [usize; 3] = [512, 4 << 10, 16 << 10];

const PAPER: &str = "the paper (figure 14, no numbers in its text): log fetch takes next to nothing, merge and patch \
                     a large part in all cases";

const NEXT: &str = "the paper's next steps, without numbers: \"the allocation of data blocks may be the point that \
                    can be optimized by replacing the bitset with a list\", and \"distributing the allocatable data \
                    blocks to different NICFS-Frontends\"";

/// Measures it.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan, 1)?;
    let (mut text, mut rows) = (String::new(), Vec::new());
    let _ = write!(text, "{:<8} {:>6}", "job", "bytes");
    STEPS.iter().for_each(|step| {
        let _ = write!(text, " {step:>8}");
    });
    text.push('\n');
    for op in OPS {
        for bytes in LENGTHS {
            let mut all: Vec<[f64; 5]> = Vec::new();
            for _ in 0..plan.rounds {
                all.push(work(&stage, plan, (op, bytes))?.shares());
            }
            let _ = write!(text, "{:<8} {bytes:>6}", op.name());
            let mut shares = serde_json::Map::new();
            for (i, step) in STEPS.into_iter().enumerate() {
                let of: Vec<f64> = all.iter().filter_map(|shares| shares.get(i).copied()).collect();
                let share = Spread::of(&of);
                let _ = write!(text, " {:>7.1}%", 100.0 * share.median);
                shares.insert(step.into(), share.json());
            }
            text.push('\n');
            rows.push(json!({"job": op.name(), "bytes": bytes, "shares": Value::Object(shares)}));
        }
    }
    let turns = turns::measure(&stage, plan, &mut text)?;
    stage.close()?;
    let _ = writeln!(
        text,
        "{PAPER}\n{NEXT}\nwhat differs: the paper's merge allocates blocks, which the Runtime here does at its cut; \
         its patch is a DMA, and here the copy engine's copy and the Runtime's write"
    );
    Ok(Output { text, json: json!({"rows": rows, "turns": turns, "paper": PAPER, "next": NEXT}) })
}
