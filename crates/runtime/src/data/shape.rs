//! The shape of a file: its size, its holes, its preallocated and removed blocks, and the end of
//! files that lost their last name.

use crate::data::appended;
use crate::data::file::MAX_FILE_SIZE;
use crate::data::ranges::block_up;
use crate::state::Metadata;
use crate::state::Tree;
use crate::state::room::{EVICT_BLOCKS, FREED_EXTENT_BLOCKS, MAX_ALLOCS, PATH_BLOCKS, REMOVE_STEP};
use crate::state::step::{Need, Step, Stop};
use crate::state::tree::overlay::Overlay;
use crate::state::{Recovery, State};
use siftfs_base::{BLOCK_BYTES, InodeNr, Result, Timestamp, errno};
use siftfs_ext4::Mapping;
use siftfs_proto::Allocate;

impl State {
    /// Sets the size. A truncation too large for one transaction asks for progress in the
    /// middle and goes on when called again.
    pub fn set_size(&mut self, ino: InodeNr, size: u64, time: Timestamp) -> Step<()> {
        self.metadata.tree.load_regular(ino)?;
        if size > MAX_FILE_SIZE {
            return Err(errno(libc::EFBIG).into());
        }
        if size != self.metadata.tree.node(ino).size {
            self.finish_shrinking(ino)?;
        }
        self.metadata.begin(0)?;
        self.sections.resized(ino);
        let old = self.metadata.tree.node(ino).size;
        self.metadata.log.changes.size(ino, old);
        if size < old || self.metadata.tree.node(ino).trunc_pending {
            self.shrink_to(ino, size)?;
        } else if size > old {
            self.zero_gap(ino, size)?;
            self.metadata.tree.node_mut(ino).inode.size = size;
        }
        let node = self.metadata.tree.node_mut(ino);
        node.size = size;
        node.inode.mtime = time;
        node.inode.ctime = time;
        node.delta.running_mut().times = true;
        node.delta.running_mut().size = true;
        self.metadata.mark_delta(ino);
        Ok(())
    }

    /// Loads a regular file of which bytes are to be changed, and finishes a truncation of it.
    pub fn load_whole(&mut self, ino: InodeNr) -> Step<()> {
        self.metadata.tree.load_regular(ino)?;
        self.finish_shrinking(ino)
    }

    /// Finishes another caller's truncation that stopped in the middle, for a transaction to end.
    /// What is behind the end of the file has homes still, with bytes that must not come back. The
    /// operation begins again then: one that is refused must have changed nothing.
    pub fn finish_shrinking(&mut self, ino: InodeNr) -> Step<()> {
        if !self.metadata.tree.node(ino).trunc_pending {
            return Ok(());
        }
        let size = self.metadata.tree.node(ino).size;
        self.shrink_to(ino, size)?;
        Err(Stop::Needs(Need::Commit))
    }

    fn shrink_to(&mut self, ino: InodeNr, size: u64) -> Step<()> {
        if !self.metadata.tree.node(ino).trunc_pending {
            self.clear_pages(ino, size, u64::MAX / BLOCK_BYTES * BLOCK_BYTES);
            self.metadata.give_back(ino, block_up(size), u64::MAX);
            let push = size == 0 && self.metadata.tree.node(ino).size > 0;
            let node = self.metadata.tree.node_mut(ino);
            node.overlay.remove(size, u64::MAX);
            node.delta.running_mut().zeros.remove(size, u64::MAX);
            node.inode.size = node.inode.size.min(size);
            node.pushed_size = node.pushed_size.min(size);
            node.sizes.shrank(size);
            node.size = size;
            node.push_next |= push;
            node.trunc_pending = true;
            self.metadata.mark_delta(ino);
            let block_end = block_up(size) * BLOCK_BYTES;
            if size < block_end {
                self.zero_edge(ino, size, block_end)?;
                // The truncation itself says that these bytes are gone.
                self.metadata.tree.node_mut(ino).delta.running_mut().zeros.remove(size, block_end);
            }
        }
        // Each transaction that frees a part of it says so in the file's next record: the one
        // before may be all that is durable when the file has grown again.
        let delta = self.metadata.tree.node_mut(ino).delta.running_mut();
        delta.min_size = Some(delta.min_size.map_or(size, |min| min.min(size)));
        self.metadata.mark_delta(ino);
        let done = self.metadata.remove_blocks(ino, block_up(size), u64::MAX);
        let node = self.metadata.tree.inodes.get_mut(&ino).expect("loaded before use");
        match done {
            // The rest comes in later transactions: the orphan list remembers it until then.
            Err(Stop::Needs(_)) => {
                self.metadata.tree.fs.orphan_add(&mut self.metadata.tree.meta, &node.inode)?
            }
            Err(_) => {}
            Ok(()) => {
                node.trunc_pending = false;
                if node.inode.nlink > 0 && self.metadata.tree.fs.is_orphan(ino) {
                    self.metadata
                        .tree
                        .fs
                        .orphan_remove(&mut self.metadata.tree.meta, &node.inode)?;
                }
                self.metadata.give_back_unused(ino, size / BLOCK_BYTES);
            }
        }
        done
    }

