//! File data: pages, dirty ranges, reservations, truncation, preallocation, holes.

use crate::overlay::Source;
use crate::state::State;
use siftfs_base::{
    BLOCK_BYTES, BLOCK_SIZE, InodeNr, RangeSet, Result, SharedBlock, Timestamp, errno,
};
use siftfs_device::{AlignedBuf, Origin, ReadOp};
use siftfs_ext4::Mapping;
use siftfs_proto::Seek;

/// Largest file: ext4's 2^32 blocks less one.
pub const MAX_FILE_SIZE: u64 = (1 << 32) * BLOCK_BYTES - BLOCK_BYTES;
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

/// A whole block's bytes, shared.
fn block(bytes: &[u8]) -> SharedBlock {
    let bytes: [u8; BLOCK_SIZE] = bytes.try_into().expect("one block");
    bytes.into()
}

/// First block not below byte `offset`.
pub fn block_up(offset: u64) -> u64 {
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
            let mut page = block(bytes);
            self.overlay_page(plan.ino, i, page.make_mut())?;
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

    pub fn load_regular(&mut self, ino: InodeNr) -> Result<()> {
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
            self.pages.insert(ino, index, SharedBlock::zeroed());
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
    pub fn check_space(&mut self, blocks: u64, privileged: bool) -> Result<()> {
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
    pub fn zero_edge(&mut self, ino: InodeNr, start: u64, end: u64) -> Result<()> {
        let block = start / BLOCK_BYTES;
        debug_assert!(start < end && end <= (block + 1) * BLOCK_BYTES);
        if let Some(page) = self.pages.get_mut(ino, block) {
            let base = block * BLOCK_BYTES;
            page[(start - base) as usize..(end - base) as usize].fill(0);
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
                page[start..start + take].copy_from_slice(piece);
            } else {
                assert!(take == BLOCK_SIZE, "partly written pages are filled before");
                self.pages.insert(ino, index, block(piece));
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
    pub fn clear_pages(&mut self, ino: InodeNr, start: u64, end: u64) {
        self.forget_dirty(ino, start, end);
        self.node_mut(ino).pushing.remove(start, end);
        let (first, last) = (block_up(start), end / BLOCK_BYTES);
        self.pages.remove_range(ino, first, last);
        for (s, e) in crate::shape::edges(start, end) {
            if let Some(page) = self.pages.get_mut(ino, s / BLOCK_BYTES) {
                let base = s / BLOCK_BYTES * BLOCK_BYTES;
                page[(s - base) as usize..(e - base) as usize].fill(0);
            }
        }
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
}

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
