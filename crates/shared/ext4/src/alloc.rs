//! Block allocation: contiguous runs near a goal, quarantine of freed blocks (rule R5).

mod pooled;
pub(crate) mod pools;

use siftfs_base::{BLOCK_SIZE, BlockNr, BlockRun, Blocks, Result, corrupt, errno};

use crate::bits::{self, Bitmap};
use crate::csum;
use crate::format::*;
use crate::fs::{Fs, Layout};
use crate::group;
use crate::store::BlockStore;

/// Groups searched for a run of the whole length before a shorter one is taken.
const GROUPS_TRIED: usize = 8;

/// A free run inside a group: first bit and length.
#[derive(Clone, Copy, Default)]
pub(crate) struct Found {
    pub bit: u32,
    pub len: u32,
}

impl Fs {
    /// Allocates one contiguous run of 1 to `want` blocks, at `goal` if that is free, else near
    /// it, else where a long run is found. The blocks' content is whatever was there. Blocks of
    /// pools are passed over, as long as pools have little of what there is.
    ///
    /// Does not touch any inode. Errors: ENOSPC when [`Fs::available_blocks`] is 0.
    pub fn alloc_blocks(
        &mut self,
        store: &mut dyn BlockStore,
        goal: BlockNr,
        want: u64,
    ) -> Result<BlockRun> {
        assert!(want > 0, "an allocation of no blocks");
        self.relieve_pools();
        let want = want.min(u64::from(self.layout.geo.blocks_per_group)) as u32;
        match self.find(store, goal, want)? {
            Some((group, found)) => self.claim(store, group, found),
            None => Err(errno(libc::ENOSPC)),
        }
    }

    /// Where an allocation of `want` blocks finds some: a group, and a run in it. `None` if no
    /// block is free that is in no quarantine and no pool.
    pub(crate) fn find(
        &mut self,
        store: &mut dyn BlockStore,
        goal: BlockNr,
        want: u32,
    ) -> Result<Option<(u32, Found)>> {
        let goal = if goal < self.layout.geo.block_count { goal } else { 0 };
        let (home, bit) = self.layout.geo.locate(goal);
        let mut best: Option<(u32, Found)> = None;
        if group::at(&self.groups, home).blocks() > 0 {
            let found = self.search_group(store, home, bit, want)?;
            if found.len > 0 {
                best = Some((home, found));
                if found.bit == bit || found.len >= want {
                    return Ok(best);
                }
            }
        }
        let others = self.with_blocks.range(home + 1..).chain(self.with_blocks.range(..home));
        let others: Vec<u32> = others.copied().take(GROUPS_TRIED).collect();
        for group in others {
            let len = best.map_or(0, |(_, f)| f.len);
            let g = group::at(&self.groups, group);
            if g.longest.min(g.blocks()) <= len {
                continue;
            }
            let found = self.search_group(store, group, 0, want)?;
            if found.len > len {
                best = Some((group, found));
                if found.len >= want {
                    break;
                }
            }
        }
        Ok(best)
    }

    /// Frees a run: bitmap and counts now, allocation again after [`Fs::release_blocks`].
    ///
    /// The store is told, so that no stale metadata of the blocks is written. Does not touch any
    /// inode. Errors: `Corrupt` if a block is already free or belongs to the volume's own
    /// structures; nothing is changed then.
    pub fn free_run(&mut self, store: &mut dyn BlockStore, run: BlockRun) -> Result<()> {
        self.layout.check_run(run, || "freed run".into())?;
        let pieces = self.layout.by_group(run);
        for &(group, bit, len) in &pieces {
            let map = self.block_bitmap(store, group)?;
            if bits::next_zero(map.get(store)?, bit, bit + len) != bit + len {
                let detail = format!("{len} blocks at bit {bit} to be freed are not all in use");
                return Err(corrupt(format!("block bitmap of group {group}"), detail));
            }
        }
        for (group, bit, len) in pieces {
            let g = group::at_mut(&mut self.groups, group);
            let map = store.modify(g.block_bitmap)?;
            bits::fill(map, bit, bit + len, false);
            g.block_csum =
                csum::bitmap_csum(self.layout.geo.seed, map, self.layout.geo.blocks_per_group);
            g.free_blocks += len;
            g.held_blocks += len;
            self.free_blocks += u64::from(len);
            self.held_blocks += u64::from(len);
            g.store(&self.layout.geo, group, store)?;
        }
        assert!(!self.held.overlaps(run.start, run.end()), "a used block was in quarantine");
        self.held.insert(run.start, run.end());
        store.freed(run);
        Ok(())
    }

