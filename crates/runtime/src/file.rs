//! File data: pages, dirty ranges, reservations, truncation, preallocation, holes.

use crate::overlay::Source;
use crate::state::State;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Error, InodeNr, RangeSet, Result, Timestamp, errno};
use siftfs_device::{AlignedBuf, Origin, ReadOp};
use siftfs_ext4::Mapping;
use siftfs_proto::{Allocate, Seek};

/// Largest file: ext4's 2^32 blocks less one.
pub const MAX_FILE_SIZE: u64 = (1 << 32) * BLOCK_BYTES - BLOCK_BYTES;
/// Extents removed at most in one step of a long truncation.
const REMOVE_STEP: usize = 4096;
/// Images that freeing one extent may add: two bitmaps and two descriptor blocks.
const REMOVE_IMAGES: usize = 4;
/// Preallocations an inode remembers for its next staged transaction; then a commit clears them.
const MAX_ALLOCS: usize = 1024;
/// Pages one fill brings in.
const FILL_PAGES: u64 = 256;

/// Pages to be read from the area without the state lock, then put in with it.
pub struct FillPlan {
    ino: InodeNr,
    first: u64,
    count: u64,
    map_version: u64,
    /// (byte in the area, byte in the buffer, length)
    reads: Vec<(u64, usize, usize)>,
}

/// What an operation on data did.
pub enum Outcome<T> {
    /// Finished.
    Done(T),
    /// These pages must be read first.
    Fill(FillPlan),
}

/// First block not below byte `offset`.
fn block_up(offset: u64) -> u64 {
    offset.div_ceil(BLOCK_BYTES)
}

impl FillPlan {
    /// Reads the base of the pages; call without the state lock.
    pub fn read(&self, readers: &crate::state::Readers) -> Result<AlignedBuf> {
        let pages = usize::try_from(self.count).expect("a plan has at most FILL_PAGES pages");
        let mut buf = AlignedBuf::zeroed(pages * BLOCK_SIZE);
        let mut ops: Vec<ReadOp<'_>> = Vec::with_capacity(self.reads.len());
        let (mut rest, mut at) = (&mut buf[..], 0usize);
        for &(offset, start, len) in &self.reads {
            let (_, tail) = std::mem::take(&mut rest).split_at_mut(start - at);
            let (piece, tail) = tail.split_at_mut(len);
            ops.push(ReadOp { offset, buf: piece });
            rest = tail;
            at = start + len;
        }
        if !ops.is_empty() {
            readers.area.read_batch(Origin::Foreground, &mut ops)?;
        }
        Ok(buf)
    }
}

impl State {
    /// Which pages of `[first, first + count)` are missing, as one plan for the first gap.
    fn plan_fill(&mut self, ino: InodeNr, first: u64, end: u64) -> Result<Option<FillPlan>> {
        let Some(start) = (first..end).find(|i| !self.pages.contains(ino, *i)) else {
            return Ok(None);
        };
        let stop = (start..end.min(start + FILL_PAGES))
            .find(|i| self.pages.contains(ino, *i))
            .unwrap_or(end.min(start + FILL_PAGES));
        let node = self.nodes.get(&ino).expect("loaded before use");
        let mut plan = FillPlan {
            ino,
            first: start,
            count: stop - start,
            map_version: node.map_version,
            reads: Vec::new(),
        };
        let mut block = start;
        while block < stop {
            let len = match self.fs.map(&mut self.meta, &node.inode, block, stop - block)? {
                Mapping::Mapped { pblk, len, unwritten: false } => {
                    let len = len.min(stop - block);
                    plan.push_read(pblk * BLOCK_BYTES, (block - start) * BLOCK_BYTES, len);
                    len
                }
                Mapping::Mapped { len, .. } | Mapping::Hole { len } => len,
            };
            block += len.clamp(1, stop - block);
        }
        Ok(Some(plan))
    }

