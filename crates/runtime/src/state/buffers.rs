//! Memory for records and for reads: allocated once, used again and again.

use crate::locks::relock;
use siftfs_device::{AlignedBuf, URGENT_MAX};
use std::sync::Mutex;

/// Is a record of this many bytes bulk? Then it leaves the last quarter of the lane and of the
/// running transaction to small ones, and its caller pauses for them.
pub fn is_bulk(len: u64) -> bool {
    len > URGENT_MAX as u64
}

/// A pool of buffers for their next use, `KEPT` at most. Its lock is taken after any other, and
/// nothing is done under it.
#[derive(Debug, Default)]
pub struct Pool<const KEPT: usize>(Mutex<Vec<AlignedBuf>>);

impl<const KEPT: usize> Pool<KEPT> {
    /// Takes a buffer out of the pool, as long as it was at its last use; an empty one if the pool
    /// is empty.
    pub fn take(&self) -> AlignedBuf {
        relock(self.0.lock()).pop().unwrap_or_default()
    }

    /// Returns `buf` to the pool; drops it if the pool is full.
    pub fn give(&self, buf: AlignedBuf) {
        let mut kept = relock(self.0.lock());
        if kept.len() < KEPT {
            kept.push(buf);
        }
    }

    /// Memory of those that wait, in bytes.
    pub fn bytes(&self) -> u64 {
        relock(self.0.lock()).iter().map(|buf| buf.len() as u64).sum()
    }
}

/// Buffers of records that were written: two of bulk, of 8 MiB at most each, and others of at most
/// 64 KiB each.
#[derive(Debug, Default)]
pub struct RecordBuffers {
    bulk: Pool<2>,
    small: Pool<16>,
}

impl RecordBuffers {
    /// Takes a buffer of `len` bytes, with any contents.
    pub fn take(&self, len: u32) -> AlignedBuf {
        let mut buf = if is_bulk(len.into()) { self.bulk.take() } else { self.small.take() };
        buf.reuse(len as usize);
        buf
    }

    /// Returns `buf` to the pool for records of its kind.
    pub fn give(&self, buf: AlignedBuf) {
        if is_bulk(buf.len() as u64) { self.bulk.give(buf) } else { self.small.give(buf) }
    }

    /// Memory of those that wait, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bulk.bytes() + self.small.bytes()
    }
}

#[cfg(test)]
#[path = "buffers_tests.rs"]
mod tests;
