//! The configurations that the tests explore completely.

use super::config::{Call, Config, Limits, Policy, read, write};
use super::landmarks::names as seen;

/// A configuration, and what a run of it must meet at least once.
pub type Case = crate::explored::Case<Config>;

const NONE: Limits = Limits { breaks: 0, stops: 0, early: 0, revokes: 0 };
const ONE_BREAK: Limits = Limits { breaks: 1, ..NONE };
const TWO_BREAKS: Limits = Limits { breaks: 2, ..NONE };

fn basic(name: &'static str, calls: &[Call]) -> Config {
    Config::new(name, Policy::Basic, calls)
}

fn merging(name: &'static str, calls: &[Call]) -> Config {
    Config::new(name, Policy::Merging, calls)
}

/// Reads and writes of the same blocks, by the basic policy.
pub fn groups() -> Case {
    let calls = [write(0, 2), read(0, 2), write(1, 1), read(0, 2)];
    let config = basic("groups", &calls);
    Case { config, reaches: &[seen::OVERTAKES, seen::TOGETHER, seen::FULL] }
}

/// The same where calls that do not conflict share a group.
pub fn merged_groups() -> Case {
    let calls = [write(0, 2), read(0, 2), write(1, 1), write(2, 1)];
    let config = merging("merged groups", &calls);
    Case { config, reaches: &[seen::OVERTAKES, seen::TOGETHER, seen::FULL] }
}

/// Calls that have a request for each block.
pub fn split_calls() -> Case {
    let config = merging("split calls", &[write(0, 2).split(), read(0, 2).split(), write(0, 2)]);
    Case { config, reaches: &[seen::OVERTAKES, seen::TOGETHER, seen::FULL] }
}

/// The connections break, and calls are repeated.
pub fn lives() -> Case {
    let config =
        merging("lives", &[write(0, 1), read(0, 2), write(0, 2), write(1, 1)]).failing(ONE_BREAK);
    Case { config, reaches: &[seen::DRAINS, seen::OLD, seen::TOLD] }
}

/// The same with calls that have a request for each block.
pub fn split_lives() -> Case {
    let calls = [write(0, 2).split(), read(0, 2).split(), write(0, 1)];
    let config = merging("split lives", &calls).failing(ONE_BREAK);
    Case { config, reaches: &[seen::DRAINS, seen::OLD, seen::HALF] }
}

/// The connections break again, also before a new life is answered.
pub fn short_lives() -> Case {
    let config = basic("short lives", &[write(0, 1), read(0, 1), write(0, 1)]).failing(TWO_BREAKS);
    Case { config, reaches: &[seen::DRAINS, seen::OLD, seen::TOLD, seen::KEPT] }
}

/// A thread stops before all of its requests are sent.
pub fn stops() -> Case {
    let calls = [write(0, 2).split(), read(1, 1), write(0, 1), read(0, 1)];
    let config = merging("stops", &calls).window(2).failing(Limits { stops: 1, ..ONE_BREAK });
    Case { config, reaches: &[seen::ENDS, seen::STANDS, seen::FULL] }
}

/// A thread is slower than the term.
pub fn slow_threads() -> Case {
    let calls = [write(0, 2).split(), read(0, 2), write(0, 1)];
    let config = merging("slow threads", &calls).failing(Limits { early: 1, ..ONE_BREAK });
    Case { config, reaches: &[seen::ENDS, seen::OLD, seen::HALF] }
}

/// The grant is taken back, also while connections break.
pub fn revokes() -> Case {
    let calls = [write(0, 2).split(), read(0, 2), write(0, 1)];
    let limits = Limits { revokes: 1, ..ONE_BREAK };
    let config = merging("revokes", &calls).failing(limits);
    Case { config, reaches: &[seen::REVOKES, seen::LATE, seen::DRAINS] }
}

/// Requests that the table refuses, before and after a break.
pub fn denied() -> Case {
    let calls = [write(0, 1).denied(), write(0, 1), read(0, 1)];
    let config = basic("denied", &calls).failing(ONE_BREAK);
    Case { config, reaches: &[seen::DENIED, seen::TOLD] }
}

/// A hostile program beside another file's queue: numbers twice, before their group, behind a gap,
/// beyond the window, and as large as can be.
pub fn hostile() -> Case {
    let numbers = [(0, 0), (1, 3), (2, 1), (2, 2), (u64::MAX, 1)];
    let config = basic("hostile", &[write(0, 1), read(0, 1)]).forged(&numbers, 2);
    Case { config, reaches: &[seen::ENDS, seen::ALL_PARKED] }
}

/// What the everyday run explores.
pub fn everyday() -> Vec<Case> {
    let orders = [groups(), merged_groups(), split_calls(), denied(), hostile()];
    let lives = [lives(), split_lives(), short_lives(), stops(), slow_threads(), revokes()];
    orders.into_iter().chain(lives).collect()
}

/// Larger ones, for a machine with time and memory: a break more, or the first one. Of those that
/// are large already one has two breaks and a call less.
pub fn long() -> Vec<Case> {
    let mut lives = lives();
    lives.config.calls.pop();
    let orders = [groups(), merged_groups(), split_calls(), denied(), hostile()];
    let more = [lives, split_lives(), stops(), revokes()];
    let mut cases: Vec<_> = orders.into_iter().chain(more).collect();
    cases.iter_mut().for_each(|case| case.config.limits.breaks += 1);
    cases
}