    /// Puts the pages of a plan in, overlaid with what is newer than the area; with the lock.
    /// Nothing happens if the mapping changed meanwhile: the operation plans again.
    pub fn finish_fill(&mut self, plan: &FillPlan, base: &[u8]) -> Result<()> {
        if self.nodes.get(&plan.ino).is_none_or(|n| n.map_version != plan.map_version) {
            return Ok(());
        }
        for (i, bytes) in (plan.first..plan.first + plan.count).zip(base.chunks_exact(BLOCK_SIZE)) {
            if self.pages.contains(plan.ino, i) {
                continue;
            }
            let mut page = Box::new([0u8; BLOCK_SIZE]);
            page.copy_from_slice(bytes);
            self.overlay_page(plan.ino, i, &mut page)?;
            self.pages.insert(plan.ino, i, page);
        }
        Ok(())
    }

    fn overlay_page(
        &mut self,
        ino: InodeNr,
        index: u64,
        page: &mut [u8; BLOCK_SIZE],
    ) -> Result<()> {
        let node = self.nodes.get(&ino).expect("loaded before use");
        let start = index * BLOCK_BYTES;
        for (s, e, source, _) in node.overlay.overlapping(start, start + BLOCK_BYTES) {
            let part = &mut page[(s - start) as usize..(e - start) as usize];
            match source {
                Source::Zero => part.fill(0),
                Source::Staged { record, offset } => {
                    let lane = &self.readers.lanes[usize::from(record.lane.0)];
                    let at = record.pos + u64::from(record.data_start) + u64::from(offset);
                    lane.read(Origin::Foreground, at % lane.len(), part)?;
                }
            }
        }
        if node.size < start + BLOCK_BYTES {
            page[node.size.saturating_sub(start) as usize..].fill(0);
        }
        Ok(())
    }

    fn load_regular(&mut self, ino: InodeNr) -> Result<()> {
        self.load(ino)?;
        if self.node(ino).inode.is_dir() {
            return Err(errno(libc::EISDIR));
        }
        if !self.node(ino).inode.is_reg() {
            return Err(errno(libc::EINVAL));
        }
        Ok(())
    }

    /// Reads up to `len` bytes; short only at the end of the file.
    pub fn read(&mut self, ino: InodeNr, offset: u64, len: u32) -> Result<Outcome<Vec<u8>>> {
        self.load_regular(ino)?;
        let size = self.node(ino).size;
        let end = size.min(offset.saturating_add(u64::from(len)));
        if offset >= end {
            return Ok(Outcome::Done(Vec::new()));
        }
        if let Some(plan) = self.plan_fill(ino, offset / BLOCK_BYTES, block_up(end))? {
            return Ok(Outcome::Fill(plan));
        }
        let mut out = Vec::with_capacity((end - offset) as usize);
        let mut at = offset;
        while at < end {
            let start = (at % BLOCK_BYTES) as usize;
            let take = (end - at).min(BLOCK_BYTES - start as u64) as usize;
            let page = self.pages.get(ino, at / BLOCK_BYTES).expect("filled under this lock");
            out.extend_from_slice(&page.data[start..start + take]);
            at += take as u64;
        }
        self.relatime(ino);
        Ok(Outcome::Done(out))
    }

    /// relatime over the reads that reach the Runtime; never makes an fsync write.
    fn relatime(&mut self, ino: InodeNr) {
        let now = self.now();
        let inode = &self.node(ino).inode;
        let stale = inode.atime <= inode.mtime
            || inode.atime <= inode.ctime
            || now.sec - inode.atime.sec >= 86_400;
        if stale && now > inode.atime && !self.config.read_only {
            self.node_mut(ino).inode.atime = now;
            self.mark_inode(ino);
        }
    }

