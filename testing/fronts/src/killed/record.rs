//! Records that say of themselves what they are: which writer wrote them, to which place, and as
//! which version. A checksum follows from that, and all other bytes follow from the checksum.

use siftfs_base::mix;

/// What a record says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The writer; a writer of another round has another number.
    pub writer: u64,
    /// The place that it was written to, as the book numbers them.
    pub item: u64,
    /// The place's versions are counted from 1.
    pub version: u64,
}

/// What a place has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Zeros, or less than all of it.
    Nothing,
    /// All bytes of one record.
    Whole(Stamp),
    /// Anything else.
    Broken,
}

impl Stamp {
    fn checksum(self) -> u64 {
        mix(mix(mix(self.writer) ^ self.item) ^ self.version)
    }

    /// The record, in `len` bytes.
    #[must_use]
    pub fn record(self, len: usize) -> Vec<u8> {
        let sum = self.checksum();
        let head = [self.version, self.item, self.writer, sum];
        let rest = (0..).map(|at: u64| mix(sum ^ at));
        head.into_iter().chain(rest).flat_map(u64::to_le_bytes).take(len).collect()
    }
}

/// What these bytes of a place are.
#[must_use]
pub fn read(bytes: &[u8]) -> Found {
    if bytes.iter().all(|byte| *byte == 0) {
        return Found::Nothing;
    }
    let word = |at: usize| {
        bytes.get(at * 8..at * 8 + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()))
    };
    let stamp = Stamp { version: word(0), item: word(1), writer: word(2) };
    if stamp.record(bytes.len()) == bytes { Found::Whole(stamp) } else { Found::Broken }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
