//! Several requests of one queue at a time, in groups: every state that each configuration can
//! reach is explored, and every property holds in all of them. `SIFTFS_LONG=1` explores larger
//! configurations. Printed with `--nocapture`: how many states, and how long it took.

use siftfs_protocol::explored;
use siftfs_protocol::explored::explore;
use siftfs_protocol::graph;
use siftfs_protocol::queues::Queues;
use siftfs_protocol::queues::cases;

explored!(Queues: groups, merged_groups, split_calls, lives, split_lives, short_lives, stops,
    slow_threads, revokes, denied, hostile);

/// With `SIFTFS_LONG=1` larger ones: those that are not large already, with one break more.
#[test]
fn with_one_more_break() {
    if std::env::var_os("SIFTFS_LONG").is_some() {
        cases::long().into_iter().for_each(explore::<Queues>);
    }
}

/// Every run ends: no state can be reached from itself. Without `SIFTFS_LONG=1` connections break
/// once at most, and only where nothing else fails.
#[test]
fn every_run_ends() {
    let long = std::env::var_os("SIFTFS_LONG").is_some();
    for mut case in cases::everyday() {
        let limits = &mut case.config.limits;
        let others = limits.stops + limits.early + limits.revokes;
        if !long {
            limits.breaks = limits.breaks.min(1 - others.min(1));
        }
        let name = case.config.name;
        let walk = graph::walk(&Queues::new(case.config));
        assert_eq!(walk.cycle, None, "{name}: a run that does not end");
        println!("{name}: {} states, {} steps, longest {}", walk.states, walk.steps, walk.longest);
    }
}
