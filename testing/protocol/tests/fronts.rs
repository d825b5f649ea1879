//! Several front ends: every state that each configuration can reach is explored, and every
//! property holds in all of them. `SIFTFS_LONG=1` explores larger configurations. Printed with
//! `--nocapture`: how many states, and how long it took.

use siftfs_protocol::explored;
use siftfs_protocol::explored::explore;
use siftfs_protocol::fronts::Fronts;
use siftfs_protocol::fronts::cases;
use siftfs_protocol::graph;

explored!(Fronts:
    one_page,
    locked_page,
    two_pages,
    whole_pages,
    attributes,
    names,
    held_up,
    stores,
    stores_and_writes,
    lease,
    lease_and_stores,
    sections,
    removed,
    appends,
    together
);

/// With `SIFTFS_LONG=1` larger ones: each of the above with one more fault.
#[test]
fn with_one_more_fault() {
    if std::env::var_os("SIFTFS_LONG").is_some() {
        cases::long().into_iter().for_each(explore::<Fronts>);
    }
}

/// Every run ends: no state can be reached from itself. With the property that a state without a
/// next step waits for nothing, every wait ends on every run.
#[test]
fn every_run_ends() {
    let long = std::env::var_os("SIFTFS_LONG").is_some();
    for mut case in cases::everyday() {
        if !long {
            case.config.faults.total = 0;
        }
        let name = case.config.name;
        let walk = graph::walk(&Fronts::new(case.config));
        assert_eq!(walk.cycle, None, "{name}: a run that does not end");
        println!("{name}: {} states, {} steps, longest {}", walk.states, walk.steps, walk.longest);
    }
}
