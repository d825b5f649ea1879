use std::collections::BTreeSet;

use siftfs_base::{Blocks, RangeSet, Rng};

use super::*;
use crate::test_image::Image;
use crate::testing::MemStore;

/// A volume, and what a plain set of blocks says of it.
struct Model {
    image: Image,
    store: MemStore,
    fs: Fs,
    free: BTreeSet<u64>,
    used: Vec<BlockRun>,
    held: Vec<BlockRun>,
    rng: Rng,
}

impl Model {
    fn new(mib: u64, seed: u64) -> Self {
        let image = Image::make(mib);
        let mut store = image.load();
        let fs = Fs::open(&mut store).unwrap();
        let (used, held, rng) = (Vec::new(), Vec::new(), Rng::new(seed));
        let mut model = Self { image, store, fs, free: BTreeSet::new(), used, held, rng };
        model.free = model.free_by_bitmap();
        model
    }

    /// Blocks that are free in the bitmaps.
    fn free_by_bitmap(&mut self) -> BTreeSet<u64> {
        let (geo, mut free) = (&self.fs.layout.geo, BTreeSet::new());
        for nr in 0..geo.group_count {
            let image = self.fs.block_bitmap(&mut self.store, nr).unwrap();
            let map = image.get(&mut self.store).unwrap();
            let clear = (0..geo.blocks_in_group(nr)).filter(|bit| !bits::test(map, *bit));
            free.extend(clear.map(|bit| geo.group_start(nr) + u64::from(bit)));
        }
        free
    }

    /// One allocation, for the user of a pool or without one.
    fn alloc(&mut self, pool: Option<PoolId>, goal: u64, want: u64) -> Option<BlockRun> {
        let run = match pool {
            Some(id) => self.fs.alloc_pooled(&mut self.store, id, goal, want),
            None => self.fs.alloc_blocks(&mut self.store, goal, want),
        };
        match run {
            Ok(run) => {
                assert!(run.len >= 1 && run.len <= want, "{run:?} of {want}");
                let fresh = (run.start..run.end()).all(|block| self.free.remove(&block));
                assert!(fresh, "{run:?} was not free");
                self.used.push(run);
                Some(run)
            }
            Err(e) => {
                assert_eq!(e.errno(), libc::ENOSPC);
                assert!(self.free.is_empty(), "{} blocks are free", self.free.len());
                None
            }
        }
    }

    fn free(&mut self) {
        let run = self.used.swap_remove(self.rng.below(self.used.len() as u64) as usize);
        self.fs.free_run(&mut self.store, run).unwrap();
        self.held.push(run);
    }

    fn release(&mut self) {
        let run = self.held.swap_remove(self.rng.below(self.held.len() as u64) as usize);
        self.fs.release_blocks(run);
        self.free.extend(run.start..run.end());
    }

    /// Free blocks are held, as for a trim.
    fn hold(&mut self) {
        let from = self.rng.below(self.fs.layout.block_count());
        let (held, _) = self.fs.hold_free(&mut self.store, from, 1, (3000, 8)).unwrap();
        for run in held {
            let free = (run.start..run.end()).all(|block| self.free.remove(&block));
            assert!(free, "{run:?} is held and was not free");
            self.held.push(run);
        }
    }

    /// The memory is lost, and with it pools and quarantine.
    fn crash(&mut self) {
        self.fs.sync_super(&mut self.store).unwrap();
        self.fs = Fs::open(&mut self.store).unwrap();
        while !self.held.is_empty() {
            self.release();
        }
    }

