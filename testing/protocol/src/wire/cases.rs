//! The configurations that the tests explore completely.

use super::config::Call::{Compound, Fsync, Lock, Name, Read, Unlock, Write};
use super::config::{Config, Faults};
use super::landmarks::names as seen;

/// A configuration, and what a run of it must meet at least once.
pub type Case = crate::explored::Case<Config>;

/// How many faults together, and how many lost connections and killed servers.
fn faults(total: u8, lose: u8, kill: u8) -> Faults {
    Faults { total, lose, kill, ..Faults::default() }
}

/// Two clients change the same name, and connections are lost.
pub fn lost_connections() -> Case {
    let mut config =
        Config::new("lost connections", &[&[Name(0), Write(0), Fsync(0)], &[Name(0), Write(0)]]);
    config.faults = faults(2, 2, 0);
    Case { config, reaches: &[seen::ANSWERED_AGAIN] }
}

/// The server dies under changes of names; some of them become durable by themselves.
pub fn names() -> Case {
    let mut config = Config::new("names", &[&[Name(0), Name(1)], &[Name(0), Fsync(0)]]);
    config.commits = true;
    config.faults = faults(2, 1, 2);
    let reaches = &[
        seen::SURVIVED,
        seen::GONE,
        seen::THERE_BY_LSN,
        seen::REPEATED,
        seen::IN_TURN,
        seen::TRIED,
        seen::TRIED_SURVIVED,
        seen::LOST_RETURNING,
    ];
    Case { config, reaches }
}

/// Two clients write the same file, which either makes durable.
pub fn writes() -> Case {
    let mut config = Config::new("writes", &[&[Write(0), Fsync(0)], &[Write(0), Fsync(0)]]);
    config.keeps = true;
    config.faults = faults(2, 1, 2);
    let reaches = &[
        seen::THERE_BY_BOOK,
        seen::THERE_BY_MARK,
        seen::REPEATED,
        seen::IN_TURN,
        seen::FSYNC_AFTER,
        seen::LOST_RETURNING,
    ];
    Case { config, reaches }
}

/// Servers die one after the other, and their numbers are drawn at random.
pub fn deaths() -> Case {
    let mut config = Config::new("deaths", &[&[Write(0), Write(0)], &[Write(0)]]);
    (config.low, config.commits) = (true, true);
    config.faults = Faults { book: 1, ..faults(2, 0, 2) };
    Case { config, reaches: &[seen::OF_TWO, seen::TRIED, seen::NO_BOOK, seen::UNKNOWN] }
}

/// Servers die at each step of a recovery, up to three: what is repeated may have been asked for at
/// each of those.
pub fn recoveries() -> Case {
    let mut config = Config::new("recoveries", &[&[Name(0), Fsync(0)], &[Name(0)]]);
    config.commits = true;
    config.faults = faults(3, 0, 3);
    Case { config, reaches: &[seen::SURVIVED, seen::THERE_BY_LSN] }
}

/// What kernels know, while others change it.
pub fn kernels() -> Case {
    let mut config = Config::new("kernels", &[&[Read(0), Read(0), Read(0)], &[Write(0), Write(0)]]);
    config.keeps = true;
    config.faults = Faults { late: 1, ..faults(2, 2, 1) };
    let reaches = &[seen::WAITS, seen::WAITS_AWAY, seen::ANSWERED_AGAIN, seen::ENDED];
    Case { config, reaches }
}

/// Both kernels know the file, and change it.
pub fn both_know() -> Case {
    let mut config =
        Config::new("both know", &[&[Read(0), Write(0), Read(0)], &[Read(0), Write(0), Read(0)]]);
    config.faults = faults(1, 1, 1);
    Case { config, reaches: &[seen::WAITS, seen::WAITS_AWAY] }
}

/// Compounds, of which nobody can say whether they were carried out.
pub fn compounds() -> Case {
    let mut config = Config::new("compounds", &[&[Write(0), Compound(0)], &[Write(0), Fsync(0)]]);
    config.commits = true;
    config.faults = faults(2, 1, 2);
    Case { config, reaches: &[seen::COMPOUND_UNANSWERED, seen::GONE] }
}

/// A lock, and sessions that are resumed, ended, or come back after a death.
pub fn locks() -> Case {
    let mut config = Config::new("locks", &[&[Lock, Write(0), Unlock], &[Lock, Write(0), Unlock]]);
    config.keeps = true;
    config.faults = Faults { dies: 1, late: 1, ..faults(2, 2, 2) };
    let reaches = &[seen::RECLAIMED, seen::PASSED, seen::LOCK_WAITS, seen::ENDED, seen::UNKNOWN];
    Case { config, reaches }
}

/// Servers that end in order.
pub fn orderly() -> Case {
    let mut config =
        Config::new("orderly", &[&[Name(0), Write(0), Fsync(0)], &[Name(0), Compound(0)]]);
    config.faults = Faults { end: 2, ..faults(2, 1, 1) };
    Case { config, reaches: &[seen::CLEAN, seen::NOBODY_KNOWS, seen::GONE] }
}

/// Clients that die, or are away for too long.
pub fn away() -> Case {
    let mut config = Config::new("away", &[&[Name(0), Fsync(0)], &[Write(0)]]);
    config.keeps = true;
    config.faults = Faults { dies: 1, late: 1, ..faults(2, 1, 1) };
    Case { config, reaches: &[seen::ENDED, seen::UNKNOWN, seen::NOBODY_KNOWS] }
}

/// What the everyday run explores.
pub fn everyday() -> Vec<Case> {
    vec![
        lost_connections(),
        names(),
        writes(),
        deaths(),
        recoveries(),
        kernels(),
        both_know(),
        compounds(),
        locks(),
        orderly(),
        away(),
    ]
}

/// Larger ones, for a machine with time and memory: one fault more.
pub fn long() -> Vec<Case> {
    let mut all = everyday();
    for case in &mut all {
        let f = &mut case.config.faults;
        f.total += 1;
        (f.lose, f.kill) = (f.lose + 1, f.kill + 1);
    }
    all
}
