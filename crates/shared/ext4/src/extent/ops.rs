//! Inserting, converting and removing ranges of logical blocks.

use siftfs_base::{BlockRun, Error, Result, corrupt, errno};

use super::edit::{Path, UNITS};
use super::map::MAX_FILE_BLOCKS;
use super::node::{Entry, Extent};
use crate::format::*;
use crate::fs::{Fs, Layout};
use crate::inode::Inode;
use crate::store::BlockStore;

/// What [`Fs::remove`] did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    /// Data runs that were freed. Tree blocks are not listed; the store's `freed` is told of both,
    /// and all are in quarantine.
    pub runs: Vec<BlockRun>,
    /// Nothing of the range is mapped any more.
    pub done: bool,
}

fn bad(inode: &Inode, detail: &str) -> Error {
    corrupt(format!("extent tree of inode {}", inode.ino), detail)
}

/// Appends an extent to a list, joined with the last one if they fit together.
fn push(list: &mut Vec<Extent>, e: Extent) {
    match list.last().and_then(|last| last.join(&e)) {
        Some(both) => *list.last_mut().unwrap_or_else(|| unreachable!("it has a last")) = both,
        None => list.push(e),
    }
}

fn encode(list: &[Extent]) -> Vec<Entry> {
    list.iter().map(Extent::encode).collect()
}

impl Fs {
    /// Maps logical blocks from `lblk` on, which must be a hole, to `run`; joins neighbours and
    /// counts the blocks in `inode.blocks`. The caller writes the inode.
    ///
    /// Errors: EFBIG beyond the largest file; ENOSPC if the tree might not get its blocks
    /// (checked before anything is changed for each piece of at most 32768 blocks); `Corrupt` if
    /// a block is mapped already; `Incompatible` for a file with a block map.
    pub fn insert(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        lblk: u64,
        run: BlockRun,
        unwritten: bool,
    ) -> Result<()> {
        self.layout.check_run(run, || format!("extent for inode {}", inode.ino))?;
        if lblk.saturating_add(run.len) > MAX_FILE_BLOCKS {
            return Err(errno(libc::EFBIG));
        }
        let max = u64::from(if unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN });
        let mut done = 0;
        while done < run.len {
            let len = (run.len - done).min(max);
            let piece = Extent {
                lblk: (lblk + done) as u32,
                len: len as u32,
                pblk: run.start + done,
                unwritten,
            };
            self.insert_piece(store, inode, piece)?;
            inode.blocks += len * UNITS;
            done += len;
        }
        Ok(())
    }

    fn insert_piece(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        piece: Extent,
    ) -> Result<()> {
        self.reserve_for_edit(inode)?;
        let path = self.layout.descend(store, inode, piece.lblk)?;
        let at = path.pos().map_or(0, |p| p + 1);
        let prev = path.pos().map(|p| path.extent(p));
        let next = path.leaf.get(at).map(Extent::decode);
        let limit = next.map_or(path.upper, |n| u64::from(n.lblk));
        if prev.is_some_and(|p| p.end() > u64::from(piece.lblk)) || piece.end() > limit {
            return Err(bad(inode, "a block to be mapped is mapped already"));
        }
        let (mut list, mut range) = (Vec::new(), at..at);
        if let Some(p) = prev.filter(|p| p.join(&piece).is_some()) {
            list.push(p);
            range.start -= 1;
        }
        push(&mut list, piece);
        if let Some((n, last)) = next.zip(list.last().copied())
            && last.join(&n).is_some()
        {
            push(&mut list, n);
            range.end += 1;
        }
        self.edit_leaf(store, inode, &path, range, &encode(&list))
    }

    /// Makes the unwritten parts of `[lblk, lblk + len)` written; all of it must be mapped.
    /// The caller writes the inode.
    ///
    /// Errors: ENOSPC if a split might not get its tree blocks; `Corrupt` at a hole.
    pub fn mark_written(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        lblk: u64,
        len: u64,
    ) -> Result<()> {
        let hole = |inode: &Inode| bad(inode, "a hole cannot become written");
        let (mut at, end) = (lblk, lblk.saturating_add(len));
        while at < end {
            let found =
                self.layout.next_mapped(store, inode, at, end)?.ok_or_else(|| hole(inode))?;
            if found.lblk > at {
                return Err(hole(inode));
            }
            at = found.lblk + found.run.len;
            if found.unwritten {
                self.make_written(store, inode, found.lblk, at)?;
            }
        }
        Ok(())
    }

    /// Makes `[from, to)` written, which lies in one unwritten extent.
    fn make_written(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        from: u64,
        to: u64,
    ) -> Result<()> {
        self.reserve_for_edit(inode)?;
        let path = self.layout.descend(store, inode, from as u32)?;
        let Some(pos) = path.pos() else { return Err(bad(inode, "an extent vanished")) };
        let old = path.extent(pos);
        let (mut list, mut range) = (Vec::new(), pos..pos + 1);
        if let Some(p) = neighbour(&path, pos.checked_sub(1)) {
            list.push(p);
            range.start -= 1;
        }
        if u64::from(old.lblk) < from {
            push(&mut list, old.part(u64::from(old.lblk), from));
        }
        for part in halves(Extent { unwritten: false, ..old.part(from, to) }) {
            push(&mut list, part);
        }
        if to < old.end() {
            push(&mut list, old.part(to, old.end()));
        }
        if let Some(n) = neighbour(&path, Some(pos + 1)) {
            push(&mut list, n);
            range.end += 1;
        }
        self.edit_leaf(store, inode, &path, range, &encode(&list))
    }

    /// Unmaps `[start, end)` and frees its blocks, from the end, at most `max_extents` extents
    /// (at least one leaf's share of work is done if anything is mapped). Call again until
    /// `done`. `inode.blocks` and the tree are current after each call; the caller writes the
    /// inode.
    ///
    /// Errors: ENOSPC if a hole in the middle of an extent might not get its tree blocks;
    /// `Corrupt` for a bad tree or a block that is free already.
    pub fn remove(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        start: u64,
        end: u64,
        max_extents: usize,
    ) -> Result<Removed> {
        assert!(max_extents > 0, "a removal of no extents");
        let (mut out, end) = (Removed::default(), end.min(MAX_FILE_BLOCKS));
        let mut before = end;
        let mut left = max_extents;
        while left > 0 && start < before {
            let step = self.remove_in_leaf(store, inode, start, before, left, &mut out.runs)?;
            left = left.saturating_sub(step.extents);
            before = step.before;
        }
        out.done = start >= before;
        Ok(out)
    }

    /// One leaf's share: the last at most `max` extents that begin before `end` there.
    fn remove_in_leaf(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        start: u64,
        end: u64,
        max: usize,
        runs: &mut Vec<BlockRun>,
    ) -> Result<LeafStep> {
        let path = self.layout.descend(store, inode, (end - 1) as u32)?;
        let Some(last) = path.pos() else {
            return Ok(LeafStep { extents: 0, before: start });
        };
        let (mut low, mut cut) = (last + 1, Vec::new());
        let mut keep: [Option<Extent>; 2] = [None, None];
        while low > 0 && cut.len() < max {
            let e = path.extent(low - 1);
            if e.end() <= start || e.end() <= u64::from(e.lblk) {
                break;
            }
            low -= 1;
            let (from, to) = (start.max(u64::from(e.lblk)), end.min(e.end()));
            if from < to {
                cut.push(e.part(from, to));
            }
            if to < e.end() {
                keep[1] = Some(e.part(to.max(u64::from(e.lblk)), e.end()));
            }
            if u64::from(e.lblk) < from {
                keep[0] = Some(e.part(u64::from(e.lblk), from));
                break;
            }
        }
        let before = self.leaf_floor(&path, low, start);
        if cut.is_empty() {
            return Ok(LeafStep { extents: 0, before });
        }
        let kept: Vec<Entry> = keep.iter().flatten().map(Extent::encode).collect();
        if kept.len() > cut.len() {
            self.reserve_for_edit(inode)?;
        }
        self.edit_leaf(store, inode, &path, low..last + 1, &kept)?;
        for e in &cut {
            let run = BlockRun { start: e.pblk, len: u64::from(e.len) };
            self.free_run(store, run)?;
            inode.blocks = inode.blocks.saturating_sub(run.len * UNITS);
            runs.push(run);
        }
        Ok(LeafStep { extents: cut.len(), before })
    }

    /// Where the next step of a removal ends: everything from there on is done.
    fn leaf_floor(&self, path: &Path, low: usize, start: u64) -> u64 {
        match low.checked_sub(1).map(|i| path.extent(i)) {
            Some(e) => e.end().max(start),
            // The leaf is done: go on before its first block.
            None => path.leaf.first().map_or(start, |e| u64::from(super::node::key(e)).max(start)),
        }
    }
}

