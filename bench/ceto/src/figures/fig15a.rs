//! Figure 15(a): what the target's check of a block takes, by what share of the permission table
//! is in memory; and what the program's decision takes.

use crate::stage::said;
use crate::{Plan, costs};
use siftfs_base::{BlockRun, Rng};
use siftfs_device_target::RequestOrder;
use siftfs_placement::permissions::{Checked, Memory, Owner, Permissions};
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::{Failed, Result};
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use std::hint::black_box;
use std::time::Instant;

/// Blocks of a leaf.
const LEAF: u64 = 512;
/// Leaves of the area: 8 GiB.
const LEAVES: u64 = 4096;
/// Bytes of memory that a leaf in memory is reckoned with, and then some.
const LEAF_BYTES: u64 = 2144;
/// Checks that are timed together, so that the clock does not count.
const TOGETHER: usize = 32;
/// Percent of the leaves that are in memory.
const SHARES: [u64; 5] = [100, 75, 50, 25, 10];
/// Calls in flight while groups are decided.
const IN_FLIGHT: [usize; 2] = [8, 20];

/// A table whose blocks are those of two owners in turn.
struct Table {
    table: Permissions,
    owners: [Owner; 2],
    leaves: u64,
    rng: Rng,
}

/// What one round found: means of a few checks in nanoseconds, checks a second, percent of hits.
#[derive(Default)]
struct Found {
    check: Vec<f64>,
    rate: Vec<f64>,
    hits: Vec<f64>,
}

impl Table {
    fn new(plan: &Plan<'_>, percent: u64) -> Result<Self> {
        let leaves = if plan.quick { LEAVES / 16 } else { LEAVES };
        let bytes = leaves * percent / 100 * LEAF_BYTES;
        let bytes = usize::try_from(bytes).map_err(said)?;
        let memory = Memory { leaves: bytes, index: 256 << 20 };
        let table = Permissions::new(leaves * LEAF, memory, plan.dir).map_err(said)?;
        let owners = [table.owner().map_err(said)?, table.owner().map_err(said)?];
        for (from, owner) in (0..).zip(owners) {
            for first in (0..leaves * LEAF).step_by(8192) {
                let blocks = (first + from..first + 8192).step_by(2);
                let runs: Vec<_> = blocks.map(|start| BlockRun { start, len: 1 }).collect();
                table.give(owner, &runs, true).map_err(said)?;
            }
        }
        Ok(Self { table, owners, leaves, rng: Rng::new(1) })
    }

    fn check(&self, block: u64) -> Result<()> {
        let [even, odd] = self.owners;
        let owner = if block.is_multiple_of(2) { even } else { odd };
        match self.table.check(black_box(owner), block..block + 1) {
            Ok(Checked::Written) => Ok(()),
            other => Err(Failed(format!("block {block}: {other:?}"))),
        }
    }

    fn round(&mut self, plan: &Plan<'_>, found: &mut Found) -> Result<()> {
        let before = self.table.counts();
        let (mut times, mut done, begun) = (Vec::new(), 0u64, Instant::now());
        while begun.elapsed() < plan.time {
            let blocks = [(); TOGETHER].map(|()| self.rng.below(self.leaves * LEAF));
            let start = Instant::now();
            blocks.iter().try_for_each(|block| self.check(*block))?;
            times.push(start.elapsed().as_nanos() as f64 / TOGETHER as f64);
            done += TOGETHER as u64;
        }
        let all: f64 = times.iter().sum::<f64>() * TOGETHER as f64;
        let after = self.table.counts();
        found.check.push(Spread::of(&times).median);
        found.rate.push(done as f64 * 1e9 / all);
        found.hits.push((after.hits - before.hits) as f64 * 100.0 / done as f64);
        Ok(())
    }
}

/// Nanoseconds of checks that are all answered from memory, of a smaller table.
///
/// # Errors
/// The table cannot be made.
pub fn all_hits(plan: &Plan<'_>) -> Result<Vec<f64>> {
    let plan = Plan { quick: true, ..*plan };
    let (mut table, mut found) = (Table::new(&plan, 100)?, Found::default());
    table.round(&plan, &mut found)?;
    Ok(found.check)
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let tables = SHARES.map(|percent| Table::new(plan, percent));
    let mut tables = tables.into_iter().collect::<Result<Vec<_>>>()?;
    let mut found = SHARES.map(|_| Found::default());
    let mut decided: [Vec<f64>; IN_FLIGHT.len()] = Default::default();
    let batches = if plan.quick { 20 } else { 2000 };
    for round in plan.rounds() {
        for at in 0..SHARES.len() {
            let at = (at + round) % SHARES.len();
            tables[at].round(plan, &mut found[at])?;
        }
        for (in_flight, decided) in IN_FLIGHT.iter().zip(&mut decided) {
            let times = costs::decisions(RequestOrder::Merging, *in_flight, batches)?;
            decided.push(Spread::of(&times).median);
        }
    }
    let whole: Vec<f64> = found[0].rate.clone();
    let checks = SHARES.iter().zip(found).map(|(percent, found)| checks(*percent, found, &whole));
    let groups = IN_FLIGHT.iter().zip(decided).map(|(in_flight, times)| group(*in_flight, times));
    let rows: Vec<_> = checks.chain(groups).collect();
    Ok(show(
        &rows,
        "Medians of the rounds, with quartiles; a single thread. The table is of 8 GiB in blocks of two owners in turn, \
         so that every leaf is mixed; blocks are drawn at random. Checks are timed 32 together. What is not in memory \
         is read from the scratch file, which lies in the page cache of $TMPDIR here: the paper's miss is a read of its \
         SSD, 7 us. The decision is what the program does under its lock, at the begin of a call and at its answer",
    ))
}

fn checks(percent: u64, found: Found, whole: &[f64]) -> Row {
    let goal = (percent == 100).then_some(Target::AtMost(300.0));
    let hits = Spread::of(&found.hits).median;
    let mut compared = vec![
        Compared { what: "ns a check".into(), rounds: found.check, target: goal, paper: None }
            .beside("200 ns when all is in memory; a read of the SSD when not"),
    ];
    if percent < 100 {
        let what = "checks a second, to all in memory";
        compared.push(Compared::ratio(what, &found.rate, whole, None));
    }
    let side =
        Side { name: "checks".into(), numbers: found.rate, note: format!("{hits:.0} % hits") };
    Row {
        name: format!("{percent} % of the table in memory"),
        unit: "/s",
        sides: vec![side],
        compared,
    }
}

fn group(in_flight: usize, times: Vec<f64>) -> Row {
    let target = Some(Target::AtMost(500.0));
    let decision = "ns a decision".to_owned();
    Row {
        name: format!("group decision by merging, {in_flight} in flight"),
        unit: "ns",
        sides: vec![Side::new("decision and answer", times.clone())],
        compared: vec![
            Compared { what: decision, rounds: times, target, paper: None }
                .beside("\"low overhead\", with red-black trees"),
        ],
    }
}
