//! Bytes of a file as sparse pages that versions share.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes per page.
pub const PAGE: u64 = 4096;
type Page = [u8; PAGE as usize];

/// A file's size and bytes. A missing page reads as zeros; bytes at and after the size are
/// always zero. Cloning shares the pages. Compare with [`Content::first_difference`]: a page of
/// zeros and a missing one mean the same.
#[derive(Clone, Debug, Default)]
pub struct Content {
    size: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

/// Page `nr` and the part of `[start, end)` in it, as offsets inside the page.
fn parts(start: u64, end: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let (first, last) = (start / PAGE, end.div_ceil(PAGE));
    (first..last).map(move |nr| {
        let base = nr * PAGE;
        let from = start.max(base) - base;
        let to = end.min(base + PAGE) - base;
        (nr, from as usize, to as usize)
    })
}

impl Content {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Puts `data` at `offset`, growing the file if needed. Nothing to write changes nothing.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        let mut at = 0;
        for (nr, from, to) in parts(offset, end) {
            let page = Arc::make_mut(self.pages.entry(nr).or_insert_with(|| Arc::new([0; 4096])));
            page[from..to].copy_from_slice(&data[at..at + (to - from)]);
            at += to - from;
        }
        self.size = self.size.max(end);
    }

    /// Makes `[start, end)` zero, the size unchanged.
    pub fn zero(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let touched: Vec<u64> =
            self.pages.range(start / PAGE..end.div_ceil(PAGE)).map(|(nr, _)| *nr).collect();
        for nr in touched {
            let base = nr * PAGE;
            let (from, to) = (start.max(base) - base, end.min(base + PAGE) - base);
            if from == 0 && to == PAGE {
                self.pages.remove(&nr);
            } else if let Some(page) = self.pages.get_mut(&nr) {
                Arc::make_mut(page)[from as usize..to as usize].fill(0);
            }
        }
    }

    /// Sets the size; what lies behind it is gone, what is new is zero.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size.next_multiple_of(PAGE));
        }
        self.size = size;
    }

    /// Up to `len` bytes from `offset`, short only at the end.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.size);
        if offset >= end {
            return Vec::new();
        }
        let mut out = Vec::with_capacity((end - offset) as usize);
        for (nr, from, to) in parts(offset, end) {
            match self.pages.get(&nr) {
                Some(page) => out.extend_from_slice(&page[from..to]),
                None => out.resize(out.len() + (to - from), 0),
            }
        }
        out
    }

    /// The byte at `offset` (0 in a hole and behind the end).
    pub fn byte(&self, offset: u64) -> u8 {
        self.pages.get(&(offset / PAGE)).map_or(0, |p| p[(offset % PAGE) as usize])
    }

    /// Page `nr`, if it has one.
    pub fn page(&self, nr: u64) -> Option<&[u8; PAGE as usize]> {
        self.pages.get(&nr).map(|p| &**p)
    }

    /// Numbers of all pages that are there, in order.
    pub fn page_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().copied()
    }

    /// Is every byte of `[start, end)` zero?
    pub fn is_zero(&self, start: u64, end: u64) -> bool {
        self.pages.range(start / PAGE..end.div_ceil(PAGE).max(start / PAGE)).all(|(nr, page)| {
            let base = nr * PAGE;
            let (from, to) = (start.max(base) - base, end.min(base + PAGE) - base);
            page[from as usize..to as usize].iter().all(|b| *b == 0)
        })
    }

    /// First offset where the bytes differ, below the smaller size, or the smaller size if only
    /// the sizes differ; `None` if equal.
    pub fn first_difference(&self, other: &Content) -> Option<u64> {
        let end = self.size.min(other.size);
        let mut numbers: Vec<u64> = self.pages.keys().chain(other.pages.keys()).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let zero = [0u8; PAGE as usize];
        for nr in numbers {
            let (a, b) = (self.page(nr).unwrap_or(&zero), other.page(nr).unwrap_or(&zero));
            if a == b {
                continue;
            }
            let at = (0..PAGE as usize).find(|i| a[*i] != b[*i]).unwrap_or(0);
            let offset = nr * PAGE + at as u64;
            if offset < end {
                return Some(offset);
            }
        }
        (self.size != other.size).then_some(end)
    }
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
