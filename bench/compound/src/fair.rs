//! Single reads beside a client that compresses without a pause: alone, with shares, and first
//! come, first served.

use crate::job::{Done, Op};
use crate::stage::{Neighbour, Served, Stage};
use crate::{Pin, Plan};
use serde_json::json;
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::Result;
use std::fmt::Write;

/// Bytes that are compressed in each call.
const PIECE: usize = 1 << 20;
/// Sessions that compress.
const NEIGHBOURS: usize = 4;
/// Milliseconds after which a neighbour would end by itself.
const LONG: u64 = 60_000;
/// What the p99 beside it may be, to that alone.
const TARGET: f64 = 3.0;

/// A server, and what is read there alone and beside the neighbour.
struct Side {
    name: String,
    served: Served,
    alone: Vec<Done>,
    beside: Vec<Done>,
}

impl Side {
    fn round(&mut self, stage: &Stage<'_>) -> Result<()> {
        let read = stage.job(&self.served.address, Op::Read, 256, false);
        self.alone.push(stage.run(&read)?);
        let mut compress = stage.job(&self.served.address, Op::CompressWrite, PIECE, true);
        (compress.threads, compress.time) = (NEIGHBOURS, LONG);
        let neighbour = Neighbour::begun(stage.start(&compress)?)?;
        self.beside.push(stage.run(&read)?);
        drop(neighbour);
        Ok(())
    }

    fn ratio(&self, of: fn(&Done) -> f64) -> Spread {
        let numbers = |all: &[Done]| all.iter().map(of).collect::<Vec<_>>();
        Spread::of_ratios(&numbers(&self.beside), &numbers(&self.alone))
    }
}

/// Measures it. Nothing is pinned: the readers are to have a processor if the server leaves one.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let plan = &Plan { pin: Pin(None), ..*plan };
    let stage = Stage::new(plan)?;
    let mut sides = Vec::new();
    for executors in ["2", "1"] {
        for schedule in ["fair", "fcfs"] {
            let options = ["--executors", executors, "--schedule", schedule];
            let served = stage.serve(&format!("{schedule}-{executors}"), &options)?;
            let name = format!("{schedule}, {executors} executors");
            sides.push(Side { name, served, alone: Vec::new(), beside: Vec::new() });
        }
    }
    for round in 0..plan.rounds as usize {
        let first = round % sides.len();
        sides.rotate_left(first);
        for side in &mut sides {
            side.round(&stage)?;
        }
        sides.rotate_right(first);
    }
    let (mut text, mut rows) = (String::new(), Vec::new());
    for side in sides {
        let median = |all: &[Done], of: fn(&Done) -> f64| {
            Spread::of(&all.iter().map(of).collect::<Vec<_>>()).median
        };
        let (p99, rate) = (side.ratio(|done| done.p99), side.ratio(|done| done.rate));
        let (alone, beside) =
            (median(&side.alone, |done| done.p99), median(&side.beside, |done| done.p99));
        let _ = writeln!(
            text,
            "{:<20} p99 of a read alone {alone:>8.1} us, beside {beside:>8.1} us: {}; rate {}",
            side.name,
            p99.show_quartiles(),
            rate.show_quartiles()
        );
        let met = side.name.starts_with("fair, 2").then_some(p99.median <= TARGET);
        rows.push(json!({
            "server": side.name,
            "alone_p99_us": alone,
            "beside_p99_us": beside,
            "p99_to_alone": p99.json(),
            "p50_to_alone": side.ratio(|done| done.p50).json(),
            "rate_to_alone": rate.json(),
            "met": met,
        }));
        side.served.end()?;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let _ = writeln!(
        text,
        "target of fair with two executors: {TARGET} at most\nthe neighbour: {NEIGHBOURS} sessions of one process \
         that compress {PIECE} bytes a call. {}; {processors} processors for the server, the reader and the \
         neighbour together, so that a part of the ratio is the kernel's scheduling of three processes",
        plan.pin.label()
    );
    Ok(Output { text, json: json!({"rows": rows, "target": TARGET, "processors": processors}) })
}
