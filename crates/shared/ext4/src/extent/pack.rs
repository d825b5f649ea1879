//! How tightly trees are kept.
//!
//! e2fsck offers to optimise a tree one of whose levels has more than one node's worth of free
//! entries. A node that overflows therefore shares with neighbours that have room before it is
//! split, and a node that shrinks is merged with its neighbourhood as soon as that fits one node
//! fewer. Both search no farther than [`REACH`], so that one change touches a bounded number of
//! blocks; a tree of more leaves than that can become looser, and [`Fs::tidy`] packs it.

use std::ops::Range;

use siftfs_base::{BlockNr, Result};

use super::node::{Entry, child, first_key, index, key};
use crate::format::*;
use crate::fs::{Fs, Layout};
use crate::inode::Inode;
use crate::store::BlockStore;

/// Neighbours on each side that a full or shrunken node is settled with, and one less than the
/// nodes rewritten at once.
pub(super) const REACH: usize = 32;

/// Entries that [`Fs::tidy`] holds in memory at most.
const TIDY_MAX: usize = 1 << 20;

/// `total` entries over `nodes` nodes, as even as can be.
pub(super) fn even(total: usize, nodes: usize) -> Vec<usize> {
    let (each, more) = (total / nodes.max(1), total % nodes.max(1));
    (0..nodes).map(|i| each + usize::from(i < more)).collect()
}

/// `total` entries in full nodes and a last one with the rest.
pub(super) fn full(total: usize) -> Vec<usize> {
    let nodes = total.div_ceil(NODE_ENTRIES);
    (0..nodes).map(|i| (total - i * NODE_ENTRIES).min(NODE_ENTRIES)).collect()
}

/// The children of one node, as far as they were read.
pub(super) struct Family {
    /// The parent's entries.
    pub members: Vec<Entry>,
    /// Entries of each member; `None` beyond reach.
    pub sizes: Vec<Option<usize>>,
    /// The member that is being changed.
    pub pos: usize,
    /// Depth of the members.
    pub depth: u16,
}

impl Family {
    /// The members in `range`.
    pub fn part(&self, range: &Range<usize>) -> &[Entry] {
        self.members.get(range.clone()).expect("a range of the members")
    }

    /// The smallest range of members around the changed one, which has `own` entries now, whose
    /// number and total please `fits`; the total too.
    fn smallest(
        &self,
        own: usize,
        fits: impl Fn(usize, usize) -> bool,
    ) -> Option<(Range<usize>, usize)> {
        let lo = self.pos.saturating_sub(REACH);
        // Entries before each of the members in reach, and behind the last.
        let mut sums = vec![0];
        let mut total = 0;
        for (i, size) in self.sizes.iter().enumerate().take(self.pos + REACH + 1).skip(lo) {
            total += if i == self.pos { own } else { size.unwrap_or(NODE_ENTRIES) };
            sums.push(total);
        }
        let (at, known) = (self.pos - lo, sums.len() - 1);
        for width in 2..=(REACH + 1).min(known) {
            let first = (at + 1).saturating_sub(width);
            let ranges = sums.iter().zip(sums.iter().skip(width)).enumerate();
            for (start, (before, upto)) in ranges.take(at + 1).skip(first) {
                let total = upto - before;
                if fits(width, total) {
                    return Some((lo + start..lo + start + width, total));
                }
            }
        }
        None
    }

    /// The smallest neighbourhood that has room for a node grown to `own` entries.
    pub fn share(&self, own: usize) -> Option<(Range<usize>, usize)> {
        self.smallest(own, |width, total| total <= width * NODE_ENTRIES)
    }

    /// The smallest neighbourhood that would have more than a node to spare, after one of it
    /// shrank to `own` entries.
    pub fn shrink(&self, own: usize) -> Option<(Range<usize>, usize)> {
        self.smallest(own, |width, total| total > 0 && total < (width - 1) * NODE_ENTRIES)
    }
}

