//! The properties. Those of states read the state alone; those of steps are noted by the step.

use super::config::{Call, Config};
use super::model::Direct;
use super::state::{BLOCKS, Broken, Lease, Owner, Plane, by_program};
use stateright::Property;

/// Names of properties.
pub mod names {
    /// R29.
    pub const INTACT: &str = "R29: a block of another file has what that one wrote";
    /// R29, R30.
    pub const SECRET: &str = "R30: the program reads nothing that is another file's";
    /// R30.
    pub const WRITTEN: &str = "R30: what counts as written was written by the file";
    /// R33, R48.
    pub const NEWEST: &str = "R33: a read shows the newest write that was answered";
    /// R33.
    pub const LASTING: &str = "R33: what was synced or committed is there after a power cut";
    /// Failure-atomic writes.
    pub const WHOLE: &str = "an atomic write is there as a whole, or not at all";
    /// Liveness.
    pub const DONE: &str = "every request and every step of the host comes to an end";
}

/// All properties.
pub fn properties() -> Vec<Property<Direct>> {
    use names::*;
    vec![
        Property::always(INTACT, |_, s: &Plane| s.others_are_intact()),
        Property::always(SECRET, |_, s: &Plane| s.ghost.holds(Broken::Secret)),
        Property::always(WRITTEN, |_, s: &Plane| s.written_is_own()),
        Property::always(NEWEST, |_, s: &Plane| s.ghost.holds(Broken::Stale)),
        Property::always(LASTING, |_, s: &Plane| s.has_what_counts()),
        Property::always(WHOLE, |m: &Direct, s: &Plane| s.is_whole(m.config())),
        Property::always(DONE, |m: &Direct, s: &Plane| s.is_done(m.config()) || m.can_move(s)),
    ]
}

impl Plane {
    /// Does the target have nothing of the lane before it, so that the area is what counts?
    fn is_settled(&self) -> bool {
        self.target.up && self.disk.lane.is_empty()
    }

    fn has_what_counts(&self) -> bool {
        let blocks = self.disk.owner.iter().zip(&self.disk.blocks).zip(self.ghost.visible);
        let mut written = blocks.filter(|((owner, _), _)| **owner == Owner::File { written: true });
        !self.is_settled() || written.all(|((_, block), ids)| ids & 1 << block.now() != 0)
    }

    fn is_whole(&self, config: &Config) -> bool {
        let own = |block: usize| {
            let file = matches!(self.disk.owner[block], Owner::File { .. });
            (file && self.ghost.taken & 1 << block == 0).then(|| self.disk.blocks[block].now())
        };
        let half = |id: u8, one: usize, other: usize| match (own(one), own(other)) {
            (Some(one), Some(other)) => one == id && other < id,
            _ => false,
        };
        let mut calls = config.program.iter().enumerate();
        !self.is_settled()
            || calls.all(|(call, what)| match *what {
                Call::Atomic(one, other) => {
                    let id = by_program(call);
                    !half(id, one, other) && !half(id, other, one)
                }
                _ => true,
            })
    }

    /// Have the programs ended, and the host's script?
    fn is_done(&self, config: &Config) -> bool {
        let ended = !self.program.up || self.program.call >= config.program.len();
        let held = !self.program.up && matches!(self.host.lease, Lease::Held | Lease::Ending);
        let read = self.has_no_reader() && self.reads.iter().all(|left| *left == 0);
        ended
            && !held
            && read
            && self.host.op >= config.host.len()
            && self.disk.blocks.len() == BLOCKS
    }
}
