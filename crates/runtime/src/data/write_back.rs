//! Pages that the kernel's cache held: whole ones, of which often only a few bytes are new.
//!
//! What a page says that the file says already is not written again: the dirty ranges, and with
//! them the record of the next fsync, stay as small as if the bytes had come by themselves.

use crate::data::file::{Input, MAX_FILE_SIZE};
use crate::data::ranges::pages_of;
use crate::state::Metadata;
use crate::state::State;
use crate::state::step::Step;
use siftfs_base::{BLOCK_BYTES, Bytes, InodeNr, RangeSet, Result, Timestamp, errno};

impl State {
    /// Writes pages of the kernel's cache, the last of them as far as the file goes. With a `time`
    /// it becomes the file's mtime and ctime; without, the kernel owns them and sends them apart.
    ///
    /// A page that is not cached here counts as changed from end to end, which asks for no read.
    ///
    /// # Errors
    /// EFBIG beyond the largest file, ENOSPC, and what reading metadata says. Nothing is written
    /// then.
    pub fn write_back(
        &mut self,
        ino: InodeNr,
        offset: u64,
        data: Input<'_>,
        privileged: bool,
        time: Option<Timestamp>,
    ) -> Step<()> {
        self.load_whole(ino)?;
        let end = offset.checked_add(data.len() as u64).ok_or_else(|| errno(libc::EFBIG))?;
        if !offset.is_multiple_of(BLOCK_BYTES) {
            return Err(errno(libc::EINVAL).into());
        }
        if end > MAX_FILE_SIZE {
            return Err(errno(libc::EFBIG).into());
        }
        let changed = self.differing(ino, offset, &data)?;
        if !changed.is_empty() {
            self.room_for_dirty(ino)?;
            self.plan_tail(ino, end)?;
            self.metadata.room_in_transaction(8)?;
            for (first, last) in pages_of(&changed).iter() {
                self.metadata.reserve(ino, first, last, privileged)?;
            }
            self.zero_gap(ino, offset)?;
            self.put(ino, offset, data);
            for (start, stop) in changed.iter() {
                self.note_dirty(ino, start, stop);
            }
            let node = self.metadata.tree.node_mut(ino);
            node.size = node.size.max(end);
            self.metadata.mark_delta(ino);
        }
        match time {
            Some(time) => {
                let node = self.metadata.tree.node_mut(ino);
                (node.inode.mtime, node.inode.ctime) = (time, time);
                node.delta.running_mut().times = true;
                self.metadata.mark_delta(ino);
            }
            None => self.metadata.note_held_back(ino),
        }
        Ok(())
    }

    /// The ranges of `data` that the file does not say already.
    fn differing(
        &mut self,
        ino: InodeNr,
        offset: u64,
        data: &Input<'_>,
    ) -> Result<RangeSet<Bytes>> {
        let size = self.metadata.tree.node(ino).size;
        let mut changed = RangeSet::new();
        let (mut is_data, mut known) = (false, offset);
        let mut at = 0;
        while at < data.len() {
            let block = data.block(at);
            let start = offset + at as u64;
            let stop = start + block.len() as u64;
            at += block.len();
            if start >= known {
                // Zeros in a hole are data that needs a home, though they read alike.
                (is_data, known) = if start < size {
                    self.metadata.tree.data_at(ino, start, size)?
                } else {
                    (false, u64::MAX)
                };
            }
            let page = if is_data { self.pages.peek(ino, start / BLOCK_BYTES) } else { None };
            let Some(page) = page else {
                changed.insert(start, stop);
                continue;
            };
            let inside = stop.min(size);
            let len = (inside - start) as usize;
            if let Some((first, last)) = difference(&page.data[..len], &block[..len]) {
                changed.insert(start + first as u64, start + last as u64);
            }
            if inside < stop {
                changed.insert(inside, stop);
            }
        }
        Ok(changed)
    }

    /// The last page has a place in the cache, if `end` lies inside it. A page whose rest is beyond
    /// the file needs no read.
    fn plan_tail(&mut self, ino: InodeNr, end: u64) -> Step<()> {
        let index = end / BLOCK_BYTES;
        if end.is_multiple_of(BLOCK_BYTES) {
            return Ok(());
        }
        if end >= self.metadata.tree.node(ino).size && !self.pages.contains(ino, index) {
            self.pages.insert(ino, index, siftfs_base::SharedBlock::zeroed());
            return Ok(());
        }
        self.plan_edge(ino, index)
    }
}

impl Metadata {
    /// The kernel has had the inode's dirty bytes for a while, up to half of the commit interval by
    /// what the Frontend asks for: they are as old as that here.
    fn note_held_back(&mut self, ino: InodeNr) {
        let half = u64::try_from(self.log.config.commit_age.as_nanos() / 2).unwrap_or(u64::MAX);
        let since = self.log.time.mono_ns().saturating_sub(half);
        let node = self.tree.node_mut(ino);
        node.dirty_since = node.dirty_since.map(|s| s.min(since));
    }
}

/// Where two pieces of a page differ, if they do: from the first byte to behind the last. A page of
/// which more than half is new counts as all new, so that it never has to be completed.
fn difference(old: &[u8], new: &[u8]) -> Option<(usize, usize)> {
    let differs = |(a, b): (&u8, &u8)| a != b;
    let first = old.iter().zip(new).position(differs)?;
    let last = old.iter().zip(new).rposition(differs)? + 1;
    if (last - first) as u64 > BLOCK_BYTES / 2 { Some((0, old.len())) } else { Some((first, last)) }
}

#[cfg(test)]
#[path = "write_back_tests.rs"]
mod tests;
