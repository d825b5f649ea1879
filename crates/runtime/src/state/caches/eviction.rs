//! The order in which a cache considers what it holds for eviction: oldest first, and what is kept
//! comes again as the youngest (second chance). The three caches share it.

use std::collections::VecDeque;

/// Keys beyond twice what the cache holds that the order may name: smaller ones are not tidied.
const SMALL: usize = 64;
/// An order with less room than this, in keys, gives none back.
const ROOM: usize = 1024;

/// What a cache answers for a key that it is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The cache does not hold it any more.
    Gone,
    /// The cache goes on holding it.
    Kept,
    /// The cache held it until now.
    Evicted,
}

/// Keys of a cache, oldest first. Those of what is gone are among them until a sweep finds them.
#[derive(Debug)]
pub struct EvictionOrder<K>(VecDeque<K>);

impl<K> Default for EvictionOrder<K> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: Copy> EvictionOrder<K> {
    /// `key` has come into the cache.
    pub fn push(&mut self, key: K) {
        self.0.push_back(key);
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<K>()) as u64
    }

    /// Asks `consider` about keys, oldest first, until the cache, which holds `held` things now,
    /// holds `limit` at most and few keys name nothing, or `most` were asked about: the work is
    /// spread over the operations. `consider` is told whether the cache is to lose something, and
    /// evicts only then.
    pub fn sweep(
        &mut self,
        mut held: usize,
        limit: usize,
        most: usize,
        mut consider: impl FnMut(K, bool) -> Fate,
    ) {
        let mut left = most.min(self.0.len() * 2);
        while (held > limit || self.0.len() > held * 2 + SMALL) && left > 0 {
            left -= 1;
            let Some(key) = self.0.pop_front() else { break };
            match consider(key, held > limit) {
                Fate::Gone => {}
                Fate::Kept => self.0.push_back(key),
                Fate::Evicted => {
                    assert!(held > limit, "a cache within its bound evicts nothing");
                    held -= 1;
                }
            }
        }
        if self.0.capacity() > ROOM && self.0.capacity() / 4 > self.0.len() {
            self.0.shrink_to(2 * self.0.len());
        }
    }
}

/// Keys to be asked about at most in one sweep, by what the cache holds beyond its bound.
pub fn most(excess: usize) -> usize {
    64 + 4 * excess
}

#[cfg(test)]
#[path = "eviction_tests.rs"]
mod tests;
