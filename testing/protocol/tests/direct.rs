//! A direct data plane: every state that each configuration can reach is explored, and every
//! property holds in all of them. `SIFTFS_LONG=1` explores larger configurations. Printed with
//! `--nocapture`: how many states, and how long it took.

use siftfs_protocol::direct::Direct;
use siftfs_protocol::direct::cases;
use siftfs_protocol::explored;
use siftfs_protocol::explored::explore;
use siftfs_protocol::graph;

explored!(Direct: reuse, appends, redo, redo_and_reuse, others, forged, readers, readers_and_a_writer);

/// With `SIFTFS_LONG=1` larger ones: each of the above with one more fault.
#[test]
fn with_one_more_fault() {
    if std::env::var_os("SIFTFS_LONG").is_some() {
        cases::long().into_iter().for_each(explore::<Direct>);
    }
}

/// Every run ends: no state can be reached from itself.
#[test]
fn every_run_ends() {
    let long = std::env::var_os("SIFTFS_LONG").is_some();
    for mut case in cases::everyday() {
        if !long {
            case.config.faults.total = 1;
        }
        let name = case.config.name;
        let walk = graph::walk(&Direct::new(case.config));
        assert_eq!(walk.cycle, None, "{name}: a run that does not end");
        println!("{name}: {} states, {} steps, longest {}", walk.states, walk.steps, walk.longest);
    }
}
