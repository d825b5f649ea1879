//! The configurations that the tests explore completely.

use super::config::Call::{Atomic, Read, Sync, Write};
use super::config::Op::{Extend, Free, Give, Look, Put};
use super::config::{Config, Faults};
use super::landmarks::names as seen;

/// A configuration, and what a run of it must meet at least once.
pub type Case = crate::explored::Case<Config>;

fn case(mut config: Config, faults: Faults, reaches: &'static [&'static str]) -> Case {
    config.faults = faults;
    Case { config, reaches }
}

/// Each process dies, and power fails.
fn all(total: u8) -> Faults {
    Faults { total, host: total, target: total, program: 1, power: total }
}

/// A block is written, taken, and given to another file.
pub fn reuse() -> Case {
    let program = [Write(0), Write(0), Read(0), Write(0)];
    let config = Config::new("reuse", &program, &[Free(0), Give(0)]);
    case(config, all(3), &[seen::DRAINS, seen::REFUSES, seen::FORGED, seen::OLD_GRANT, seen::DEAD])
}

/// A block is given to the file, unwritten, is written and synced.
pub fn appends() -> Case {
    let program = [Read(2), Write(2), Read(2), Sync, Read(2)];
    let config = Config::new("appends", &program, &[Extend(2), Look(2)]);
    case(config, all(3), &[seen::UNWRITTEN, seen::REPORTED])
}

/// Atomic writes, beside plain ones of the same block.
pub fn redo() -> Case {
    let program = [Atomic(0, 1), Write(0), Read(0), Atomic(0, 1), Sync];
    let config = Config::new("redo", &program, &[Look(0), Look(1)]);
    case(config, all(3), &[seen::WAITS, seen::FOUND, seen::REPLAYS])
}

/// Atomic writes to blocks that are taken, and given to another file.
pub fn redo_and_reuse() -> Case {
    let program = [Atomic(0, 1), Atomic(0, 1), Read(1)];
    let config = Config::new("redo and reuse", &program, &[Free(0), Give(0)]);
    case(config, all(3), &[seen::REPLAYS, seen::FOUND, seen::DRAINS])
}

/// Other programs read and write what the program writes directly.
pub fn others() -> Case {
    let program = [Write(0), Sync, Atomic(0, 1), Read(0)];
    let config = Config::new("others", &program, &[Look(0), Put(0), Look(0)]);
    case(config, all(3), &[seen::DRAINS, seen::REPLAYS])
}

/// Blocks that others have are named all the time.
pub fn forged() -> Case {
    let program = [Read(2), Write(2), Write(2), Read(2)];
    let config = Config::new("forged", &program, &[Give(2), Look(0)]);
    case(config, all(3), &[seen::FORGED])
}

/// Two programs read what is taken, and given to another file.
pub fn readers() -> Case {
    let config = Config::new("readers", &[], &[Look(0), Free(0), Give(0)]).beside(&[0, 1]);
    case(config, all(3), &[seen::READERS, seen::READ_ENDS])
}

/// A program reads what another one writes in turn.
pub fn readers_and_a_writer() -> Case {
    let config = Config::new("readers and a writer", &[Write(0), Sync], &[Put(0)]).beside(&[0]);
    case(config, all(3), &[seen::READ_ENDS, seen::DEAD])
}

/// What the everyday run explores.
pub fn everyday() -> Vec<Case> {
    let beside = [readers(), readers_and_a_writer()];
    [reuse(), appends(), redo(), redo_and_reuse(), others(), forged()]
        .into_iter()
        .chain(beside)
        .collect()
}

/// Larger ones, for a machine with time and memory: one fault more.
pub fn long() -> Vec<Case> {
    let mut cases = everyday();
    cases.iter_mut().for_each(|case| case.config.faults = all(4));
    cases
}