    /// Pools are disjoint, and have free blocks that are in no quarantine; all counts agree.
    fn check(&mut self) {
        let (fs, mut all) = (&self.fs, RangeSet::<Blocks>::new());
        let mut pools = 0;
        for (start, end) in fs.pools.all().iter() {
            assert!(!fs.held.overlaps(start, end), "a pool has blocks of the quarantine");
            assert!((start..end).all(|block| self.free.contains(&block)), "a pool has used blocks");
            all.insert(start, end);
            pools += end - start;
        }
        let of_each = |id| fs.pools.blocks_of(id);
        assert_eq!(IDS.into_iter().map(of_each).sum::<u64>(), pools, "pools overlap");
        assert_eq!((fs.pools.blocks(), fs.allocations().pooled_blocks), (pools, pools));
        assert_eq!(fs.available_blocks(), self.free.len() as u64);
        for (nr, group) in (0u32..).zip(&fs.groups) {
            let start = fs.layout.geo.group_start(nr);
            let end = start + u64::from(fs.layout.geo.blocks_in_group(nr));
            let inside: u64 = all.overlapping(start, end).map(|(s, e)| e - s).sum();
            assert_eq!(u64::from(group.pooled_blocks), inside);
            assert_eq!(fs.with_blocks.contains(&nr), group.blocks() > 0, "group {nr}");
            let first = self.free.range(start..end).find(|block| !all.contains(**block));
            assert!(first.is_none_or(|first| u64::from(group.block_hint) <= first - start));
        }
        assert!(IDS.into_iter().all(|id| fs.pools.runs_of(id) <= MOST_RUNS));
    }

    /// Nothing but what the model has is in use, and e2fsck agrees.
    fn end(mut self) {
        assert_eq!(self.free_by_bitmap().len() as u64, self.fs.free_blocks());
        while !self.used.is_empty() {
            self.free();
        }
        self.image.save(&mut self.fs, &mut self.store);
        self.image.check();
    }
}

const IDS: [PoolId; 6] = [
    PoolId::Shared,
    PoolId::Of(1),
    PoolId::Of(2),
    PoolId::Of(3),
    PoolId::Of(u64::MAX - 1),
    PoolId::Of(u64::MAX),
];

/// A random history, and the most pools that had blocks in it.
fn history(mib: u64, seed: u64, rounds: u64) -> (Model, u64) {
    let mut m = Model::new(mib, seed);
    let mut goals = [0; IDS.len()];
    let mut seen = 0;
    for round in 0..rounds {
        // Phases of filling and of emptying, so that the volume is often nearly full.
        let fills = round / 500 % 2 == 0;
        let (user, count) = (m.rng.below(IDS.len() as u64) as usize, m.fs.layout.block_count());
        match m.rng.below(20) {
            0..8 => {
                let goal = if m.rng.below(4) > 0 { goals[user] } else { m.rng.below(count + 9) };
                let bits = m.rng.below(if fills { 14 } else { 6 });
                let want = 1 + m.rng.below(1 << bits);
                goals[user] = m.alloc(Some(IDS[user]), goal, want).map_or(0, |run| run.end());
            }
            8..11 => {
                let (goal, want) = (m.rng.below(count), 1 + m.rng.below(300));
                m.alloc(None, goal, want);
            }
            11..15 if !m.used.is_empty() && (!fills || m.rng.below(4) == 0) => m.free(),
            15..17 if !m.held.is_empty() => m.release(),
            17 => m.fs.begin_pool(IDS[user]),
            18 if m.rng.below(4) == 0 => m.fs.end_pool(IDS[user]),
            19 if m.rng.below(12) == 0 => m.hold(),
            19 if m.rng.below(60) == 0 => m.crash(),
            _ => {}
        }
        seen = seen.max(m.fs.allocations().pools);
        if round % 8 == 0 {
            m.check();
        }
    }
    (m, seen)
}

/// Random allocations with pools and without, frees, releases, trims, ends of pools and crashes:
/// no block is lost or handed out twice, and pools never overlap.
#[test]
fn no_block_is_lost_or_handed_out_twice() {
    for (mib, seed) in [(300, 1), (300, 2), (64, 3), (40, 4)] {
        let (m, pools) = history(mib, seed, 6000);
        assert!(pools > 3, "{pools} pools at most");
        m.end();
    }
}

