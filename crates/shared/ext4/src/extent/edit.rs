//! Changing a tree: every change replaces some entries of one node, and what does not fit, or
//! leaves too much room, is settled with the neighbours and then one level up.

use std::ops::Range;

use siftfs_base::{BLOCK_BYTES, BlockNr, BlockRun, Result, errno};

use super::map::{MAX_FILE_BLOCKS, position};
use super::node::{Entry, Extent, Header, Place, child, first_key, index, key};
use super::pack::{Family, REACH, even, full};
use crate::format::*;
use crate::fs::{Fs, Layout};
use crate::inode::Inode;
use crate::store::BlockStore;

/// 512-byte units in a block.
pub(super) const UNITS: u64 = BLOCK_BYTES / 512;

/// A node on the way from the root to a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub place: Place,
    /// The logical block in the parent's entry.
    pub first: u32,
    pub depth: u16,
    /// Which entry leads on, or covers the block searched for (in a leaf: the last at or before).
    pub pos: Option<usize>,
}

/// The way to a leaf, and the leaf.
pub(super) struct Path {
    /// Root first.
    pub steps: Vec<Step>,
    /// Entries of the leaf.
    pub leaf: Vec<Entry>,
    /// First logical block that belongs to the next leaf.
    pub upper: u64,
}

impl Path {
    /// Where in the leaf the block searched for is, or would go behind.
    pub fn pos(&self) -> Option<usize> {
        self.steps.last().and_then(|s| s.pos)
    }

    /// The leaf's extent at `i`.
    pub fn extent(&self, i: usize) -> Extent {
        Extent::decode(self.leaf.get(i).expect("a place in the leaf"))
    }
}

impl Layout {
    /// Entries of a node.
    fn load(&self, store: &mut dyn BlockStore, inode: &Inode, step: &Step) -> Result<Vec<Entry>> {
        Ok(match step.place {
            None => self.root(inode)?.1.to_vec(),
            Some(nr) => self.node(store, inode, nr, step.depth, step.first)?.1.to_vec(),
        })
    }

    /// The way to the leaf where `lblk` is or would be.
    pub(super) fn descend(
        &self,
        store: &mut dyn BlockStore,
        inode: &Inode,
        lblk: u32,
    ) -> Result<Path> {
        let (head, all) = self.root(inode)?;
        let mut leaf = all.to_vec();
        let mut step = Step { place: None, first: 0, depth: head.depth, pos: None };
        let (mut steps, mut upper) = (Vec::new(), MAX_FILE_BLOCKS);
        loop {
            step.pos = position(&leaf, lblk);
            if step.depth == 0 {
                steps.push(step);
                return Ok(Path { steps, leaf, upper });
            }
            // A block before the first entry goes into the first child.
            let pos = step.pos.unwrap_or(0);
            step.pos = Some(pos);
            upper = leaf.get(pos + 1).map_or(upper, |e| upper.min(u64::from(key(e))));
            let Some(entry) = leaf.get(pos) else {
                unreachable!("nodes above the leaves have entries")
            };
            let (place, first, depth) = (Some(child(entry)), key(entry), step.depth - 1);
            steps.push(step);
            step = Step { place, first, depth, pos: None };
            leaf = self.load(store, inode, &step)?;
        }
    }

    /// All nodes under the parent of `step`, with their sizes.
    fn family(
        &self,
        store: &mut dyn BlockStore,
        inode: &Inode,
        parents: &[Step],
        step: &Step,
    ) -> Result<Family> {
        let Some(parent) = parents.last() else { unreachable!("only the root has no parent") };
        let members = self.load(store, inode, parent)?;
        let pos = parent_pos(parents);
        let lo = pos.saturating_sub(REACH);
        let hi = (pos + REACH + 1).min(members.len());
        let mut sizes = vec![None; members.len()];
        for (slot, entry) in sizes.iter_mut().zip(&members).take(hi).skip(lo) {
            let (h, _) = self.node(store, inode, child(entry), step.depth, key(entry))?;
            *slot = Some(h.entries);
        }
        Ok(Family { members, sizes, pos, depth: step.depth })
    }

