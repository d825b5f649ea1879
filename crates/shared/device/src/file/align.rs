//! What direct I/O on a file demands of offsets, lengths and memory.

use std::fs::File;

use rustix::fs::{AtFlags, StatxFlags};
use siftfs_base::BLOCK_SIZE;

/// Alignment that direct I/O demands, in bytes; powers of two, at most a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Align {
    /// Alignment of offsets and lengths.
    pub unit: usize,
    /// Alignment of memory.
    pub memory: usize,
}

impl Align {
    /// What the kernel says for this file; a whole block where it says nothing, and `None`
    /// where it says that direct I/O is not possible or needs more than a block.
    pub fn of(file: &File) -> Option<Self> {
        let whole = Self { unit: BLOCK_SIZE, memory: BLOCK_SIZE };
        let Ok(stat) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        else {
            return Some(whole);
        };
        if !StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN) {
            return Some(whole);
        }
        let unit = usize::try_from(stat.stx_dio_offset_align).ok()?;
        let memory = usize::try_from(stat.stx_dio_mem_align).ok()?;
        let usable = |n: usize| n.is_power_of_two() && n <= BLOCK_SIZE;
        (usable(unit) && usable(memory)).then_some(Self { unit, memory })
    }

    /// Are offset and length multiples of the unit?
    pub fn range(&self, offset: u64, len: usize) -> bool {
        offset.is_multiple_of(self.unit as u64) && len.is_multiple_of(self.unit)
    }

    /// Does the memory begin where direct I/O wants it?
    pub fn memory(&self, buf: &[u8]) -> bool {
        buf.as_ptr().addr().is_multiple_of(self.memory)
    }

    /// The smallest aligned range around `[offset, offset + len)`: its start and length.
    pub fn around(&self, offset: u64, len: usize) -> (u64, usize) {
        let unit = self.unit as u64;
        let start = offset - offset % unit;
        let end = (offset + len as u64).next_multiple_of(unit);
        (start, usize::try_from(end - start).expect("a bounce fits memory"))
    }
}
