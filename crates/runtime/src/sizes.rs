//! The sizes that a file had on its way to the present one, while it grew by writes that are not durable.
//!
//! Unsynced data becomes durable by range and by block, and the size has to follow it (rule R20): a size
//! before its data would show zeros that nobody wrote. With these sizes the Runtime can see to it that
//! the size which comes with the data is one that the file had.

use siftfs_base::{BLOCK_BYTES, RangeSet};

/// Sizes in bytes, growing. One per block is kept, the smallest: eight bytes for 4 KiB of dirty data at
/// most, and with the present size behind them enough to find one that the file had within a block.
#[derive(Clone, Debug, Default)]
pub struct Sizes(Vec<u64>);

impl Sizes {
    /// A write made the file this long; up to `journaled` no size is needed any more.
    pub fn grew(&mut self, size: u64, journaled: u64) {
        if self.0.first().is_some_and(|s| *s <= journaled) {
            let past = self.0.partition_point(|s| *s <= journaled);
            self.0.drain(..past);
        }
        if self.0.last().is_none_or(|last| last / BLOCK_BYTES < size / BLOCK_BYTES) {
            self.0.push(size);
        }
    }

    /// A truncation: longer ones are no way to the present size any more.
    pub fn shrank(&mut self, size: u64) {
        self.0.truncate(self.0.partition_point(|s| *s < size));
    }

    /// Nothing is ahead of what is durable.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }

    /// The smallest size from `end` on that the file had; `present` is its size now.
    pub fn from(&self, end: u64, present: u64) -> u64 {
        let at = self.0.partition_point(|s| *s < end);
        self.0.get(at).copied().unwrap_or(present)
    }

    /// `ranges` cut at `journaled` and at every known size behind it: what lies up to the journaled size,
    /// then what each further size needs that the ones before it do not.
    pub fn split(&self, ranges: &RangeSet, journaled: u64) -> Vec<RangeSet> {
        let first = self.0.partition_point(|s| *s <= journaled);
        let known = self.0.get(first..).unwrap_or_default();
        let (mut out, mut from) = (Vec::new(), 0);
        for to in [journaled].iter().chain(known).chain(&[u64::MAX]) {
            let mut part = RangeSet::new();
            for (s, e) in ranges.overlapping(from, *to) {
                part.insert(s, e);
            }
            if !part.is_empty() {
                out.push(part);
            }
            from = *to;
        }
        out
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<u64>()) as u64
    }
}

#[cfg(test)]
#[path = "sizes_tests.rs"]
mod tests;
