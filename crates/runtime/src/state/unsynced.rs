//! Data that no fsync has asked for yet: whose it is, how much, and the space that it will need.

use siftfs_base::{BLOCK_BYTES, InodeNr};
use std::collections::BTreeSet;

/// Unsynced data of all inodes together. [`crate::state::tree::node::Node`] has the same of one
/// inode.
#[derive(Default)]
pub struct Unsynced {
    /// Inodes with dirty bytes.
    inodes: BTreeSet<InodeNr>,
    /// Bytes of the pages that hold a dirty byte.
    bytes: u64,
    /// Blocks reserved for delayed allocation, or held.
    reserved: u64,
    /// Blocks that nothing needs any more but a recovery before the next transaction is durable.
    held: u64,
    /// Those of the transaction in flight.
    held_in_flight: u64,
}

impl Unsynced {
    /// The inode has dirty bytes, and `pages` pages of it that had none before.
    pub fn dirtied(&mut self, ino: InodeNr, pages: u64) {
        self.bytes += pages * BLOCK_BYTES;
        self.inodes.insert(ino);
    }

    /// `pages` pages of the inode hold no dirty byte any more; `clean` says that none of it does.
    pub fn cleaned(&mut self, ino: InodeNr, pages: u64, clean: bool) {
        self.bytes -= pages * BLOCK_BYTES;
        if clean {
            self.inodes.remove(&ino);
        }
    }

    /// Space for `blocks` more blocks is promised to delayed data.
    pub fn reserve(&mut self, blocks: u64) {
        self.reserved += blocks;
    }

    /// `blocks` blocks are promised to bytes that are staged and that the running transaction
    /// removes. A recovery that finds their record and not the transaction needs the blocks, so
    /// they are free once that is journaled (rule R5).
    pub fn hold(&mut self, blocks: u64) {
        self.held += blocks;
    }

    /// The running transaction is cut.
    pub fn cut(&mut self) {
        self.held_in_flight += std::mem::take(&mut self.held);
    }

    /// The transaction in flight is durable.
    pub fn journaled(&mut self) {
        self.reserved -= std::mem::take(&mut self.held_in_flight);
    }

    /// The promise for `blocks` blocks is kept, or needed no more.
    pub fn unreserve(&mut self, blocks: u64) {
        self.reserved -= blocks;
    }

    /// Is no byte dirty?
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty()
    }

    /// Inodes with dirty bytes, ascending.
    pub fn inodes(&self) -> impl Iterator<Item = InodeNr> + '_ {
        self.inodes.iter().copied()
    }

    /// Bytes of the pages that hold a dirty byte.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Blocks reserved for delayed allocation, or held.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }
}

#[cfg(test)]
#[path = "unsynced_tests.rs"]
mod tests;
