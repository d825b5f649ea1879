//! What the running transaction owes of the overlays: ranges that are staged or zeroed, and that no
//! transaction has journaled.

use crate::state::room::tag_blocks;
use siftfs_base::InodeNr;
use std::collections::BTreeSet;

/// Overlay ranges that wait for the next transaction, and how much of it they take at most (rule
/// R10).
#[derive(Default)]
pub struct OverlayDebt {
    /// Inodes with such ranges.
    inodes: BTreeSet<InodeNr>,
    /// Ranges made since the last cut: an upper bound of its tags.
    ranges: usize,
    /// Inodes with ranges that have no home yet.
    homeless_inodes: BTreeSet<InodeNr>,
    /// Ranges that have no home yet.
    homeless: usize,
    /// Blocks in them, an upper bound.
    homeless_blocks: usize,
    /// Extent tree blocks that homes for them may change, if the space is not scattered.
    tree_blocks: usize,
    /// Staged bytes in them, an upper bound: what covers others counts as well as they.
    bytes: u64,
    /// Inodes with physical ranges, which need neither home nor tag.
    physical_inodes: BTreeSet<InodeNr>,
    /// Physical ranges staged since the last cut, those included that are covered by others.
    physical: u32,
}

impl OverlayDebt {
    /// One more range of the inode's overlay waits for the next transaction, with `bytes` staged
    /// bytes (none if it is zeroed).
    pub fn note(&mut self, ino: InodeNr, bytes: u64) {
        self.bytes += bytes;
        self.inodes.insert(ino);
        self.ranges += 1;
    }

    /// A physical range was staged. Nothing is to be done for it before the cut, but a Service that
    /// replays the transaction takes as much memory as for a tag.
    pub fn note_physical(&mut self, ino: InodeNr) {
        self.physical_inodes.insert(ino);
        self.physical += 1;
        self.ranges += 1;
    }

    /// Physical ranges staged since the last cut.
    pub fn physical(&self) -> u32 {
        self.physical
    }

    /// Inodes that have or had some of them.
    pub fn physical_inodes(&self) -> impl Iterator<Item = InodeNr> + '_ {
        self.physical_inodes.iter().copied()
    }

    /// A noted range of `blocks` blocks has unmapped ones. Mapping it changes at most `tree_blocks`
    /// blocks of the extent tree, the inode, a bitmap and its descriptor.
    pub fn note_homeless(&mut self, ino: InodeNr, tree_blocks: usize, blocks: usize) {
        self.homeless_blocks += blocks;
        if self.homeless_inodes.insert(ino) {
            self.tree_blocks += tree_blocks + 1;
        } else if tree_blocks > 1 {
            // Another range, perhaps another leaf.
            self.tree_blocks += 1;
        }
        self.homeless += 1;
    }

    /// Is no range without its tag?
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty()
    }

    /// Inodes with ranges that no transaction has journaled, ascending.
    pub fn inodes(&self) -> impl Iterator<Item = InodeNr> + '_ {
        self.inodes.iter().copied()
    }

    /// Ranges made since the last cut.
    pub fn ranges(&self) -> usize {
        self.ranges
    }

    /// Images and descriptors that the ranges cost at most, in journal blocks, on a volume with
    /// `groups` block groups. What overwrites blocks that have a home costs its tags alone. What it
    /// costs to repeat [`OverlayDebt::bytes`] comes on top.
    pub fn blocks(&self, groups: usize) -> usize {
        self.home_blocks(groups) + tag_blocks(self.ranges)
    }

    /// Those of them that homes may change: of the trees, bitmaps and descriptors.
    fn home_blocks(&self, groups: usize) -> usize {
        self.tree_blocks + 2 * self.homeless.min(groups)
    }

    /// What homes change at most if the space is so scattered that each block is an extent, its
    /// leaf is split, and the group is another one: far more than [`OverlayDebt::blocks`] counts.
    pub fn most_for_homes(&self, groups: usize) -> usize {
        3 * self.home_blocks(groups) + self.homeless_blocks + 2 * groups
    }

    /// Staged bytes that the transaction may have to repeat, an upper bound.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The inode's overlay is gone. The bounds stay: they are upper ones.
    pub fn forget(&mut self, ino: InodeNr) {
        self.inodes.remove(&ino);
        self.physical_inodes.remove(&ino);
    }

    /// The transaction under assembly has a tag for every range. The bounds stay until its cut.
    pub fn tagged(&mut self) {
        self.inodes.clear();
    }

    /// The transaction is cut, after [`OverlayDebt::tagged`]: the next one begins with nothing.
    pub fn cut(&mut self) {
        *self = Self { inodes: std::mem::take(&mut self.inodes), ..Self::default() };
    }
}

#[cfg(test)]
#[path = "overlay_debt_tests.rs"]
mod tests;
