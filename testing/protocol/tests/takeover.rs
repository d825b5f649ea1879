//! A takeover: every state that each configuration can reach is explored, and every property holds
//! in all of them. `SIFTFS_LONG=1` explores larger configurations. Printed with `--nocapture`: how
//! many states, and how long it took.

use siftfs_protocol::explored;
use siftfs_protocol::explored::explore;
use siftfs_protocol::graph;
use siftfs_protocol::takeover::Takeover;
use siftfs_protocol::takeover::cases;

explored!(Takeover: one_standby, readers, two_standbys, by_hand, in_order, nameless);

/// With `SIFTFS_LONG=1` larger ones: some of the above with one fault or one value more.
#[test]
fn with_one_more() {
    if std::env::var_os("SIFTFS_LONG").is_some() {
        cases::long().into_iter().for_each(explore::<Takeover>);
    }
}

/// Every run ends: no state can be reached from itself.
#[test]
fn every_run_ends() {
    for mut case in cases::everyday() {
        case.config.faults.total = 1;
        let name = case.config.name;
        let walk = graph::walk(&Takeover::new(case.config));
        assert_eq!(walk.cycle, None, "{name}: a run that does not end");
        println!("{name}: {} states, {} steps, longest {}", walk.states, walk.steps, walk.longest);
    }
}
