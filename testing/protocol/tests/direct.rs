//! A direct data plane: every state that each configuration can reach is explored, and every
//! property holds in all of them. `SIFTFS_LONG=1` explores larger configurations. Printed with
//! `--nocapture`: how many states, and how long it took.

use siftfs_protocol::direct::Direct;
use siftfs_protocol::direct::cases::{self, Case};
use siftfs_protocol::graph;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

/// Explores one configuration to its end.
fn explore(case: Case) {
    let (name, start) = (case.config.name, Instant::now());
    let model = Direct::new(case.config.clone()).looking_for(case.reaches);
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let states = checker.unique_state_count();
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        let steps: Vec<_> = path.into_actions().iter().map(|a| format!("{a:?}")).collect();
        panic!("{name}: does not hold: {property}\n{}", steps.join("\n"));
    }
    assert!(checker.is_done(), "{name}: explored to the end");
    assert_eq!(checker.model().never_met(), [""; 0], "{name}: situations that it must get into");
    println!("{name}: {states} states, {:.1} s", start.elapsed().as_secs_f64());
}

macro_rules! explored {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            explore(cases::$name());
        }
    )*};
}

explored!(reuse, appends, redo, redo_and_reuse, others, forged);

/// With `SIFTFS_LONG=1` larger ones: each of the above with one more fault.
#[test]
fn with_one_more_fault() {
    if std::env::var_os("SIFTFS_LONG").is_some() {
        cases::long().into_iter().for_each(explore);
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
