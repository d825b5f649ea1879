//! Table 2: where the time of a direct write of 4 KiB goes. Each part is timed by itself, by the
//! product's code; what is left of the whole is its own row.

use crate::figures::fig15a;
use crate::latency::{Hosted, Raw, RoundTrip};
use crate::{Plan, costs};
use siftfs_device_target::RequestOrder;
use siftfs_rig::figure::{Output, Spread};
use siftfs_rig::place::Result;
use siftfs_rig::table::{Compared, Row, Side, show};

/// The parts, and what the paper has of the same. The last one is what is left.
const PARTS: [(&str, &str); 6] = [
    ("the wire: a message and its answer", "network 7.19 us, 17.5 %; its driver 14.75 us, 36.1 %"),
    ("of that, injected", "network 7.19 us, 17.5 %"),
    ("order: the program's and the target's", "none: a lock of the inode"),
    ("permission check at the target", "none; CetoFS 0.2 us"),
    ("storage", "device 7.04 us, 17.2 %; its driver 3.9 us, 9.5 %"),
    ("the rest: client, target, hand-overs", "system call and file system 8.03 us, 19.6 %"),
];
/// Decisions that are timed for each round.
const BATCHES: usize = 100;

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let (mut raw, mut trip) = (Raw::new(plan)?, RoundTrip::new(plan)?);
    let mut hosted = Hosted::new(plan, "table2")?;
    let mut whole = Vec::new();
    let mut parts: [Vec<f64>; PARTS.len()] = Default::default();
    let median = |nanos: Vec<f64>| Spread::of(&nanos).median / 1e3;
    for _ in plan.rounds() {
        let all = hosted.round(plan, true, true)?;
        let wire = trip.round(plan)?;
        let decides = costs::decisions(RequestOrder::Merging, 1, BATCHES)?;
        let order = median(decides) + median(costs::ordering(1, BATCHES)?);
        let check = median(fig15a::all_hits(plan)?);
        let storage = raw.round(plan, true)?;
        let rest = all - wire - order - check - storage;
        let injected = 2.0 * plan.net_delay.as_secs_f64() * 1e6;
        whole.push(all);
        let found = [wire, injected, order, check, storage, rest];
        parts.iter_mut().zip(found).for_each(|(part, one)| part.push(one.max(0.001)));
    }
    hosted.end()?;
    trip.end()?;
    let part = |((name, paper), times): (&(&str, &'static str), Vec<f64>)| Row {
        name: (*name).into(),
        unit: "us",
        compared: vec![Compared::ratio("of the whole", &times, &whole, None).beside(paper)],
        sides: vec![Side::new("by itself", times)],
    };
    let mut rows = vec![Row {
        name: "a direct write of 4 KiB, durable".into(),
        unit: "us",
        sides: vec![Side::new("the whole", whole.clone())],
        compared: Vec::new(),
    }];
    rows.extend(PARTS.iter().zip(parts).map(part));
    Ok(show(
        &rows,
        &plan.below(
            "Medians of calls, one at a time. The parts are timed by themselves: the wire is a write's message to a \
             process that answers at once; order is a group decision of the program and its answer, with the target's \
             decisions for the request, many together; the check is one of a table that is all in memory; the storage \
             is the model in this process. The rest is what is left, and 0.001 us where nothing is. The paper breaks a \
             write of ext4 over NVMe-oF down, 40.91 us in all; rows of kernel file systems belong to a guest and are \
             left out",
        ),
    ))
}