impl Layout {
    /// Tree blocks that inserting `extents` extents into one contiguous logical range may allocate,
    /// whatever the shape of the tree then; sum it over ranges.
    pub fn worst_case_blocks(&self, inode: &Inode, extents: u64) -> Result<u64> {
        let depth = u64::from(self.root(inode)?.0.depth);
        // One split at each level for the first, one more per half node of entries, one root.
        let half = NODE_ENTRIES as u64 / 2;
        let mut total = depth + 1;
        let mut at_level = extents;
        while at_level > 0 {
            at_level /= half;
            total += at_level;
        }
        Ok(total)
    }
}

struct LeafStep {
    extents: usize,
    before: u64,
}

fn neighbour(path: &Path, at: Option<usize>) -> Option<Extent> {
    path.leaf.get(at?).map(Extent::decode)
}

/// A part as extents of its kind: a written one of 32768 blocks is one too long as unwritten.
fn halves(e: Extent) -> Vec<Extent> {
    if e.len <= e.max_len() {
        return vec![e];
    }
    let cut = u64::from(e.lblk) + u64::from(e.len / 2);
    let mut tail = Extent { len: e.len - e.len / 2, ..e };
    tail.lblk = cut as u32;
    tail.pblk += u64::from(e.len / 2);
    vec![Extent { len: e.len / 2, ..e }, tail]
}