    /// `[start, end)` reads as zero; whole blocks lose their home.
    pub fn punch(&mut self, ino: InodeNr, start: u64, end: u64) -> Step<()> {
        self.metadata.begin(PATH_BLOCKS)?;
        self.clear_pages(ino, start, end);
        let (first, last) = (block_up(start), end / BLOCK_BYTES);
        let node = self.metadata.tree.node_mut(ino);
        node.overlay.remove(start, end);
        node.delta.running_mut().zeros.insert(start, end);
        self.metadata.mark_delta(ino);
        for (s, e) in edges(start, end) {
            self.zero_edge(ino, s, e)?;
        }
        self.metadata.tree.node_mut(ino).delta.running_mut().zeros.insert(start, end);
        for (s, _) in edges(start, end) {
            self.metadata.give_back_unused(ino, s / BLOCK_BYTES);
        }
        if first < last {
            self.metadata.give_back(ino, first, last);
            self.metadata.remove_blocks(ino, first, last)?;
        }
        Ok(())
    }

    /// fallocate(2).
    pub fn allocate(
        &mut self,
        ino: InodeNr,
        mode: Allocate,
        offset: u64,
        len: u64,
        privileged: bool,
        time: Timestamp,
    ) -> Step<()> {
        self.load_whole(ino)?;
        let end = offset.checked_add(len).ok_or_else(|| errno(libc::EFBIG))?;
        if len == 0 {
            return Err(errno(libc::EINVAL).into());
        }
        if end > MAX_FILE_SIZE {
            return Err(errno(libc::EFBIG).into());
        }
        self.metadata.begin(PATH_BLOCKS)?;
        if mode != Allocate::PunchHole && self.leases.direct.rooms.has(ino) {
            self.leases.direct.rooms.keep(ino, offset / BLOCK_BYTES, block_up(end));
            appended::forget(&mut self.metadata, ino)?;
        }
        let keep =
            matches!(mode, Allocate::KeepSize | Allocate::ZeroRangeKeepSize | Allocate::PunchHole);
        match mode {
            Allocate::Grow | Allocate::KeepSize => {
                let blocks = block_up(end) - offset / BLOCK_BYTES;
                self.metadata.check_hole_space(ino, offset / BLOCK_BYTES, blocks, privileged)?;
                self.metadata.preallocate(ino, offset / BLOCK_BYTES, block_up(end))?;
            }
            Allocate::PunchHole => self.punch(ino, offset, end)?,
            Allocate::ZeroRange | Allocate::ZeroRangeKeepSize => {
                self.metadata.check_zero_space(ino, offset, end, privileged)?;
                self.punch(ino, offset, end)?;
                self.metadata.preallocate(ino, offset / BLOCK_BYTES, block_up(end))?;
            }
        }
        if !keep && end > self.metadata.tree.node(ino).size {
            self.zero_gap(ino, end)?;
            let node = self.metadata.tree.node_mut(ino);
            self.metadata.log.changes.size(ino, node.size);
            node.size = end;
            node.inode.size = end;
            node.delta.running_mut().size = true;
        }
        if self.metadata.tree.node(ino).delta.running().allocs.len() > MAX_ALLOCS {
            return Err(Stop::Needs(Need::Commit));
        }
        let node = self.metadata.tree.node_mut(ino);
        if mode != Allocate::PunchHole {
            node.delta.running_mut().allocs.push((offset, len, keep));
        }
        node.inode.mtime = time;
        node.inode.ctime = time;
        node.delta.running_mut().times = true;
        self.metadata.mark_delta(ino);
        Ok(())
    }

