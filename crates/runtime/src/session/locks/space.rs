//! The locks of one file's bytes, or those of one file as a whole, and the requests that wait for
//! them.

use super::owned::{Owned, OwnerId};
use siftfs_base::InodeNr;
use siftfs_proto::{HeldLock, LockKind, LockRange};
use std::collections::BTreeMap;

/// Locks of bytes and of whole files know nothing of each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct SpaceId {
    pub(super) ino: InodeNr,
    pub(super) whole: bool,
}

/// A wait's place in the order of all.
pub(super) type Serial = u64;

#[derive(Default)]
pub(super) struct Space {
    pub(super) owners: BTreeMap<OwnerId, Owned>,
    /// Each wait with one of the owners that are in its way: while that one gives nothing up, the
    /// wait goes on.
    pub(super) queue: BTreeMap<Serial, OwnerId>,
}

impl Space {
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty() && self.queue.is_empty()
    }

    /// Another owner that keeps this one from a lock, and by which lock.
    pub(super) fn conflict(
        &self,
        owner: OwnerId,
        of: LockRange,
        kind: LockKind,
    ) -> Option<(OwnerId, HeldLock)> {
        let others = self.owners.iter().filter(|(other, _)| **other != owner);
        others.filter_map(|(other, owned)| Some((*other, owned.refuses(of, kind)?))).next()
    }

    /// All owners that do.
    pub(super) fn in_the_way(
        &self,
        owner: OwnerId,
        of: LockRange,
        kind: LockKind,
    ) -> impl Iterator<Item = OwnerId> {
        let others = self.owners.iter().filter(move |(other, _)| **other != owner);
        others.filter(move |(_, owned)| owned.refuses(of, kind).is_some()).map(|(other, _)| *other)
    }

    /// The waits that may go on now that these owners have given something up, in their order.
    pub(super) fn behind(&self, freed: &[OwnerId]) -> Vec<Serial> {
        let behind = self.queue.iter().filter(|(_, by)| freed.contains(by));
        behind.map(|(serial, _)| *serial).collect()
    }
}
