//! Which pages of the kernel's cache may be older than a write past that cache.
//!
//! Only what is read into the cache during a write past it can be: the kernel drops the pages of a
//! direct write before it sends the write, and after an asynchronous one not again.

use siftfs_base::{Bytes, RangeSet};

const PAGE: u64 = 4096;
/// Ranges that are remembered of one file; with more, all of it counts.
const RANGES: usize = 256;

/// What the kernel may have cached of one file since a direct writer has been there.
#[derive(Default)]
pub(crate) struct Cached {
    pages: RangeSet<Bytes>,
    /// Pages that the kernel is being made to drop, and the writes that wait for it.
    dropping: RangeSet<Bytes>,
    waiting: u32,
}

/// Byte range `[start, end)` in whole pages.
fn pages(offset: u64, len: u64) -> (u64, u64) {
    let end = offset.saturating_add(len.max(1));
    (offset / PAGE * PAGE, end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX))
}

impl Cached {
    /// The kernel is about to have these bytes.
    pub(crate) fn note(&mut self, offset: u64, len: u64) {
        let (start, end) = pages(offset, len);
        if self.pages.ranges() >= RANGES {
            self.note_all();
        }
        self.pages.insert(start, end);
    }

    /// The kernel may have anything.
    pub(crate) fn note_all(&mut self) {
        self.pages.insert(0, u64::MAX);
    }

    /// No handle writes past the cache any more. Pages that are being dropped stay noted.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
    }

    /// These bytes were written past the cache. Does the kernel have to drop the file's pages, all
    /// of them, before the write is answered? If so, [`Cached::dropped`] follows.
    pub(crate) fn written_past(&mut self, offset: u64, len: u64) -> bool {
        let (start, end) = pages(offset, len);
        if !self.pages.overlaps(start, end) && !self.dropping.overlaps(start, end) {
            return false;
        }
        // What is read from here on is noted anew.
        let (old, dropping) = (std::mem::take(&mut self.pages), &mut self.dropping);
        if dropping.ranges() >= RANGES {
            dropping.insert(0, u64::MAX);
        }
        old.iter().for_each(|(start, end)| dropping.insert(start, end));
        self.waiting += 1;
        true
    }

    /// Does a write wait for the kernel to drop pages?
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting > 0
    }

    /// The kernel has dropped its pages for one write.
    pub(crate) fn dropped(&mut self) {
        assert!(self.waiting > 0, "a write waits for what is dropped");
        self.waiting -= 1;
        if self.waiting == 0 {
            self.dropping.clear();
        }
    }
}

#[cfg(test)]
#[path = "stale_tests.rs"]
mod tests;
