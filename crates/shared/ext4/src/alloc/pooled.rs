//! Allocation from pools (`docs/design/private-logs.md`, "Free lists and pools").

use siftfs_base::{BlockNr, BlockRun, Result};

use crate::alloc::Found;
use crate::alloc::pools::{self, Allocations, MOST_POOLS, MOST_RUNS, PoolId};
use crate::bits;
use crate::fs::Fs;
use crate::group;
use crate::store::BlockStore;

impl Fs {
    /// There is a pool of this name from now on, to allocate from by [`Fs::alloc_pooled`].
    pub fn begin_pool(&mut self, id: PoolId) {
        self.pools.begin(id);
    }

    /// There is no such pool any more, if there was: everybody may allocate its blocks.
    pub fn end_pool(&mut self, id: PoolId) {
        let runs = self.pools.end(id);
        self.give_back(runs);
    }

    /// As [`Fs::alloc_blocks`], for the user of a pool: at `goal` if that block is free and in no
    /// other pool, else from the pool, which is filled by one search when it has too little. It is
    /// the same as without a pool where there is none of this name, where the volume is too full
    /// for pools, and for more blocks than a pool has, away from the goal.
    ///
    /// # Errors
    /// As [`Fs::alloc_blocks`].
    pub fn alloc_pooled(
        &mut self,
        store: &mut dyn BlockStore,
        id: PoolId,
        goal: BlockNr,
        want: u64,
    ) -> Result<BlockRun> {
        assert!(want > 0, "an allocation of no blocks");
        let window = pools::window(self.available_blocks());
        if window == 0 || !self.pools.turn_of(id) {
            return self.alloc_blocks(store, goal, want);
        }
        if let Some(run) = self.pools.at(id, goal, want) {
            return self.claim_pooled(store, id, run);
        }
        if let Some((group, found)) = self.free_at(store, goal, want)? {
            if self.pools.blocks_of(id) > 0 || want > window {
                return self.claim(store, group, found);
            }
            self.fill_pool(store, id, goal, window)?;
            if let Some(run) = self.pools.at(id, goal, want) {
                return self.claim_pooled(store, id, run);
            }
            return self.claim(store, group, found);
        }
        if want > window {
            return self.alloc_blocks(store, goal, want);
        }
        let enough = self.pools.best(id, goal, want).is_some_and(|run| run.len == want);
        let has_room =
            self.pools.blocks_of(id) <= window / 2 && self.pools.runs_of(id) <= MOST_RUNS / 2;
        if !enough && has_room {
            self.fill_pool(store, id, goal, window)?;
        }
        match self.pools.best(id, goal, want) {
            Some(run) => self.claim_pooled(store, id, run),
            None => self.alloc_blocks(store, goal, want),
        }
    }

    /// What allocations came to.
    pub fn allocations(&self) -> Allocations {
        Allocations {
            pools: self.pools.filled() as u64,
            pooled_blocks: self.pools.blocks(),
            ..self.counts
        }
    }

    /// All pools are empty if they have so much of what is available that others would have to
    /// search for what is left.
    pub(crate) fn relieve_pools(&mut self) {
        if self.pools.is_too_much_of(self.available_blocks()) {
            let runs = self.pools.empty_all();
            self.give_back(runs);
        }
    }

    /// Fills a pool up to `window` blocks: with the free run that such an allocation would get, and
    /// with those behind it in its group. Pools that were used longest ago are emptied where there
    /// would be too many, or too many blocks in them.
    fn fill_pool(
        &mut self,
        store: &mut dyn BlockStore,
        id: PoolId,
        goal: BlockNr,
        window: u64,
    ) -> Result<()> {
        let most = pools::most(self.available_blocks());
        while self.pools.filled() >= MOST_POOLS || self.pools.blocks() + window > most {
            let Some(oldest) = self.pools.oldest_beside(id) else { break };
            let runs = self.pools.empty(oldest);
            self.give_back(runs);
        }
        let have = self.pools.blocks_of(id);
        let room = (window - have.min(window)).min(most.saturating_sub(self.pools.blocks()));
        let Ok(mut room) = u32::try_from(room) else { return Ok(()) };
        if room == 0 {
            return Ok(());
        }
        let Some((group, found)) = self.find(store, goal, room)? else { return Ok(()) };
        let image = self.block_bitmap(store, group)?;
        let map = image.get(store)?;
        let (start, end) =
            (self.layout.geo.group_start(group), self.layout.geo.blocks_in_group(group));
        let (mut runs, mut at, most_runs) = (Vec::new(), found.bit, self.pools.runs_of(id));
        while room > 0 && most_runs + runs.len() < MOST_RUNS {
            let run = self.next_run(map, group, at, end, room);
            if run.len == 0 {
                break;
            }
            (at, room) = (run.bit + run.len, room - run.len);
            runs.push(BlockRun { start: start + u64::from(run.bit), len: run.len.into() });
        }
        for run in runs {
            self.pools.give(id, run);
            group::at_mut(&mut self.groups, group).pooled_blocks += run.len as u32;
        }
        if group::at(&self.groups, group).blocks() == 0 {
            self.with_blocks.remove(&group);
        }
        Ok(())
    }

    /// The free run of up to `want` blocks that begins with `block`, if that one is free, and in no
    /// quarantine and no pool.
    fn free_at(
        &mut self,
        store: &mut dyn BlockStore,
        block: BlockNr,
        want: u64,
    ) -> Result<Option<(u32, Found)>> {
        if block >= self.layout.geo.block_count {
            return Ok(None);
        }
        let (nr, bit) = self.layout.geo.locate(block);
        if group::at(&self.groups, nr).blocks() == 0 {
            return Ok(None);
        }
        let image = self.block_bitmap(store, nr)?;
        let map = image.get(store)?;
        if bits::test(map, bit) {
            return Ok(None);
        }
        let end = self.layout.geo.blocks_in_group(nr);
        let want = u32::try_from(want).unwrap_or(u32::MAX);
        let run = self.next_run(map, nr, bit, end, want);
        Ok((run.len > 0 && run.bit == bit).then_some((nr, run)))
    }

    /// Marks a run of a pool used.
    fn claim_pooled(
        &mut self,
        store: &mut dyn BlockStore,
        id: PoolId,
        run: BlockRun,
    ) -> Result<BlockRun> {
        let (nr, bit) = self.layout.geo.locate(run.start);
        let rest = u64::from(self.layout.geo.blocks_in_group(nr) - bit);
        let run = BlockRun { len: run.len.min(rest), ..run };
        // The bitmap may have left the store's memory since the pool was filled.
        self.block_bitmap(store, nr)?;
        self.pools.take(id, run);
        let group = group::at_mut(&mut self.groups, nr);
        group.pooled_blocks -= run.len as u32;
        let claimed = self.claim(store, nr, Found { bit, len: run.len as u32 });
        match claimed {
            Ok(_) => self.counts.pooled_runs += 1,
            Err(_) => self.opened(nr, bit),
        }
        claimed
    }

    /// Everybody may allocate these blocks, which no pool has any more.
    fn give_back(&mut self, runs: Vec<BlockRun>) {
        for run in runs {
            for (nr, bit, len) in self.layout.by_group(run) {
                group::at_mut(&mut self.groups, nr).pooled_blocks -= len;
                self.opened(nr, bit);
            }
        }
    }
}

#[cfg(test)]
#[path = "pooled_tests.rs"]
mod tests;
