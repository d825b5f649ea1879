//! Table 1: what a read and a durable write of 4 KiB take: of the storage itself, here and at a
//! target, and of files.

use crate::Plan;
use crate::latency::{Hosted, Queued, Raw, RoundTrip};
use siftfs_rig::figure::Output;
use siftfs_rig::place::Result;
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use std::time::Duration;

const WAYS: [&str; 6] = [
    "raw, here (Dev-L)",
    "raw, at the target (Dev-R)",
    "a direct file",
    "by the host, no network",
    "by the host",
    "a message and its answer",
];

/// By way, a median for each round.
type Times = [Vec<f64>; WAYS.len()];

/// What is measured.
struct Ways {
    raw: Raw,
    queued: Queued,
    near: Hosted,
    far: Hosted,
    trip: RoundTrip,
}

impl Ways {
    fn new(plan: &Plan<'_>) -> Result<Self> {
        let local = Plan { net_delay: Duration::ZERO, ..*plan };
        Ok(Self {
            raw: Raw::new(plan)?,
            queued: Queued::new(plan)?,
            near: Hosted::new(&local, "near")?,
            far: Hosted::new(plan, "far")?,
            trip: RoundTrip::new(plan)?,
        })
    }

    fn round(&mut self, plan: &Plan<'_>, way: usize, writes: bool) -> Result<f64> {
        match way {
            0 => self.raw.round(plan, writes),
            1 => self.queued.round(plan, writes),
            2 => self.far.round(plan, true, writes),
            3 => self.near.round(plan, false, writes),
            4 => self.far.round(plan, false, writes),
            _ => self.trip.round(plan),
        }
    }

    fn end(self) -> Result<()> {
        self.queued.end()?;
        self.near.end()?;
        self.far.end()?;
        self.trip.end()
    }
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let mut ways = Ways::new(plan)?;
    let mut times: [Times; 2] = Default::default();
    for round in plan.rounds() {
        for i in 0..WAYS.len() * 2 {
            let (writes, way) = (i % 2, (i / 2 + round) % WAYS.len());
            times[writes][way].push(ways.round(plan, way, writes == 1)?);
        }
    }
    ways.end()?;
    let [reads, writes] = times;
    let rows = [row("reads", reads), row("writes, each durable", writes)];
    Ok(show(
        &rows,
        &plan.below(
            "4 KiB, one call at a time, at random, medians of calls. \"Raw\" is the modelled storage in this process, \
             and by a queue of the target without file system or host. \"No network\" is a host and its target without \
             injected times. \"A message and its answer\" is a write's message to a process that answers at once, over \
             the same transport. The host keeps 1 MiB of pages. The paper's rows of kernel file systems on local and \
             remote NVMe (Kernel-L, Kernel-R) are `siftfs bench ceto-kernel`'s",
        ),
    ))
}

fn row(name: &str, times: Times) -> Row {
    let [here, queue, direct, near, far, trip] = &times;
    let both: Vec<f64> = here.iter().zip(trip).map(|(raw, way)| raw + way).collect();
    let writes = name.starts_with("writes");
    let target = writes.then_some(Target::AtMost(1.2));
    let papers = match writes {
        true => ["14.23 us for 7.04 us", "17.16 us of its software for 40.91", "ext4: 2.87 times"],
        false => ["14.38 us for 7.01 us", "19 us in all, 16 % more for uFS", "ext4: 3.12 times"],
    };
    let compared = vec![
        Compared::ratio("raw at the target to raw here", queue, here, None).beside(papers[0]),
        Compared::ratio("direct to raw here and the way", direct, &both, target),
        Compared::ratio("by the host to direct", far, direct, None).beside(papers[1]),
        Compared::ratio("by the host to no network", far, near, None).beside(papers[2]),
    ];
    let sides = WAYS.iter().zip(&times).map(|(name, all)| Side::new(*name, all.clone()));
    Row { name: format!("4 KiB {name}"), unit: "us", sides: sides.collect(), compared }
}
