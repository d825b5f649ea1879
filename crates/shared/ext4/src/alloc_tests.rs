use std::collections::BTreeSet;

use super::*;
use crate::test_image::Image;
use crate::testing::MemStore;

fn open(mib: u64) -> (Image, MemStore, Fs) {
    let image = Image::make(mib);
    let mut store = image.load();
    let fs = Fs::open(&mut store).unwrap();
    (image, store, fs)
}

/// Blocks a naive reader of the bitmaps finds free.
fn free_by_bitmap(fs: &Fs, store: &mut MemStore) -> BTreeSet<u64> {
    let mut free = BTreeSet::new();
    for group in 0..fs.layout.geo.group_count {
        let image = fs.block_bitmap(store, group).unwrap();
        let map = image.get(store).unwrap();
        for bit in 0..fs.layout.geo.blocks_in_group(group) {
            if map[bit as usize / 8] >> (bit % 8) & 1 == 0 {
                free.insert(fs.layout.geo.group_start(group) + u64::from(bit));
            }
        }
    }
    free
}

/// Random allocations, frees and releases agree with a plain set of blocks, and e2fsck agrees
/// with the bitmaps and counts when all is free again.
#[test]
fn random_history_agrees_with_a_set() {
    let (image, mut store, mut fs) = open(300);
    let mut rng = siftfs_base::Rng::new(3);
    let mut free = free_by_bitmap(&fs, &mut store);
    let (mut used, mut held): (Vec<BlockRun>, Vec<BlockRun>) = (Vec::new(), Vec::new());
    for round in 0..6000 {
        match rng.below(10) {
            0..5 => {
                let (goal, bits) = (rng.below(fs.layout.block_count()), rng.below(14));
                let want = 1 + rng.below(1 << bits);
                match fs.alloc_blocks(&mut store, goal, want) {
                    Ok(run) => {
                        assert!(run.len >= 1 && run.len <= want);
                        assert!((run.start..run.end()).all(|b| free.remove(&b)), "round {round}");
                        used.push(run);
                    }
                    Err(e) => {
                        assert_eq!(e.errno(), libc::ENOSPC);
                        assert!(free.is_empty());
                    }
                }
            }
            5..8 if !used.is_empty() => {
                let run = used.swap_remove(rng.below(used.len() as u64) as usize);
                let cut = rng.below(run.len);
                if cut > 0 {
                    used.push(BlockRun { start: run.start, len: cut });
                }
                let run = BlockRun { start: run.start + cut, len: run.len - cut };
                fs.free_run(&mut store, run).unwrap();
                assert!(fs.free_run(&mut store, run).is_err(), "freed twice");
                held.push(run);
            }
            _ if !held.is_empty() => {
                let run = held.swap_remove(rng.below(held.len() as u64) as usize);
                fs.release_blocks(run);
                free.extend(run.start..run.end());
            }
            _ => {}
        }
        assert_eq!(fs.available_blocks(), free.len() as u64);
    }
    for run in used {
        fs.free_run(&mut store, run).unwrap();
    }
    image.save(&mut fs, &mut store);
    image.check();
}

/// Rule R5: what is freed is neither counted nor allocated before it is released.
#[test]
fn freed_blocks_wait_in_quarantine() {
    let (_image, mut store, mut fs) = open(64);
    let mut runs = Vec::new();
    while let Ok(run) = fs.alloc_blocks(&mut store, 0, 4096) {
        runs.push(run);
    }
    assert_eq!(fs.available_blocks(), 0);
    fs.free_run(&mut store, runs[0]).unwrap();
    assert_eq!((fs.available_blocks(), fs.free_blocks()), (0, runs[0].len));
    assert_eq!(fs.alloc_blocks(&mut store, 0, 1).unwrap_err().errno(), libc::ENOSPC);
    fs.release_blocks(runs[0]);
    fs.release_blocks(runs[0]);
    assert_eq!(fs.available_blocks(), runs[0].len);
    assert_eq!(fs.alloc_blocks(&mut store, 0, runs[0].len).unwrap(), runs[0]);
}

#[test]
fn goal_and_length_are_honoured() {
    let (_image, mut store, mut fs) = open(300);
    let base = fs.alloc_blocks(&mut store, 40_000, 10).unwrap();
    assert_eq!(base, BlockRun { start: 40_000, len: 10 });
    assert_eq!(fs.alloc_blocks(&mut store, base.end(), 5).unwrap().start, base.end());
    // A busy goal: the next place with room for all of it.
    let near = fs.alloc_blocks(&mut store, 40_000, 5000).unwrap();
    assert_eq!(near, BlockRun { start: 40_015, len: 5000 });
    // A goal outside the volume is no goal.
    assert!(fs.alloc_blocks(&mut store, u64::MAX, 1).is_ok());
}

#[test]
fn own_structures_are_never_freed() {
    let (_image, mut store, mut fs) = open(64);
    let before = fs.free_blocks();
    for (start, len) in
        [(0, 1), (1, 1), (fs.layout.block_count() - 1, 2), (u64::MAX, 1), (5, u64::MAX), (9, 0)]
    {
        assert!(fs.free_run(&mut store, BlockRun { start, len }).is_err(), "{start}+{len}");
    }
    assert_eq!(fs.free_blocks(), before);
    assert!(!fs.layout.is_data_block(0) && fs.layout.is_data_block(fs.layout.block_count() - 1));
}

