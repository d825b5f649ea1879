//! Storage that keeps what was flushed, and of the rest what a power cut leaves.
//!
//! Each region is flushed by itself, although one device may hold several: a flush that covers less
//! leaves every crash state possible that a real one does, and more.

use crate::state::{
    AREA, BLOCKS, Copy, HostRecord, Image, Inode, LANES, NONE, Record, ServiceRecord, Txn, Value,
    value,
};

/// A place that is written whole: what is durable, and later writes, each of which a power cut may
/// let win.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cell<T> {
    /// Survives.
    pub durable: T,
    /// Not flushed; the last one is what reads see.
    pub pending: Vec<T>,
}

impl<T: Clone + PartialEq> Cell<T> {
    /// A durable value.
    pub fn new(durable: T) -> Self {
        Self { durable, pending: Vec::new() }
    }

    /// What reads see.
    pub fn visible(&self) -> &T {
        self.pending.last().unwrap_or(&self.durable)
    }

    /// Writes, without a flush.
    pub fn write(&mut self, value: T) {
        if self.pending.is_empty() && self.durable == value {
            return;
        }
        self.pending.retain(|p| *p != value);
        self.pending.push(value);
    }

    /// Makes the last write durable.
    pub fn flush(&mut self) {
        if let Some(last) = self.pending.pop() {
            self.durable = last;
            self.pending.clear();
        }
    }

    /// What a power cut now may leave.
    pub fn possible(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.durable).chain(&self.pending)
    }

    /// A flush that failed: of the pending writes the newest are gone, and reads show what is left;
    /// `choice` modulo the number of possible values says how many stay pending. Answers the rest
    /// of `choice`.
    fn lose(&mut self, choice: usize) -> usize {
        let choices = 1 + self.pending.len();
        self.pending.truncate(choice % choices);
        choice / choices
    }

    fn fail(&mut self, choice: usize, failure: Failure) -> usize {
        match failure {
            Failure::Power => self.cut(choice),
            Failure::Flush => self.lose(choice),
        }
    }

    /// A power cut, after which one of the possible values is the durable one: `choice` modulo
    /// their number says which. Answers the rest of `choice`.
    fn cut(&mut self, choice: usize) -> usize {
        let choices = 1 + self.pending.len();
        let kept = choice % choices;
        if kept > 0 {
            self.durable = self.pending.swap_remove(kept - 1);
        }
        self.pending.clear();
        choice / choices
    }
}

/// How writes that are not flushed get lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Each that is left is durable, and nothing is pending.
    Power,
    /// Each that is left is still pending.
    Flush,
}

/// Some of the regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// Lanes of the disk.
    pub lanes: bool,
    /// The record area.
    pub compact: bool,
    /// Journal.
    pub journal: bool,
    /// Area, data and metadata.
    pub area: bool,
    /// The Service's header record.
    pub service: bool,
    /// The host's header record.
    pub host: bool,
}

impl Regions {
    /// All of them.
    pub const ALL: Self =
        Self { lanes: true, compact: true, journal: true, area: true, service: true, host: true };
}

/// All regions of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Storage {
    /// Lanes: rings of records.
    pub lanes: Vec<Vec<Cell<Option<Record>>>>,
    /// Is the second lane a record area, on a medium of its own?
    pub has_area: bool,
    /// Journal: a ring of transactions.
    pub journal: Vec<Cell<Option<Txn>>>,
    /// Area: data blocks.
    pub blocks: Vec<Cell<Value>>,
    /// Area: the metadata block.
    pub meta: Cell<Image>,
    /// The Service's header record.
    pub service: Cell<ServiceRecord>,
    /// The host's header record.
    pub host: Cell<HostRecord>,
}

/// Which of a cell's values is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// What reads see.
    Visible,
    /// What survives if nothing more does.
    Durable,
}

impl View {
    /// The value of `cell` in this view.
    pub fn of<T: Clone + PartialEq>(self, cell: &Cell<T>) -> &T {
        match self {
            Self::Visible => cell.visible(),
            Self::Durable => &cell.durable,
        }
    }
}

impl Storage {
    /// The same volume with a record area for its second lane.
    #[must_use]
    pub fn with_area(self, has_area: bool) -> Self {
        Self { has_area, ..self }
    }