    /// Writes all of `data`; pages that are changed in part and not cached are asked for first.
    pub fn write(
        &mut self,
        ino: InodeNr,
        offset: u64,
        data: &[u8],
        privileged: bool,
        time: Timestamp,
    ) -> Result<Outcome<()>> {
        self.load_regular(ino)?;
        let end = offset.checked_add(data.len() as u64).ok_or_else(|| errno(libc::EFBIG))?;
        if end > MAX_FILE_SIZE {
            return Err(errno(libc::EFBIG));
        }
        if data.is_empty() {
            return Ok(Outcome::Done(()));
        }
        if self.dirty_bytes > self.dirty_limit() {
            return Err(siftfs_base::Error::NeedsProgress(crate::state::NEEDS_PUSH));
        }
        for edge in [offset, end] {
            if edge % BLOCK_BYTES != 0
                && let Some(plan) = self.plan_edge(ino, edge / BLOCK_BYTES)?
            {
                return Ok(Outcome::Fill(plan));
            }
        }
        self.room_in_transaction(8)?;
        self.reserve(ino, offset / BLOCK_BYTES, block_up(end), privileged)?;
        self.zero_gap(ino, offset)?;
        self.copy_in(ino, offset, data);
        self.note_dirty(ino, offset, end);
        let node = self.node_mut(ino);
        node.size = node.size.max(end);
        node.inode.mtime = time;
        node.inode.ctime = time;
        node.delta.times = true;
        self.mark_delta(ino);
        Ok(Outcome::Done(()))
    }

    /// Dirty bytes beyond which writers wait for the background.
    pub fn dirty_limit(&self) -> u64 {
        (self.pages.limit() as u64 / 2) * BLOCK_BYTES
    }

    fn plan_edge(&mut self, ino: InodeNr, index: u64) -> Result<Option<FillPlan>> {
        if self.pages.contains(ino, index) {
            return Ok(None);
        }
        if index * BLOCK_BYTES >= self.node(ino).size
            && !self.node(ino).overlay.overlaps(index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES)
        {
            self.pages.insert(ino, index, Box::new([0u8; BLOCK_SIZE]));
            return Ok(None);
        }
        self.plan_fill(ino, index, index + 1)
    }

    /// Reserves space for the blocks of `[first, end)` that have no home yet.
    fn reserve(&mut self, ino: InodeNr, first: u64, end: u64, privileged: bool) -> Result<()> {
        let node = self.nodes.get(&ino).expect("loaded before use");
        let mut wanted: Vec<(u64, u64)> = Vec::new();
        for (gap_start, gap_end) in node.reserved.gaps(first, end) {
            let mut block = gap_start;
            while block < gap_end {
                let rest = gap_end - block;
                let len = match self.fs.map(&mut self.meta, &node.inode, block, rest)? {
                    Mapping::Hole { len } => {
                        let len = len.clamp(1, rest);
                        wanted.push((block, block + len));
                        len
                    }
                    Mapping::Mapped { len, .. } => len.clamp(1, rest),
                };
                block += len;
            }
        }
        let blocks: u64 = wanted.iter().map(|(s, e)| e - s).sum();
        if blocks > 0 {
            self.check_space(blocks, privileged)?;
        }
        self.reserved += blocks;
        let node = self.node_mut(ino);
        for (s, e) in wanted {
            node.reserved.insert(s, e);
        }
        Ok(())
    }

    /// Are `blocks` blocks free for this caller? Reserved blocks as ext4 has them.
    fn check_space(&mut self, blocks: u64, privileged: bool) -> Result<()> {
        let held_back = if privileged { 0 } else { self.fs.reserved_blocks() };
        // One extent block per 340 extents at worst-case fragmentation, and some for the path.
        let need = blocks + blocks / 128 + 2 + held_back;
        if self.spendable() < need { Err(self.shortage()) } else { Ok(()) }
    }

    /// Gives reservations of `[first, end)` back.
    pub fn unreserve(&mut self, ino: InodeNr, first: u64, end: u64) {
        let node = self.node_mut(ino);
        let blocks: u64 = node.reserved.overlapping(first, end).map(|(s, e)| e - s).sum();
        node.reserved.remove(first, end);
        self.reserved -= blocks;
    }