    /// Frees queued inodes as far as the running transaction has room.
    pub fn run_evictions(&mut self) -> Step<()> {
        // A record to come may speak of them, or give one a name.
        if self.metadata.log.recovery.as_ref().is_some_and(Recovery::keeps_orphans) {
            return Ok(());
        }
        while let Some(ino) = self.metadata.tree.inodes.next_to_free() {
            self.metadata.tree.load(ino)?;
            if self.metadata.tree.inodes.is_referenced(ino) {
                continue;
            }
            match self.evict(ino) {
                Ok(()) => {}
                Err(Stop::Needs(_)) => {
                    self.metadata.tree.inodes.free_later(ino);
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn evict(&mut self, ino: InodeNr) -> Step<()> {
        self.metadata.room_in_transaction(EVICT_BLOCKS)?;
        if self.metadata.tree.node(ino).inode.nlink > 0 {
            return self.metadata.finish_truncation(ino);
        }
        let time = self.metadata.log.now();
        self.sections.removed(ino);
        self.clear_pages(ino, 0, u64::MAX / BLOCK_BYTES * BLOCK_BYTES);
        self.metadata.give_back(ino, 0, u64::MAX);
        self.metadata.tree.node_mut(ino).overlay = Overlay::default();
        self.metadata.log.running.overlay.forget(ino);
        if self.metadata.tree.node(ino).inode.has_extents() {
            self.metadata.remove_blocks(ino, 0, u64::MAX)?;
        }
        let mut node = self.metadata.tree.inodes.take(ino).expect("loaded before use");
        self.pages.remove_range(ino, 0, u64::MAX);
        self.metadata.tree.fs.xattr_release(&mut self.metadata.tree.meta, &mut node.inode)?;
        node.inode.retire(time);
        let is_dir = node.inode.is_dir();
        self.metadata.tree.fs.orphan_remove(&mut self.metadata.tree.meta, &node.inode)?;
        self.metadata.tree.fs.free_inode(&mut self.metadata.tree.meta, ino, is_dir)?;
        self.metadata.log.running.freed(ino);
        self.metadata.tree.inodes.freed(ino);
        self.metadata.log.touch();
        Ok(())
    }
}

impl Metadata {
    /// Frees what blocks a regular file has behind its end.
    pub fn free_behind_end(&mut self, ino: InodeNr) -> Step<()> {
        self.tree.load_regular(ino)?;
        self.remove_blocks(ino, block_up(self.tree.node(ino).size), u64::MAX)
    }

    /// Gives the block's reservation back if nothing dirty or staged needs a home for it any more.
    fn give_back_unused(&mut self, ino: InodeNr, block: u64) {
        let (start, end) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
        let node = self.tree.node(ino);
        if !node.data.running().overlaps(start, end) && !node.overlay.overlaps(start, end) {
            self.give_back(ino, block, block + 1);
        }
    }

    /// Unmaps blocks `[first, end)`, in steps that fit the running transaction.
    pub(super) fn remove_blocks(&mut self, ino: InodeNr, first: u64, end: u64) -> Step<()> {
        let mut left =
            if self.log.is_replaying() { usize::MAX } else { self.log.config.most_freed.max(1) };
        loop {
            let tree = self.tree.fs.layout.worst_case_touched(&self.tree.node(ino).inode)?;
            let tree = 16 + usize::try_from(tree).unwrap_or(usize::MAX);
            self.room_in_transaction(tree + FREED_EXTENT_BLOCKS)?;
            let step = self.room().saturating_sub(tree) / FREED_EXTENT_BLOCKS;
            let node = self.tree.inodes.get_mut(&ino).expect("loaded before use");
            let step = step.clamp(1, REMOVE_STEP).min(left);
            let removed =
                self.tree.fs.remove(&mut self.tree.meta, &mut node.inode, first, end, step)?;
            self.lost_homes(ino, first, end);
            self.remapped(ino);
            self.tree.note_tree(ino);
            self.log.mark_inode(ino);
            if removed.done {
                return Ok(());
            }
            left -= step;
            if left == 0 {
                return Err(Stop::Needs(Need::Commit));
            }
        }
    }

    /// Gives unwritten blocks to the holes of blocks `[first, end)`. The caller has checked that
    /// all of them can be had: an operation that runs out of space half-way would stop the volume.
    pub(super) fn preallocate(&mut self, ino: InodeNr, first: u64, end: u64) -> Step<()> {
        let mut block = first;
        while block < end {
            let node = self.tree.inodes.get(&ino).expect("loaded before use");
            match self.tree.fs.layout.map(&mut self.tree.meta, &node.inode, block, end - block)? {
                Mapping::Mapped { len, .. } => block += len.max(1),
                Mapping::Hole { len } => {
                    let want = len.clamp(1, end - block);
                    self.room_in_transaction(16)?;
                    let run = self.tree.allocate_run(ino, block, want)?;
                    let node = self.tree.inodes.get_mut(&ino).expect("loaded before use");
                    self.tree.fs.insert(&mut self.tree.meta, &mut node.inode, block, run, true)?;
                    self.remapped(ino);
                    self.tree.note_tree(ino);
                    self.unreserve(ino, block, block + run.len);
                    self.log.mark_inode(ino);
                    block += run.len;
                }
            }
        }
        Ok(())
    }

    /// Fails early if the holes of a range cannot all be given blocks.
    fn check_hole_space(
        &mut self,
        ino: InodeNr,
        first: u64,
        blocks: u64,
        privileged: bool,
    ) -> Step<()> {
        let holes = self.tree.holes(ino, first, first + blocks)?;
        self.check_blocks(ino, (first, first + blocks), holes, privileged)
    }

    /// Fails early if a range cannot be zeroed: its whole blocks get new homes, because what they
    /// lose is in quarantine (rule R5), and so do the holes of the blocks in part at both ends.
    fn check_zero_space(
        &mut self,
        ino: InodeNr,
        offset: u64,
        end: u64,
        privileged: bool,
    ) -> Step<()> {
        let (first, last) = (block_up(offset), end / BLOCK_BYTES);
        let (begin, stop) = (offset / BLOCK_BYTES, block_up(end));
        let blocks = match first < last {
            true => {
                self.tree.holes(ino, begin, first)?
                    + (last - first)
                    + self.tree.holes(ino, last, stop)?
            }
            false => self.tree.holes(ino, begin, stop)?,
        };
        self.check_blocks(ino, (begin, stop), blocks, privileged)
    }

    /// Are this many blocks free beside those that are reserved for `[first, end)`?
    fn check_blocks(
        &mut self,
        ino: InodeNr,
        (first, end): (u64, u64),
        blocks: u64,
        privileged: bool,
    ) -> Step<()> {
        let held = self.tree.node(ino).reserved.overlapping(first, end).map(|(s, e)| e - s).sum();
        match blocks > held {
            true => self.check_space(blocks - held, privileged),
            false => Ok(()),
        }
    }
}

impl Tree {
    /// Allocates up to `want` contiguous blocks for file block `block`, close to its neighbour, or
    /// from the file's pool.
    pub fn allocate_run(
        &mut self,
        ino: InodeNr,
        block: u64,
        want: u64,
    ) -> Result<siftfs_base::BlockRun> {
        let node = self.inodes.get(&ino).expect("loaded before use");
        let mut goal = self.fs.layout.goal_for_inode(ino);
        if block > 0
            && let Mapping::Mapped { pblk, .. } =
                self.fs.layout.map(&mut self.meta, &node.inode, block - 1, 1)?
        {
            goal = pblk + 1;
        }
        match node.pool {
            Some(pool) => self.fs.alloc_pooled(&mut self.meta, pool, goal, want),
            None => self.fs.alloc_blocks(&mut self.meta, goal, want),
        }
    }

    /// Blocks of `[first, end)` without a home.
    fn holes(&mut self, ino: InodeNr, first: u64, end: u64) -> Result<u64> {
        let (mut holes, mut block) = (0, first);
        while block < end {
            let rest = end - block;
            let node = self.inodes.get(&ino).expect("loaded before use");
            let len = match self.fs.layout.map(&mut self.meta, &node.inode, block, rest)? {
                Mapping::Hole { len } => {
                    holes += len.clamp(1, rest);
                    len
                }
                Mapping::Mapped { len, .. } => len,
            };
            block += len.clamp(1, rest);
        }
        Ok(holes)
    }
}

impl Metadata {
    /// An orphan that has names: a truncation that a crash interrupted goes on.
    fn finish_truncation(&mut self, ino: InodeNr) -> Step<()> {
        if self.tree.node(ino).inode.is_reg() {
            let first = block_up(self.tree.node(ino).inode.size);
            self.remove_blocks(ino, first, u64::MAX)?;
        }
        let node = self.tree.inodes.get(&ino).expect("loaded before use");
        self.tree.fs.orphan_remove(&mut self.tree.meta, &node.inode)?;
        self.tree.inodes.not_orphaned(ino);
        self.log.touch();
        Ok(())
    }
}

/// The partial blocks at both ends of a byte range.
pub fn edges(start: u64, end: u64) -> Vec<(u64, u64)> {
    let (first, last) = (block_up(start) * BLOCK_BYTES, end / BLOCK_BYTES * BLOCK_BYTES);
    if first > last {
        return vec![(start, end)];
    }
    let mut out = Vec::new();
    if start < first {
        out.push((start, first));
    }
    if last < end {
        out.push((last, end));
    }
    out
}