    /// Ends the quarantine of those blocks of `run` that are in it: they may be allocated.
    pub fn release_blocks(&mut self, run: BlockRun) {
        let parts: Vec<_> = self.held.overlapping(run.start, run.end()).collect();
        for (start, end) in parts {
            self.held.remove(start, end);
            for (group, bit, len) in self.layout.by_group(BlockRun { start, len: end - start }) {
                group::at_mut(&mut self.groups, group).held_blocks -= len;
                self.held_blocks -= u64::from(len);
                self.opened(group, bit);
            }
        }
    }

    /// Blocks of the group, from this bit on, may be allocated that could not be before.
    pub(crate) fn opened(&mut self, group: u32, bit: u32) {
        let g = group::at_mut(&mut self.groups, group);
        g.block_hint = g.block_hint.min(bit);
        g.longest = self.layout.geo.blocks_in_group(group);
        self.with_blocks.insert(group);
    }

    /// Puts blocks that may be allocated now into quarantine, so that their space can be given
    /// back: runs of at least `least` blocks, from `from` on and within its group, `most` blocks in
    /// `runs` runs at most. [`Fs::release_blocks`] ends it. Also says where to go on; at or beyond
    /// the volume's end nothing is left.
    ///
    /// # Errors
    /// The group's bitmap cannot be read; nothing is in quarantine that was not.
    pub fn hold_free(
        &mut self,
        store: &mut dyn BlockStore,
        from: BlockNr,
        least: u64,
        (most, runs): (u64, usize),
    ) -> Result<(Vec<BlockRun>, BlockNr)> {
        if from >= self.layout.geo.block_count {
            return Ok((Vec::new(), self.layout.geo.block_count));
        }
        let (group, bit) = self.layout.geo.locate(from);
        let start = self.layout.geo.group_start(group);
        let end = self.layout.geo.blocks_in_group(group);
        let mut held = Vec::new();
        let (mut at, mut left, least) = (bit, most, least.max(1));
        if group::at(&self.groups, group).blocks() > 0 {
            let image = self.block_bitmap(store, group)?;
            let map = image.get(store)?;
            while at < end && held.len() < runs && left >= least {
                let want = u32::try_from(left).unwrap_or(u32::MAX);
                let run = self.next_run(map, group, at, end, want);
                at = run.bit + run.len;
                if u64::from(run.len) >= least {
                    let run = BlockRun { start: start + u64::from(run.bit), len: run.len.into() };
                    left -= run.len;
                    held.push(run);
                }
            }
        } else {
            at = end;
        }
        for run in &held {
            self.held.insert(run.start, run.end());
            group::at_mut(&mut self.groups, group).held_blocks += run.len as u32;
            self.held_blocks += run.len;
        }
        if group::at(&self.groups, group).blocks() == 0 {
            self.with_blocks.remove(&group);
        }
        Ok((held, start + u64::from(at)))
    }

    /// The blocks in quarantine.
    pub fn quarantined_blocks(&self) -> &siftfs_base::RangeSet<Blocks> {
        &self.held
    }

