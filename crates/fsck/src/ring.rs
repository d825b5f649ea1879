//! Access to a ring by position.

use crate::Check;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE};

/// A ring on the device and the window of live positions.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    pub offset: u64,
    pub len: u64,
    pub tail: u64,
}

impl Ring {
    /// Can `len` bytes at `pos` be one record of the live window?
    pub fn fits(&self, pos: u64, len: u64) -> bool {
        pos >= self.tail
            && pos.checked_add(len).is_some_and(|e| e <= self.tail + self.len)
            && pos % self.len + len <= self.len
    }

    pub fn read(&self, c: &mut Check<'_>, pos: u64, len: u64, what: &str) -> Option<Vec<u8>> {
        if !self.fits(pos, len) {
            return None;
        }
        c.read(self.offset + pos % self.len, len as usize, what)
    }

    pub fn block(&self, c: &mut Check<'_>, pos: u64, what: &str) -> Option<Vec<u8>> {
        self.read(c, pos, BLOCK_SIZE as u64, what)
    }

    /// Where a record may follow one that ended at `end`: there, or where the next lap starts.
    pub fn candidates(&self, end: u64) -> Vec<u64> {
        let lap = (end / self.len + 1) * self.len;
        if end.is_multiple_of(self.len) { vec![end] } else { vec![end, lap] }
    }

    /// Last position at which a record may begin that was written while the one at `end` was
    /// missing: behind it, or behind its place in the next lap.
    pub fn horizon(&self, end: u64, max: u64) -> u64 {
        self.candidates(end).last().copied().unwrap_or(end).min(end + max) + max
    }

    /// Positions behind `end` at which a block lies, as far as the window goes.
    pub fn behind(&self, end: u64) -> impl Iterator<Item = u64> {
        (end + BLOCK_BYTES..self.tail + self.len).step_by(BLOCK_SIZE)
    }
}
