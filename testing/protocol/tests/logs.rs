//! A private log: every state that each configuration can reach is explored, and every
//! property holds in all of them. `SIFTFS_LONG=1` explores larger configurations. Printed with
//! `--nocapture`: how many states, and how long it took.

use siftfs_protocol::explored;
use siftfs_protocol::explored::explore;
use siftfs_protocol::graph;
use siftfs_protocol::logs::Logs;
use siftfs_protocol::logs::cases;

explored!(Logs:
    one_file,
    threads,
    first_fsync,
    two_files,
    both_files,
    ordered,
    full,
    ages,
    sizes,
    unwritable,
    own_kernel,
    unmounted,
    unlogged
);

/// With `SIFTFS_LONG=1` larger ones: each of the above with one more fault.
#[test]
fn with_one_more_fault() {
    if std::env::var_os("SIFTFS_LONG").is_some() {
        cases::long().into_iter().for_each(explore::<Logs>);
    }
}

/// Every run ends: no state can be reached from itself. With the property that a state without a
/// next step waits for nothing, every wait ends on every run.
#[test]
fn every_run_ends() {
    let long = std::env::var_os("SIFTFS_LONG").is_some();
    for mut case in cases::everyday() {
        if !long {
            case.config.faults.total = 1;
        }
        let name = case.config.name;
        let walk = graph::walk(&Logs::new(case.config));
        assert_eq!(walk.cycle, None, "{name}: a run that does not end");
        println!("{name}: {} states, {} steps, longest {}", walk.states, walk.steps, walk.longest);
    }
}
