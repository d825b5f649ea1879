//! The configurations that the tests explore completely.

use crate::config::Step::{Fsync, Unlink, Write};
use crate::config::{Config, Faults, Replay, Step};
use crate::judge::landmarks as seen;

/// A configuration, and what a run of it must meet at least once.
pub type Case = crate::explored::Case<Config>;

const A: &[Step] = &[Write(0), Fsync(0)];
const AA: &[Step] = &[Write(0), Fsync(0), Write(0), Fsync(0)];
const B: &[Step] = &[Write(1), Fsync(1)];
const UNSYNCED: &[Step] = &[Write(0), Fsync(0), Write(0)];
/// The second file gets the first one's block.
const REUSE: &[Step] = &[Write(0), Fsync(0), Unlink(0), Write(1), Fsync(1)];

/// Overwrites before that.
const AA_REUSE: &[Step] =
    &[Write(0), Fsync(0), Write(0), Fsync(0), Write(0), Fsync(0), Unlink(0), Write(1), Fsync(1)];

fn faults(total: u8, [host, device, link, power]: [u8; 4]) -> Faults {
    Faults { total, host, device, link, power, flush: 0 }
}

/// A block passes from one file to the other through a lane of one record, and the volume is
/// unmounted; one fault.
pub fn reuse() -> Case {
    let mut config = Config::new("reuse", &[REUSE]);
    (config.blocks, config.lane_slots) = (1, 1);
    (config.direct, config.unmount) = (true, true);
    config.faults = faults(1, [1; 4]);
    Case { config, reaches: &[seen::STARVED, seen::EMERGENCY, seen::PASSED_ON, seen::UNMOUNTED] }
}

/// The same with two faults, without unmounting.
pub fn reuse_twice() -> Case {
    let mut config = Config::new("reuse, two faults", &[REUSE]);
    (config.blocks, config.lane_slots) = (1, 1);
    config.direct = true;
    config.faults = faults(2, [1, 1, 1, 2]);
    Case { config, reaches: &[seen::STARVED, seen::PASSED_ON, seen::APPLIED, seen::FULL] }
}

/// Two clients share flushes on two lanes.
pub fn group() -> Case {
    let mut config = Config::new("two clients, two lanes", &[A, B]);
    (config.lanes, config.lane_slots) = (2, 1);
    config.faults = faults(2, [1, 1, 1, 2]);
    Case { config, reaches: &[seen::APPLIED, seen::FOUND_JOURNAL, seen::ALONE] }
}

/// Records of a dead epoch lie where the next one writes.
pub fn epochs() -> Case {
    let mut config = Config::new("epochs", &[AA, B]);
    config.faults = faults(2, [1, 0, 0, 1]);
    Case { config, reaches: &[seen::APPLIED, seen::DEAD_RECORD, seen::OLD_HELLO] }
}

/// Two devices, of which the one wakes while the host speaks to the other.
pub fn takeover() -> Case {
    let mut config = Config::new("takeover", &[UNSYNCED]);
    config.devices = 2;
    (config.direct, config.background, config.unmount) = (true, true, true);
    config.faults = faults(2, [1, 1, 1, 0]);
    let reaches = &[
        seen::OLD_HOLDER,
        seen::OLD_HELLO,
        seen::FOUND_JOURNAL,
        seen::FOUND_TAIL,
        seen::SENT_AGAIN,
        seen::UNMOUNTED,
    ];
    Case { config, reaches }
}

/// The host takes the Service role over, and gives it back.
pub fn fallback() -> Case {
    let mut config = Config::new("fallback", &[AA]);
    (config.fallbacks, config.lane_slots) = (1, 1);
    (config.direct, config.unmount) = (true, true);
    config.faults = faults(2, [1, 1, 1, 1]);
    Case { config, reaches: &[seen::FALLBACK, seen::STARVED, seen::UNMOUNTED] }
}

/// Coalesced batches of several transactions, two on their way at a time.
pub fn coalesce() -> Case {
    let mut config = Config::new("coalesce", &[AA]);
    (config.replay, config.pipeline) = (Replay::Coalesce, 2);
    config.background = true;
    config.faults = faults(2, [1; 4]);
    Case { config, reaches: &[seen::BATCH, seen::ALONE, seen::SENT_AGAIN] }
}

/// Host, device and power fail in one run, in any order.
pub fn everything() -> Case {
    let mut config = Config::new("everything fails", &[UNSYNCED]);
    config.direct = true;
    config.lane_slots = 1;
    config.faults = faults(3, [1, 1, 1, 2]);
    Case { config, reaches: &[seen::FOUND_JOURNAL, seen::FOUND_TAIL, seen::ALONE, seen::APPLIED] }
}