    /// The bytes between the end of the file and a write beyond it become part of the file: they
    /// read as zero wherever the area holds anything in that last block.
    pub fn zero_gap(&mut self, ino: InodeNr, upto: u64) -> Result<()> {
        let size = self.node(ino).size;
        let end = upto.min(block_up(size) * BLOCK_BYTES);
        if size < end {
            self.zero_edge(ino, size, end)?;
        }
        Ok(())
    }

    /// Zeroes a range inside one block: in the cache, and durably through the overlay if the block has a home.
    fn zero_edge(&mut self, ino: InodeNr, start: u64, end: u64) -> Result<()> {
        let block = start / BLOCK_BYTES;
        debug_assert!(start < end && end <= (block + 1) * BLOCK_BYTES);
        if let Some(page) = self.pages.get_mut(ino, block) {
            let base = block * BLOCK_BYTES;
            page.data[(start - base) as usize..(end - base) as usize].fill(0);
        }
        let node = self.nodes.get_mut(&ino).expect("loaded before use");
        node.overlay.remove(start, end);
        let mapped = self.fs.map(&mut self.meta, &node.inode, block, 1)?;
        if matches!(mapped, Mapping::Mapped { unwritten: false, .. }) {
            node.overlay.insert(start, end, Source::Zero);
            node.delta.zeros.insert(start, end);
            self.note_overlay(ino);
            self.mark_delta(ino);
        }
        Ok(())
    }