/// An allocation reads a bounded number of bitmaps, however many groups are full or fragmented.
#[test]
fn allocation_does_not_scan_the_volume() {
    struct Counting(MemStore, u64);
    impl BlockStore for Counting {
        fn read(&mut self, nr: BlockNr) -> Result<&[u8; BLOCK_SIZE]> {
            self.1 += 1;
            self.0.read(nr)
        }
        fn modify(&mut self, nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]> {
            self.1 += 1;
            self.0.modify(nr)
        }
        fn create(&mut self, nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]> {
            self.0.create(nr)
        }
        fn freed(&mut self, run: BlockRun) {
            self.0.freed(run);
        }
        fn verified(&self, nr: BlockNr) -> bool {
            self.0.verified(nr)
        }
        fn set_verified(&mut self, nr: BlockNr) {
            self.0.set_verified(nr);
        }
    }
    let image = Image::make(8192);
    let mut store = Counting(image.load(), 0);
    let mut fs = Fs::open(&mut store).unwrap();
    while fs.available_blocks() > 40_000 {
        fs.alloc_blocks(&mut store, 0, 32768).unwrap();
    }
    store.1 = 0;
    for goal in 0..100 {
        fs.alloc_blocks(&mut store, goal * 300, 1 + goal % 7).unwrap();
    }
    assert!(store.1 <= 100 * (2 * GROUPS_TRIED as u64 + 4), "{} block accesses", store.1);
}

/// Everything that may be allocated is held once, in bounded pieces, and nothing else; nobody gets
/// it before it is released, and then everybody may.
#[test]
fn free_blocks_are_held_and_released() {
    let (_, mut store, mut fs) = open(300);
    let mut rng = siftfs_base::Rng::new(5);
    for _ in 0..200 {
        let (goal, want) = (rng.below(fs.layout.block_count()), 1 + rng.below(300));
        let run = fs.alloc_blocks(&mut store, goal, want).unwrap();
        if rng.below(2) == 0 {
            fs.free_run(&mut store, run).unwrap();
            if rng.below(2) == 0 {
                fs.release_blocks(run);
            }
        }
    }
    let quarantined = fs.quarantined_blocks().clone();
    let mut free = free_by_bitmap(&fs, &mut store);
    free.retain(|block| !quarantined.contains(*block));
    let available = fs.available_blocks();
    assert_eq!(available, free.len() as u64);
    let (mut at, mut held) = (0, Vec::new());
    while at < fs.layout.block_count() {
        let bounds = (1 + rng.below(5000), 1 + rng.below(4) as usize);
        let (runs, next) = fs.hold_free(&mut store, at, 1, bounds).unwrap();
        assert!(next > at && runs.len() <= bounds.1);
        assert!(runs.iter().map(|run| run.len).sum::<u64>() <= bounds.0);
        at = next;
        held.extend(runs);
    }
    let blocks: BTreeSet<u64> = held.iter().flat_map(|run| run.start..run.end()).collect();
    assert_eq!(blocks, free);
    assert_eq!(fs.available_blocks(), 0);
    assert_eq!(fs.alloc_blocks(&mut store, 0, 1).unwrap_err().errno(), libc::ENOSPC);
    held.iter().for_each(|run| fs.release_blocks(*run));
    assert_eq!(fs.available_blocks(), available);
    assert_eq!(
        fs.quarantined_blocks().iter().collect::<Vec<_>>(),
        quarantined.iter().collect::<Vec<_>>()
    );
    let run = fs.alloc_blocks(&mut store, 0, 1).unwrap();
    assert!(free.contains(&run.start));
}

/// Runs below the least are left alone, and so are those behind the volume's end.
#[test]
fn short_runs_are_not_held() {
    let (_, mut store, mut fs) = open(300);
    let end = fs.layout.block_count();
    while fs.available_blocks() > 0 {
        let run = fs.alloc_blocks(&mut store, 0, 64).unwrap();
        if run.len == 64 {
            // A hole of 3, and one of 5.
            for (skip, len) in [(8, 3), (20, 5)] {
                fs.free_run(&mut store, BlockRun { start: run.start + skip, len }).unwrap();
            }
        }
    }
    let quarantined: Vec<_> = fs.quarantined_blocks().iter().collect();
    quarantined.iter().for_each(|(s, e)| fs.release_blocks(BlockRun { start: *s, len: e - s }));
    let (runs, _) = fs.hold_free(&mut store, 0, 4, (u64::MAX, usize::MAX)).unwrap();
    assert!(!runs.is_empty() && runs.iter().all(|run| run.len == 5), "{runs:?}");
    assert_eq!(fs.hold_free(&mut store, end, 1, (9, 9)).unwrap(), (vec![], end));
    let (none, next) = fs.hold_free(&mut store, 0, 4, (3, 9)).unwrap();
    assert_eq!((none, next), (vec![], 0), "too few are wanted for one run");
}
