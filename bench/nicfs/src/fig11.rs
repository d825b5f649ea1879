//! Figure 11: how fast a front end writes, and how fast the back end takes it in.

use crate::Plan;
use crate::back::work;
use crate::job::Op;
use crate::stage::Stage;
use serde_json::json;
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::Result;
use std::fmt::Write;

const OPS: [Op; 2] = [Op::SeqWrite, Op::RandWrite];
const LENGTHS: [usize; 2] = [4 << 10, 16 << 10];

const PAPER: &str = "the paper (figure 11, no numbers in its text): the back end slightly above the front end, since \
                     the pipeline hides all but the patch step, which writes what the front end wrote";

/// Measures it.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan, 1)?;
    let (mut text, mut rows) = (String::new(), Vec::new());
    let head = ("job", "bytes", "front MiB/s", "back MiB/s", "back to front", "records per write");
    let _ = writeln!(
        text,
        "{:<8} {:>6} {:>12} {:>12} {:>22} {:>18}",
        head.0, head.1, head.2, head.3, head.4, head.5
    );
    for op in OPS {
        for bytes in LENGTHS {
            let (mut front, mut back, mut merged) = (Vec::new(), Vec::new(), Vec::new());
            let mut all = Vec::new();
            for _ in 0..plan.rounds {
                let work = work(&stage, plan, (op, bytes))?;
                front.push(work.front);
                back.push(work.back());
                merged.push(work.records / work.writes);
                all.push(work.json());
            }
            let mib = |all: &[f64]| Spread::of(all).median / f64::from(1 << 20);
            let (to_front, merged) = (Spread::of_ratios(&back, &front), Spread::of(&merged));
            let _ = writeln!(
                text,
                "{:<8} {bytes:>6} {:>12.0} {:>12.0} {:>22} {:>18.1}",
                op.name(),
                mib(&front),
                mib(&back),
                to_front.show(),
                merged.median
            );
            rows.push(json!({
                "job": op.name(),
                "bytes": bytes,
                "back_to_front": to_front.json(),
                "records_per_write": merged.json(),
                "rounds": all,
            }));
        }
    }
    stage.close()?;
    let _ = writeln!(
        text,
        "{PAPER}\nwhat differs: front end and back end share this machine's processors, and a front end whose ring is \
         full waits for the back end, so over a longer time it is no faster. The back end's rate is that of its \
         ingestions, without what lies between them"
    );
    Ok(Output { text, json: json!({"rows": rows, "paper": PAPER}) })
}
