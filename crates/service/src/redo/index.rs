//! What is committed and not checkpointed: the newest bytes of each place.

use siftfs_base::BLOCK_BYTES;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, RwLockReadGuard};

/// Bytes of a transaction that are the newest of their place.
#[derive(Clone)]
pub(super) struct Piece {
    /// All bytes of the transaction.
    data: Arc<Vec<u8>>,
    /// Where in those they lie.
    at: Range<usize>,
    /// Number of the transaction.
    number: u64,
}

impl Piece {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.data[self.at.clone()]
    }

    fn cut(&self, skip: usize, len: usize) -> Self {
        let from = self.at.start + skip;
        Self { at: from..from + len, ..self.clone() }
    }
}

/// A committed transaction that is not checkpointed.
#[derive(Clone, Copy)]
pub(super) struct Live {
    pub number: u64,
    /// Whose it is.
    pub owner: u64,
    /// Where its last record ends, and that one's checksum.
    pub end: u64,
    pub crc: u32,
    /// Bytes of memory.
    pub memory: usize,
}

/// The newest committed bytes by their first byte in the area, none meeting another.
#[derive(Default)]
pub(super) struct Index {
    pieces: BTreeMap<u64, Piece>,
    live: VecDeque<Live>,
    memory: usize,
}

impl Index {
    /// A transaction is committed, behind all that are here. Its ranges follow each other in its
    /// data.
    pub fn commit(&mut self, live: Live, runs: &[(u64, usize)], data: &Arc<Vec<u8>>) {
        let before = self.live.back().map_or(0, |last| last.number);
        assert!(live.number > before, "transactions are committed in order");
        let mut from = 0;
        for (offset, len) in runs {
            let at = from..from + len;
            self.insert(*offset, Piece { data: data.clone(), at, number: live.number });
            from += len;
        }
        self.memory += live.memory;
        self.live.push_back(live);
    }

    fn insert(&mut self, offset: u64, piece: Piece) {
        let end = offset + piece.at.len() as u64;
        let met: Vec<u64> = self.meeting(&(offset..end)).map(|(start, _)| start).collect();
        for start in met {
            let old = self.pieces.remove(&start).expect("it was found just now");
            let old_end = start + old.at.len() as u64;
            if start < offset {
                self.pieces.insert(start, old.cut(0, (offset - start) as usize));
            }
            if end < old_end {
                self.pieces.insert(end, old.cut((end - start) as usize, (old_end - end) as usize));
            }
        }
        self.pieces.insert(offset, piece);
    }

    /// The pieces that meet these bytes, in order.
    fn meeting(&self, bytes: &Range<u64>) -> impl Iterator<Item = (u64, &Piece)> {
        let reaches =
            |(start, piece): &(&u64, &Piece)| **start + piece.at.len() as u64 > bytes.start;
        let before = self.pieces.range(..bytes.start).next_back().filter(reaches);
        let rest = self.pieces.range(bytes.start..bytes.end.max(bytes.start));
        before.into_iter().chain(rest).map(|(start, piece)| (*start, piece))
    }

    /// All pieces, in order.
    pub fn pieces(&self) -> Vec<(u64, Piece)> {
        self.pieces.iter().map(|(start, piece)| (*start, piece.clone())).collect()
    }

    /// The newest transaction.
    pub fn newest(&self) -> Option<Live> {
        self.live.back().copied()
    }

    /// Is a transaction of this owner here?
    pub fn has(&self, owner: u64) -> bool {
        self.live.iter().any(|live| live.owner == owner)
    }

    /// Bytes of memory of all transactions.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Transactions up to this number are in their blocks.
    pub fn forget(&mut self, number: u64) {
        self.pieces.retain(|_, piece| piece.number > number);
        let done = self.live.partition_point(|live| live.number <= number);
        self.memory -= self.live.drain(..done).map(|live| live.memory).sum::<usize>();
    }
}

/// The index as it is; nothing is committed or forgotten as long as this is held.
pub struct Held<'l>(pub(super) RwLockReadGuard<'l, Index>);

impl Held<'_> {
    /// Is a block that these bytes of the area lie in committed in part, and not checkpointed?
    pub fn meets(&self, bytes: &Range<u64>) -> bool {
        let first = bytes.start / BLOCK_BYTES * BLOCK_BYTES;
        let blocks = first..bytes.end.div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
        self.0.meeting(&blocks).next().is_some()
    }

    /// Puts what is committed over what was read at byte `offset` of the area.
    pub fn patch(&self, offset: u64, read: &mut [u8]) {
        let end = offset + read.len() as u64;
        for (start, piece) in self.0.meeting(&(offset..end)) {
            overlay(offset, read, start, piece.bytes());
        }
    }
}

/// Puts `bytes`, which lie at `start`, over those of `onto`, which lie at `offset`, as far as they
/// meet.
pub(super) fn overlay(offset: u64, onto: &mut [u8], start: u64, bytes: &[u8]) {
    let (from, end) = (offset.max(start), start + bytes.len() as u64);
    let end = end.min(offset + onto.len() as u64);
    if from < end {
        let source = &bytes[(from - start) as usize..(end - start) as usize];
        onto[(from - offset) as usize..(end - offset) as usize].copy_from_slice(source);
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
