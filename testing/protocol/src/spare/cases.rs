//! The configurations that the tests explore completely.

use super::config::Config;
use super::landmarks::names as seen;

/// A configuration, and what a run of it must meet at least once.
pub type Case = crate::explored::Case<Config>;

/// The first log stalls twice.
pub fn stalls() -> Case {
    let config = Config::new("stalls", 5, [2, 3]).leaving(2);
    Case { config, reaches: &[seen::LATE, seen::TWICE, seen::DRAINS, seen::AGAIN] }
}

/// It stalls, and either log fails.
pub fn fails() -> Case {
    let config = Config::new("fails", 4, [2, 3]).failing(2);
    Case { config, reaches: &[seen::LATE, seen::ALONE, seen::FIRST_ALONE, seen::NO_ROOM] }
}

/// The spare log has little room.
pub fn little_room() -> Case {
    let config = Config::new("little room", 4, [3, 1]).failing(1).leaving(2);
    Case { config, reaches: &[seen::NO_ROOM, seen::DRAINS] }
}

/// What the everyday run explores.
pub fn everyday() -> Vec<Case> {
    vec![stalls(), fails(), little_room()]
}

/// Larger ones, for a machine with time and memory: one fsync more.
pub fn long() -> Vec<Case> {
    let mut cases = everyday();
    cases.iter_mut().for_each(|case| case.config.fsyncs += 1);
    cases
}
