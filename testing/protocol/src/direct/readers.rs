//! Programs that read the file at the target beside others: their grants need no lease, and the
//! host takes them back before it changes the file.

use super::config::{Config, Mutation, Op};
use super::state::{Heard, Lease, Owner, Plane, READERS};

/// What the target has of a program that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    /// Blocks that it may read, a bit each.
    pub blocks: u8,
    /// A read of it is carried out.
    pub running: bool,
    /// It is to end: nothing is begun any more.
    pub ends: bool,
}

impl Plane {
    /// May this program ask for a grant? It does so until it has read as often as it wants to.
    pub(crate) fn may_ask(&self, reader: usize) -> bool {
        let host = &self.host;
        let free = host.lease == Lease::None && !host.busy && self.target.hears.is_none();
        let settled = self.is_linked() && self.disk.lane.is_empty();
        free && settled && self.reads[reader] > 0 && host.readers[reader] == Lease::None
    }

    /// The host grants what the file has, and was written.
    pub(crate) fn ask(&mut self, reader: usize) {
        self.host.readers[reader] = Lease::Asked;
        let blocks = self.disk.owner.iter().enumerate();
        let written = blocks.filter(|(_, owner)| **owner == Owner::File { written: true });
        let bits = written.fold(0, |bits, (block, _)| bits | 1 << block);
        self.target.hears = Some(Heard::Reader(reader, bits));
    }

    /// The target takes a grant of the host's.
    pub(crate) fn hear_reader(&mut self, reader: usize, blocks: u8) {
        self.target.readers[reader] = Some(Reading { blocks, running: false, ends: false });
        self.host.readers[reader] = Lease::Held;
    }

    /// It takes that a grant ends, and answers when nothing is read by it any more.
    pub(crate) fn hear_its_end(&mut self, config: &Config, reader: usize) {
        let early = config.has(Mutation::AckReaderBeforeDrain);
        match &mut self.target.readers[reader] {
            Some(reading) if reading.running => {
                reading.ends = true;
                if early {
                    self.host.readers[reader] = Lease::None;
                }
            }
            known => {
                *known = None;
                self.host.readers[reader] = Lease::None;
            }
        }
    }

    /// May a read of this program's be begun? Its answer may be that the block is not granted.
    pub(crate) fn may_read(&self, reader: usize) -> bool {
        let idle = |reading: Reading| !reading.running && !reading.ends;
        self.target.up && self.reads[reader] > 0 && self.target.readers[reader].is_some_and(idle)
    }

    /// The target checks the block, and begins.
    pub(crate) fn begin_to_read(&mut self, config: &Config, reader: usize) {
        let block = config.readers[reader];
        let reading = self.target.readers[reader].as_mut().expect("a grant");
        match reading.blocks & 1 << block != 0 {
            true => reading.running = true,
            false => self.reads[reader] -= 1,
        }
    }

    /// Is a read of this program's carried out?
    pub(crate) fn reads_now(&self, reader: usize) -> bool {
        self.target.up && self.target.readers[reader].is_some_and(|reading| reading.running)
    }

    /// A read is answered.
    pub(crate) fn end_of_read(&mut self, config: &Config, reader: usize) {
        let block = config.readers[reader];
        self.shows(block, self.disk.blocks[block].now());
        self.reads[reader] -= 1;
        let known = &mut self.target.readers[reader];
        let reading = known.as_mut().expect("a grant");
        reading.running = false;
        if reading.ends {
            *known = None;
            if self.host.readers[reader] == Lease::Ending {
                self.host.readers[reader] = Lease::None;
            }
        }
    }

    /// The program whose grant the host has the target end next: all of them before the file is
    /// changed, and those that were lost, or are not wanted any more.
    pub(crate) fn reader_to_end(&self, config: &Config, op: Option<Op>) -> Option<usize> {
        let changes = op.is_some_and(|op| !matches!(op, Op::Look(_)));
        let changes = changes && !config.has(Mutation::ReadersStay);
        let over = |reader: usize| self.reads[reader] == 0 || self.target.readers[reader].is_none();
        let held = |reader: &usize| self.host.readers[*reader] == Lease::Held;
        (0..READERS).filter(held).find(|reader| changes || over(*reader))
    }

    /// The host has the target end it.
    pub(crate) fn end_reader(&mut self, reader: usize, changes: bool) {
        self.host.readers[reader] = Lease::Ending;
        // From here on nobody is granted anything until the file is changed.
        self.host.busy |= changes;
        self.target.hears = Some(Heard::EndReader(reader));
    }

    /// Has no program a grant to read, as the host knows it?
    pub(crate) fn has_no_reader(&self) -> bool {
        self.host.readers.iter().all(|lease| *lease == Lease::None)
    }
}
