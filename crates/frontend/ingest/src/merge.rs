//! The third step: what the records of a batch come to. Later records supersede bytes of earlier
//! ones, and what touches becomes one piece.

use crate::Index;
use crate::counters::{Counters, Step};
use crate::locate::{ASK_BLOCKS, Located, edges};
use ahash::{HashMap, HashSet};
use siftfs_base::BLOCK_BYTES;
use siftfs_intervals::{IntervalMap, Source};
use siftfs_lease::{Held, Record};
use siftfs_proto::LENT_WRITE_BYTES;

/// A place of the ring of data. Ranges of two records stay two, so that one can be written without
/// the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(pub u64);

impl Source for Place {
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    fn to_bits(self) -> u64 {
        self.0
    }
    fn skip(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
    fn join(self, _len: u64, _next: Self) -> Option<Self> {
        None
    }
}

/// Bytes of one record that no later one supersedes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where in the ring of data.
    pub place: Place,
    pub len: u32,
}

/// Bytes of a file that are written at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub offset: u64,
    pub len: u64,
    /// What it consists of, one behind the other.
    pub parts: Vec<Part>,
}

/// What a batch changes in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub held: Held,
    /// The newest time that its records say.
    pub time: i64,
    /// Disjoint, in ascending order.
    pub pieces: Vec<Piece>,
    /// What the pieces were made of, in the records' order.
    pub records: Vec<Record>,
}

/// What a batch changes, by the files' first records.
#[derive(Debug)]
pub(crate) struct Merged {
    pub updates: Vec<Update>,
    pub until: u64,
}

/// The newest bytes of one file, by their place in it.
pub(crate) type Newest = IntervalMap<Place>;

/// What the step works with.
pub(crate) struct Merger<'a> {
    pub newest: &'a mut Newest,
    pub index: &'a dyn Index,
    pub counters: &'a Counters,
    pub merges: bool,
}

impl Merger<'_> {
    pub fn step(&mut self, located: Located) -> Merged {
        let _timed = self.counters.time(Step::Merge);
        let Located { records, until, cold } = located;
        let updates: Vec<Update> = match self.merges {
            true => by_file(records).into_iter().map(|records| self.merge(records)).collect(),
            false => records.into_iter().map(|record| self.merge(vec![record])).collect(),
        };
        if !cold.is_empty() {
            self.bring(&updates, &cold);
        }
        Merged { updates, until }
    }

    /// What the records of one file, at least one, come to.
    fn merge(&mut self, records: Vec<Record>) -> Update {
        let held = records.first().expect("a file is here for its records").held;
        let time = records.iter().map(|record| record.time).max().unwrap_or(i64::MIN);
        let mut pieces = Vec::new();
        match records.as_slice() {
            [one] => add(&mut pieces, one.offset, Part { place: Place(one.data), len: one.len }),
            several => {
                self.newest.clear();
                for record in several {
                    self.newest.insert(record.offset, record.len, Place(record.data));
                }
                for interval in self.newest.iter() {
                    let part = Part { place: interval.source, len: interval.len };
                    add(&mut pieces, interval.start, part);
                }
            }
        }
        Update { held, time, pieces, records }
    }

    /// Has the cold blocks read in that are still changed in part.
    fn bring(&self, updates: &[Update], cold: &HashSet<(Held, u64)>) {
        for Update { held, pieces, .. } in updates {
            let partly =
                pieces.iter().flat_map(|piece| edges(piece.offset, piece.offset + piece.len));
            let mut blocks: Vec<u64> = partly.filter(|b| cold.contains(&(*held, *b))).collect();
            blocks.dedup();
            let mut rest = blocks.as_slice();
            while let Some(first) = rest.first().copied() {
                let last = first + u64::from(ASK_BLOCKS);
                let (now, later) = rest.split_at(rest.partition_point(|block| *block < last));
                let bring = now.iter().fold(0, |bits, block| bits | 1 << (block - first));
                // If one cannot be read, the write that needs it says so.
                let _ = self.index.cold(*held, (first, ASK_BLOCKS), bring);
                self.counters.brought(now.len() as u64);
                rest = later;
            }
        }
    }
}

/// The records of each file, in their order; files in that of their first records.
fn by_file(records: Vec<Record>) -> Vec<Vec<Record>> {
    let mut files: Vec<Vec<Record>> = Vec::new();
    let mut places: HashMap<Held, usize> = HashMap::default();
    for record in records {
        let place = *places.entry(record.held).or_insert(files.len());
        match files.get_mut(place) {
            Some(file) => file.push(record),
            None => files.push(vec![record]),
        }
    }
    files
}

/// Adds the part that follows in the file. A piece that would be too long ends at a block's begin.
fn add(pieces: &mut Vec<Piece>, offset: u64, part: Part) {
    let len = u64::from(part.len);
    let Some(last) = pieces.last_mut().filter(|last| last.offset + last.len == offset) else {
        return pieces.push(Piece { offset, len, parts: vec![part] });
    };
    let most = last.offset + LENT_WRITE_BYTES;
    if offset + len <= most {
        last.len += len;
        return last.parts.push(part);
    }
    let cut = (most / BLOCK_BYTES * BLOCK_BYTES).max(offset);
    let head = u32::try_from(cut - offset).expect("it is less than the part");
    if head > 0 {
        last.len += u64::from(head);
        last.parts.push(Part { len: head, ..part });
    }
    let rest = Part { place: part.place.skip(head.into()), len: part.len - head };
    pieces.push(Piece { offset: cut, len: rest.len.into(), parts: vec![rest] });
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