    /// Entries of the members in `range`, with `own` for the node that is being changed.
    fn gather(
        &self,
        store: &mut dyn BlockStore,
        inode: &Inode,
        family: &Family,
        range: &Range<usize>,
        own: &[Entry],
    ) -> Result<Vec<Entry>> {
        let mut out = Vec::new();
        for (i, entry) in range.clone().zip(family.part(range)) {
            if i == family.pos {
                out.extend_from_slice(own);
                continue;
            }
            let (_, all) = self.node(store, inode, child(entry), family.depth, key(entry))?;
            out.extend_from_slice(all);
        }
        Ok(out)
    }
}

impl Fs {
    /// Replaces entries `range` of the leaf by `new` and settles the tree. The path is stale
    /// afterwards.
    pub(super) fn edit_leaf(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        path: &Path,
        range: Range<usize>,
        new: &[Entry],
    ) -> Result<()> {
        self.splice(store, inode, &path.steps, range, new)?;
        self.collapse(store, inode)
    }

    /// Replaces entries of the last node of `steps`.
    fn splice(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        steps: &[Step],
        range: Range<usize>,
        new: &[Entry],
    ) -> Result<()> {
        let Some((step, parents)) = steps.split_last() else { unreachable!("a way has a root") };
        let mut all = self.layout.load(store, inode, step)?;
        let (before, at_end) = (all.len(), range.end == all.len());
        all.splice(range, new.iter().copied());
        let Some(nr) = step.place else {
            return self.put_root(store, inode, step.depth, &all);
        };
        if all.len() > NODE_ENTRIES {
            return self.spread(store, inode, parents, step, all, at_end);
        }
        if all.len() < before && self.merge(store, inode, parents, step, &all)? {
            return Ok(());
        }
        let Some(first) = all.first().map(key) else {
            let pos = parent_pos(parents);
            self.free_tree_block(store, inode, nr)?;
            return self.splice(store, inode, parents, pos..pos + 1, &[]);
        };
        self.layout.put_node(store, inode, step.place, step.depth, &all, false)?;
        if first != step.first {
            let pos = parent_pos(parents);
            self.splice(store, inode, parents, pos..pos + 1, &[index(first, nr)])?;
        }
        Ok(())
    }

    /// Writes the root, or pushes its entries down into a block if they are too many.
    fn put_root(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        depth: u16,
        all: &[Entry],
    ) -> Result<()> {
        if all.len() <= ROOT_ENTRIES {
            let depth = if all.is_empty() { 0 } else { depth };
            return self.layout.put_node(store, inode, None, depth, all, false);
        }
        assert!(depth < MAX_DEPTH, "an extent tree of inode {} grew too deep", inode.ino);
        let nr = self.alloc_tree_block(store, inode)?;
        self.layout.put_node(store, inode, Some(nr), depth, all, true)?;
        let entry = index(first_key(all), nr);
        self.layout.put_node(store, inode, None, depth + 1, &[entry], false)
    }

    /// `all` is too much for the node: shares with the nearest neighbour that has room, else
    /// splits. Appending leaves full nodes behind.
    fn spread(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        parents: &[Step],
        step: &Step,
        all: Vec<Entry>,
        at_end: bool,
    ) -> Result<()> {
        let family = self.layout.family(store, inode, parents, step)?;
        if let Some((range, total)) = family.share(all.len()) {
            let merged = self.layout.gather(store, inode, &family, &range, &all)?;
            let last = at_end && range.end == family.pos + 1;
            let counts = if last { full(total) } else { even(total, range.len()) };
            return self.replace(store, inode, parents, &family, range, &merged, &counts);
        }
        let counts =
            if at_end { vec![NODE_ENTRIES, all.len() - NODE_ENTRIES] } else { even(all.len(), 2) };
        let range = family.pos..family.pos + 1;
        self.replace(store, inode, parents, &family, range, &all, &counts)
    }

