//! Which published records are on their way, which are written, and up to where all are durable
//! (the watermark of rule R3). Pure: the threads that write and flush report it, and ask what
//! follows.

use crate::staging::sequencer::{WriteMode, Writer};
use crate::staging::ways::Way;
use siftfs_base::{LaneId, Lsn};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Some of a volume's lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneSet(u16);

impl LaneSet {
    /// # Panics
    /// If the lane's number is above that of any lane.
    fn insert(&mut self, lane: LaneId) {
        assert!(u32::from(lane.0) < u16::BITS, "a volume has 16 lanes at most");
        self.0 |= 1 << lane.0;
    }

    /// The indices of the lanes, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..u16::BITS as usize).filter(move |lane| self.0 & (1 << lane) != 0)
    }
}

impl FromIterator<LaneId> for LaneSet {
    fn from_iter<I: IntoIterator<Item = LaneId>>(lanes: I) -> Self {
        let mut set = Self::default();
        lanes.into_iter().for_each(|lane| set.insert(lane));
        set
    }
}

/// A record's write that is in flight, or has ended and owes a flush.
#[derive(Clone, Copy)]
struct Write {
    writer: Writer,
    lane: LaneId,
}

/// A caller's record that is not acknowledged.
struct Unacknowledged {
    lsn: Lsn,
    way: Way,
    published_ns: u64,
}

/// The published records: on their way, written, or durable.
#[derive(Default)]
pub struct Records {
    /// LSN of the newest published record.
    published: Lsn,
    /// Everything up to this LSN is durable; it never steps back.
    durable: Lsn,
    /// Durable writes in flight.
    fua: BTreeMap<Lsn, Write>,
    /// Other writes in flight, and records of tickets that no thread writes yet.
    plain: BTreeMap<Lsn, Write>,
    /// How many of `plain` are of tickets.
    tickets: usize,
    /// Records that were written plainly and not flushed, each with the number of the flush that
    /// covers it.
    owed: BTreeMap<Lsn, (u64, Write)>,
    /// Number of the next flush.
    next_flush: u64,
    /// Records of the record area above the watermark, in order. One is durable, whatever the
    /// watermark says, once it and those before it in here are written (rule R44).
    compact: BTreeSet<Lsn>,
    /// Those of `compact` whose writes are in flight.
    compact_writes: BTreeSet<Lsn>,
    /// Callers' records above the watermark, in order.
    unacknowledged: VecDeque<Unacknowledged>,
}

impl Records {
    /// A set without records in flight; everything up to `start` is durable.
    pub fn new(start: Lsn) -> Self {
        Self { published: start, durable: start, ..Self::default() }
    }

    /// LSN of the newest published record.
    pub fn last(&self) -> Lsn {
        self.published
    }

    /// The LSN up to which everything is durable.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// The LSN up to which every record has been written.
    pub fn written(&self) -> Lsn {
        let first = [first(&self.fua), first(&self.plain)].into_iter().flatten().min();
        first.map_or(self.published, below)
    }

    /// Writes in flight, and records of tickets that are not written.
    pub fn in_flight(&self) -> usize {
        self.fua.len() + self.plain.len()
    }

    /// Is everything written that a thread writes of itself? A record of a ticket may not be
    /// written for long.
    pub fn all_come(&self) -> bool {
        self.in_flight() == self.tickets
    }

