//! Fills of the page cache and read-ahead for sequential readers. Pages are read from the area and
//! the lanes without the state lock, then put into the cache with it.

use crate::data::staged_reads;
use crate::state::fills::FillPlan;
use crate::state::step::{Step, Stop};
use crate::state::tree::node::Sequence;
use crate::state::{Readers, State};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, InodeNr, Result, SharedBlock};
use siftfs_device::{AlignedBuf, Origin, ReadOp};
use siftfs_ext4::Mapping;
use std::ops::Range;

/// Pages that one fill brings in at most.
const FILL_PAGES: u64 = 512;
/// Pages of read-ahead for a sequential reader, at most.
const AHEAD_MAX: u64 = 1024;
/// Pages of its first read-ahead, at most: [`AHEAD_PART`] times its own read, if that is fewer. A
/// reader that reads a few pages may go somewhere else next.
const AHEAD_FIRST: u64 = 128;
const AHEAD_PART: u64 = 4;
/// Bytes of one read: several are in flight.
const READ_BYTES: usize = 512 << 10;
/// A sequential read may be out of its turn by this many of its own lengths: the kernel's reads
/// come on several threads.
const NEAR: u64 = 2;

impl FillPlan {
    /// Reads the pages; call without the state lock. What it brings counts only as far as
    /// [`State::finish_fill`] finds that nothing has moved. `buf` is memory to read into.
    pub fn read(&self, readers: &Readers, buf: &mut AlignedBuf) -> Result<Vec<SharedBlock>> {
        let len = self.reads.last().map_or(0, |(_, at, len)| at + len);
        if buf.len() < len {
            *buf = AlignedBuf::zeroed(len);
        }
        let mut ops: Vec<ReadOp<'_>> = Vec::with_capacity(self.reads.len());
        let (mut rest, mut at) = (&mut buf[..], 0usize);
        for &(offset, start, len) in &self.reads {
            let (_, tail) = std::mem::take(&mut rest).split_at_mut(start - at);
            let (piece, tail) = tail.split_at_mut(len);
            for (i, buf) in piece.chunks_mut(READ_BYTES).enumerate() {
                ops.push(ReadOp { offset: offset + (i * READ_BYTES) as u64, buf });
            }
            rest = tail;
            at = start + len;
        }
        if !ops.is_empty() {
            readers.area.read_batch(Origin::Foreground, &mut ops)?;
        }
        let mut pages = self.blocks(buf);
        staged_reads::lay_over(&self.staged, self.first * BLOCK_BYTES, readers, buf, &mut pages)?;
        Ok(pages)
    }

    /// The pages out of the buffer; those that were not read are zero.
    fn blocks(&self, buf: &[u8]) -> Vec<SharedBlock> {
        let mut blocks = Vec::with_capacity(self.count as usize);
        let zero = SharedBlock::zeroed;
        for &(_, start, len) in &self.reads {
            blocks.resize_with(start / BLOCK_SIZE, zero);
            let read = buf[start..start + len].as_chunks::<BLOCK_SIZE>().0;
            blocks.extend(read.iter().map(|bytes| SharedBlock::from(*bytes)));
        }
        blocks.resize_with(self.count as usize, zero);
        blocks
    }

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

    /// The inode and its pages.
    pub fn pages(&self) -> (InodeNr, Range<u64>) {
        (self.ino, self.first..self.first + self.count)
    }
}

/// Which of at most 64 blocks have bytes in storage and none in memory, a bit for each: what
/// changes a part of one has to read it.
pub fn cold(st: &mut State, ino: InodeNr, first: u64, count: u32) -> Result<u64> {
    let size = st.metadata.tree.node(ino).size;
    let end = (first + u64::from(count)).min(size.div_ceil(BLOCK_BYTES));
    let (mut cold, mut at) = (0, first);
    while at < end {
        let (is_data, next) = st.metadata.tree.data_at(ino, at * BLOCK_BYTES, size)?;
        let stop = (next / BLOCK_BYTES).clamp(at + 1, end);
        let there = (at..stop).filter(|block| is_data && !st.pages.contains(ino, *block));
        cold = there.fold(cold, |bits, block| bits | 1 << (block - first));
        at = stop;
    }
    Ok(cold)
}

