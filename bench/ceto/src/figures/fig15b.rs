//! Figure 15(b): threads that overwrite a block of their own each, of one file (DWOM of FxMark),
//! by what orders them. With 1, 2 and 4 in flight by threads of this process, and with 1 to 20 in
//! virtual time.

use crate::stage::{Stage, said};
use crate::virtual_time::{Costs, rate};
use crate::{Plan, costs};
use siftfs_device_target::{Lines, Queue, RequestOrder, Target};
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::Result;
use siftfs_rig::table::{Compared, Row, Side, Target as Goal, show};
use siftfs_wire::GrantRun;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the volume.
const SIZE: u64 = 256 << 20;
/// Bytes of a write.
const BLOCK: usize = 4096;
/// The first block of the area that is granted, and how many each policy gets.
const FIRST: u64 = 16_384;
const BLOCKS: u64 = 64;
/// Threads that really run.
const REAL: [usize; 3] = [1, 2, 4];
/// Threads in virtual time.
const VIRTUAL: [usize; 8] = [1, 2, 4, 8, 12, 14, 16, 20];
/// Virtual nanoseconds of a run.
const SPAN: u64 = 50_000_000;
/// What a worker of the target and a thread of the program do for a message is assumed: so long.
const MESSAGE: u64 = 500;
/// Between two accesses of saturated storage: 4 KiB at the 2.3 GB/s of the paper's.
const INTERVAL: u64 = 1_780;
/// Workers of the target in virtual time.
const WORKERS: usize = 4;

const ORDERS: [(RequestOrder, &str); 4] = [
    (RequestOrder::Merging, "merging groups"),
    (RequestOrder::Basic, "basic groups"),
    (RequestOrder::Locked, "a lock at the program (rw)"),
    (RequestOrder::Unordered, "no order (ideal)"),
];

/// By policy, a number for each round.
type Rates = [Vec<f64>; 4];

/// Durable writes a second of this many threads.
fn really(queue: &Queue, first: u64, threads: usize, time: Duration) -> Result<f64> {
    let begun = Instant::now();
    let one = |thread: usize| -> siftfs::Result<u64> {
        let (mut data, mut done) = (vec![0; BLOCK], 0);
        let at = (first + thread as u64) * BLOCK as u64;
        while begun.elapsed() < time {
            queue.write_at(at, refresh(&mut data), true)?;
            done += 1;
        }
        Ok(done)
    };
    let all = thread::scope(|scope| {
        let one = &one;
        let started: Vec<_> = (0..threads).map(|at| scope.spawn(move || one(at))).collect();
        started.into_iter().map(|t| t.join().expect("a thread asserts nothing")).sum()
    });
    let all: siftfs::Result<u64> = all;
    Ok(all.map_err(said)? as f64 / begun.elapsed().as_secs_f64())
}

/// A queue for each policy, of blocks of its own, and the first of these.
fn queues(target: &Target) -> Result<Vec<(Queue, u64)>> {
    let mut lines: Option<Arc<Lines>> = None;
    let open = |(at, (order, _)): (usize, &(RequestOrder, &str))| {
        let (lease, block) = (1 + at as u64, FIRST + at as u64 * BLOCKS);
        let run = GrantRun { block, len: BLOCKS, first: 0, fresh: false };
        let granted = target.grant((lease, lease), true, vec![run]).map_err(said)?;
        let lines = lines.get_or_insert_with(|| Lines::new(granted.place.clone())).clone();
        Ok((Queue::open(lines, granted.token, *order).map_err(said)?, block))
    };
    ORDERS.iter().enumerate().map(open).collect()
}

/// What the model is given: measured decisions, and what is assumed.
fn costs(plan: &Plan<'_>, order: RequestOrder, threads: usize) -> Result<Costs> {
    let median = |times: Vec<f64>| Spread::of(&times).median as u64;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let ordering = median(costs::ordering(threads as u64, 50)?);
    Ok(Costs {
        decision: median(costs::decisions(order, threads, 50)?),
        call: MESSAGE,
        each_way: nanos(plan.net_delay),
        message: MESSAGE + ordering / 2,
        storage: nanos(plan.storage),
        interval: INTERVAL,
        workers: WORKERS,
    })
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::target(plan, "fig15b", SIZE)?;
    let target = Target::open(stage.place()?, true).map_err(said)?;
    let queues = queues(&target)?;
    let mut real: [Rates; REAL.len()] = Default::default();
    let mut simulated: [Rates; VIRTUAL.len()] = Default::default();
    for round in plan.rounds() {
        for i in 0..REAL.len() * ORDERS.len() {
            let (at, order) = (i / ORDERS.len(), (i + round) % ORDERS.len());
            let (queue, first) = &queues[order];
            real[at][order].push(really(queue, *first, REAL[at], plan.time)?);
        }
        for (threads, rates) in VIRTUAL.iter().zip(&mut simulated) {
            for ((order, _), rates) in ORDERS.iter().zip(rates) {
                let costs = costs(plan, *order, *threads)?;
                let span = if plan.quick { SPAN / 10 } else { SPAN };
                rates.push(rate(*order, *threads, &costs, (span, round as u64))?);
            }
        }
    }
    drop(queues);
    target.close();
    drop(target);
    stage.end()?;
    let real = REAL.iter().zip(real).map(|(threads, rates)| row("threads", *threads, rates));
    let simulated =
        VIRTUAL.iter().zip(simulated).map(|(threads, rates)| row("virtual time", *threads, rates));
    let rows: Vec<_> = real.chain(simulated).collect();
    Ok(show(&rows, &below(plan)))
}

fn below(plan: &Plan<'_>) -> String {
    plan.below(&format!(
        "4 KiB, durable. \"Threads\" are threads of this program and a target's process, on this machine's \
         processors. \"Virtual time\" has them as state machines: groups are decided by the product's code, whose \
         measured time counts; assumed are {WORKERS} workers at the target, {MESSAGE} ns of a worker or a thread for \
         a message, and storage that ends an access each {INTERVAL} ns at most (2.3 GB/s); network and storage vary \
         by a twentieth. The targets are for virtual time; the same ratios of threads stand beside them as a check"
    ))
}

fn row(how: &str, threads: usize, rates: Rates) -> Row {
    let virtually = how != "threads";
    let goal = |at: usize, least: f64| (virtually && threads == at).then_some(Goal::AtLeast(least));
    let [merging, basic, locked, ideal] = &rates;
    let compared = vec![
        Compared::ratio("merging to ideal", merging, ideal, goal(8, 0.9))
            .beside("close to ideal at each number of threads"),
        Compared::ratio("merging to rw", merging, locked, goal(8, 4.0))
            .beside("rw is the worst; up to 19 times a kernel's lock"),
        Compared::ratio("basic to rw", basic, locked, goal(2, 1.3))
            .beside("better with few threads, does not scale"),
    ];
    let sides = ORDERS.iter().zip(rates).map(|((_, name), rates)| Side::new(*name, rates));
    Row {
        name: format!("{threads} in flight, {how}"),
        unit: "/s",
        sides: sides.collect(),
        compared,
    }
}
