//! Situations that a configuration must get into.

use super::config::{Call, Config};
use super::state::{At, Daemon, LOG, Medium, Said, World};

/// Their names.
pub mod names {
    /// A power cut tears it.
    pub const TORN: &str = "a batch is on its way when the machine or the daemon dies";
    /// R37: published, and recalled before the look.
    pub const COVERED: &str = "a recall has taken in a write that is not done";
    /// R37: checked, delayed, and published after the recall's ingestion.
    pub const UNCOVERED: &str = "a recall has not taken in a write that is published";
    /// R37: an acknowledgement after the daemon's death.
    pub const OUTLIVES: &str = "an fsync is acknowledged after the daemon's death";
    /// R37: recovery's wait.
    pub const WAITS: &str = "recovery waits for a program that may acknowledge";
    /// R36: the second phase brings something back.
    pub const COUNTS: &str = "recovery finds newer bytes in a log that counts";
    /// R36: records of a lease that has ended durably.
    pub const PASSED: &str = "recovery passes over a record of a lease that has ended";
    /// R36: a log that is older than its file.
    pub const BEHIND: &str = "recovery finds a log that is older than its file";
    /// The second phase, a second time.
    pub const AGAIN: &str = "recovery's second phase begins anew";
    /// R38, R46.
    pub const ORDERED: &str = "an fsync goes by the daemon because of what was ordered";
    /// The log has no room.
    pub const FULL: &str = "an fsync goes by the daemon because the log is full";
    /// R47.
    pub const ORPHANED: &str = "a program dies with published bytes that nothing else has";
    /// The registry cannot be written.
    pub const GIVEN_UP: &str = "a log is given up while a batch is on its way";
    /// The log cannot.
    pub const WITHOUT_LOG: &str = "an fsync goes by the daemon because the log failed";
}

/// Is this state such a situation?
pub(crate) fn is_at(config: &Config, s: &World, landmark: &str) -> bool {
    use names::*;
    let clients = || 0..s.clients.len();
    let slot = |c: usize| s.call(config, c).and_then(Call::file).map(|f| s.words.slots[f]);
    let settles = |covered: bool| {
        clients().any(|c| {
            let ended = slot(c).filter(|slot| slot.said == Said::Ended);
            let record = s.clients[c].record;
            let settling = s.clients[c].at == At::Settling;
            settling && ended.is_some_and(|slot| (record < slot.ingested) == covered)
        })
    };
    let left = || s.disk.row.map(|row| (row, s.left(config, row))).filter(|_| s.disk.named);
    let begins = s.daemon == Daemon::Lanes;
    let replays = |is: &dyn Fn(u8, u8) -> bool| {
        begins
            && left().is_some_and(|(row, records)| {
                let mut own = records.iter().filter(|r| row.leases[r.file] == r.number);
                own.any(|r| is(r.version, s.files[r.file].durable))
            })
    };
    let asks = |c: &usize| {
        let fsync = matches!(s.call(config, *c), Some(Call::Fsync(_)));
        fsync && s.clients[*c].at == At::Asked && s.program.medium == Medium::File
    };
    match landmark {
        TORN => s.program.writing.is_some() && s.daemon == Daemon::Down,
        COVERED => settles(true),
        UNCOVERED => settles(false),
        OUTLIVES => clients().any(|c| {
            let file = s.call(config, c).and_then(Call::file);
            let persistent = s.clients[c].at == At::Persistent && s.daemon != Daemon::Up;
            persistent && file.is_some_and(|f| s.log_promises(config, c, f))
        }),
        WAITS => begins && s.must_wait(),
        COUNTS => replays(&|version, durable| version > durable),
        BEHIND => replays(&|version, durable| version < durable),
        PASSED => {
            let passed = |(row, records): (super::state::Row, Vec<super::state::Record>)| {
                records.iter().any(|r| row.leases[r.file] != r.number)
            };
            begins && left().is_some_and(passed)
        }
        AGAIN => begins && s.disk.named && s.ghost.faults.iter().sum::<u8>() > 1,
        ORDERED => clients().filter(asks).any(|c| {
            let granted = slot(c).filter(|slot| slot.said == Said::Granted);
            granted.is_some_and(|slot| slot.covered != 0 && slot.covered != s.words.order)
        }),
        FULL => {
            let full = s.program.position - s.words.begin >= LOG;
            full && clients().filter(asks).any(|c| slot(c).is_some_and(|slot| slot.covered != 0))
        }
        ORPHANED => !s.program.alive && s.daemon == Daemon::Up && s.ring.tail < s.ring.head(),
        GIVEN_UP => s.failed && s.program.writing.is_some(),
        WITHOUT_LOG => clients().any(|c| {
            let fsync = matches!(s.call(config, c), Some(Call::Fsync(_)));
            fsync && s.clients[c].at == At::Asked && s.program.medium == Medium::Daemon
        }),
        _ => unreachable!("no landmark has this name: {landmark}"),
    }
}
