//! Keys of the checksums: one of each epoch, and of it one for each log (rules R8 and R35).

use siftfs_base::{Epoch, LaneId};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// What makes records those of this volume and this epoch (rule R8). No record is written under it:
/// each lane and the journal have a key of their own, drawn from it (rule R35).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EpochKey {
    /// Epoch the records are written under.
    pub epoch: Epoch,
    /// The epoch's secret number; drawn at random, kept in the header's host record only.
    pub nonce: u64,
}

impl EpochKey {
    /// Which key is the journal's, where a lane has its number.
    const JOURNAL: u64 = 1 << 32;
    /// The same of a spare log.
    const SPARE: u64 = (1 << 32) + 1;

    /// Key of a lane's records.
    pub fn lane(&self, lane: LaneId) -> LogKey {
        self.of(lane.0.into())
    }

    /// Key of the journal's records.
    pub fn journal(&self) -> LogKey {
        self.of(Self::JOURNAL)
    }

    /// Key of a spare log's batches, where the epoch is their generation.
    pub fn spare(&self) -> LogKey {
        self.of(Self::SPARE)
    }

    /// SipHash-2-4 under nonce and epoch: a log's key says nothing of another log's.
    fn of(&self, log: u64) -> LogKey {
        let mut hash = SipHasher24::new_with_keys(self.nonce, self.epoch.0);
        hash.write(&log.to_le_bytes());
        LogKey { epoch: self.epoch, nonce: hash.finish() }
    }
}

/// What makes a record one of one lane, or of the journal, in one epoch (rules R8 and R35): its
/// checksums are seeded with it, so that neither user data, nor an older epoch's record, nor one
/// that the writer of another log made can pass for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogKey {
    /// Epoch the records are written under.
    pub epoch: Epoch,
    /// The log's secret number, from [`EpochKey`].
    pub nonce: u64,
}

impl LogKey {
    /// The seed of every record checksum under this key.
    pub(crate) fn seed(&self) -> u32 {
        let nonce = siftfs_base::crc32c(&self.nonce.to_le_bytes());
        siftfs_base::crc32c_append(nonce, &self.epoch.0.to_le_bytes())
    }

    /// Checksum of `data` under this key.
    pub fn crc(&self, data: &[u8]) -> u32 {
        crate::checksum(self.seed(), data)
    }
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
