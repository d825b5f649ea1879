//! How many clients a server carries: a curve from 1 to 64 sessions, a thread each.

use crate::Plan;
use crate::job::{Done, Op};
use crate::stage::Stage;
use serde_json::json;
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::Result;
use std::collections::BTreeMap;
use std::fmt::Write;

const SESSIONS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const OPS: [(Op, usize, &str); 2] =
    [(Op::Read, 256, "read 256 bytes"), (Op::WriteSync, 4096, "write 4 KiB, fsync")];

/// Measures it.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::new(plan)?;
    let served = stage.serve("volume", &[])?;
    let mut all: BTreeMap<(usize, usize), Vec<Done>> = BTreeMap::new();
    for round in 0..plan.rounds as usize {
        for (which, (op, bytes, _)) in OPS.into_iter().enumerate() {
            for i in 0..SESSIONS.len() {
                let threads = SESSIONS[(i + round) % SESSIONS.len()];
                let mut job = stage.job(&served.address, op, bytes, false);
                job.threads = threads;
                all.entry((which, threads)).or_default().push(stage.run(&job)?);
            }
        }
    }
    served.end()?;
    let (mut text, mut rows) = (String::new(), Vec::new());
    for ((which, threads), done) in &all {
        let numbers = |of: fn(&Done) -> f64| -> Vec<f64> { done.iter().map(of).collect() };
        let one = all.get(&(*which, 1)).into_iter().flatten().map(|done| done.rate);
        let rates = numbers(|done| done.rate);
        let to_one = Spread::of_ratios(&rates, &one.collect::<Vec<_>>());
        let (rate, name) = (Spread::of(&rates), OPS[*which].2);
        let (p50, p99) = (Spread::of(&numbers(|d| d.p50)), Spread::of(&numbers(|d| d.p99)));
        let _ = writeln!(
            text,
            "{name:<20} {threads:>3} sessions {:>9.0}/s {:>8.1} us, p99 {:>8.1} us, to one {}",
            rate.median,
            p50.median,
            p99.median,
            to_one.show_quartiles()
        );
        rows.push(json!({
            "operation": name,
            "sessions": threads,
            "rate": rate.json(),
            "p50_us": p50.json(),
            "p99_us": p99.json(),
            "to_one": to_one.json(),
        }));
    }
    let _ = writeln!(text, "{}; one processor each side", plan.pin.label());
    Ok(Output { text, json: json!({"rows": rows, "pinned": plan.pin.label()}) })
}
