//! A map from disjoint ranges of a 64-bit space to where their content comes from (SIFT §3.3.4,
//! §4.3.2): late write wins, residual fragments are trimmed, neighbours whose source goes on
//! become one.
//!
//! A B+tree of packed nodes, by 32-bit numbers. An insertion or removal takes O(log n + overlaps).
//! In a large map its time is that of the memory: nodes are whole cache lines that are asked for
//! together, in large pages where the system has them. An interval takes 20 bytes, about 34 with
//! the room in the nodes after random insertions, and never more than 64 while the map grows; nodes
//! that a shrinking map gives up are kept for it to grow again.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod arena;
#[cfg(any(test, feature = "check"))]
pub mod check;
mod map;
mod node;
mod tree;

pub use map::IntervalMap;

/// Where a range's content comes from, in 64 bits.
pub trait Source: Copy {
    /// The source that [`Source::to_bits`] made this number of; called with no other.
    fn from_bits(bits: u64) -> Self;
    /// A number that stands for it.
    fn to_bits(self) -> u64;
    /// The source of what is left when the first `bytes` of a range are cut off.
    fn skip(self, bytes: u64) -> Self;
    /// The source of a range of `len` bytes from `self` together with the one right behind it
    /// from `next`, if one range can stand for both.
    fn join(self, len: u64, next: Self) -> Option<Self>;
}

/// A range `[start, start + len)` and its source; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval<S> {
    /// First byte.
    pub start: u64,
    /// Number of bytes.
    pub len: u32,
    /// Where the range's bytes come from.
    pub source: S,
}

impl<S: Source> Interval<S> {
    /// One past the range's last byte.
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    /// The part from `from` on, which lies inside.
    fn tail(&self, from: u64) -> Self {
        let skip = from - self.start;
        // Less than `len`, which fits.
        Self { start: from, len: self.len - skip as u32, source: self.source.skip(skip) }
    }

    /// This range and `next` as one, if they touch and the source goes on.
    fn joined(&self, next: &Self) -> Option<Self> {
        if self.end() != next.start {
            return None;
        }
        let len = self.len.checked_add(next.len)?;
        let source = self.source.join(u64::from(self.len), next.source)?;
        Some(Self { start: self.start, len, source })
    }
}
