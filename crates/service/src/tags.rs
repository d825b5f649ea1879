//! The tags of one transaction as disjoint byte ranges of the area: where two overlap, the later
//! one wins, as if they were applied in order.

use siftfs_base::BLOCK_BYTES;
use siftfs_wire::Transaction;
use std::collections::BTreeMap;

/// Where a range's bytes come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// Zeroes.
    Zero,
    /// A staged record's data section.
    Staged {
        /// Index into `Transaction::staged`.
        record: u32,
        /// First byte in the data section.
        offset: u32,
    },
}

/// A range `[start, start + len)` of area bytes with one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub start: u64,
    pub len: u64,
    pub source: Source,
    /// Number of the tag it is part of: zero tags first, then copy tags.
    pub tag: u32,
}

impl Piece {
    pub fn end(&self) -> u64 {
        self.start + self.len
    }
    /// The part of the piece from `from` on.
    fn tail(&self, from: u64) -> Self {
        let skip = from - self.start;
        let source = match self.source {
            Source::Zero => Source::Zero,
            // A copy tag's offset and length together stay below 2^32.
            Source::Staged { record, offset } => {
                Source::Staged { record, offset: offset + skip as u32 }
            }
        };
        Self { start: from, len: self.len - skip, source, ..*self }
    }
}

/// Disjoint pieces by their start.
#[derive(Default)]
struct Pieces {
    map: BTreeMap<u64, Piece>,
}

impl Pieces {
    /// Adds `p` over whatever was there.
    fn put(&mut self, p: Piece) {
        let before = self.map.range(..p.start).next_back().map(|(_, b)| *b);
        if let Some(b) = before.filter(|b| b.end() > p.start) {
            self.map.insert(b.start, Piece { len: p.start - b.start, ..b });
            if b.end() > p.end() {
                let rest = b.tail(p.end());
                self.map.insert(rest.start, rest);
            }
        }
        while let Some((&at, &covered)) = self.map.range(p.start..p.end()).next() {
            self.map.remove(&at);
            if covered.end() > p.end() {
                let rest = covered.tail(p.end());
                self.map.insert(rest.start, rest);
            }
        }
        self.map.insert(p.start, p);
    }
}

/// All tags of `txn`, resolved, in ascending order.
pub(crate) fn resolve(txn: &Transaction) -> Vec<Piece> {
    let mut pieces = Pieces::default();
    let mut tag = 0;
    for z in &txn.zeros {
        let len = u64::from(z.len);
        pieces.put(Piece { start: z.dst, len, source: Source::Zero, tag });
        tag += 1;
    }
    for c in &txn.copies {
        let source = Source::Staged { record: c.source, offset: c.data_offset };
        pieces.put(Piece { start: c.dst, len: u64::from(c.len), source, tag });
        tag += 1;
    }
    pieces.map.into_values().collect()
}

/// Blocks that the bytes `[dst, dst + len)` touch.
pub(crate) fn blocks_of(dst: u64, len: u64) -> u64 {
    (dst + len).div_ceil(BLOCK_BYTES) - dst / BLOCK_BYTES
}

#[cfg(test)]
#[path = "tags_tests.rs"]
mod tests;