    /// An empty volume, mounted under `key`.
    pub fn new(lanes: usize, lane_slots: u8, journal_slots: u8, blocks: usize, key: u8) -> Self {
        let image = [Inode::NEVER; 2];
        let record = ServiceRecord { seq: 0, cut: 0, tails: [0; LANES], image };
        let host = HostRecord {
            state: crate::state::HostState::Mounted,
            key,
            lane_key: key,
            ends: [NONE; LANES],
        };
        Self {
            lanes: vec![vec![Cell::new(None); usize::from(lane_slots)]; lanes],
            has_area: false,
            journal: vec![Cell::new(None); usize::from(journal_slots)],
            blocks: vec![Cell::new(0); blocks],
            meta: Cell::new(image),
            service: Cell::new(record),
            host: Cell::new(host),
        }
    }

    /// The slot of a lane position.
    pub fn lane(&self, lane: usize, pos: u8) -> &Cell<Option<Record>> {
        let ring = &self.lanes[lane];
        &ring[usize::from(pos) % ring.len()]
    }

    /// The same, to write.
    pub fn lane_mut(&mut self, lane: usize, pos: u8) -> &mut Cell<Option<Record>> {
        let ring = &mut self.lanes[lane];
        let slots = ring.len();
        &mut ring[usize::from(pos) % slots]
    }

    /// The slot of a transaction.
    pub fn journal(&self, seq: u8) -> &Cell<Option<Txn>> {
        &self.journal[usize::from(seq) % self.journal.len()]
    }

    /// The same, to write.
    pub fn journal_mut(&mut self, seq: u8) -> &mut Cell<Option<Txn>> {
        let slots = self.journal.len();
        &mut self.journal[usize::from(seq) % slots]
    }

    /// Flushes the area.
    pub fn flush_area(&mut self) {
        self.blocks.iter_mut().for_each(Cell::flush);
        self.meta.flush();
    }

    /// Lanes on the disk.
    fn on_disk(&self) -> usize {
        if self.has_area { AREA } else { self.lanes.len() }
    }

    /// Flushes the lanes of the disk.
    pub fn flush_lanes(&mut self) {
        let disk = self.on_disk();
        self.lanes[..disk].iter_mut().flatten().for_each(Cell::flush);
    }

    /// Persists the whole record area, if there is one.
    pub fn persist_area(&mut self) {
        let disk = self.on_disk();
        self.lanes[disk..].iter_mut().flatten().for_each(Cell::flush);
    }

    /// Flushes the journal.
    pub fn flush_journal(&mut self) {
        self.journal.iter_mut().for_each(Cell::flush);
    }

    /// Committed transactions from the tail of the service record on, under `key`.
    pub fn committed(&self, view: View, key: u8) -> Vec<Txn> {
        let mut found = Vec::new();
        let mut seq = view.of(&self.service).seq + 1;
        while let Some(txn) = view.of(self.journal(seq)).filter(|t| t.seq == seq && t.key == key) {
            found.push(txn);
            seq += 1;
        }
        found
    }

    /// Valid records of the lanes from `tails` on, in the order of their numbers, and where each
    /// lane ends.
    pub fn staged(
        &self,
        view: View,
        host: &HostRecord,
        tails: [u8; LANES],
    ) -> (Vec<Record>, [u8; LANES]) {
        let mut found = Vec::new();
        let mut ends = tails;
        for (lane, end) in ends.iter_mut().enumerate().take(self.lanes.len()) {
            let slots = u8::try_from(self.lanes[lane].len()).expect("a few slots");
            while *end < host.ends[lane] && *end - tails[lane] < slots {
                let slot = view.of(self.lane(lane, *end));
                let Some(record) = slot.filter(|r| r.pos == *end && r.key == host.lane_key) else {
                    break;
                };
                found.push(record);
                *end += 1;
            }
        }
        found.sort_by_key(|r| r.lsn);
        (found, ends)
    }

