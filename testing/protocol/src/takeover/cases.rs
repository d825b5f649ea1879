//! The configurations that the tests explore completely.

use super::config::{Config, Faults};
use super::landmarks::names as seen;

/// A configuration, and what a run of it must meet at least once.
pub type Case = crate::explored::Case<Config>;

/// A server of two sleeps, or dies, and the other one takes over.
pub fn one_standby() -> Case {
    let faults = Faults { total: 1, watch: 1, dies: 1, operator: 1, ..Faults::default() };
    let config = Config::new("one standby", 2, 3).failing(faults);
    Case { config, reaches: &[seen::LATE, seen::REFUSED, seen::LANDED, seen::TAKEN, seen::NAMED] }
}

/// The same, and clients ask both.
pub fn readers() -> Case {
    let faults = Faults { total: 1, watch: 1, dies: 1, operator: 1, ..Faults::default() };
    let config = Config::new("readers", 2, 2).reading(2).failing(faults);
    Case { config, reaches: &[seen::LATE, seen::ASKED] }
}

/// Two servers wait, and the first of them sleeps or dies as well.
pub fn two_standbys() -> Case {
    let faults = Faults { total: 2, watch: 2, dies: 1, ..Faults::default() };
    let config = Config::new("two standbys", 3, 1).failing(faults);
    Case { config, reaches: &[seen::TWO, seen::AGAIN, seen::LATE, seen::REFUSED] }
}

/// Somebody breaks the lock by hand, for an hour.
pub fn by_hand() -> Case {
    let faults = Faults { total: 1, by_hand: 1, ..Faults::default() };
    let config = Config::new("by hand", 3, 1).failing(faults);
    Case { config, reaches: &[seen::SHORT, seen::TWO] }
}

/// A server ends in order.
pub fn in_order() -> Case {
    let faults = Faults { total: 2, watch: 1, dies: 1, ends: 1, by_hand: 1, operator: 1 };
    let config = Config::new("in order", 2, 2).failing(faults);
    Case { config, reaches: &[seen::NOBODY, seen::SHORT, seen::NAMED] }
}

/// Nobody writes names down, and nobody breaks a lock by hand.
pub fn nameless() -> Case {
    let faults = Faults { total: 2, watch: 2, operator: 1, ..Faults::default() };
    let config = Config::new("nameless", 3, 1).nameless().failing(faults);
    Case { config, reaches: &[seen::TWO, seen::LATE, seen::REFUSED] }
}

/// What the everyday run explores.
pub fn everyday() -> Vec<Case> {
    vec![one_standby(), readers(), two_standbys(), by_hand(), in_order(), nameless()]
}

/// Larger ones, for a machine with time and memory: a fault more with two servers, and a value more
/// with three.
pub fn long() -> Vec<Case> {
    let mut cases = vec![one_standby(), readers(), in_order(), two_standbys()];
    for case in &mut cases {
        match case.config.servers {
            2 => case.config.faults.total += 1,
            _ => case.config.fsyncs += 1,
        }
    }
    cases
}
