//! The page cache: whole 4096-byte pages of regular files, bounded, evicted by second chance.
//! A page in the cache is always complete and current; which of its bytes are dirty is the
//! inode's business.

use crate::state::caches::eviction::{EvictionOrder, Fate, most};
use crate::state::costs;
use siftfs_base::{BLOCK_SIZE, InodeNr, SharedBlock};
use std::collections::BTreeMap;

/// Pages that lie side by side, so that a walk over a file does not search for each.
const CHUNK: u64 = 16;

/// A page of a regular file.
pub struct Page {
    /// The page's bytes; those beyond the end of the file are zero. They are shared with what is on
    /// its way to the area or to a reader.
    pub data: SharedBlock,
    referenced: bool,
}

/// Pages `[CHUNK * n, CHUNK * (n + 1))` of an inode; never without one.
#[derive(Default)]
struct Chunk {
    pages: [Option<Page>; CHUNK as usize],
    used: usize,
}

/// Pages by inode and index.
pub struct PageCache {
    chunks: BTreeMap<(InodeNr, u64), Box<Chunk>>,
    len: usize,
    order: EvictionOrder<(InodeNr, u64)>,
    limit: usize,
}

/// The chunk and the place in it of a page.
fn place(index: u64) -> (u64, usize) {
    (index / CHUNK, (index % CHUNK) as usize)
}

fn pages(bytes: u64) -> usize {
    usize::try_from(bytes / BLOCK_SIZE as u64).unwrap_or(usize::MAX).max(1024)
}

impl PageCache {
    /// A cache of at most `bytes` bytes (at least 1024 pages, so that a request fits).
    pub fn new(bytes: u64) -> Self {
        let order = EvictionOrder::default();
        Self { chunks: BTreeMap::new(), len: 0, order, limit: pages(bytes) }
    }

    /// Sets the bound that [`PageCache::shrink`] keeps to, in bytes.
    pub fn set_limit(&mut self, bytes: u64) {
        self.limit = pages(bytes);
    }

    /// Pages the cache may hold.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Pages the cache holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> u64 {
        let chunks = self.chunks.len() * (size_of::<Chunk>() + costs::PAGE);
        (self.len * (BLOCK_SIZE + costs::BLOCK) + chunks) as u64 + self.order.bytes()
    }

    fn page_mut(&mut self, ino: InodeNr, index: u64) -> Option<&mut Page> {
        let (chunk, at) = place(index);
        self.chunks.get_mut(&(ino, chunk))?.pages[at].as_mut()
    }

    /// The page, if cached.
    pub fn get(&mut self, ino: InodeNr, index: u64) -> Option<&Page> {
        let page = self.page_mut(ino, index)?;
        page.referenced = true;
        Some(page)
    }

    /// The page, if cached, without marking it as used.
    pub fn peek(&self, ino: InodeNr, index: u64) -> Option<&Page> {
        let (chunk, at) = place(index);
        self.chunks.get(&(ino, chunk))?.pages[at].as_ref()
    }

    /// The page's bytes to be changed, if cached; a copy if another reference to them exists.
    pub fn get_mut(&mut self, ino: InodeNr, index: u64) -> Option<&mut [u8; BLOCK_SIZE]> {
        let page = self.page_mut(ino, index)?;
        page.referenced = true;
        Some(page.data.make_mut())
    }

    /// Is the page cached?
    pub fn contains(&self, ino: InodeNr, index: u64) -> bool {
        self.peek(ino, index).is_some()
    }

    /// Puts a complete page in; returns the one that was there.
    pub fn insert(&mut self, ino: InodeNr, index: u64, data: SharedBlock) -> Option<SharedBlock> {
        let (number, at) = place(index);
        let chunk = self.chunks.entry((ino, number)).or_default();
        let old = chunk.pages[at].replace(Page { data, referenced: true });
        if old.is_none() {
            chunk.used += 1;
            self.len += 1;
            self.order.push((ino, index));
        }
        old.map(|page| page.data)
    }

    fn remove(&mut self, ino: InodeNr, index: u64) {
        let (number, at) = place(index);
        let Some(chunk) = self.chunks.get_mut(&(ino, number)) else { return };
        if chunk.pages[at].take().is_some() {
            self.len -= 1;
            chunk.used -= 1;
            if chunk.used == 0 {
                self.chunks.remove(&(ino, number));
            }
        }
    }

    /// Forgets pages `[from, to)` of an inode.
    pub fn remove_range(&mut self, ino: InodeNr, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let chunks = (ino, from / CHUNK)..=(ino, (to - 1) / CHUNK);
        let some: Vec<u64> = self.chunks.range(chunks).map(|((_, number), _)| *number).collect();
        for number in some {
            let first = number * CHUNK;
            for index in first.max(from)..to.min(first.saturating_add(CHUNK)) {
                self.remove(ino, index);
            }
        }
    }

    /// Evicts pages that `busy` does not claim until the cache is within its bound, or enough pages
    /// were checked for one call.
    pub fn shrink(&mut self, mut busy: impl FnMut(InodeNr, u64) -> bool) {
        let mut order = std::mem::take(&mut self.order);
        let excess = self.len.saturating_sub(self.limit);
        order.sweep(self.len, self.limit, most(excess), |(ino, index), evict| {
            let Some(page) = self.page_mut(ino, index) else { return Fate::Gone };
            if !evict || std::mem::take(&mut page.referenced) || busy(ino, index) {
                return Fate::Kept;
            }
            self.remove(ino, index);
            Fate::Evicted
        });
        self.order = order;
    }
}

#[cfg(test)]
#[path = "page_cache_tests.rs"]
mod tests;
