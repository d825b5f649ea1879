//! What one operation changes that sessions may have cached.

use siftfs_base::InodeNr;
use std::collections::{BTreeMap, BTreeSet};

/// What an operation that is under way has changed so far. Nothing is noted while no session would
/// have to be told.
#[derive(Debug, Default)]
pub struct Changes {
    noted: Option<Box<Noted>>,
    /// A later fsync must not overtake the operation.
    ordered: bool,
}

/// What an operation changed.
#[derive(Debug, Default)]
pub struct Noted {
    /// Inodes whose attributes changed.
    pub attributes: BTreeSet<InodeNr>,
    /// Files whose bytes changed, and a range that has all of these.
    pub data: BTreeMap<InodeNr, (u64, u64)>,
    /// Files whose size may have changed, and what it was before.
    pub sizes: BTreeMap<InodeNr, u64>,
    /// Directories and names in them that changed.
    pub names: BTreeSet<(InodeNr, Vec<u8>)>,
}

impl Changes {
    /// An operation begins whose changes are to be noted, or not.
    pub fn begin(&mut self, wanted: bool) {
        self.noted = wanted.then(Default::default);
        self.ordered = false;
    }

    /// The operation does something that a later fsync must not overtake: it is counted for the
    /// sessions that lend.
    pub fn ordered(&mut self) {
        self.ordered = true;
    }

    /// Has the operation done such a thing?
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// What the operation changed, if that was to be noted.
    pub fn take(&mut self) -> Option<Box<Noted>> {
        self.noted.take()
    }

    /// The inode's attributes changed.
    pub fn attributes(&mut self, ino: InodeNr) {
        if let Some(noted) = &mut self.noted {
            noted.attributes.insert(ino);
        }
    }

    /// Bytes `[start, end)` of a file change, which is `size` bytes long before.
    pub fn data(&mut self, ino: InodeNr, (start, end): (u64, u64), size: u64) {
        if let Some(noted) = &mut self.noted {
            let range = noted.data.entry(ino).or_insert((start, end));
            *range = (range.0.min(start), range.1.max(end));
            noted.sizes.entry(ino).or_insert(size);
        }
    }

    /// A file's size may change, which is `size` before.
    pub fn size(&mut self, ino: InodeNr, size: u64) {
        if let Some(noted) = &mut self.noted {
            noted.sizes.entry(ino).or_insert(size);
        }
    }

    /// These names changed.
    pub fn names<'a>(&mut self, names: impl IntoIterator<Item = (InodeNr, &'a [u8])>) {
        if let Some(noted) = &mut self.noted {
            noted.names.extend(names.into_iter().map(|(dir, name)| (dir, name.to_vec())));
        }
    }
}