    /// Marks a run in one group used.
    pub(crate) fn claim(
        &mut self,
        store: &mut dyn BlockStore,
        group: u32,
        found: Found,
    ) -> Result<BlockRun> {
        let Found { bit, len } = found;
        let mut fresh = None;
        if group::at(&self.groups, group).has(BG_BLOCK_UNINIT) {
            fresh = Some(self.layout.initial_block_bitmap(group));
        }
        let g = group::at_mut(&mut self.groups, group);
        let map = match fresh {
            Some(image) => {
                let map = store.create(g.block_bitmap)?;
                *map = *image;
                g.flags &= !BG_BLOCK_UNINIT;
                map
            }
            None => store.modify(g.block_bitmap)?,
        };
        assert!(bits::next_one(map, bit, bit + len) == bit + len, "claimed blocks are in use");
        bits::fill(map, bit, bit + len, true);
        g.block_csum =
            csum::bitmap_csum(self.layout.geo.seed, map, self.layout.geo.blocks_per_group);
        g.free_blocks -= len;
        self.free_blocks -= u64::from(len);
        if g.block_hint >= bit {
            g.block_hint = g.block_hint.max(bit + len);
        }
        if g.blocks() == 0 {
            self.with_blocks.remove(&group);
        }
        g.store(&self.layout.geo, group, store)?;
        store.set_verified(g.block_bitmap);
        self.counts.runs += 1;
        Ok(BlockRun {
            start: self.layout.geo.group_start(group) + u64::from(bit),
            len: u64::from(len),
        })
    }

    /// The best run of up to `want` blocks in a group: the one that starts at `from`, else the
    /// first from there on that is long enough, else before it, else the longest.
    fn search_group(
        &mut self,
        store: &mut dyn BlockStore,
        group: u32,
        from: u32,
        want: u32,
    ) -> Result<Found> {
        self.counts.searches += 1;
        let image = self.block_bitmap(store, group)?;
        let map = image.get(store)?;
        let end = self.layout.geo.blocks_in_group(group);
        let hint = group::at(&self.groups, group).block_hint;
        let at = self.next_run(map, group, from.max(hint), end, want);
        if from <= hint && at.len > 0 {
            // Nothing before it may be allocated: the next search does not walk over the
            // quarantine.
            group::at_mut(&mut self.groups, group).block_hint = at.bit;
        }
        if at.bit == from && at.len > 0 {
            return Ok(at);
        }
        let after = self.best_run(map, group, from.max(hint), end, want);
        if after.len >= want {
            return Ok(after);
        }
        // A run that begins before `from` is seen whole from the left.
        let before = self.best_run(map, group, hint, end, want);
        let best = if after.len >= before.len { after } else { before };
        if best.len < want {
            group::at_mut(&mut self.groups, group).longest = best.len;
        }
        if best.len == 0 {
            let what = format!("block bitmap of group {group}");
            return Err(corrupt(what, "free blocks are counted, none is found"));
        }
        Ok(best)
    }

    /// First run of `want` blocks in bits `[from, end)`, else the longest there.
    fn best_run(&self, map: &Bitmap, group: u32, from: u32, end: u32, want: u32) -> Found {
        let mut best = Found::default();
        let mut at = from;
        while at < end {
            let run = self.next_run(map, group, at, end, want);
            if run.len > best.len {
                best = run;
            }
            if run.len == 0 || run.len >= want {
                break;
            }
            at = run.bit + run.len;
        }
        best
    }

    /// Next run of clear bits from `from` on that are in no quarantine and no pool, cut at `want`;
    /// length 0 if none.
    pub(crate) fn next_run(
        &self,
        map: &Bitmap,
        group: u32,
        from: u32,
        end: u32,
        want: u32,
    ) -> Found {
        let start = self.layout.geo.group_start(group);
        let mut at = from;
        loop {
            let bit = bits::next_zero(map, at, end);
            if bit >= end {
                return Found { bit: end, len: 0 };
            }
            let stop = bits::next_one(map, bit, end.min(bit.saturating_add(want)));
            let (s, e) = (start + u64::from(bit), start + u64::from(stop));
            let (held, pooled) = (&self.held, self.pools.all());
            let apart = [held.overlapping(s, e).next(), pooled.overlapping(s, e).next()];
            match apart.into_iter().flatten().min() {
                None => return Found { bit, len: stop - bit },
                Some((hs, _)) if hs > s => return Found { bit, len: (hs - s) as u32 },
                Some((_, he)) => at = bit + (he - s) as u32,
            }
        }
    }

