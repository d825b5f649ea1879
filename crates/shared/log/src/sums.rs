//! Checksums of a data section, one per chunk, so that a part can be verified alone (rule R13).

use crate::LogKey;

/// Bytes of a data section that one checksum covers.
pub const DATA_CHUNK: usize = 4096;

/// The checksums of a data section and its length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataSums {
    sums: Box<[u32]>,
    len: u32,
    seed: u32,
}

/// Number of checksums that `len` bytes of data have.
pub(crate) fn count(len: u64) -> u64 {
    len.div_ceil(DATA_CHUNK as u64)
}

impl DataSums {
    /// Of `len` bytes under `key`; `None` unless there is one checksum per chunk.
    pub fn new(key: &LogKey, len: u32, sums: Box<[u32]>) -> Option<Self> {
        let seed = key.seed();
        (sums.len() as u64 == count(len.into())).then_some(Self { sums, len, seed })
    }

    /// Bytes of the data section.
    pub fn data_len(&self) -> u32 {
        self.len
    }

    /// Bytes of memory behind it.
    pub fn memory(&self) -> usize {
        self.sums.len() * size_of::<u32>()
    }

    /// Cuts the section into parts of at most `chunks` chunks each, in order.
    ///
    /// # Panics
    /// If `chunks` is 0.
    pub fn split(&self, chunks: usize) -> impl Iterator<Item = Self> + '_ {
        self.sums.chunks(chunks).enumerate().map(move |(i, sums)| {
            // Within the section, whose length has 32 bits.
            let from = (i * chunks * DATA_CHUNK) as u32;
            let len = (self.len - from).min((sums.len() * DATA_CHUNK) as u32);
            Self { sums: sums.into(), len, seed: self.seed }
        })
    }

    /// Verifies the whole section.
    pub fn verify_data(&self, data: &[u8]) -> bool {
        data.len() == self.len as usize && self.verify_part(0, data)
    }

    /// Verifies a part that starts at `offset`, a multiple of [`DATA_CHUNK`], and ends at a chunk's
    /// end.
    pub fn verify_part(&self, offset: usize, part: &[u8]) -> bool {
        let Some(end) = offset.checked_add(part.len()) else { return false };
        let len = self.len as usize;
        let ends_well = end == len || (end < len && end.is_multiple_of(DATA_CHUNK));
        let sums = self.sums.get(offset / DATA_CHUNK..).unwrap_or_default();
        offset.is_multiple_of(DATA_CHUNK)
            && ends_well
            && part
                .chunks(DATA_CHUNK)
                .zip(sums)
                .all(|(chunk, sum)| crate::checksum(self.seed, chunk) == *sum)
    }
}

#[cfg(test)]
#[path = "sums_tests.rs"]
mod tests;