    /// Callers' records that are not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.unacknowledged.len()
    }

    /// Is everything published on block storage durable?
    pub fn idle(&self) -> bool {
        self.fua.len() == self.compact_writes.len() && self.plain.is_empty() && self.owed.is_empty()
    }

    /// Is the record durable although it is above the watermark? Only a record of the record area
    /// is.
    pub fn is_durable_alone(&self, lsn: Lsn) -> bool {
        let before = self.compact_writes.first().is_none_or(|first| lsn < *first);
        before && self.compact.contains(&lsn)
    }

    /// Is the record one of the record area, above the watermark, durable or not?
    pub fn is_compact(&self, lsn: Lsn) -> bool {
        self.compact.contains(&lsn)
    }

    /// The record that was just published is one of the record area, with a durable write.
    pub fn note_compact(&mut self) {
        self.compact.insert(self.published);
        self.compact_writes.insert(self.published);
    }

    /// Does a record of the background or of a ticket still need a flush? No caller of its own
    /// will flush for it.
    pub fn behind_others(&self) -> bool {
        let mut writes = self.plain.values().chain(self.owed.values().map(|(_, write)| write));
        writes.any(|write| write.writer != Writer::Caller)
    }

    /// A record of a lane is published.
    pub fn publish(&mut self, lsn: Lsn, lane: LaneId, mode: WriteMode, writer: Writer) {
        assert!(lsn > self.published, "records are published in LSN order");
        self.published = lsn;
        self.tickets += usize::from(writer == Writer::Ticket);
        let flight = if mode == WriteMode::Fua { &mut self.fua } else { &mut self.plain };
        flight.insert(lsn, Write { writer, lane });
    }

    /// A caller will be acknowledged when this record, the newest, is durable.
    pub fn note_caller(&mut self, way: Way, published_ns: u64) {
        self.unacknowledged.push_back(Unacknowledged { lsn: self.published, way, published_ns });
    }

    /// A write has ended well. A durable one owes no flush; it says nothing of the records below.
    pub fn written_ok(&mut self, lsn: Lsn, mode: WriteMode) {
        let flight = if mode == WriteMode::Fua { &mut self.fua } else { &mut self.plain };
        let write = flight.remove(&lsn).expect("a record completes once");
        self.tickets -= usize::from(write.writer == Writer::Ticket);
        self.compact_writes.remove(&lsn);
        if mode == WriteMode::Plain {
            self.owed.insert(lsn, (self.next_flush, write));
        }
        self.advance();
    }

    /// A flush begins: it covers what is written now, in these lanes. Its number goes to
    /// [`Records::flushed`].
    pub fn begin_flush(&mut self) -> (u64, LaneSet) {
        self.next_flush += 1;
        let lanes = self.owed.values().map(|(_, write)| write.lane).collect();
        (self.next_flush - 1, lanes)
    }

    /// Flush `number` has succeeded.
    pub fn flushed(&mut self, number: u64) {
        self.owed.retain(|_, (flush, _)| *flush > number);
        self.advance();
    }

    fn advance(&mut self) {
        let owed = self.owed.first_key_value().map(|(lsn, _)| *lsn);
        let first = [first(&self.fua), first(&self.plain), owed].into_iter().flatten().min();
        let mark = first.map_or(self.published, below);
        assert!(mark >= self.durable, "what is durable stays so");
        self.durable = mark;
        while self.compact.first().is_some_and(|first| *first <= mark) {
            self.compact.pop_first();
        }
    }

    /// The next caller's record that the watermark has passed: its way, and when it was published.
    pub fn acknowledged(&mut self) -> Option<(Way, u64)> {
        let durable = self.durable;
        self.unacknowledged.front().filter(|record| record.lsn <= durable)?;
        self.unacknowledged.pop_front().map(|record| (record.way, record.published_ns))
    }

    /// Does something up to `lsn` need a flush, now or once it is written?
    pub fn unflushed_upto(&self, lsn: Lsn) -> bool {
        let owed = self.owed.first_key_value().is_some_and(|(first, _)| *first <= lsn);
        owed || first(&self.plain).is_some_and(|first| first <= lsn)
    }

    /// Would a flush that begins now make everything up to `lsn` durable, and is one needed? All of
    /// it has to be written first (rule R3).
    pub fn flush_serves(&self, lsn: Lsn) -> bool {
        let owed = self.owed.first_key_value().is_some_and(|(first, _)| *first <= lsn);
        owed && self.written() >= lsn
    }

    /// Will the durable writes in flight of callers make everything up to `lsn` durable? Each of
    /// those callers runs the answers that are due once its write has ended.
    pub fn settled_by_callers(&self, lsn: Lsn) -> bool {
        let background =
            self.fua.range(..=lsn).any(|(_, write)| write.writer == Writer::Background);
        !background && !self.unflushed_upto(lsn)
    }
}

fn first(flight: &BTreeMap<Lsn, Write>) -> Option<Lsn> {
    flight.first_key_value().map(|(lsn, _)| *lsn)
}

fn below(lsn: Lsn) -> Lsn {
    Lsn(lsn.0 - 1)
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