/// A whole tree, read for packing.
#[derive(Default)]
struct Whole {
    /// Entries of all leaves.
    extents: Vec<Entry>,
    /// Nodes of each depth, leaves first.
    nodes: Vec<Vec<BlockNr>>,
}

impl Whole {
    /// Has any level more than a node's worth of free entries?
    fn loose(&self) -> bool {
        let mut entries = self.extents.len();
        self.nodes.iter().any(|level| {
            let loose = level.len() * NODE_ENTRIES > entries + NODE_ENTRIES;
            entries = level.len();
            loose
        })
    }
}

impl Fs {
    /// Packs the tree if it is loose enough for e2fsck to remark on it; says whether it did.
    /// Rewrites every tree block then, so it belongs in a transaction with room for them (see
    /// [`Layout::tree_blocks`](crate::Layout::tree_blocks)); trees of more than a million extents
    /// are left alone. The caller writes the inode.
    pub fn tidy(&mut self, store: &mut dyn BlockStore, inode: &mut Inode) -> Result<bool> {
        let Some(whole) = self.layout.whole_tree(store, inode)? else {
            return Ok(false);
        };
        if !whole.loose() {
            return Ok(false);
        }
        let mut free: Vec<BlockNr> = whole.nodes.iter().flatten().copied().rev().collect();
        let (mut entries, mut depth) = (whole.extents, 0);
        while entries.len() > ROOT_ENTRIES {
            let (mut above, mut rest) = (Vec::new(), entries.as_slice());
            for count in full(entries.len()) {
                let (part, tail) = rest.split_at(count);
                rest = tail;
                // A packed tree needs no more blocks at any level than the loose one had.
                let Some(nr) = free.pop() else { unreachable!("packing needs no new block") };
                self.layout.put_node(store, inode, Some(nr), depth, part, false)?;
                above.push(index(first_key(part), nr));
            }
            entries = above;
            depth += 1;
        }
        self.layout.put_node(store, inode, None, depth, &entries, false)?;
        for nr in free {
            self.free_tree_block(store, inode, nr)?;
        }
        Ok(true)
    }
}

impl Layout {
    /// Number of tree blocks outside the inode, by reading every node above the leaves.
    pub fn tree_blocks(&self, store: &mut dyn BlockStore, inode: &Inode) -> Result<u64> {
        let (head, all) = self.root(inode)?;
        let (mut level, mut total) = (all.to_vec(), 0);
        for depth in (0..head.depth).rev() {
            total += level.len() as u64;
            if depth == 0 {
                break;
            }
            let mut below = Vec::new();
            for e in &level {
                below.extend_from_slice(self.node(store, inode, child(e), depth, key(e))?.1);
            }
            level = below;
        }
        Ok(total)
    }

    /// Most tree blocks that one insertion, conversion or leaf's worth of removal changes.
    pub fn worst_case_touched(&self, inode: &Inode) -> Result<u64> {
        let depth = u64::from(self.root(inode)?.0.depth);
        Ok(match depth {
            0 => 1,
            1 => ROOT_ENTRIES as u64 + 2,
            _ => (REACH as u64 + 2) * depth,
        })
    }

    /// Every node and extent; `None` for a tree that is its root alone, or too big.
    fn whole_tree(&self, store: &mut dyn BlockStore, inode: &Inode) -> Result<Option<Whole>> {
        let (head, all) = self.root(inode)?;
        if head.depth == 0 {
            return Ok(None);
        }
        let (mut level, mut whole) = (all.to_vec(), Whole::default());
        for depth in (0..head.depth).rev() {
            let mut below = Vec::new();
            for e in &level {
                below.extend_from_slice(self.node(store, inode, child(e), depth, key(e))?.1);
                if below.len() > TIDY_MAX {
                    return Ok(None);
                }
            }
            whole.nodes.insert(0, level.iter().map(child).collect());
            level = below;
        }
        whole.extents = level;
        Ok(Some(whole))
    }
}
