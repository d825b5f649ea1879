//! The host: it gives blocks to files and takes them back, and for that ends leases.

use super::config::{Config, Mutation, Op};
use super::state::{Heard, Lease, OLD, Owner, Plane, ZEROS, bit, by_host};

/// What the host can do next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Have the target end the lease.
    End,
    /// Have it end what this program reads by, before the file is changed if that is said.
    EndReader(usize, bool),
    /// The next step of the script.
    Op(Op),
}

impl Plane {
    /// Do host and target speak with each other, in the host's epoch?
    pub(crate) fn is_linked(&self) -> bool {
        self.host.up && self.target.up && self.target.epoch == self.host.epoch
    }

    fn next(&self, config: &Config) -> Option<Next> {
        if !self.is_linked() || self.target.hears.is_some() || self.target.reports != 0 {
            return None;
        }
        // What was committed is in its blocks before anybody else uses them, also where a target
        // finds it when it comes.
        let early = [Mutation::LinkBeforeReplay, Mutation::FreeBeforeReplay, Mutation::TailLater];
        let replayed = self.disk.lane.is_empty() || early.iter().any(|fault| config.has(*fault));
        if self.host.lease == Lease::None && !replayed {
            return None;
        }
        let op = config.host.get(self.host.op).copied();
        if let Some(reader) = self.reader_to_end(config, op) {
            return Some(Next::EndReader(reader, op.is_some()));
        }
        let looks = matches!(op, Some(Op::Look(_))) || config.has(Mutation::ReadersStay);
        if !looks && !self.has_no_reader() {
            return None;
        }
        let dead = !self.program.up && !config.has(Mutation::NoTerm);
        match (self.host.lease, op) {
            (Lease::None, Some(op)) => Some(Next::Op(op)),
            (Lease::Held, Some(op)) if self.goes_beside(config, op) => Some(Next::Op(op)),
            (Lease::Held, Some(_)) if self.program.up => Some(Next::End),
            (Lease::Held, _) if dead => Some(Next::End),
            // It has closed the file, for which others wait.
            (Lease::Held, None)
                if self.call(config).is_none() && self.reads.iter().any(|n| *n > 0) =>
            {
                Some(Next::End)
            }
            _ => None,
        }
    }

    /// Does the host do this while the lease is there?
    fn goes_beside(&self, config: &Config, op: Op) -> bool {
        match op {
            Op::Extend(_) | Op::Give(_) => true,
            Op::Free(_) => config.has(Mutation::FreeFirst),
            Op::Look(_) | Op::Put(_) => config.has(Mutation::NoRecall),
        }
    }

    pub(crate) fn may_act(&self, config: &Config) -> bool {
        self.next(config).is_some()
    }

    pub(crate) fn act(&mut self, config: &Config) {
        match self.next(config).expect("something to do") {
            Next::End => self.end_lease(),
            Next::EndReader(reader, changes) => self.end_reader(reader, changes),
            Next::Op(op) => {
                self.run(op);
                self.host.op += 1;
                self.host.busy = false;
            }
        }
    }

    fn end_lease(&mut self) {
        (self.host.lease, self.host.busy) = (Lease::Ending, true);
        self.target.hears = Some(Heard::End(self.host.epoch));
    }

    /// One step of the script, if it can be done as things are.
    fn run(&mut self, op: Op) {
        let id = by_host(self.host.op);
        let disk = &mut self.disk;
        match op {
            Op::Free(block) if matches!(disk.owner[block], Owner::File { .. }) => {
                disk.owner[block] = Owner::Free;
                self.ghost.taken |= 1 << block;
            }
            Op::Give(block) if disk.owner[block] == Owner::Free => {
                let stored = &mut disk.blocks[block];
                stored.later.push(id);
                stored.flush();
                disk.owner[block] = Owner::Other;
                self.ghost.other[block] = id;
            }
            Op::Extend(block) if disk.owner[block] == Owner::Free => {
                disk.owner[block] = Owner::File { written: false };
                let ids = bit(ZEROS);
                (self.ghost.visible[block], self.ghost.allowed[block]) = (ids, ids);
                if self.host.lease == Lease::Held {
                    self.target.hears = Some(Heard::Grant(self.granted()));
                }
            }
            Op::Look(block) => match disk.owner[block] {
                Owner::File { written: true } => self.shows(block, self.disk.blocks[block].now()),
                Owner::File { written: false } => self.shows(block, ZEROS),
                Owner::Free | Owner::Other => {}
            },
            Op::Put(block) if matches!(disk.owner[block], Owner::File { .. }) => {
                let stored = &mut disk.blocks[block];
                stored.later.push(id);
                stored.flush();
                disk.owner[block] = Owner::File { written: true };
                (self.ghost.visible[block], self.ghost.allowed[block]) = (bit(id), bit(id));
            }
            _ => {}
        }
    }

    pub(crate) fn may_mark(&self) -> bool {
        self.host.up && self.target.up && self.target.reports != 0
    }

    /// Blocks that the target has written are written, durably.
    pub(crate) fn mark(&mut self, config: &Config) {
        let reports = std::mem::take(&mut self.target.reports);
        for (block, owner) in self.disk.owner.iter_mut().enumerate() {
            if reports & 1 << block != 0 && *owner == (Owner::File { written: false }) {
                *owner = Owner::File { written: true };
            }
        }
        self.target.wrote.iter_mut().for_each(|wrote| *wrote &= !reports);
        self.synced(config);
    }

    /// A host that is there again has the target end all that the one before had granted.
    pub(crate) fn host_comes(&mut self, config: &Config) {
        self.host.up = true;
        self.host.epoch += 1;
        match config.has(Mutation::GrantOutlivesEpoch) {
            true => self.target.epoch = self.host.epoch,
            false => self.end_lease(),
        }
    }

    /// Does a block that another file has hold what that one wrote, whatever becomes durable?
    pub(crate) fn others_are_intact(&self) -> bool {
        let blocks = self.disk.blocks.iter().zip(self.disk.owner).zip(self.ghost.other);
        blocks.filter(|((_, owner), _)| *owner == Owner::Other).all(|((stored, _), id)| {
            stored.durable == id && stored.later.iter().all(|later| *later == id)
        })
    }

    /// Is what counts as written of the file nothing of a file that is gone, or of another one?
    pub(crate) fn written_is_own(&self) -> bool {
        let blocks = self.disk.blocks.iter().zip(self.disk.owner);
        let mut written = blocks.filter(|(_, owner)| *owner == Owner::File { written: true });
        written.all(|(stored, _)| stored.durable != OLD && !self.is_foreign(stored.durable))
    }
}
