//! The sizes that a file had on its way to the present one, while it grew by writes that are not
//! durable.
//!
//! Unsynced data becomes durable by range and by block, and the size has to follow it (rule R20): a
//! size before its data would show zeros that no program wrote. With these sizes the Runtime can
//! see to it that the size which comes with the data is one that the file had.

use siftfs_base::{BLOCK_BYTES, Bytes, RangeSet};

/// Sizes in bytes, growing.
///
/// The kernel's cache divides a write(2) that begins inside a page which it has not read: one
/// request goes up to the page's end, the next one begins there. No request says so, so a write
/// that begins inside a block and ends with one is taken for the first part of what follows it: its
/// end counts only as long as it is the file's.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// One per block, the smallest: eight bytes for 4 KiB of dirty data at most, and with the
    /// present size behind them enough to find one that the file had within a block.
    known: Vec<u64>,
    /// The last of them may be the end of a first part.
    divided: bool,
}

impl Sizes {
    /// A write from `start` on made the file `size` long; up to `journaled` no size is needed any
    /// more.
    pub fn grew(&mut self, start: u64, size: u64, journaled: u64) {
        if self.known.first().is_some_and(|s| *s <= journaled) {
            let past = self.known.partition_point(|s| *s <= journaled);
            self.known.drain(..past);
        }
        if self.divided && self.known.last() == Some(&start) {
            self.known.pop();
        }
        self.divided = !start.is_multiple_of(BLOCK_BYTES) && size.is_multiple_of(BLOCK_BYTES);
        if self.known.last().is_none_or(|last| last / BLOCK_BYTES < size / BLOCK_BYTES) {
            self.known.push(size);
        }
    }

    /// A truncation: longer ones are no way to the present size any more.
    pub fn shrank(&mut self, size: u64) {
        self.known.truncate(self.known.partition_point(|s| *s < size));
        self.divided = false;
    }

    /// Nothing is ahead of what is durable.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The smallest size from `end` on that the file had; `present` is its size now.
    pub fn from(&self, end: u64, present: u64) -> u64 {
        let at = self.known.partition_point(|s| *s < end);
        self.known.get(at).copied().unwrap_or(present)
    }

    /// `ranges` cut at `journaled` and at every known size behind it: what lies up to the journaled
    /// size, then what each further size needs that the ones before it do not.
    pub fn split(&self, ranges: &RangeSet<Bytes>, journaled: u64) -> Vec<RangeSet<Bytes>> {
        let first = self.known.partition_point(|s| *s <= journaled);
        let known = self.known.get(first..).unwrap_or_default();
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
        (self.known.capacity() * size_of::<u64>()) as u64
    }
}

#[cfg(test)]
#[path = "sizes_tests.rs"]
mod tests;
