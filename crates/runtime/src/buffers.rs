//! Memory for records: allocated once, encoded into again and again.

use crate::pause::is_bulk;
use crate::runtime::relock;
use siftfs_device::AlignedBuf;
use std::sync::Mutex;

/// Buffers of bulk records that are kept, of 8 MiB at most each.
const BULK: usize = 2;
/// Buffers of other records that are kept, of 64 KiB at most each.
const SMALL: usize = 16;

/// Buffers of records that were written. Their locks are taken after any other, and nothing is done
/// under them.
#[derive(Debug, Default)]
pub struct RecordBuffers {
    bulk: Mutex<Vec<AlignedBuf>>,
    small: Mutex<Vec<AlignedBuf>>,
}

impl RecordBuffers {
    fn of(&self, len: u64) -> (&Mutex<Vec<AlignedBuf>>, usize) {
        if is_bulk(len) { (&self.bulk, BULK) } else { (&self.small, SMALL) }
    }

    /// `len` bytes, whatever they hold.
    pub fn take(&self, len: u32) -> AlignedBuf {
        let mut buf = relock(self.of(len.into()).0.lock()).pop().unwrap_or_default();
        buf.reuse(len as usize);
        buf
    }

    /// Keeps `buf` for another record, if there are not enough of them.
    pub fn give(&self, buf: AlignedBuf) {
        let (kept, most) = self.of(buf.len() as u64);
        let mut kept = relock(kept.lock());
        if kept.len() < most {
            kept.push(buf);
        }
    }
}

#[cfg(test)]
#[path = "buffers_tests.rs"]
mod tests;