    /// The node shrank to `all`: takes a node out if its neighbourhood fits one fewer. False if
    /// not, and nothing was done.
    fn merge(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        parents: &[Step],
        step: &Step,
        all: &[Entry],
    ) -> Result<bool> {
        let family = self.layout.family(store, inode, parents, step)?;
        let Some((range, total)) = family.shrink(all.len()) else {
            return Ok(false);
        };
        let merged = self.layout.gather(store, inode, &family, &range, all)?;
        let counts = even(total, total.div_ceil(NODE_ENTRIES));
        self.replace(store, inode, parents, &family, range, &merged, &counts)?;
        Ok(true)
    }

    /// Writes `all` into nodes of the given sizes in place of the members in `range`, and the
    /// parent's entries for them.
    #[allow(clippy::too_many_arguments)]
    fn replace(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        parents: &[Step],
        family: &Family,
        range: Range<usize>,
        all: &[Entry],
        counts: &[usize],
    ) -> Result<()> {
        let mut old = family.part(&range).iter().map(child);
        let (mut entries, mut rest) = (Vec::new(), all);
        for count in counts {
            let (part, tail) = rest.split_at(*count);
            rest = tail;
            let (nr, new) = match old.next() {
                Some(nr) => (nr, false),
                None => (self.alloc_tree_block(store, inode)?, true),
            };
            self.layout.put_node(store, inode, Some(nr), family.depth, part, new)?;
            entries.push(index(first_key(part), nr));
        }
        assert!(rest.is_empty(), "entries left over");
        for nr in old {
            self.free_tree_block(store, inode, nr)?;
        }
        self.splice(store, inode, parents, range, &entries)
    }

    /// Takes levels out whose entries fit the root.
    fn collapse(&mut self, store: &mut dyn BlockStore, inode: &mut Inode) -> Result<()> {
        loop {
            let (head, all) = self.layout.root(inode)?;
            let [only] = all else { return Ok(()) };
            if head.depth == 0 {
                return Ok(());
            }
            let nr = child(only);
            let (below, entries) = self.layout.node(store, inode, nr, head.depth - 1, key(only))?;
            if below.entries > ROOT_ENTRIES {
                return Ok(());
            }
            let entries = entries.to_vec();
            self.layout.put_node(store, inode, None, below.depth, &entries, false)?;
            self.free_tree_block(store, inode, nr)?;
        }
    }

    fn alloc_tree_block(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
    ) -> Result<BlockNr> {
        let run = self.alloc_blocks(store, self.layout.goal_for_inode(inode.ino), 1)?;
        inode.blocks += UNITS;
        Ok(run.start)
    }

    pub(super) fn free_tree_block(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        nr: BlockNr,
    ) -> Result<()> {
        self.free_run(store, BlockRun { start: nr, len: 1 })?;
        inode.blocks = inode.blocks.saturating_sub(UNITS);
        Ok(())
    }

    /// EFBIG if the tree cannot grow, ENOSPC unless a change of one leaf of this tree can have all
    /// the blocks it may need.
    pub(super) fn reserve_for_edit(&self, inode: &Inode) -> Result<()> {
        let (Header { depth, entries }, _) = self.layout.root(inode)?;
        if depth == MAX_DEPTH && entries + 1 >= ROOT_ENTRIES {
            return Err(errno(libc::EFBIG));
        }
        if self.available_blocks() < u64::from(depth) + 1 {
            return Err(errno(libc::ENOSPC));
        }
        Ok(())
    }
}

fn parent_pos(parents: &[Step]) -> usize {
    match parents.last().and_then(|p| p.pos) {
        Some(pos) => pos,
        None => unreachable!("a way leads through an entry of each parent"),
    }
}
