//! Pools of free blocks: windows that are held in memory for one user of the volume each, as lists
//! of free runs (`docs/design/private-logs.md`, "Free lists and pools").
//!
//! A block of a pool is free in its bitmap and counts as available. Nothing of a pool is ever on
//! disk, so a crash forgets it and loses nothing.

use std::collections::BTreeMap;

use siftfs_base::{BlockNr, BlockRun, Blocks, RangeSet};

/// Pools that have blocks at a time: for another one the pool that was used longest ago is emptied.
pub(crate) const MOST_POOLS: usize = 64;

/// Runs that a pool has at most. It bounds the memory of all pools to some 200 KiB.
pub(crate) const MOST_RUNS: usize = 64;

/// Blocks that a pool has at most (4 MiB).
const WINDOW: u64 = 1024;

/// A window of fewer blocks is not worth its search.
const LEAST_WINDOW: u64 = 16;

/// A window is at most one in this many of the blocks that are available.
const WINDOW_PART: u64 = 64;

/// All pools together have at most one in this many of the blocks that are available.
const ALL_PART: u64 = 8;

/// The volume is nearly full when the pools have more than one in this many of what is available.
const FULL_PART: u64 = 2;

/// Whose blocks a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolId {
    /// Those of all together who allocate from lists.
    Shared,
    /// One user's, by a number that no other one has at that time.
    Of(u64),
}

/// What allocations came to since the volume was opened, and what pools have now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Runs of blocks handed out.
    pub runs: u64,
    /// Those of them that came from a pool.
    pub pooled_runs: u64,
    /// Bitmaps searched for free blocks.
    pub searches: u64,
    /// Pools that have blocks now.
    pub pools: u64,
    /// Blocks in them: they are free.
    pub pooled_blocks: u64,
}

/// The free runs of one pool.
#[derive(Default)]
struct List {
    free: RangeSet<Blocks>,
    blocks: u64,
    /// The turn in which it was used last.
    used: u64,
}

/// All pools. They are disjoint, and none has a block that is in quarantine or in use.
#[derive(Default)]
pub(crate) struct Pools {
    lists: BTreeMap<PoolId, List>,
    /// The blocks of all of them.
    all: RangeSet<Blocks>,
    blocks: u64,
    turn: u64,
}

impl Pools {
    /// The pool exists from now on; without blocks if it is new.
    pub fn begin(&mut self, id: PoolId) {
        self.lists.entry(id).or_default();
    }

    /// Does the pool exist? Notes that it is used.
    pub fn turn_of(&mut self, id: PoolId) -> bool {
        self.turn += 1;
        let turn = self.turn;
        self.lists.get_mut(&id).map(|list| list.used = turn).is_some()
    }

    /// The pool does not exist any more. Returns what it had.
    pub fn end(&mut self, id: PoolId) -> Vec<BlockRun> {
        let runs = self.empty(id);
        self.lists.remove(&id);
        runs
    }

    /// Takes all blocks out of a pool.
    pub fn empty(&mut self, id: PoolId) -> Vec<BlockRun> {
        let Some(list) = self.lists.get_mut(&id) else { return Vec::new() };
        self.blocks -= std::mem::take(&mut list.blocks);
        let free = std::mem::take(&mut list.free);
        free.iter().for_each(|(start, end)| self.all.remove(start, end));
        free.iter().map(|(start, end)| BlockRun { start, len: end - start }).collect()
    }

    /// Takes all blocks out of all pools.
    pub fn empty_all(&mut self) -> Vec<BlockRun> {
        let ids: Vec<PoolId> = self.lists.keys().copied().collect();
        ids.into_iter().flat_map(|id| self.empty(id)).collect()
    }

    /// The pool that was used longest ago of those that have blocks, `id` excepted.
    pub fn oldest_beside(&self, id: PoolId) -> Option<PoolId> {
        let others = self.lists.iter().filter(|(other, list)| **other != id && list.blocks > 0);
        others.min_by_key(|(_, list)| list.used).map(|(other, _)| *other)
    }

    /// Pools that have blocks.
    pub fn filled(&self) -> usize {
        self.lists.values().filter(|list| list.blocks > 0).count()
    }

    /// The blocks of all pools.
    pub fn all(&self) -> &RangeSet<Blocks> {
        &self.all
    }

    /// How many they are.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks of one pool.
    pub fn blocks_of(&self, id: PoolId) -> u64 {
        self.lists.get(&id).map_or(0, |list| list.blocks)
    }

    /// Runs of one pool.
    pub fn runs_of(&self, id: PoolId) -> usize {
        self.lists.get(&id).map_or(0, |list| list.free.ranges())
    }

    /// Do the pools have so much of what is `available` that others would miss it?
    pub fn is_too_much_of(&self, available: u64) -> bool {
        self.blocks * FULL_PART > available
    }

    /// Up to `want` blocks of the pool that begin with `goal`, if it has that one.
    pub fn at(&self, id: PoolId, goal: BlockNr, want: u64) -> Option<BlockRun> {
        let list = self.lists.get(&id)?;
        let (start, end) = list.free.overlapping(goal, goal.saturating_add(want)).next()?;
        (start == goal).then_some(BlockRun { start, len: end - start })
    }

    /// The first run of `want` blocks of the pool from `goal` on; else the first one, else the
    /// longest. `None` if the pool is empty.
    pub fn best(&self, id: PoolId, goal: BlockNr, want: u64) -> Option<BlockRun> {
        let list = self.lists.get(&id)?;
        let runs = || list.free.iter().map(|(start, end)| BlockRun { start, len: end - start });
        let mut long = runs().filter(|run| run.len >= want);
        let first = long.next();
        let run = match first {
            Some(run) if run.start < goal => long.find(|run| run.start >= goal).or(first),
            Some(_) => first,
            // Of equal ones the first.
            None => runs().reduce(|best, run| if run.len > best.len { run } else { best }),
        };
        run.map(|run| BlockRun { len: run.len.min(want), ..run })
    }

    /// The pool gets a run that no pool has.
    pub fn give(&mut self, id: PoolId, run: BlockRun) {
        assert!(!self.all.overlaps(run.start, run.end()), "a block of two pools");
        let list = self.lists.entry(id).or_default();
        list.free.insert(run.start, run.end());
        list.blocks += run.len;
        self.all.insert(run.start, run.end());
        self.blocks += run.len;
    }

    /// Takes a run out of the pool, which has it.
    pub fn take(&mut self, id: PoolId, run: BlockRun) {
        let list = self.lists.get_mut(&id).expect("the pool has the run");
        list.free.remove(run.start, run.end());
        list.blocks -= run.len;
        self.all.remove(run.start, run.end());
        self.blocks -= run.len;
    }
}

/// Blocks that a pool may have, where this many are available; 0: none is worth having.
pub(crate) fn window(available: u64) -> u64 {
    let window = WINDOW.min(available / WINDOW_PART);
    if window < LEAST_WINDOW { 0 } else { window }
}

/// Blocks that all pools together may have, where this many are available.
pub(crate) fn most(available: u64) -> u64 {
    available / ALL_PART
}

#[cfg(test)]
#[path = "pools_tests.rs"]
mod tests;