    fn copy_in(&mut self, ino: InodeNr, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let start = (at % BLOCK_BYTES) as usize;
            let take = rest.len().min(BLOCK_SIZE - start);
            let (piece, tail) = rest.split_at(take);
            let index = at / BLOCK_BYTES;
            if self.pages.contains(ino, index) {
                let page = self.pages.get_mut(ino, index).expect("just seen");
                page.data[start..start + take].copy_from_slice(piece);
            } else {
                assert!(take == BLOCK_SIZE, "partly written pages are filled before");
                let mut page = Box::new([0u8; BLOCK_SIZE]);
                page.copy_from_slice(piece);
                self.pages.insert(ino, index, page);
            }
            at += take as u64;
            rest = tail;
        }
    }

    fn note_dirty(&mut self, ino: InodeNr, start: u64, end: u64) {
        let now = self.clock.mono_ns();
        let node = self.node_mut(ino);
        let before = dirty_pages(&node.dirty, start, end);
        node.dirty.insert(start, end);
        node.delta.zeros.remove(start, end);
        node.dirty_since.get_or_insert(now);
        let after = dirty_pages(&node.dirty, start, end);
        self.dirty_bytes += (after - before) * BLOCK_BYTES;
        self.data_dirty.insert(ino);
        self.touch();
    }

    /// `[start, end)` holds no unsynced data any more.
    pub fn forget_dirty(&mut self, ino: InodeNr, start: u64, end: u64) {
        let node = self.node_mut(ino);
        let before = dirty_pages(&node.dirty, start, end);
        node.dirty.remove(start, end);
        let after = dirty_pages(&node.dirty, start, end);
        let clean = node.dirty.is_empty();
        if clean {
            node.dirty_since = None;
            node.push_next = false;
        }
        self.dirty_bytes -= (before - after) * BLOCK_BYTES;
        if clean {
            self.data_dirty.remove(&ino);
        }
    }

    /// Forgets cached bytes of `[start, end)`: whole pages are dropped, parts zeroed.
    fn clear_pages(&mut self, ino: InodeNr, start: u64, end: u64) {
        self.forget_dirty(ino, start, end);
        self.node_mut(ino).pushing.remove(start, end);
        let (first, last) = (block_up(start), end / BLOCK_BYTES);
        self.pages.remove_range(ino, first, last);
        for (s, e) in edges(start, end) {
            if let Some(page) = self.pages.get_mut(ino, s / BLOCK_BYTES) {
                let base = s / BLOCK_BYTES * BLOCK_BYTES;
                page.data[(s - base) as usize..(e - base) as usize].fill(0);
            }
        }
    }

    /// Sets the size. A truncation too large for one transaction asks for progress in the
    /// middle and goes on when called again.
    pub fn set_size(&mut self, ino: InodeNr, size: u64, time: Timestamp) -> Result<()> {
        self.load_regular(ino)?;
        if size > MAX_FILE_SIZE {
            return Err(errno(libc::EFBIG));
        }
        self.begin(0)?;
        let old = self.node(ino).size;
        if size < old || self.node(ino).trunc_pending {
            self.shrink_to(ino, size)?;
        } else if size > old {
            self.zero_gap(ino, size)?;
            self.node_mut(ino).inode.size = size;
        }
        let node = self.node_mut(ino);
        node.size = size;
        node.inode.mtime = time;
        node.inode.ctime = time;
        node.delta.times = true;
        node.delta.size = true;
        self.mark_delta(ino);
        Ok(())
    }

    fn shrink_to(&mut self, ino: InodeNr, size: u64) -> Result<()> {
        if !self.node(ino).trunc_pending {
            self.clear_pages(ino, size, u64::MAX / BLOCK_BYTES * BLOCK_BYTES);
            self.unreserve(ino, block_up(size), u64::MAX);
            let push = size == 0 && self.node(ino).size > 0;
            let node = self.node_mut(ino);
            node.overlay.remove(size, u64::MAX);
            node.delta.zeros.remove(size, u64::MAX);
            let min = node.delta.min_size.map_or(size, |m| m.min(size));
            node.delta.min_size = Some(min);
            node.inode.size = node.inode.size.min(size);
            node.size = size;
            node.push_next |= push;
            node.trunc_pending = true;
            self.mark_delta(ino);
            let block_end = block_up(size) * BLOCK_BYTES;
            if size < block_end {
                self.zero_edge(ino, size, block_end)?;
                // The truncation itself says that these bytes are gone.
                self.node_mut(ino).delta.zeros.remove(size, block_end);
            }
        }
        let done = self.remove_blocks(ino, block_up(size), u64::MAX);
        let node = self.nodes.get_mut(&ino).expect("loaded before use");
        match done {
            // The rest comes in later transactions: the orphan list remembers it until then.
            Err(Error::NeedsProgress(_)) => self.fs.orphan_add(&mut self.meta, &node.inode)?,
            Err(_) => {}
            Ok(()) => {
                node.trunc_pending = false;
                if node.inode.nlink > 0 && self.fs.is_orphan(ino) {
                    self.fs.orphan_remove(&mut self.meta, &node.inode)?;
                }
                self.unreserve_unused(ino, size / BLOCK_BYTES);
            }
        }
        done
    }

    /// Nothing dirty or staged needs a home for this block any more: gives its reservation back.
    fn unreserve_unused(&mut self, ino: InodeNr, block: u64) {
        let (start, end) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
        let node = self.node(ino);
        if !node.dirty.overlaps(start, end) && !node.overlay.overlaps(start, end) {
            self.unreserve(ino, block, block + 1);
        }
    }

    /// Unmaps blocks `[first, end)`, in steps that fit the running transaction.
    fn remove_blocks(&mut self, ino: InodeNr, first: u64, end: u64) -> Result<()> {
        loop {
            let tree = self.fs.worst_case_touched(&self.node(ino).inode)?;
            let tree = 16 + usize::try_from(tree).unwrap_or(usize::MAX);
            self.room_in_transaction(tree + REMOVE_IMAGES)?;
            let step = (self.room() - tree) / REMOVE_IMAGES;
            let node = self.nodes.get_mut(&ino).expect("loaded before use");
            let step = step.clamp(1, REMOVE_STEP);
            let removed = self.fs.remove(&mut self.meta, &mut node.inode, first, end, step)?;
            self.remapped(ino);
            self.note_tree(ino);
            self.mark_inode(ino);
            if removed.done {
                return Ok(());
            }
        }
    }

    /// `[start, end)` reads as zero; whole blocks lose their home.
    pub fn punch(&mut self, ino: InodeNr, start: u64, end: u64) -> Result<()> {
        self.begin(2)?;
        self.clear_pages(ino, start, end);
        let (first, last) = (block_up(start), end / BLOCK_BYTES);
        let node = self.node_mut(ino);
        node.overlay.remove(start, end);
        node.delta.zeros.insert(start, end);
        self.mark_delta(ino);
        for (s, e) in edges(start, end) {
            self.zero_edge(ino, s, e)?;
        }
        self.node_mut(ino).delta.zeros.insert(start, end);
        for (s, _) in edges(start, end) {
            self.unreserve_unused(ino, s / BLOCK_BYTES);
        }
        if first < last {
            self.unreserve(ino, first, last);
            self.remove_blocks(ino, first, last)?;
        }
        Ok(())
    }

    /// Gives unwritten blocks to the holes of blocks `[first, end)`.
    fn preallocate(&mut self, ino: InodeNr, first: u64, end: u64, privileged: bool) -> Result<()> {
        let mut block = first;
        while block < end {
            let node = self.nodes.get(&ino).expect("loaded before use");
            match self.fs.map(&mut self.meta, &node.inode, block, end - block)? {
                Mapping::Mapped { len, .. } => block += len.max(1),
                Mapping::Hole { len } => {
                    let want = len.clamp(1, end - block);
                    self.room_in_transaction(16)?;
                    let held = self
                        .node(ino)
                        .reserved
                        .overlapping(block, block + want)
                        .map(|(s, e)| e - s)
                        .sum::<u64>();
                    if want > held {
                        self.check_space(want - held, privileged)?;
                    }
                    let run = self.allocate_run(ino, block, want)?;
                    let node = self.nodes.get_mut(&ino).expect("loaded before use");
                    self.fs.insert(&mut self.meta, &mut node.inode, block, run, true)?;
                    self.remapped(ino);
                    self.note_tree(ino);
                    self.unreserve(ino, block, block + run.len);
                    self.mark_inode(ino);
                    block += run.len;
                }
            }
        }
        Ok(())
    }

    /// Allocates up to `want` contiguous blocks for file block `block`, close to its neighbour.
    pub fn allocate_run(
        &mut self,
        ino: InodeNr,
        block: u64,
        want: u64,
    ) -> Result<siftfs_base::BlockRun> {
        let node = self.nodes.get(&ino).expect("loaded before use");
        let mut goal = self.fs.goal_for_inode(ino);
        if block > 0
            && let Mapping::Mapped { pblk, .. } =
                self.fs.map(&mut self.meta, &node.inode, block - 1, 1)?
        {
            goal = pblk + 1;
        }
        self.fs.alloc_blocks(&mut self.meta, goal, want)
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
    ) -> Result<()> {
        self.load_regular(ino)?;
        let end = offset.checked_add(len).ok_or_else(|| errno(libc::EFBIG))?;
        if len == 0 {
            return Err(errno(libc::EINVAL));
        }
        if end > MAX_FILE_SIZE {
            return Err(errno(libc::EFBIG));
        }
        self.begin(2)?;
        let keep =
            matches!(mode, Allocate::KeepSize | Allocate::ZeroRangeKeepSize | Allocate::PunchHole);
        match mode {
            Allocate::Grow | Allocate::KeepSize => {
                let blocks = block_up(end) - offset / BLOCK_BYTES;
                self.check_hole_space(ino, offset / BLOCK_BYTES, blocks, privileged)?;
                self.preallocate(ino, offset / BLOCK_BYTES, block_up(end), privileged)?;
            }
            Allocate::PunchHole => self.punch(ino, offset, end)?,
            Allocate::ZeroRange | Allocate::ZeroRangeKeepSize => {
                let (first, last) = (block_up(offset), end / BLOCK_BYTES);
                if first < last {
                    self.check_hole_space(ino, first, last - first, privileged)?;
                }
                self.punch(ino, offset, end)?;
                self.preallocate(ino, offset / BLOCK_BYTES, block_up(end), privileged)?;
            }
        }
        if !keep && end > self.node(ino).size {
            self.zero_gap(ino, end)?;
            let node = self.node_mut(ino);
            node.size = end;
            node.inode.size = end;
            node.delta.size = true;
        }
        if self.node(ino).delta.allocs.len() > MAX_ALLOCS {
            return Err(Error::NeedsProgress(crate::state::NEEDS_COMMIT));
        }
        let node = self.node_mut(ino);
        if mode != Allocate::PunchHole {
            node.delta.allocs.push((offset, len, keep));
        }
        node.inode.mtime = time;
        node.inode.ctime = time;
        node.delta.times = true;
        self.mark_delta(ino);
        Ok(())
    }

    /// Fails early if the holes of a range cannot all be given blocks.
    fn check_hole_space(
        &mut self,
        ino: InodeNr,
        first: u64,
        blocks: u64,
        privileged: bool,
    ) -> Result<()> {
        let mut holes = 0;
        let mut block = first;
        while block < first + blocks {
            let rest = first + blocks - block;
            let node = self.nodes.get(&ino).expect("loaded before use");
            let len = match self.fs.map(&mut self.meta, &node.inode, block, rest)? {
                Mapping::Hole { len } => {
                    holes += len.clamp(1, rest);
                    len
                }
                Mapping::Mapped { len, .. } => len,
            };
            block += len.clamp(1, rest);
        }
        let held: u64 =
            self.node(ino).reserved.overlapping(first, first + blocks).map(|(s, e)| e - s).sum();
        if holes > held { self.check_space(holes - held, privileged) } else { Ok(()) }
    }

    /// lseek(2) with SEEK_DATA or SEEK_HOLE; ENXIO beyond the end.
    pub fn seek(&mut self, ino: InodeNr, offset: u64, whence: Seek) -> Result<u64> {
        self.load_regular(ino)?;
        let size = self.node(ino).size;
        if offset >= size {
            return Err(errno(libc::ENXIO));
        }
        let mut at = offset;
        while at < size {
            let (is_data, next) = self.data_at(ino, at, size)?;
            if is_data == (whence == Seek::Data) {
                return Ok(at);
            }
            at = next;
        }
        if whence == Seek::Hole { Ok(size) } else { Err(errno(libc::ENXIO)) }
    }

    /// Is the block at byte `at` data, and where does that answer end at the latest known?
    fn data_at(&mut self, ino: InodeNr, at: u64, size: u64) -> Result<(bool, u64)> {
        let block = at / BLOCK_BYTES;
        let (start, end) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
        let node = self.nodes.get(&ino).expect("loaded before use");
        let staged = |s: u64, e: u64| {
            node.overlay.overlapping(s, e).find(|p| p.2 != Source::Zero).map(|p| p.0)
        };
        if node.page_busy(block) || staged(start, end).is_some() {
            return Ok((true, end));
        }
        let rest = block_up(size) - block;
        match self.fs.map(&mut self.meta, &node.inode, block, rest)? {
            Mapping::Mapped { unwritten: false, len, .. } => {
                Ok((true, (block + len.clamp(1, rest)) * BLOCK_BYTES))
            }
            Mapping::Mapped { len, .. } | Mapping::Hole { len } => {
                let stop = (block + len.clamp(1, rest)) * BLOCK_BYTES;
                let next = [
                    node.dirty.overlapping(end, stop).next().map(|r| r.0),
                    node.pushing.overlapping(end, stop).next().map(|r| r.0),
                    staged(end, stop),
                ];
                let next = next.into_iter().flatten().min().unwrap_or(stop);
                Ok((false, next / BLOCK_BYTES * BLOCK_BYTES))
            }
        }
    }

    /// An unlinked inode that nobody refers to can be freed.
    pub fn queue_if_unreferenced(&mut self, ino: InodeNr) {
        let Some(node) = self.nodes.get(&ino) else { return };
        if node.inode.nlink == 0 && node.opens == 0 && !self.lookups.contains_key(&ino) {
            self.evict_queue.push_back(ino);
        }
    }

    /// Frees queued inodes as far as the running transaction has room.
    pub fn run_evictions(&mut self) -> Result<()> {
        while let Some(ino) = self.evict_queue.pop_front() {
            if !self.orphans.contains(&ino) {
                continue;
            }
            self.load(ino)?;
            let node = self.node(ino);
            if node.opens > 0 || self.lookups.contains_key(&ino) {
                continue;
            }
            match self.evict(ino) {
                Ok(()) => {}
                Err(siftfs_base::Error::NeedsProgress(_)) => {
                    self.evict_queue.push_front(ino);
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn evict(&mut self, ino: InodeNr) -> Result<()> {
        self.room_in_transaction(OP_EVICT)?;
        if self.node(ino).inode.nlink > 0 {
            return self.finish_truncation(ino);
        }
        let time = self.now();
        self.clear_pages(ino, 0, u64::MAX / BLOCK_BYTES * BLOCK_BYTES);
        self.unreserve(ino, 0, u64::MAX);
        self.node_mut(ino).overlay = crate::overlay::Overlay::default();
        self.overlay_dirty.remove(&ino);
        if self.node(ino).inode.has_extents() {
            self.remove_blocks(ino, 0, u64::MAX)?;
        }
        let mut node = self.nodes.remove(&ino).expect("loaded before use");
        self.pages.remove_range(ino, 0, u64::MAX);
        self.fs.xattr_release(&mut self.meta, &mut node.inode)?;
        node.inode.retire(time);
        let is_dir = node.inode.is_dir();
        self.fs.orphan_remove(&mut self.meta, &node.inode)?;
        self.fs.free_inode(&mut self.meta, ino, is_dir)?;
        self.freed_inodes.push(ino);
        self.orphans.remove(&ino);
        self.inode_dirty.remove(&ino);
        self.delta_dirty.remove(&ino);
        self.perms.remove(&ino);
        self.untidy.remove(&ino);
        self.touch();
        Ok(())
    }
}

impl State {
    /// An orphan that has names: a truncation that a crash interrupted goes on.
    fn finish_truncation(&mut self, ino: InodeNr) -> Result<()> {
        if self.node(ino).inode.is_reg() {
            let first = block_up(self.node(ino).inode.size);
            self.remove_blocks(ino, first, u64::MAX)?;
        }
        let node = self.nodes.get(&ino).expect("loaded before use");
        self.fs.orphan_remove(&mut self.meta, &node.inode)?;
        self.orphans.remove(&ino);
        self.touch();
        Ok(())
    }
}

/// Images an eviction step may add besides the extents' own check.
const OP_EVICT: usize = 16;

/// Pages with a dirty byte among those that `[start, end)` touches.
fn dirty_pages(dirty: &RangeSet, start: u64, end: u64) -> u64 {
    let (first, last) = (start / BLOCK_BYTES * BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
    let mut pages = 0;
    let mut next = 0;
    for (s, e) in dirty.overlapping(first, last.saturating_mul(BLOCK_BYTES)) {
        let from = (s / BLOCK_BYTES).max(next);
        next = block_up(e);
        pages += next.saturating_sub(from);
    }
    pages
}

/// The partial blocks at both ends of a byte range.
fn edges(start: u64, end: u64) -> Vec<(u64, u64)> {
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

impl FillPlan {
    fn push_read(&mut self, area: u64, at: u64, blocks: u64) {
        let (at, len) = (at as usize, (blocks * BLOCK_BYTES) as usize);
        if let Some(last) = self.reads.last_mut()
            && last.0 + last.2 as u64 == area
            && last.1 + last.2 == at
        {
            last.2 += len;
            return;
        }
        self.reads.push((area, at, len));
    }
}

/// Ranges rounded out to whole pages, for walking the cache.
pub fn pages_of(ranges: &RangeSet) -> RangeSet {
    let mut pages = RangeSet::new();
    for (s, e) in ranges.iter() {
        pages.insert(s / BLOCK_BYTES, block_up(e));
    }
    pages
}
