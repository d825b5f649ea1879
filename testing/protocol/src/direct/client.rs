//! The program: it opens its file for direct use, submits requests, and is answered or not.

use super::config::{Call, Config, Mutation};
use super::state::{
    BLOCKS, Broken, Heard, Id, Lease, Owner, Plane, Queue, Request, bit, by_program,
};

impl Plane {
    /// The program's present or next request.
    pub(crate) fn call(&self, config: &Config) -> Option<Call> {
        config.program.get(self.program.call).copied()
    }

    pub(crate) fn may_open(&self, config: &Config) -> bool {
        let wants = self.program.up && !self.program.queue && self.call(config).is_some();
        let linked = self.is_linked() && self.target.hears.is_none();
        let free = self.host.lease == Lease::None && self.has_no_reader();
        wants && linked && free && !self.host.busy
    }

    /// The host grants what the file has just now.
    pub(crate) fn open(&mut self) {
        self.host.lease = Lease::Asked;
        self.target.hears = Some(Heard::Grant(self.granted()));
    }

    /// What a grant says of each block.
    pub(crate) fn granted(&self) -> [Option<bool>; BLOCKS] {
        self.disk.owner.map(|owner| match owner {
            Owner::File { written } => Some(written),
            Owner::Free | Owner::Other => None,
        })
    }

    pub(crate) fn may_submit(&self, config: &Config) -> bool {
        let free = self.target.up && self.target.waiting.is_none();
        let ready = self.program.up && self.program.queue && !self.program.waits;
        free && ready && self.call(config).is_some()
    }

    pub(crate) fn submit(&mut self, config: &Config) {
        let call = self.call(config).expect("a request");
        if call == Call::Sync && config.has(Mutation::ProgramIsBelieved) {
            let table = self.target.table.iter().enumerate();
            let unwritten = table.filter(|(_, grant)| **grant == Some(false));
            self.target.reports |= unwritten.fold(0, |bits, (block, _)| bits | 1 << block);
        }
        let allowed = self.is_allowed(call);
        self.program.waits = true;
        self.target.waiting = Some(Request { call: self.program.call, allowed });
    }

    /// What a request writes may be there from now on.
    pub(crate) fn may_be_there(&mut self, config: &Config, call: usize) {
        let blocks = match config.program[call] {
            Call::Write(block) => vec![block],
            Call::Atomic(one, other) => vec![one, other],
            Call::Read(_) | Call::Sync => vec![],
        };
        for block in blocks {
            self.ghost.visible[block] |= bit(by_program(call));
            self.ghost.allowed[block] |= bit(by_program(call));
        }
    }

    /// Does the table allow a request now?
    pub(crate) fn is_allowed(&self, call: Call) -> bool {
        let table = &self.target.table;
        self.target.queue == Queue::Open
            && match call {
                Call::Write(block) | Call::Read(block) => table[block].is_some(),
                Call::Atomic(one, other) => {
                    [one, other].iter().all(|block| table[*block] == Some(true))
                }
                Call::Sync => true,
            }
    }

    /// Does the program wait for an answer that nobody gives?
    pub(crate) fn may_give_up(&self) -> bool {
        self.program.waits && !self.target_has(self.program.call)
    }

    fn target_has(&self, call: usize) -> bool {
        let target = &self.target;
        let requests = [target.waiting, target.running];
        requests.iter().flatten().any(|request| request.call == call)
            || target.committing == Some(call)
            || target.syncing.is_some_and(|syncing| syncing.call == call)
    }

    /// The request came to nothing that the program knows of.
    pub(crate) fn fails(&mut self, call: usize) {
        if self.program.call == call {
            self.program.waits = false;
            self.program.call += 1;
        }
    }

    /// A request was carried out, and the program is told.
    pub(crate) fn answered(&mut self, config: &Config, call: usize) {
        if !self.program.up {
            return;
        }
        let id = by_program(call);
        match config.program[call] {
            Call::Write(block) => self.ghost.visible[block] = bit(id),
            Call::Atomic(one, other) => {
                for block in [one, other] {
                    (self.ghost.visible[block], self.ghost.allowed[block]) = (bit(id), bit(id));
                }
            }
            Call::Sync => self.ghost.allowed = self.ghost.visible,
            Call::Read(_) => {}
        }
        self.fails(call);
    }

    /// A read of the file shows this.
    pub(crate) fn shows(&mut self, block: usize, value: Id) {
        if self.is_foreign(value) {
            self.ghost.note(Broken::Secret);
        } else if self.ghost.visible[block] & bit(value) == 0 {
            self.ghost.note(Broken::Stale);
        }
    }
}