impl State {
    /// Notes a read of these pages. A sequential reader gets read-ahead, farther with each of its
    /// reads.
    pub fn note_read(&mut self, ino: InodeNr, pages: &Range<u64>) {
        let most = AHEAD_MAX.min(self.pages.limit() as u64 / 8);
        let len = pages.end - pages.start;
        let (near, first) = (NEAR * len, (AHEAD_PART * len).min(AHEAD_FIRST).min(most));
        let s = &mut self.metadata.tree.node_mut(ino).sequence;
        if pages.start == 0 {
            *s = Sequence { next: pages.end, ahead: first, done: 0 };
        } else if s.next == 0 || pages.start.abs_diff(s.next) > near {
            *s = Sequence { next: pages.end, ahead: 0, done: 0 };
        } else if pages.end > s.next {
            s.next = pages.end;
            s.ahead = (s.ahead * 2).clamp(first, most);
        }
    }

    /// The next pages to read ahead, if it is time to.
    pub fn ahead(&mut self, ino: InodeNr) -> Result<Option<FillPlan>> {
        let Some(node) = self.metadata.tree.inodes.get(&ino) else { return Ok(None) };
        let s = node.sequence;
        let from = s.done.max(s.next);
        let end = (s.next + s.ahead).min(node.size.div_ceil(BLOCK_BYTES));
        // Not in small pieces: only when half of it is used up.
        if from >= end || from - s.next > s.ahead / 2 {
            return Ok(None);
        }
        self.metadata.tree.node_mut(ino).sequence.done = end.min(from + FILL_PAGES);
        match self.missing(ino, from..end, 0) {
            Err(Stop::Read(plan)) => Ok(Some(plan)),
            Ok(()) | Err(Stop::Wait(..)) => Ok(None),
            Err(other) => Err(other.into_error()),
        }
    }

    /// What is missing of `pages`: the first gap as a plan, with up to `ahead` pages of the file
    /// behind the last one if they are missing too.
    pub fn missing(&mut self, ino: InodeNr, pages: Range<u64>, ahead: u64) -> Step<()> {
        let Some(start) = pages.clone().find(|i| !self.pages.contains(ino, *i)) else {
            return Ok(());
        };
        if self.fills.meets(ino, &(start..start + 1)) {
            return Err(Stop::Wait(ino, start..start + 1));
        }
        let node = self.metadata.tree.inodes.get(&ino).expect("loaded before use");
        let last = node.size.div_ceil(BLOCK_BYTES).min(pages.end + ahead).max(pages.end);
        let end = last.min(start + FILL_PAGES);
        let other = |i: &u64| self.pages.contains(ino, *i) || self.fills.meets(ino, &(*i..*i + 1));
        let stop = (start + 1..end).find(other).unwrap_or(end);
        let mut plan = FillPlan {
            ino,
            first: start,
            count: stop - start,
            map_version: node.map_version,
            reads: Vec::new(),
            staged: staged_reads::parts(&node.overlay, start * BLOCK_BYTES, stop * BLOCK_BYTES),
        };
        let mut block = start;
        while block < stop {
            let len = match self.metadata.tree.fs.layout.map(
                &mut self.metadata.tree.meta,
                &node.inode,
                block,
                stop - block,
            )? {
                Mapping::Mapped { pblk, len, unwritten: false } => {
                    let len = len.min(stop - block);
                    plan.push_read(pblk * BLOCK_BYTES, (block - start) * BLOCK_BYTES, len);
                    len
                }
                Mapping::Mapped { len, .. } | Mapping::Hole { len } => len,
            };
            block += len.clamp(1, stop - block);
        }
        Err(Stop::Read(plan))
    }

    /// Puts the pages of a plan in; with the lock. Nothing happens if the mapping changed or
    /// credits came back meanwhile, and a page whose newest bytes are elsewhere by now is left out:
    /// the operation plans again.
    pub fn finish_fill(&mut self, plan: &FillPlan, pages: Vec<SharedBlock>) {
        let (from, to) = (plan.first * BLOCK_BYTES, (plan.first + plan.count) * BLOCK_BYTES);
        let Some(node) = self.metadata.tree.inodes.get(&plan.ino) else { return };
        if node.map_version != plan.map_version {
            return;
        }
        let now = staged_reads::parts(&node.overlay, from, to);
        let size = node.size;
        let same = now == plan.staged;
        for (i, mut page) in (plan.first..).zip(pages) {
            let start = i * BLOCK_BYTES;
            let stays = || {
                staged_reads::of_page(&now, start).eq(staged_reads::of_page(&plan.staged, start))
            };
            if self.pages.contains(plan.ino, i) || !same && !stays() {
                continue;
            }
            if size < start + BLOCK_BYTES {
                page.make_mut()[size.saturating_sub(start) as usize..].fill(0);
            }
            self.pages.insert(plan.ino, i, page);
        }
    }
}