    /// Copies that the physical records of the area between two positions stand for, in the order
    /// of the positions.
    pub fn digest(&self, view: View, lane_key: u8, from: u8, to: u8) -> Vec<Copy> {
        let at = |pos| view.of(self.lane(AREA, pos)).filter(|r| r.pos == pos && r.key == lane_key);
        let physical = (from..to).filter_map(at).filter(|r| r.home != NONE);
        let copy = |r: Record| {
            let value = value(usize::from(r.file), r.op);
            Copy { lane: r.lane, pos: r.pos, lsn: r.lsn, value, dst: r.home }
        };
        physical.map(copy).collect()
    }

    /// The number of states that a failure in these regions may leave now.
    pub fn choices(&self, of: Regions) -> usize {
        let mut choices = 1;
        let (disk, compact) = self.lanes.split_at(self.on_disk());
        for (lanes, chosen) in [(disk, of.lanes), (compact, of.compact)] {
            if chosen {
                choices *= lanes.iter().flatten().map(|c| 1 + c.pending.len()).product::<usize>();
            }
        }
        if of.journal {
            choices *= self.journal.iter().map(|c| 1 + c.pending.len()).product::<usize>();
        }
        if of.area {
            choices *= self.blocks.iter().map(|c| 1 + c.pending.len()).product::<usize>();
            choices *= 1 + self.meta.pending.len();
        }
        if of.service {
            choices *= 1 + self.service.pending.len();
        }
        if of.host {
            choices *= 1 + self.host.pending.len();
        }
        choices
    }

    /// Loses unflushed writes in these regions; `choice`, below [`Storage::choices`], says which.
    pub fn fail(&mut self, of: Regions, failure: Failure, choice: usize) {
        let (mut rest, at) = (choice, self.on_disk());
        let (disk, compact) = self.lanes.split_at_mut(at);
        for (lanes, chosen) in [(disk, of.lanes), (compact, of.compact)] {
            if chosen {
                lanes.iter_mut().flatten().for_each(|c| rest = c.fail(rest, failure));
            }
        }
        if of.journal {
            self.journal.iter_mut().for_each(|c| rest = c.fail(rest, failure));
        }
        if of.area {
            self.blocks.iter_mut().for_each(|c| rest = c.fail(rest, failure));
            rest = self.meta.fail(rest, failure);
        }
        if of.service {
            rest = self.service.fail(rest, failure);
        }
        if of.host {
            rest = self.host.fail(rest, failure);
        }
        assert_eq!(rest, 0, "a choice that there is");
    }
}

/// What of the records ends recovery's chains; as it should be, or with a fault planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chains {
    /// Has the volume a record area?
    pub area: bool,
    /// A record that is lost on the disk takes the area's later ones with it.
    pub together: bool,
    /// A record of the disk is dropped if its predecessor in the area is lost.
    pub both: bool,
}

impl Chains {
    /// As they should be.
    pub fn new(area: bool) -> Self {
        Self { area, together: false, both: true }
    }

    /// Records that recovery applies: above the cut, all of the record area, and of the disk up to
    /// the first one whose predecessor is missing in either (rules R24 and R44).
    pub fn above_cut(self, found: &[Record], cut: u8) -> Vec<Record> {
        let (mut last, mut last_area, mut gap) = (cut, cut, false);
        let mut above = Vec::new();
        for record in found.iter().filter(|r| r.lsn > cut) {
            if self.area && usize::from(record.lane) == AREA {
                if self.together && (gap || record.prev > last) {
                    gap = true;
                    continue;
                }
                last_area = record.lsn;
            } else {
                gap |= record.prev > last || self.both && record.prev_area > last_area;
                if gap {
                    continue;
                }
                last = record.lsn;
            }
            above.push(*record);
        }
        above
    }
}

/// Does each of these records, all above the cut, have what it needs?
pub fn well_founded(records: &[Record], cut: u8) -> bool {
    let is_there = |need: u8| need <= cut || records.iter().any(|r| r.lsn == need);
    records.iter().all(|record| record.needs.into_iter().all(is_there))
}

/// Area blocks in the metadata, one bit each.
pub fn mapped(image: &Image) -> u8 {
    let blocks = image.iter().filter(|i| i.live && usize::from(i.block) < BLOCKS);
    blocks.fold(0, |bits, i| bits | 1 << i.block)
}

#[cfg(test)]
#[path = "storage_tests.rs"]
mod tests;
