//! File data: pages, dirty ranges, reservations, truncation, preallocation, holes.

use crate::data::ranges::block_up;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use crate::state::room::{DIRTY_PART, LITTLE_PART, STREAM_QUARTERS, with_tree};
use crate::state::step::{Need, Step, Stop};
use crate::state::tree::overlay::Source;
use siftfs_base::{
    BLOCK_BYTES, BLOCK_SIZE, Bytes, InodeNr, RangeSet, Result, SharedBlock, Timestamp, errno,
};
use siftfs_ext4::Mapping;
pub use siftfs_proto::MAX_FILE_SIZE;
use siftfs_proto::{Blocks, Reply, Seek, WriteData};

/// Data to be written.
pub enum Input<'a> {
    /// Any bytes.
    Bytes(&'a [u8]),
    /// Whole blocks, written at a block's begin. What they replace is given back in their place,
    /// to be freed without the lock.
    Blocks(&'a mut [SharedBlock]),
}

impl<'a> Input<'a> {
    /// What a message brought.
    pub fn of(data: &'a mut WriteData) -> Self {
        match data {
            WriteData::Bytes(bytes) => Input::Bytes(bytes),
            WriteData::Blocks(blocks) => Input::Blocks(blocks),
        }
    }

    /// The input's bytes from byte `at` on that lie in one block, `at` being a block's begin.
    pub fn block(&self, at: usize) -> &[u8] {
        match self {
            Input::Bytes(bytes) => &bytes[at..bytes.len().min(at + BLOCK_SIZE)],
            Input::Blocks(blocks) => &blocks[at / BLOCK_SIZE][..],
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Input::Bytes(bytes) => bytes.len(),
            Input::Blocks(blocks) => blocks.len() * BLOCK_SIZE,
        }
    }
}

impl Tree {
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

    /// The blocks of `[first, end)` that have neither a home nor a reservation.
    pub fn homeless(&mut self, ino: InodeNr, first: u64, end: u64) -> Result<Vec<(u64, u64)>> {
        let node = self.inodes.get(&ino).expect("loaded before use");
        let mut wanted: Vec<(u64, u64)> = Vec::new();
        for (gap_start, gap_end) in node.reserved.gaps(first, end) {
            let mut block = gap_start;
            while block < gap_end {
                let rest = gap_end - block;
                let len = match self.fs.layout.map(&mut self.meta, &node.inode, block, rest)? {
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
        Ok(wanted)
    }

    fn take_reserved(&mut self, ino: InodeNr, first: u64, end: u64) -> u64 {
        let node = self.node_mut(ino);
        let blocks = node.reserved.overlapping(first, end).map(|(s, e)| e - s).sum();
        node.reserved.remove(first, end);
        blocks
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
    pub fn data_at(&mut self, ino: InodeNr, at: u64, size: u64) -> Result<(bool, u64)> {
        let block = at / BLOCK_BYTES;
        let (start, end) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
        let node = self.inodes.get(&ino).expect("loaded before use");
        let staged = |s: u64, e: u64| {
            node.overlay.overlapping(s, e).find(|p| p.source != Source::Zero).map(|p| p.start)
        };
        if node.page_busy(block) || staged(start, end).is_some() {
            return Ok((true, end));
        }
        let rest = block_up(size) - block;
        match self.fs.layout.map(&mut self.meta, &node.inode, block, rest)? {
            Mapping::Mapped { unwritten: false, len, .. } => {
                Ok((true, (block + len.clamp(1, rest)) * BLOCK_BYTES))
            }
            Mapping::Mapped { len, .. } | Mapping::Hole { len } => {
                let stop = (block + len.clamp(1, rest)) * BLOCK_BYTES;
                let next = [
                    node.data.running().overlapping(end, stop).next().map(|r| r.0),
                    node.data.in_flight().overlapping(end, stop).next().map(|r| r.0),
                    staged(end, stop),
                ];
                let next = next.into_iter().flatten().min().unwrap_or(stop);
                Ok((false, next / BLOCK_BYTES * BLOCK_BYTES))
            }
        }
    }
}

impl State {
    /// Reads up to `len` bytes; short only at the end of the file.
    pub fn read(&mut self, ino: InodeNr, offset: u64, len: u32) -> Step<Reply> {
        self.metadata.tree.load_regular(ino)?;
        let size = self.metadata.tree.node(ino).size;
        let end = size.min(offset.saturating_add(u64::from(len)));
        if offset >= end {
            return Ok(Reply::Data(Vec::new()));
        }
        let pages = offset / BLOCK_BYTES..block_up(end);
        self.note_read(ino, &pages);
        let ahead = self.metadata.tree.node(ino).sequence.ahead();
        self.missing(ino, pages, ahead)?;
        self.metadata.relatime(ino);
        let total = (end - offset) as usize;
        if Blocks::serves(total) {
            let page = |i| self.pages.get(ino, i).expect("filled under this lock").data.clone();
            let blocks = (offset / BLOCK_BYTES..block_up(end)).map(page).collect();
            let skip = (offset % BLOCK_BYTES) as usize;
            return Ok(Reply::Blocks(Blocks::new(blocks, skip, total)));
        }
        let mut out = Vec::with_capacity(total);
        let mut at = offset;
        while at < end {
            let start = (at % BLOCK_BYTES) as usize;
            let take = (end - at).min(BLOCK_BYTES - start as u64) as usize;
            let page = self.pages.get(ino, at / BLOCK_BYTES).expect("filled under this lock");
            out.extend_from_slice(&page.data[start..start + take]);
            at += take as u64;
        }
        Ok(Reply::Data(out))
    }

    /// Writes all of `data`; pages that are changed in part and not cached are asked for first.
    pub fn write(
        &mut self,
        ino: InodeNr,
        offset: u64,
        data: Input<'_>,
        privileged: bool,
        time: Timestamp,
    ) -> Step<()> {
        self.load_whole(ino)?;
        let end = offset.checked_add(data.len() as u64).ok_or_else(|| errno(libc::EFBIG))?;
        if matches!(data, Input::Blocks(_)) && !offset.is_multiple_of(BLOCK_BYTES) {
            return Err(errno(libc::EINVAL).into());
        }
        if end > MAX_FILE_SIZE {
            return Err(errno(libc::EFBIG).into());
        }
        if data.len() == 0 {
            return Ok(());
        }
        self.room_for_dirty(ino)?;
        for edge in [offset, end] {
            if edge % BLOCK_BYTES != 0 {
                self.plan_edge(ino, edge / BLOCK_BYTES)?;
            }
        }
        self.metadata.room_in_transaction(8)?;
        self.metadata.reserve(ino, offset / BLOCK_BYTES, block_up(end), privileged)?;
        self.zero_gap(ino, offset)?;
        self.put(ino, offset, data);
        self.note_dirty(ino, offset, end);
        let node = self.metadata.tree.node_mut(ino);
        if end > node.size {
            node.size = end;
            node.sizes.grew(offset, end, node.inode.size);
        }
        node.inode.mtime = time;
        node.inode.ctime = time;
        node.delta.running_mut().times = true;
        self.metadata.mark_delta(ino);
        Ok(())
    }

    /// May more of this inode's data be dirty? The last quarter of the limit is kept for inodes
    /// with little dirty data: a stream that no caller syncs waits for the background, and a writer
    /// that syncs each page does not wait for the stream.
    pub fn room_for_dirty(&self, ino: InodeNr) -> Step<()> {
        let limit = self.dirty_limit();
        let little = self.metadata.tree.node(ino).dirty_pages * BLOCK_BYTES <= limit / LITTLE_PART;
        let most = if little { limit } else { limit / 4 * STREAM_QUARTERS };
        if self.metadata.log.running.data.bytes() > most {
            return Err(Stop::Needs(Need::Push));
        }
        Ok(())
    }

    /// Dirty bytes beyond which writers wait for the background.
    pub fn dirty_limit(&self) -> u64 {
        self.pages.limit() as u64 / DIRTY_PART * BLOCK_BYTES
    }

    pub fn plan_edge(&mut self, ino: InodeNr, index: u64) -> Step<()> {
        if self.pages.contains(ino, index) {
            return Ok(());
        }
        if index * BLOCK_BYTES >= self.metadata.tree.node(ino).size
            && !self
                .metadata
                .tree
                .node(ino)
                .overlay
                .overlaps(index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES)
        {
            self.pages.insert(ino, index, SharedBlock::zeroed());
            return Ok(());
        }
        self.missing(ino, index..index + 1, 0)
    }

    /// The bytes between the end of the file and a write beyond it become part of the file: they
    /// read as zero wherever the area holds anything in that last block.
    pub fn zero_gap(&mut self, ino: InodeNr, upto: u64) -> Result<()> {
        let size = self.metadata.tree.node(ino).size;
        self.sections.changed(ino, size, upto.max(size));
        let end = upto.min(block_up(size) * BLOCK_BYTES);
        if size < end {
            self.zero_edge(ino, size, end)?;
        }
        Ok(())
    }

    /// Zeroes a range inside one block: in the cache, and durably through the overlay if the block
    /// has a home.
    pub fn zero_edge(&mut self, ino: InodeNr, start: u64, end: u64) -> Result<()> {
        let block = start / BLOCK_BYTES;
        debug_assert!(start < end && end <= (block + 1) * BLOCK_BYTES);
        if let Some(page) = self.pages.get_mut(ino, block) {
            let base = block * BLOCK_BYTES;
            page[(start - base) as usize..(end - base) as usize].fill(0);
        }
        let node = self.metadata.tree.inodes.get_mut(&ino).expect("loaded before use");
        node.overlay.remove(start, end);
        let mapped = self.metadata.tree.fs.layout.map(
            &mut self.metadata.tree.meta,
            &node.inode,
            block,
            1,
        )?;
        if matches!(mapped, Mapping::Mapped { unwritten: false, .. }) {
            node.overlay.insert(start, end, Source::Zero);
            node.delta.running_mut().zeros.insert(start, end);
            self.metadata.note_overlay(ino, (start, end), 0);
            self.metadata.mark_delta(ino);
        }
        Ok(())
    }

    /// The bytes become the cache's; pages that they change in part are there.
    pub fn put(&mut self, ino: InodeNr, offset: u64, data: Input<'_>) {
        match data {
            Input::Bytes(bytes) => self.copy_in(ino, offset, bytes),
            Input::Blocks(blocks) => self.put_in(ino, offset / BLOCK_BYTES, blocks),
        }
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
                let whole: [u8; BLOCK_SIZE] =
                    piece.try_into().expect("partly written pages are filled before");
                self.pages.insert(ino, index, SharedBlock::from(whole));
            }
            at += take as u64;
            rest = tail;
        }
    }

    /// Whole blocks become pages, and the pages that were there take their place.
    fn put_in(&mut self, ino: InodeNr, first: u64, blocks: &mut [SharedBlock]) {
        for (index, block) in (first..).zip(blocks) {
            if let Some(old) = self.pages.insert(ino, index, block.clone()) {
                *block = old;
            }
        }
    }

    pub fn note_dirty(&mut self, ino: InodeNr, start: u64, end: u64) {
        self.sections.changed(ino, start, end);
        let Metadata { tree, log } = &mut self.metadata;
        log.changes.data(ino, (start, end), tree.node(ino).size);
        let now = self.metadata.log.time.mono_ns();
        let node = self.metadata.tree.node_mut(ino);
        let before = dirty_pages(node.data.running(), start, end);
        node.data.running_mut().insert(start, end);
        if let Some(unseen) = &mut node.unseen {
            unseen.insert(start, end);
        }
        node.delta.running_mut().zeros.remove(start, end);
        node.dirty_since.get_or_insert(now);
        let more = dirty_pages(node.data.running(), start, end) - before;
        node.dirty_pages += more;
        self.metadata.log.running.data.dirtied(ino, more);
        self.metadata.tree.mark_changed(ino);
        self.metadata.log.touch();
    }

    /// Forgets cached bytes of `[start, end)`: whole pages are dropped, parts zeroed.
    pub fn clear_pages(&mut self, ino: InodeNr, start: u64, end: u64) {
        self.sections.changed(ino, start, end);
        let Metadata { tree, log } = &mut self.metadata;
        log.changes.data(ino, (start, end), tree.node(ino).size);
        self.metadata.forget_dirty(ino, start, end);
        let data = &mut self.metadata.tree.node_mut(ino).data;
        data.each_mut().into_iter().for_each(|bytes| bytes.remove(start, end));
        let (first, last) = (block_up(start), end / BLOCK_BYTES);
        self.metadata.tree.node_mut(ino).sent.remove(first, last);
        self.pages.remove_range(ino, first, last);
        for (s, e) in crate::data::shape::edges(start, end) {
            if let Some(page) = self.pages.get_mut(ino, s / BLOCK_BYTES) {
                let base = s / BLOCK_BYTES * BLOCK_BYTES;
                page[(s - base) as usize..(e - base) as usize].fill(0);
            }
        }
    }
}

impl Metadata {
    /// relatime over the reads of files that reach the Runtime, unless no access times are kept;
    /// never makes an fsync write.
    fn relatime(&mut self, ino: InodeNr) {
        let now = self.log.now();
        let inode = &self.tree.node(ino).inode;
        if inode.flags & siftfs_proto::flags::NOATIME != 0 {
            return;
        }
        let stale = inode.atime <= inode.mtime
            || inode.atime <= inode.ctime
            || now.sec - inode.atime.sec >= 86_400;
        let kept = !self.log.config.noatime && self.log.may_change().is_ok();
        // A read does not wait for the background: in a full transaction the time stays, for the
        // next read.
        if kept && stale && now > inode.atime && self.room_in_transaction(1).is_ok() {
            self.tree.node_mut(ino).inode.atime = now;
            self.log.mark_inode(ino);
        }
    }

    /// Reserves space for the blocks of `[first, end)` that have no home yet.
    pub fn reserve(&mut self, ino: InodeNr, first: u64, end: u64, privileged: bool) -> Step<()> {
        let wanted = self.tree.homeless(ino, first, end)?;
        let blocks: u64 = wanted.iter().map(|(s, e)| e - s).sum();
        if blocks > 0
            && let Err(short) = self.check_space(blocks, privileged)
            && !self.log.reserves.spend(blocks)
        {
            return Err(short);
        }
        self.keep_space(ino, &wanted);
        Ok(())
    }

    /// Reserves space for what [`Tree::homeless`] found, of which enough is free.
    pub fn keep_space(&mut self, ino: InodeNr, wanted: &[(u64, u64)]) {
        self.log.running.data.reserve(wanted.iter().map(|(s, e)| e - s).sum());
        let node = self.tree.node_mut(ino);
        for (s, e) in wanted {
            node.reserved.insert(*s, *e);
        }
    }

    /// Are `blocks` blocks free for this caller? Reserved blocks as ext4 has them.
    pub fn check_space(&mut self, blocks: u64, privileged: bool) -> Step<()> {
        let held_back = if privileged { 0 } else { self.tree.fs.reserved_blocks() };
        let need = with_tree(blocks) + held_back;
        if self.spendable() < need { Err(self.log.shortage()) } else { Ok(()) }
    }

    /// Blocks `[first, end)` have their homes: what was reserved for them is used.
    pub fn unreserve(&mut self, ino: InodeNr, first: u64, end: u64) {
        let blocks = self.tree.take_reserved(ino, first, end);
        self.log.running.data.unreserve(blocks);
    }

    /// Nothing needs homes for blocks `[first, end)` any more. Where a record may carry bytes of
    /// the file that no durable transaction contains, their space is free once this one is durable
    /// (rule R5): recovery would need it.
    pub fn give_back(&mut self, ino: InodeNr, first: u64, end: u64) {
        let blocks = self.tree.take_reserved(ino, first, end);
        if self.tree.node(ino).staged > self.log.ledger.journaled_cut() {
            self.log.running.data.hold(blocks);
        } else {
            self.log.running.data.unreserve(blocks);
        }
    }

    /// `[start, end)` holds no unsynced data any more.
    pub fn forget_dirty(&mut self, ino: InodeNr, start: u64, end: u64) {
        let node = self.tree.node_mut(ino);
        let before = dirty_pages(node.data.running(), start, end);
        node.data.running_mut().remove(start, end);
        let fewer = before - dirty_pages(node.data.running(), start, end);
        node.dirty_pages -= fewer;
        let clean = node.data.running().is_empty();
        if clean {
            node.dirty_since = None;
            node.push_next = false;
            node.sizes.clear();
        }
        self.log.running.data.cleaned(ino, fewer, clean);
    }
}

/// Pages with a dirty byte among those that `[start, end)` touches.
fn dirty_pages(dirty: &RangeSet<Bytes>, start: u64, end: u64) -> u64 {
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
