//! Every state that each configuration can reach is explored, and every property holds in all of
//! them. `SIFTFS_LONG=1` explores larger configurations. Printed with `--nocapture`: how many
//! states, and how long it took.

use siftfs_protocol::cases;
use siftfs_protocol::explored;
use siftfs_protocol::explored::explore;
use siftfs_protocol::{Faults, Protocol, graph};

explored!(Protocol:
    reuse,
    reuse_twice,
    group,
    epochs,
    takeover,
    fallback,
    coalesce,
    everything,
    failed_flush,
    second_host,
    record_area,
    full_area,
    digest,
    digest_coalesced,
    discard,
    discard_beside
);

/// With `SIFTFS_LONG=1` larger ones: each of the above with one more fault.
#[test]
fn smallest_or_all() {
    match std::env::var_os("SIFTFS_LONG") {
        Some(_) => cases::long().into_iter().for_each(explore::<Protocol>),
        None => explore::<Protocol>(cases::smallest()),
    }
}

/// Every run ends: no state can be reached from itself. With the property that a state without a
/// next step waits for nothing, every wait ends on every run.
#[test]
fn every_run_ends() {
    let one_fault = [cases::fallback(), cases::failed_flush()].map(|mut case| {
        case.config.faults.total = 1;
        case
    });
    let mut two_hosts = cases::second_host();
    two_hosts.config.faults = Faults::default();
    let mut all = vec![cases::reuse(), cases::coalesce(), cases::discard(), two_hosts];
    all.extend(one_fault);
    if std::env::var_os("SIFTFS_LONG").is_some() {
        all.extend(cases::everyday());
    }
    for case in all {
        let name = case.config.name;
        let walk = graph::walk(&Protocol::new(case.config));
        assert_eq!(walk.cycle, None, "{name}: a run that does not end");
        println!("{name}: {} states, {} steps, longest {}", walk.states, walk.steps, walk.longest);
    }
}
