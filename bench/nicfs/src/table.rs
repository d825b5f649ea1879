//! Reads and writes of some lengths on all systems, in turn.

use crate::Plan;
use crate::job::{Done, Job, Op};
use crate::stage::{Stage, System};
use serde_json::{Value, json};
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::Result;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is measured of an operation: a system, and whether each write is made durable.
type Side = (System, bool);

const SIFT: Side = (System::Sift, false);
const EXT4: Side = (System::Ext4, false);
const EXT4_DURABLE: Side = (System::Ext4, true);

fn name((system, sync): Side) -> &'static str {
    match (system, sync) {
        (System::Sift, false) => "SiftFS",
        (System::Sift, true) => "SiftFS, fsync",
        (System::Ext4, false) => "ext4",
        (System::Ext4, true) => "ext4, fsync",
        (System::Raw, _) => "raw memory",
    }
}

/// What a durable write of ours is compared with, and a read: both with ext4 durable and not.
fn sides(op: Op) -> &'static [Side] {
    match op.writes() {
        true => &[SIFT, (System::Sift, true), EXT4, EXT4_DURABLE, (System::Raw, true)],
        false => &[SIFT, EXT4],
    }
}

/// The lengths of a figure, what it is to reach to ext4, and what the paper says.
pub struct Figure {
    pub lengths: &'static [usize],
    /// Writes that are durable on both; reads.
    pub targets: (f64, f64),
    pub paper: &'static str,
}

#[derive(Default)]
struct Cell {
    rates: Vec<f64>,
    p50: Vec<f64>,
}

type Cells = BTreeMap<(usize, Op, Side), Cell>;

/// Measures all operations of all lengths on all systems, in rounds that begin with another one.
pub fn measure(plan: &Plan<'_>, figure: &Figure) -> Result<Output> {
    let stage = Stage::new(plan, 1)?;
    let mut cells = Cells::new();
    for round in 0..plan.rounds as usize {
        for (bytes, op) in figure.lengths.iter().flat_map(|b| Op::ALL.map(|op| (*b, op))) {
            let sides = sides(op);
            for i in 0..sides.len() {
                let side = sides[(i + round) % sides.len()];
                let (system, sync) = side;
                let file = stage.file(system, 0);
                let time = plan.time.as_millis() as u64;
                let raw = system == System::Raw;
                let job = Job { file, op, bytes, sync: sync && !raw, raw, time };
                stage.settle(system)?;
                let Done { rate, p50 } = stage.run(system, &job)?;
                let cell = cells.entry((bytes, op, side)).or_default();
                cell.rates.push(rate);
                cell.p50.push(p50);
            }
        }
    }
    stage.close()?;
    Ok(Output { text: text(&cells, figure), json: json(&cells, figure) })
}

fn rates(cells: &Cells, key: (usize, Op, Side)) -> &[f64] {
    cells.get(&key).map(|cell| cell.rates.as_slice()).unwrap_or_default()
}

/// The rounds' ratios to ext4: as it is, and durable.
fn ratios(cells: &Cells, (bytes, op, side): (usize, Op, Side)) -> (Spread, Option<Spread>) {
    let own = rates(cells, (bytes, op, side));
    let to = |other| Spread::of_ratios(own, rates(cells, (bytes, op, other)));
    (to(EXT4), op.writes().then(|| to(EXT4_DURABLE)))
}

fn text(cells: &Cells, figure: &Figure) -> String {
    let mut t = String::new();
    let _ = writeln!(
        t,
        "{:>6} {:9} {:14} {:>9} {:>9} {:>24} {:>24}",
        "bytes", "", "system", "MiB/s", "p50 us", "to ext4", "to ext4 with fsync"
    );
    for (key @ (bytes, op, side), cell) in cells {
        let (plain, durable) = ratios(cells, *key);
        let rate = Spread::of(&cell.rates).median * *bytes as f64 / f64::from(1 << 20);
        let _ = writeln!(
            t,
            "{bytes:>6} {:9} {:14} {rate:>9.0} {:>9.2} {:>24} {:>24}",
            op.name(),
            name(*side),
            Spread::of(&cell.p50).median,
            plain.show(),
            durable.map(Spread::show).unwrap_or_default()
        );
    }
    let (writes, reads) = figure.targets;
    let _ = writeln!(
        t,
        "designed for: {writes} to ext4 where both are durable, {reads} in reads\n{}\nwhat differs: a \
         program's library and a daemon here, on the same processors and in ordinary memory whose cache \
         lines are written back; Optane memory and a SmartNIC there. A write of NICFS's is durable: it is \
         \"SiftFS, fsync\" here. The paper does not say whether ext4 was synced. Raw \
         memory is a mapped file in memory here; the paper's ext4-DAX needs persistent memory",
        figure.paper
    );
    t
}

fn json(cells: &Cells, figure: &Figure) -> Value {
    let rows = cells.iter().map(|(key @ (bytes, op, side), cell)| {
        let (plain, durable) = ratios(cells, *key);
        json!({
            "bytes": bytes,
            "operation": op.name(),
            "system": name(*side),
            "rate": Spread::of(&cell.rates).json(),
            "p50_us": Spread::of(&cell.p50).json(),
            "to_ext4": plain.json(),
            "to_ext4_durable": durable.map(Spread::json),
        })
    });
    let (writes, reads) = figure.targets;
    json!({
        "rows": rows.collect::<Vec<_>>(),
        "targets": {"durable_writes": writes, "reads": reads},
        "paper": figure.paper,
    })
}
