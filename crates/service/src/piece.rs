//! Ranges of area bytes and where their bytes come from.

use siftfs_base::BLOCK_SIZE;
use siftfs_intervals::{Interval, Source};

/// Where a range's bytes come from, in 8 bytes: the interval map holds millions of them.
///
/// Sources sort by kind, then by place: a batch's records in commit order, then images, then
/// zeroes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Src(u64);

/// A range of area bytes with one source.
pub(crate) type Piece = Interval<Src>;

/// A source taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// The data section of a staged record, or a part of a transaction's in the journal.
    Staged {
        /// Number of the record in the batch.
        record: u32,
        /// First byte in the data section.
        offset: u32,
    },
    /// An image of the batch.
    Image {
        /// Its slot.
        slot: u32,
        /// First byte in the block.
        offset: u32,
    },
    /// Zeroes that a transaction asked for.
    Zero {
        /// Number of the oldest such transaction in the batch.
        txn: u32,
    },
}

const KIND_SHIFT: u32 = 62;
const IMAGE: u64 = 1 << KIND_SHIFT;
const ZERO: u64 = 2 << KIND_SHIFT;

impl Src {
    pub fn staged(record: u32, offset: u32) -> Self {
        assert!(record < 1 << 30, "a batch of a billion records");
        Self((u64::from(record) << 32) | u64::from(offset))
    }
    pub fn image(slot: u32) -> Self {
        Self(IMAGE | (u64::from(slot) * BLOCK_SIZE as u64))
    }
    pub fn zero(txn: u32) -> Self {
        Self(ZERO | u64::from(txn))
    }
    pub fn origin(self) -> Origin {
        let low = self.0 as u32;
        match self.0 & (3 << KIND_SHIFT) {
            0 => Origin::Staged { record: (self.0 >> 32) as u32, offset: low },
            IMAGE => Origin::Image {
                slot: ((self.0 ^ IMAGE) / BLOCK_SIZE as u64) as u32,
                offset: low % BLOCK_SIZE as u32,
            },
            _ => Origin::Zero { txn: low },
        }
    }
}

impl Source for Src {
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    fn to_bits(self) -> u64 {
        self.0
    }
    fn skip(self, bytes: u64) -> Self {
        match self.origin() {
            Origin::Zero { .. } => self,
            // Data offset and length of a tag stay below 2^32, a part of an image in its block.
            _ => Self(self.0 + bytes),
        }
    }
    fn join(self, len: u64, next: Self) -> Option<Self> {
        match (self.origin(), next.origin()) {
            (Origin::Staged { .. }, Origin::Staged { .. }) => {
                (self.0 + len == next.0).then_some(self)
            }
            // Zeroes written with the older transaction are right for the newer one too, which
            // is not reclaimed before.
            (Origin::Zero { txn: a }, Origin::Zero { txn: b }) => Some(Self::zero(a.min(b))),
            // Each image has a transaction of its own.
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "piece_tests.rs"]
mod tests;
