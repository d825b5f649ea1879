//! The owners that there are, and in which leaves each of them has something.

use super::entry::Owner;
use super::leaf::LEAF_SPAN;
use siftfs_base::{Blocks, Error, RangeSet, Result};
use std::collections::HashMap;

/// Owners at once.
pub(super) const MOST_OWNERS: usize = 64 << 10;

/// Bytes of an owner's place in the map, and of its first leaves.
const OWNER_BYTES: usize = 48 + 208;

/// Bytes of a run of leaves of an owner.
pub(super) const RUN_BYTES: usize = 40;

/// The unit of ranges of leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {}

#[derive(Default)]
pub(super) struct Owners {
    /// By the owners' ids: every leaf that has an entry of the owner, and perhaps others.
    leaves: HashMap<u32, RangeSet<Leaves>>,
    /// Runs of leaves of all owners together.
    runs: usize,
    last: u32,
}

fn unknown() -> Error {
    Error::Refused("there is no such owner".into())
}

impl Owners {
    /// One more, with an id that none has.
    ///
    /// # Errors
    /// Refused: there are too many.
    pub fn add(&mut self) -> Result<Owner> {
        if self.leaves.len() >= MOST_OWNERS {
            return Err(Error::Refused(format!("there are {MOST_OWNERS} owners already")));
        }
        loop {
            self.last = self.last.wrapping_add(1);
            let owner = Owner::of(self.last).filter(|o| !self.leaves.contains_key(&o.id()));
            if let Some(owner) = owner {
                self.leaves.insert(owner.id(), RangeSet::new());
                return Ok(owner);
            }
            // The ids below 2^31 are used up, or this one is in use.
            self.last %= 1 << 31;
        }
    }

    /// Is this owner there?
    ///
    /// # Errors
    /// Refused: it is not.
    pub fn find(&self, owner: Owner) -> Result<()> {
        self.leaves.get(&owner.id()).map(drop).ok_or_else(unknown)
    }

    /// The owner has something in these leaves.
    pub fn touch(&mut self, owner: Owner, leaves: &RangeSet<Leaves>) {
        let Some(own) = self.leaves.get_mut(&owner.id()) else { return };
        self.runs -= own.ranges();
        own.union(leaves);
        self.runs += own.ranges();
    }

    /// Where the owner has something. It is an owner no more.
    ///
    /// # Errors
    /// Refused: it was not one.
    pub fn remove(&mut self, owner: Owner) -> Result<RangeSet<Leaves>> {
        let leaves = self.leaves.remove(&owner.id()).ok_or_else(unknown)?;
        self.runs -= leaves.ranges();
        Ok(leaves)
    }

    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Bytes of memory, at most.
    pub fn bytes(&self) -> usize {
        self.leaves.len() * OWNER_BYTES + self.runs * RUN_BYTES
    }

    /// Bytes that one more owner takes.
    pub const fn bytes_of_one() -> usize {
        OWNER_BYTES
    }
}

/// The leaves in which these blocks lie.
pub(super) fn leaves_of(blocks: &RangeSet<Blocks>) -> RangeSet<Leaves> {
    let mut leaves = RangeSet::new();
    for (start, end) in blocks.iter() {
        leaves.insert(start / LEAF_SPAN, end.div_ceil(LEAF_SPAN));
    }
    leaves
}

/// The numbers of leaves, in order.
pub(super) fn numbers(leaves: &RangeSet<Leaves>) -> impl Iterator<Item = u64> {
    leaves.iter().flat_map(|(start, end)| start..end)
}

#[cfg(test)]
#[path = "owners_tests.rs"]
mod tests;
