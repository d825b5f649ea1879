//! The properties. Those of states read the state alone; those of steps are noted by the step.

use super::config::{Call, Config};
use super::model::Wire;
use super::state::{Broken, Files, Id, Ids, Phase, Snapshot, Up, bit};
use stateright::Property;

/// Names of properties.
pub mod names {
    /// L2, rules R32 and R53.
    pub const TWICE: &str = "L2: no change is carried out twice";
    /// L3.
    pub const PROMISE: &str = "L3: a fsync that is answered covers what was answered before it";
    /// L3, and the server's order.
    pub const KEPT: &str = "what was answered is there when all go on, in the server's order";
    /// L4.
    pub const SILENCE: &str = "L4: what is lost is told by the file's next fsync";
    /// R32.
    pub const STALE: &str = "R32: no kernel shows what is older than an answered change";
    /// R25 over a wire.
    pub const WHOLE: &str = "a compound is there as a whole, or not at all";
    /// Locks.
    pub const LOCK: &str = "one client at a time believes that it has the lock";
    /// The book.
    pub const KNOWN: &str = "a server that has the book knows the clients of the one before";
    /// L1, L5.
    pub const ANSWERED: &str = "L5: every call returns";
}

/// All properties.
pub fn properties() -> Vec<Property<Wire>> {
    use names::*;
    vec![
        Property::always(TWICE, |_, s: &Snapshot| s.ghost.holds(Broken::Twice)),
        Property::always(PROMISE, |_, s: &Snapshot| s.ghost.holds(Broken::Promise)),
        Property::always(KEPT, |_, s: &Snapshot| s.has_answered()),
        Property::always(SILENCE, |_, s: &Snapshot| s.ghost.holds(Broken::Silence)),
        Property::always(STALE, |_, s: &Snapshot| s.ghost.holds(Broken::Stale)),
        Property::always(WHOLE, |m: &Wire, s: &Snapshot| s.has_whole_compounds(m.config())),
        Property::always(LOCK, |_, s: &Snapshot| s.ghost.holds(Broken::Lock)),
        Property::always(KNOWN, |_, s: &Snapshot| s.ghost.holds(Broken::Forgotten)),
        Property::always(ANSWERED, |m: &Wire, s: &Snapshot| s.is_done(m.config()) || m.can_move(s)),
    ]
}

/// Those of `counts` in an order, each where it is last.
fn last_ones(order: impl DoubleEndedIterator<Item = Id>, counts: Ids) -> Vec<Id> {
    let mut left = counts;
    let mut last: Vec<Id> = Vec::new();
    for id in order.rev().filter(|id| counts & bit(*id) != 0) {
        if left & bit(id) != 0 {
            left &= !bit(id);
            last.push(id);
        }
    }
    last
}

impl Snapshot {
    /// While a server serves all: what was answered and is not lost is there, in its order.
    fn has_answered(&self) -> bool {
        if self.server.up != Up::Serving || !self.server.open {
            return true;
        }
        let counts = self.ghost.answered & !self.ghost.lost;
        let (now, made) = (&self.files, &self.ghost);
        let writes = now.data.iter().zip(&made.writes);
        let names = now.names.iter().zip(&made.renames);
        writes.into_iter().all(|(now, made)| {
            last_ones(now.iter().copied(), counts) == last_ones(made.iter().copied(), counts)
        }) && names.into_iter().all(|(now, made)| {
            let now = now.iter().map(|op| op.id);
            last_ones(now, counts) == last_ones(made.iter().copied(), counts)
        })
    }

    /// In memory, and so also when it was just recovered, both steps are there or none.
    fn has_whole_compounds(&self, config: &Config) -> bool {
        let half = |files: &Files, file: usize, id: Id| {
            let named = files.names[file].iter().any(|op| op.id == id + 1);
            files.data[file].contains(&id) != named
        };
        let calls = config.programs.iter().enumerate();
        let mut calls = calls.flat_map(|(c, calls)| {
            calls.iter().enumerate().map(move |(at, call)| (Config::id(c, at), *call))
        });
        !calls.any(|(id, call)| match call {
            Call::Compound(file) => half(&self.files, file, id),
            _ => false,
        })
    }

    /// Has every program ended?
    fn is_done(&self, config: &Config) -> bool {
        let ended = |c: usize| self.call(config, c).is_none();
        (0..self.clients.len()).all(|c| self.clients[c].phase == Phase::Dead || ended(c))
    }
}