    /// The group's bitmap, checked; computed where it was never written.
    pub(crate) fn block_bitmap(&self, store: &mut dyn BlockStore, group: u32) -> Result<Image> {
        let g = group::at(&self.groups, group);
        if g.has(BG_BLOCK_UNINIT) {
            let map = self.layout.initial_block_bitmap(group);
            let end = self.layout.geo.blocks_in_group(group);
            if bits::count_zeros(&map, end) != g.free_blocks {
                let what = format!("group descriptor {group}");
                return Err(corrupt(what, "free blocks of an uninitialised group"));
            }
            return Ok(Image::Computed(map));
        }
        if !store.verified(g.block_bitmap) {
            let map = store.read(g.block_bitmap)?;
            self.check_block_bitmap(group, map)?;
            store.set_verified(g.block_bitmap);
        }
        Ok(Image::Stored(g.block_bitmap))
    }

    fn check_block_bitmap(&self, group: u32, map: &Bitmap) -> Result<()> {
        let g = group::at(&self.groups, group);
        let bad = |detail: &str| Err(corrupt(format!("block bitmap of group {group}"), detail));
        let mut want =
            csum::bitmap_csum(self.layout.geo.seed, map, self.layout.geo.blocks_per_group);
        if self.layout.geo.desc_size == 32 {
            want &= 0xFFFF;
        }
        let have =
            if self.layout.geo.desc_size == 32 { g.block_csum & 0xFFFF } else { g.block_csum };
        if want != have {
            return bad("checksum");
        }
        let end = self.layout.geo.blocks_in_group(group);
        if bits::count_zeros(map, end) != g.free_blocks {
            return bad("free blocks differ from the descriptor");
        }
        let start = self.layout.geo.group_start(group);
        for (s, e) in self.layout.system.overlapping(start, start + u64::from(end)) {
            let (s, e) = ((s - start) as u32, (e - start) as u32);
            if bits::next_zero(map, s, e) != e {
                return bad("the volume's own blocks are marked free");
            }
        }
        Ok(())
    }
}

impl Layout {
    /// The run cut at group boundaries: (group, first bit, length).
    pub(crate) fn by_group(&self, run: BlockRun) -> Vec<(u32, u32, u32)> {
        let mut out = Vec::new();
        let mut at = run.start;
        while at < run.end() {
            let (group, bit) = self.geo.locate(at);
            let len = (run.end() - at).min(u64::from(self.geo.blocks_per_group - bit)) as u32;
            out.push((group, bit, len));
            at += u64::from(len);
        }
        out
    }

    /// What a never-written bitmap says: the volume's own blocks and the padding behind a short
    /// last group are in use.
    fn initial_block_bitmap(&self, group: u32) -> Box<Bitmap> {
        let mut map = Box::new([0; BLOCK_SIZE]);
        let start = self.geo.group_start(group);
        let blocks = self.geo.blocks_in_group(group);
        for (s, e) in self.system.overlapping(start, start + u64::from(blocks)) {
            bits::fill(&mut map, (s - start) as u32, (e - start) as u32, true);
        }
        bits::fill(&mut map, blocks, BLOCK_SIZE as u32 * 8, true);
        map
    }
}

/// A bitmap to be read.
pub(crate) enum Image {
    /// Computed, not on disk.
    Computed(Box<Bitmap>),
    /// The bitmap is in the store.
    Stored(BlockNr),
}

impl Image {
    /// Its bits.
    pub fn get<'a>(&'a self, store: &'a mut dyn BlockStore) -> Result<&'a Bitmap> {
        match self {
            Image::Computed(map) => Ok(map),
            Image::Stored(nr) => store.read(*nr),
        }
    }
}

#[cfg(test)]
#[path = "alloc_tests.rs"]
mod tests;
