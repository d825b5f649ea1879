//! The page cache: whole 4096-byte pages of regular files, bounded, evicted by second chance.
//! A page in the cache is always complete and current; which of its bytes are dirty is the
//! inode's business.

use siftfs_base::{BLOCK_SIZE, InodeNr, SharedBlock};
use std::collections::{BTreeMap, VecDeque};

/// One page.
pub struct Page {
    /// Its bytes; those beyond the end of the file are zero. Shared with what is on its way to
    /// the area.
    pub data: SharedBlock,
    referenced: bool,
}

/// Pages by inode and index.
pub struct PageCache {
    pages: BTreeMap<(InodeNr, u64), Page>,
    clock: VecDeque<(InodeNr, u64)>,
    limit: usize,
}

impl PageCache {
    /// A cache of at most `bytes` bytes (at least 1024 pages, so that a request fits).
    pub fn new(bytes: u64) -> Self {
        let limit = usize::try_from(bytes / BLOCK_SIZE as u64).unwrap_or(usize::MAX).max(1024);
        Self { pages: BTreeMap::new(), clock: VecDeque::new(), limit }
    }

    /// Pages the cache may hold.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Pages it holds.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// The page, if cached.
    pub fn get(&mut self, ino: InodeNr, index: u64) -> Option<&Page> {
        let page = self.pages.get_mut(&(ino, index))?;
        page.referenced = true;
        Some(page)
    }

    /// The page, if cached, without marking it as used.
    pub fn peek(&self, ino: InodeNr, index: u64) -> Option<&Page> {
        self.pages.get(&(ino, index))
    }

    /// The page's bytes to be changed, if cached; a copy if somebody else still has them.
    pub fn get_mut(&mut self, ino: InodeNr, index: u64) -> Option<&mut [u8; BLOCK_SIZE]> {
        let page = self.pages.get_mut(&(ino, index))?;
        page.referenced = true;
        Some(page.data.make_mut())
    }

    /// Is the page cached?
    pub fn contains(&self, ino: InodeNr, index: u64) -> bool {
        self.pages.contains_key(&(ino, index))
    }

    /// Puts a complete page in.
    pub fn insert(&mut self, ino: InodeNr, index: u64, data: SharedBlock) {
        if self.pages.insert((ino, index), Page { data, referenced: true }).is_none() {
            self.clock.push_back((ino, index));
        }
    }

    /// Forgets pages `[from, to)` of an inode.
    pub fn remove_range(&mut self, ino: InodeNr, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let gone: Vec<_> = self.pages.range((ino, from)..(ino, to)).map(|(k, _)| *k).collect();
        for key in gone {
            self.pages.remove(&key);
        }
    }

    /// Evicts pages that `busy` does not claim until the cache is within its bound, or enough pages
    /// were looked at for one call: the work is spread over the operations. The clock holds stale keys of removed pages; they are dropped here.
    pub fn shrink(&mut self, mut busy: impl FnMut(InodeNr, u64) -> bool) {
        let excess = self.pages.len().saturating_sub(self.limit);
        let mut looks = (64 + 4 * excess).min(self.clock.len() * 2);
        while (self.pages.len() > self.limit || self.clock.len() > self.pages.len() * 2 + 64)
            && looks > 0
        {
            looks -= 1;
            let within = self.pages.len() <= self.limit;
            let Some(key) = self.clock.pop_front() else { break };
            let Some(page) = self.pages.get_mut(&key) else { continue };
            if page.referenced && !within {
                page.referenced = false;
                self.clock.push_back(key);
            } else if within || busy(key.0, key.1) {
                self.clock.push_back(key);
            } else {
                self.pages.remove(&key);
            }
        }
    }
}