/// Every block that is available is handed out, with whatever pools there are: to those who have
/// none, and to those who have one.
#[test]
fn pools_keep_no_block_from_anybody() {
    for pool in [None, Some(PoolId::Of(1)), Some(PoolId::Shared)] {
        for seed in 0..3 {
            let (mut m, _) = history(64, seed, 700);
            let available = m.fs.available_blocks();
            while m.fs.pools.filled() < 4 && m.fs.available_blocks() > 4096 {
                let id = IDS[m.rng.below(IDS.len() as u64) as usize];
                m.fs.begin_pool(id);
                m.alloc(Some(id), 0, 1);
            }
            let before = m.used.iter().map(|run| run.len).sum::<u64>();
            let left = m.fs.available_blocks();
            assert!(left <= available);
            let mut had = 0;
            while m.alloc(pool, 0, 1 + had % 3).is_some() {
                had += 1;
            }
            let after = m.used.iter().map(|run| run.len).sum::<u64>();
            assert_eq!((after - before, m.fs.available_blocks()), (left, 0));
            m.check();
            assert_eq!(m.fs.pools.blocks(), 0);
            m.end();
        }
    }
}

/// Extents of two files that grow by `want` blocks, turn by turn.
fn extents(m: &mut Model, users: [Option<PoolId>; 2], turns: u64, want: u64) -> [usize; 2] {
    let mut files: [Vec<BlockRun>; 2] = Default::default();
    for _ in 0..turns {
        for (file, user) in files.iter_mut().zip(users) {
            let mut left = want;
            while left > 0 {
                let goal = file.last().map_or(0, BlockRun::end);
                let run = m.alloc(user, goal, left).expect("space");
                left -= run.len;
                match file.last_mut().filter(|last| last.end() == run.start) {
                    Some(last) => last.len += run.len,
                    None => file.push(run),
                }
            }
        }
    }
    files.map(|file| file.len())
}

/// Two users that grow turn by turn do not interleave. Without pools each turn is an extent.
#[test]
fn files_of_two_users_do_not_interleave() {
    let (mut m, one, two) = (Model::new(300, 1), PoolId::Of(1), PoolId::Of(2));
    // Enough for one window each.
    assert_eq!(extents(&mut m, [None, None], 100, 8), [100, 100]);
    m.fs.begin_pool(one);
    m.fs.begin_pool(two);
    assert_eq!(extents(&mut m, [Some(one), Some(two)], 100, 8), [1, 1]);
    m.fs.begin_pool(PoolId::Shared);
    let shared = [Some(PoolId::Shared); 2];
    assert_eq!(extents(&mut m, shared, 100, 8), [100, 100], "one list for both does not help");
    // A file that is longer than its window goes on in another one.
    let [one, two] = extents(&mut m, [Some(one), Some(two)], 1000, 8);
    assert!(one <= 16 && two <= 16, "{one} and {two} extents of 8000 blocks");
    m.check();
    m.end();
}

/// Those who have no pool pass the blocks of pools over, also those right behind their own.
#[test]
fn others_pass_pools_over() {
    let (mut m, id) = (Model::new(300, 1), PoolId::Of(1));
    let first = m.alloc(None, 0, 10).unwrap();
    m.fs.begin_pool(id);
    let pooled = m.alloc(Some(id), first.end(), 10).unwrap();
    assert_eq!(pooled.start, first.end(), "the goal is kept: it was free");
    assert!(m.fs.allocations().pooled_blocks > 500);
    let other = m.alloc(None, pooled.end(), 10).unwrap();
    assert!(other.start > pooled.end() + 500, "{other:?} behind the pool of {pooled:?}");
    let next = m.alloc(Some(id), pooled.end(), 10).unwrap();
    assert_eq!(next.start, pooled.end());
    // Its blocks are anybody's when it has ended.
    m.fs.end_pool(id);
    assert_eq!(m.fs.allocations().pooled_blocks, 0);
    assert_eq!(m.alloc(None, next.end(), 10).unwrap().start, next.end());
    let gone = m.alloc(Some(id), 0, 10).unwrap();
    assert_eq!((m.fs.allocations().pooled_blocks, gone.len), (0, 10), "there is no such pool");
    m.end();
}

/// Where it is free, the place behind a file's end is kept also by a user whose pool is elsewhere.
#[test]
fn the_goal_comes_before_the_pool() {
    let (mut m, id) = (Model::new(300, 1), PoolId::Of(1));
    m.fs.begin_pool(id);
    let own = m.alloc(Some(id), 0, 10).unwrap();
    let far = m.alloc(Some(id), 50_000, 10).unwrap();
    assert_eq!(far.start, 50_000);
    assert_eq!(m.alloc(Some(id), far.end(), 10).unwrap().start, far.end());
    assert_eq!(m.alloc(Some(id), own.start, 10).unwrap().start, own.end(), "a busy goal: the pool");
    let large = m.alloc(Some(id), own.start, 20_000).unwrap();
    assert_eq!(large.len, 20_000, "what is longer than a pool needs none");
    m.end();
}