/// Flushes fail, the host's and the Service's, and then power or a process (rule R21).
pub fn failed_flush() -> Case {
    let mut config = Config::new("failed flush", &[UNSYNCED]);
    (config.direct, config.unmount) = (true, true);
    config.lane_slots = 1;
    config.faults = Faults { flush: 1, ..faults(2, [1; 4]) };
    Case { config, reaches: &[seen::LATCHED, seen::WRITTEN_AND_GONE, seen::UNMOUNTED] }
}

/// A second host that wants the volume gets its turn while the first one is stalled (rule R9).
pub fn second_host() -> Case {
    let mut config = Config::new("second host", &[A, B]);
    (config.stalls, config.unmount) = (2, true);
    config.faults = faults(1, [1; 4]);
    Case { config, reaches: &[seen::SECOND_WAITS, seen::SECOND_HOST, seen::OLD_HELLO] }
}

/// Two clients, a lane on the disk and a record area, each fsync to either (rule R44).
pub fn record_area() -> Case {
    let mut config = Config::new("record area", &[AA, B]);
    (config.lanes, config.area) = (2, true);
    config.faults = faults(1, [1, 0, 0, 1]);
    let reaches = &[seen::PASSED, seen::FOUND_COMPACT, seen::CUT_AT_GAP, seen::APPLIED];
    Case { config, reaches }
}

/// The same with lanes of one record, and a persist or flush that fails.
pub fn full_area() -> Case {
    let mut config = Config::new("full record area", &[UNSYNCED, B]);
    (config.lanes, config.area, config.lane_slots) = (2, true, 1);
    config.unmount = true;
    config.faults = Faults { flush: 1, ..faults(1, [1, 1, 0, 1]) };
    Case { config, reaches: &[seen::AREA_FULL, seen::LATCHED, seen::UNMOUNTED] }
}

/// Records of the area name the blocks that they overwrite, one of which passes to the other file
/// (rule R42).
pub fn digest() -> Case {
    let mut config = Config::new("digest", &[AA_REUSE]);
    (config.lanes, config.area, config.physical) = (2, true, true);
    (config.blocks, config.lane_slots) = (1, 2);
    config.background = true;
    config.faults = faults(1, [1, 0, 0, 1]);
    Case { config, reaches: &[seen::DIGESTED, seen::OVER_DIGESTED, seen::PASSED_ON, seen::APPLIED] }
}

/// The same with batches of several transactions, which are coalesced.
pub fn digest_coalesced() -> Case {
    let mut case = digest();
    case.config.name = "digest, coalesced";
    case.config.programs = vec![[AA, &REUSE[2..]].concat()];
    (case.config.replay, case.config.pipeline) = (Replay::Coalesce, 2);
    case.config.direct = true;
    case.reaches = &[seen::DIGESTED, seen::BATCH];
    case
}

/// Freed blocks go back to the storage before they pass to another file, and the volume is
/// unmounted; one fault.
pub fn discard() -> Case {
    let mut case = reuse();
    case.config.name = "discard";
    case.config.discard = true;
    case.config.fallbacks = 1;
    case.reaches = &[seen::DISCARDS_ALONE, seen::PASSED_ON, seen::UNMOUNTED];
    case
}

/// The same with two blocks, of which one is discarded while the other is in use.
pub fn discard_beside() -> Case {
    let mut config = Config::new("discard beside others", &[REUSE]);
    (config.discard, config.direct, config.background) = (true, true, true);
    config.faults = faults(1, [1, 1, 0, 1]);
    Case { config, reaches: &[seen::DISCARDS, seen::DISCARDS_ALONE, seen::PASSED_ON] }
}

/// Without any fault: what the protocol does on a good day.
pub fn smallest() -> Case {
    let mut case = takeover();
    case.config.name = "no faults";
    case.config.faults = Faults::default();
    case.reaches = &[];
    case
}

/// What the everyday run explores.
pub fn everyday() -> Vec<Case> {
    vec![
        reuse(),
        reuse_twice(),
        group(),
        epochs(),
        takeover(),
        fallback(),
        coalesce(),
        everything(),
        failed_flush(),
        second_host(),
        record_area(),
        full_area(),
        digest(),
        digest_coalesced(),
        discard(),
        discard_beside(),
    ]
}

/// Larger ones, for a machine with time and memory.
pub fn long() -> Vec<Case> {
    let mut all = everyday();
    for case in &mut all {
        let f = &mut case.config.faults;
        f.total += 1;
        (f.host, f.link) = (f.host + 1, f.link + 1);
    }
    all
}
