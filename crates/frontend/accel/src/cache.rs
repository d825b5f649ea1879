//! What a program knows of a file that it leases: pages that it has read, kept up with what it
//! writes. Nobody else changes the file while the lease lasts, so they count as long as that does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Most pages of a file.
const MOST: usize = 1024;
/// Most pages of a session.
const MOST_OF_ALL: usize = 8192;

/// Pages of one file.
#[derive(Default)]
pub(crate) struct Cache {
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
    /// Writes so far.
    writes: u64,
    /// The program has read the file, so it may.
    reads: bool,
}

/// A part of a page: its number, where in it, and where in the bytes that are read or written.
struct Part {
    page: u64,
    at: usize,
    of: std::ops::Range<usize>,
}

/// The pages of a range of a file.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let from = offset.checked_add(done as u64).filter(|_| done < len)?;
        let at = (from % PAGE as u64) as usize;
        let of = done..len.min(done + PAGE - at);
        done = of.end;
        Some(Part { page: from / PAGE as u64, at, of })
    })
}

impl Cache {
    /// Reads all of `into`, or says that something is missing. Before the daemon has answered once,
    /// not even nothing is read: the program's descriptor may be none to read by.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        self.reads
            && parts(offset, into.len()).all(|Part { page, at, of }| {
                let from = self.pages.get(&page).and_then(|page| page.get(at..at + of.len()));
                match (into.get_mut(of), from) {
                    (Some(into), Some(from)) => {
                        into.copy_from_slice(from);
                        true
                    }
                    _ => false,
                }
            })
    }

    /// Which state of the file a question is about.
    pub fn state(&self) -> u64 {
        self.writes
    }

    /// The file has these bytes at a page's begin, as it was asked in that state; it ends behind
    /// them, if they end within a page.
    pub fn insert(&mut self, state: u64, offset: u64, bytes: &[u8], all: &AtomicUsize) {
        if state != self.writes || !offset.is_multiple_of(PAGE as u64) {
            return;
        }
        self.reads = true;
        for Part { page, of, .. } in parts(offset, bytes.len()) {
            let from = bytes.get(of).unwrap_or_default();
            self.put(page, 0, from, all);
        }
    }

    /// The program has written bytes to the file, which was of this size before.
    pub fn wrote(&mut self, offset: u64, bytes: &[u8], size: u64, all: &AtomicUsize) {
        self.writes += 1;
        for Part { page, at, of } in parts(offset, bytes.len()) {
            let from = bytes.get(of).unwrap_or_default();
            match self.pages.get_mut(&page).and_then(|page| page.get_mut(at..at + from.len())) {
                Some(into) => into.copy_from_slice(from),
                // What is around it is not there: it reads as zeroes.
                None if from.len() == PAGE || page * PAGE as u64 >= size => {
                    self.put(page, at, from, all);
                }
                None => {}
            }
        }
    }

    fn put(&mut self, page: u64, at: usize, bytes: &[u8], all: &AtomicUsize) {
        if self.pages.len() >= MOST || all.load(Ordering::Relaxed) >= MOST_OF_ALL {
            self.clear(all);
        }
        if all.load(Ordering::Relaxed) >= MOST_OF_ALL {
            return;
        }
        let mut new = Box::new([0; PAGE]);
        if let Some(into) = new.get_mut(at..at + bytes.len()) {
            into.copy_from_slice(bytes);
        }
        if self.pages.insert(page, new).is_none() {
            all.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Forgets all pages. `all` counts those of the session.
    pub fn clear(&mut self, all: &AtomicUsize) {
        all.fetch_sub(self.pages.len(), Ordering::Relaxed);
        self.pages.clear();
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