/// There are never more pools than [`MOST_POOLS`], nor more blocks in them than a part of what is
/// available: another one takes the place of that which was used longest ago.
#[test]
fn pools_are_bounded() {
    for mib in [64, 2048] {
        let mut m = Model::new(mib, 1);
        let mut most = 0;
        for user in 0..3 * MOST_POOLS as u64 {
            m.fs.begin_pool(PoolId::Of(user));
            m.alloc(Some(PoolId::Of(user)), 0, 1).unwrap();
            let now = m.fs.allocations();
            assert!(now.pools <= MOST_POOLS as u64);
            assert!(now.pooled_blocks <= m.fs.available_blocks() / 8 + 1, "{now:?}");
            assert!(m.fs.pools.blocks_of(PoolId::Of(user)) > 0, "the newest has blocks");
            most = most.max(now.pools);
        }
        assert!(most >= 7, "{most} pools");
    }
}

/// Two runs of a pool lie side by side in two groups: each group's bitmap says what is its own. A
/// group whose free blocks are all in pools has none for others.
#[test]
fn a_pool_over_the_edge_of_a_group() {
    let (mut m, id) = (Model::new(600, 1), PoolId::Of(1));
    m.fs.begin_pool(id);
    let edge = m.fs.layout.geo.group_start(2);
    let around = edge - 19..edge + 10;
    assert!(around.clone().all(|block| m.free.contains(&block)));
    // What is left beside that are single blocks, and enough for pools.
    let mut left: Vec<u64> = m.free.iter().copied().filter(|b| !around.contains(b)).collect();
    let tail = left.split_off(left.len() - 2400);
    let single = tail.into_iter().step_by(2);
    let mut taken = RangeSet::<Blocks>::new();
    left.into_iter().chain(single).for_each(|block| taken.insert(block, block + 1));
    for (start, end) in taken.iter() {
        let mut at = start;
        while at < end {
            let run = m.alloc(None, at, end - at).unwrap();
            assert_eq!(run.start, at);
            at = run.end();
        }
    }
    assert_eq!(m.alloc(Some(id), edge - 19, 12), Some(BlockRun { start: edge - 19, len: 12 }));
    assert_eq!(m.fs.pools.blocks_of(id), 7, "the group has no more");
    m.check();
    assert_eq!(m.alloc(Some(id), 0, 10), Some(BlockRun { start: edge - 7, len: 7 }));
    assert_eq!(m.fs.pools.blocks_of(id), 10, "neither has this one");
    m.check();
    assert_eq!(m.alloc(Some(id), edge, 10), Some(BlockRun { start: edge, len: 10 }));
    m.check();
    m.end();
}

/// On a volume whose free blocks are scattered, one search serves many allocations.
#[test]
fn a_list_spares_searches() {
    let searches = |pool: Option<PoolId>| {
        let mut m = Model::new(200, 1);
        while let Some(run) = m.alloc(None, 0, 64) {
            // Every fourth block stays free.
            m.used.pop();
            for block in (run.start..run.end()).filter(|block| block % 4 == 0) {
                let run = BlockRun { start: block, len: 1 };
                m.fs.free_run(&mut m.store, run).unwrap();
                m.held.push(run);
            }
        }
        while !m.held.is_empty() {
            m.release();
        }
        pool.into_iter().for_each(|id| m.fs.begin_pool(id));
        let before = m.fs.allocations();
        for _ in 0..200 {
            m.alloc(pool, 0, 8).unwrap();
        }
        m.check();
        let after = m.fs.allocations();
        (after.searches - before.searches, after.pooled_runs - before.pooled_runs)
    };
    let (without, with) = (searches(None), searches(Some(PoolId::Shared)));
    assert!(without.0 >= 200 && without.1 == 0, "{without:?}");
    assert!(with.0 <= 40 && with.1 == 200, "{with:?}");
}
