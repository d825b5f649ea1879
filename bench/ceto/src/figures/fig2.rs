//! Figure 2: threads that overwrite parts of one file, 4 KiB each, durable: by a host without a
//! network and with it, and by a direct file.

use crate::Plan;
use crate::figures::fig12::{Files, Job};
use crate::stage::Stage;
use siftfs_rig::figure::Output;
use siftfs_rig::place::Result;
use siftfs_rig::table::{Compared, Row, Side, show};
use std::time::Duration;

/// Bytes of the volume, and of the hosts' page caches.
const VOLUME: u64 = 1 << 30;
const CACHE: u64 = 1 << 20;
/// Threads that write.
const THREADS: [usize; 3] = [1, 2, 4];

const WAYS: [&str; 3] = ["by the host, no network", "by the host", "a direct file"];

/// By way, a number for each round.
type Rates = [Vec<f64>; WAYS.len()];

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let local = Plan { net_delay: Duration::ZERO, ..*plan };
    let near = Stage::host(&local, "near", VOLUME, CACHE)?;
    let far = Stage::host(plan, "far", VOLUME, CACHE)?;
    let direct = far.direct()?;
    let sides =
        [Files::new(&near, None)?, Files::new(&far, None)?, Files::new(&far, Some(&direct))?];
    far.volume()?.checkpoint().map_err(crate::stage::said)?;
    let mut rates: [Rates; THREADS.len()] = Default::default();
    for round in plan.rounds() {
        for i in 0..THREADS.len() * WAYS.len() {
            let (at, way) = (i / WAYS.len(), (i + round) % WAYS.len());
            let seed = (plan.time, round as u64);
            let (done, took) = sides[way].all(Job::Dwom, THREADS[at], seed)?;
            rates[at][way].push(done as f64 / took);
        }
    }
    sides.into_iter().try_for_each(Files::close)?;
    drop(direct);
    near.end()?;
    far.end()?;
    let single = rates[0].clone();
    let rows: Vec<Row> =
        THREADS.iter().zip(rates).map(|(threads, rates)| row(*threads, rates, &single)).collect();
    Ok(show(
        &rows,
        &plan.below(
            "Each thread overwrites blocks of its own part of one file, 4 KiB, durable; by the host in one compound, by \
             a session of its own. \"No network\" is another host with its target, without injected times. The threads \
             are this program's, and share this machine's processors with the hosts and targets. The paper has ext4 \
             and F2FS over local NVMe and NVMe-oF with up to 20 threads: rows of kernel file systems belong to a guest \
             and are left out",
        ),
    ))
}

fn row(threads: usize, rates: Rates, single: &Rates) -> Row {
    let [near, far, direct] = &rates;
    let mut compared = vec![
        Compared::ratio("by the host to no network", far, near, None)
            .beside("0.37: \"decreases the throughput by 63 %\""),
        Compared::ratio("direct to by the host", direct, far, None),
    ];
    if threads > 1 {
        let to = |way: usize| (&rates[way], &single[way]);
        for (way, paper) in [(1, "it falls by 30 % from 1 to 20 threads"), (2, "it scales")] {
            let what = format!("{} to one thread", WAYS[way]);
            compared.push(Compared::ratio(&what, to(way).0, to(way).1, None).beside(paper));
        }
    }
    let sides = WAYS.iter().zip(&rates).map(|(name, all)| Side::new(*name, all.clone()));
    let name = format!("{threads} writers of one file, 4 KiB, durable");
    Row { name, unit: "/s", sides: sides.collect(), compared }
}
