//! A log that fails over: every state that each configuration can reach is explored, and every
//! property holds in all of them. `SIFTFS_LONG=1` explores larger configurations. Printed with
//! `--nocapture`: how many states, and how long it took.

use siftfs_protocol::explored;
use siftfs_protocol::explored::explore;
use siftfs_protocol::graph;
use siftfs_protocol::spare::Spare;
use siftfs_protocol::spare::cases;

explored!(Spare: stalls, fails, little_room);

/// With `SIFTFS_LONG=1` larger ones: each of the above with one fsync more.
#[test]
fn with_one_more() {
    if std::env::var_os("SIFTFS_LONG").is_some() {
        cases::long().into_iter().for_each(explore::<Spare>);
    }
}

/// Every run ends: no state can be reached from itself.
#[test]
fn every_run_ends() {
    for case in cases::everyday() {
        let name = case.config.name;
        let walk = graph::walk(&Spare::new(case.config));
        assert_eq!(walk.cycle, None, "{name}: a run that does not end");
        println!("{name}: {} states, {} steps, longest {}", walk.states, walk.steps, walk.longest);
    }
}
