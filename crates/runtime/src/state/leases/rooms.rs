//! Room of leased files: unwritten blocks behind their ends that were set aside so that a program
//! appends at the storage's target, and are given back with the lease (`docs/design/target.md`,
//! "Appends").

use ahash::HashMap;
use siftfs_base::{Blocks, InodeNr, RangeSet};

/// What was set aside of each file, in blocks of the file. It was a hole before. Blocks of it may
/// have been written since, and then they are the file's.
#[derive(Debug, Default)]
pub struct Rooms(HashMap<InodeNr, RangeSet<Blocks>>);

impl Rooms {
    /// These blocks, which are holes, are about to be set aside.
    pub fn note(&mut self, ino: InodeNr, holes: &[(u64, u64)]) {
        if holes.is_empty() {
            return;
        }
        let room = self.0.entry(ino).or_default();
        holes.iter().for_each(|(first, end)| room.insert(*first, *end));
    }

    /// A caller of fallocate(2) has asked for these blocks: they stay, also if they were set aside.
    pub fn keep(&mut self, ino: InodeNr, first: u64, end: u64) {
        let Some(room) = self.0.get_mut(&ino) else { return };
        room.remove(first, end);
        if room.is_empty() {
            self.0.remove(&ino);
        }
    }

    /// Is anything set aside of the file?
    pub fn has(&self, ino: InodeNr) -> bool {
        self.0.contains_key(&ino)
    }

    /// What was set aside is no concern of these any more.
    pub fn take(&mut self, ino: InodeNr) -> RangeSet<Blocks> {
        self.0.remove(&ino).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "rooms_tests.rs"]
mod tests;
