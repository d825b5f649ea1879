//! What dies, and what a power cut leaves.

use super::state::{Flushed, Host, Lease, Owner, Plane, READERS, empty};

impl Plane {
    /// The host's process is gone. The target serves what it has granted until another one comes.
    pub(crate) fn host_dies(&mut self) {
        let Host { epoch, op, .. } = self.host;
        let readers = [Lease::None; READERS];
        self.host = Host { up: false, epoch, lease: Lease::None, busy: false, op, readers };
        self.target.hears = None;
    }

    /// The target's process is gone; the storage has what it wrote.
    pub(crate) fn target_dies(&mut self) {
        self.target = empty();
        (self.host.lease, self.host.busy) = (Lease::None, false);
        self.program.queue = false;
        // A call of the host's that was under way is made again, and nothing is granted any more.
        for lease in &mut self.host.readers {
            if *lease != Lease::Held {
                *lease = Lease::None;
            }
        }
        // Of a block that the host has as unwritten, what was not synced is gone with the target,
        // which alone knew that it was written.
        for (block, owner) in self.disk.owner.iter().enumerate() {
            if *owner == (Owner::File { written: false }) {
                self.ghost.visible[block] = self.ghost.allowed[block];
            }
        }
    }

    /// The program is gone: nobody is answered.
    pub(crate) fn program_dies(&mut self) {
        self.program.up = false;
        self.program.queue = false;
        self.target.waiting = None;
    }

    /// In how many ways a power cut may leave the storage.
    pub(crate) fn ways_of_a_cut(&self) -> u16 {
        let blocks = self.disk.blocks.iter().map(|block| block.later.len() + 1);
        let ways: usize = blocks.product::<usize>() * (self.unflushed_records() + 1);
        u16::try_from(ways).expect("few writes that were not flushed")
    }

    fn unflushed_records(&self) -> usize {
        self.disk.lane.iter().filter(|record| record.flushed < Flushed::Commit).count()
    }

    /// Host and target die, and each block has what was durable or any later write; of the lane
    /// that was not flushed there is some begin.
    pub(crate) fn power_fails(&mut self, way: u16) {
        let records = self.unflushed_records() + 1;
        let mut rest = usize::from(way);
        let mut left = rest % records;
        rest /= records;
        for block in &mut self.disk.blocks {
            let ways = block.later.len() + 1;
            if let Some(kept) = (rest % ways).checked_sub(1) {
                block.durable = block.later[kept];
            }
            block.later.clear();
            rest /= ways;
        }
        self.disk.lane.retain_mut(|record| {
            if record.flushed == Flushed::Commit {
                return true;
            }
            let there = left > 0;
            left = left.saturating_sub(1);
            record.committed &= there;
            there || record.flushed == Flushed::Data
        });
        self.target_dies();
        self.host_dies();
        self.ghost.visible = self.ghost.allowed;
    }

    /// The target is there again. It has read the lane from its tail: what was committed counts,
    /// once that is durable, and what was not is nobody's.
    pub(crate) fn target_comes(&mut self, index: bool) {
        self.target = empty();
        (self.target.up, self.target.index) = (true, index);
        if self.host.up {
            self.target.epoch = self.host.epoch;
        }
        self.disk.lane.retain(|record| record.committed);
    }
}
