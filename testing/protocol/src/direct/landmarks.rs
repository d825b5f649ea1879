//! Situations that a configuration must get into.

use super::config::{Call, Config};
use super::state::{Flushed, Lease, Plane, Queue};

/// Their names.
pub mod names {
    /// R29.
    pub const DRAINS: &str = "a lease is to end while a request is carried out";
    /// R29.
    pub const REFUSES: &str = "a request waits whose lease is to end";
    /// R29, R33.
    pub const REPLAYS: &str = "a lease is to end while committed redo waits";
    /// R29.
    pub const FORGED: &str = "a request names a block that was not granted";
    /// R33.
    pub const WAITS: &str = "a write waits for committed redo of its block";
    /// R33.
    pub const FOUND: &str = "a target that comes finds what was committed";
    /// R30.
    pub const REPORTED: &str = "a sync waits until blocks count as written";
    /// R30.
    pub const UNWRITTEN: &str = "a block is read that was never written";
    /// Epochs.
    pub const OLD_GRANT: &str = "a request waits at a target whose host is a new one";
    /// R29.
    pub const READ_ENDS: &str = "a grant to read is to end while a read is carried out";
    /// R29.
    pub const READERS: &str = "two programs read at once";
    /// Terms.
    pub const DEAD: &str = "the lease of a dead program is to end";
}

/// Is this state such a situation?
pub(crate) fn is_at(config: &Config, s: &Plane, landmark: &str) -> bool {
    use names::*;
    let target = &s.target;
    let ends = target.queue == Queue::Closing;
    let waiting = target.waiting.map(|request| config.program[request.call]);
    let committed = s.disk.lane.iter().any(|record| record.flushed == Flushed::Commit);
    match landmark {
        DRAINS => ends && target.running.is_some(),
        REFUSES => ends && target.waiting.is_some(),
        REPLAYS => ends && committed,
        FORGED => waiting.is_some_and(|call| target.queue == Queue::Open && !s.is_allowed(call)),
        WAITS => match waiting {
            Some(Call::Write(_)) => target.queue == Queue::Open && !s.may_begin(config),
            _ => false,
        },
        FOUND => {
            target.up && target.queue == Queue::Gone && s.host.lease == Lease::None && committed
        }
        REPORTED => target.syncing.is_some_and(|syncing| syncing.flushed),
        UNWRITTEN => {
            let running = target.running.map(|request| config.program[request.call]);
            matches!(running, Some(Call::Read(block)) if target.table[block] == Some(false))
        }
        OLD_GRANT => target.up && s.host.epoch > target.epoch && target.waiting.is_some(),
        READ_ENDS => target.readers.iter().flatten().any(|reading| reading.running && reading.ends),
        READERS => target.readers.iter().flatten().filter(|reading| reading.running).count() == 2,
        DEAD => ends && !s.program.up,
        other => unreachable!("no landmark has this name: {other}"),
    }
}
