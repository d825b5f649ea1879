use std::collections::BTreeMap;

use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockRun};

use super::node::{Entry, Extent};
use crate::test_image::{FIRST_FILE, Image};
use crate::testing::MemStore;
use crate::{BlockStore, Fs, Inode, Mapping};

/// Logical block to (physical block, unwritten).
type Model = BTreeMap<u64, (u64, bool)>;

struct Volume {
    image: Image,
    store: MemStore,
    fs: Fs,
}

impl Volume {
    fn new(mib: u64) -> Self {
        let image = Image::with_files(mib, 2);
        let mut store = image.load();
        let fs = Fs::open(&mut store).unwrap();
        Self { image, store, fs }
    }

    fn file(&mut self, nr: u32) -> Inode {
        self.fs.read_inode(&mut self.store, FIRST_FILE + nr).unwrap()
    }

    /// Where `lblk` would lie if the extent before it went on, else the inode's group.
    fn goal(&mut self, inode: &Inode, lblk: u64) -> u64 {
        let before = lblk.checked_sub(1).map(|l| self.fs.layout.map(&mut self.store, inode, l, 1));
        match before.map(Result::unwrap) {
            Some(Mapping::Mapped { pblk, .. }) => pblk + 1,
            _ => self.fs.layout.goal_for_inode(inode.ino),
        }
    }

    /// Allocates and inserts one block, or several in pieces.
    fn put(&mut self, inode: &mut Inode, model: &mut Model, lblk: u64, len: u64, unwritten: bool) {
        let (mut at, end) = (lblk, lblk + len);
        while at < end {
            let goal = self.goal(inode, at);
            let run = self.fs.alloc_blocks(&mut self.store, goal, end - at).unwrap();
            self.fs.insert(&mut self.store, inode, at, run, unwritten).unwrap();
            model.extend((0..run.len).map(|i| (at + i, (run.start + i, unwritten))));
            at += run.len;
        }
    }

    /// Removes a range in bounded steps and releases what was freed.
    fn cut(&mut self, inode: &mut Inode, model: &mut Model, from: u64, to: u64, step: usize) {
        loop {
            let gone = self.fs.remove(&mut self.store, inode, from, to, step).unwrap();
            for run in std::mem::take(&mut self.store.freed) {
                self.fs.release_blocks(run);
            }
            if gone.done {
                break;
            }
        }
        model.retain(|l, _| *l < from || *l >= to);
    }

    fn compare(&mut self, inode: &Inode, model: &Model) {
        let (mut at, mut seen) = (0, 0);
        while let Some(r) =
            self.fs.layout.next_mapped(&mut self.store, inode, at, u64::MAX).unwrap()
        {
            for i in 0..r.run.len {
                let want = Some(&(r.run.start + i, r.unwritten));
                assert_eq!(model.get(&(r.lblk + i)), want, "block {}", r.lblk + i);
            }
            seen += r.run.len;
            at = r.lblk + r.run.len;
        }
        assert_eq!(seen, model.len() as u64);
        let tree = self.fs.layout.tree_blocks(&mut self.store, inode).unwrap();
        assert_eq!(inode.blocks, (seen + tree) * 8);
    }

    fn save(&mut self, inode: &mut Inode, model: &Model) {
        inode.size = model.last_key_value().map_or(0, |(l, _)| (l + 1) * BLOCK_BYTES);
        self.fs.write_inode(&mut self.store, inode).unwrap();
        self.image.save(&mut self.fs, &mut self.store);
    }
}

/// Random insertions, conversions and removals, dense and scattered, agree with a plain map, and
/// e2fsck has nothing to say or to offer, at several points of the history.
#[test]
fn random_history_agrees_with_a_map() {
    for (seed, span, longest) in [(1u64, 300u64, 8u64), (2, 6000, 3), (3, 40_000, 60), (4, 9000, 1)]
    {
        let mut v = Volume::new(256);
        let (mut inode, mut model, mut rng) =
            (v.file(0), Model::new(), siftfs_base::Rng::new(seed));
        for round in 0..4000 {
            let (lblk, len) = (rng.below(span), 1 + rng.below(longest));
            match rng.below(if round % 1000 < 700 { 7 } else { 14 }) {
                0..5 => {
                    let free = (lblk..lblk + len).take_while(|l| !model.contains_key(l)).count();
                    let unwritten = rng.below(3) == 0;
                    v.put(&mut inode, &mut model, lblk, free as u64, unwritten);
                }
                5 => {
                    let end = (lblk..lblk + len).find(|l| !model.contains_key(l));
                    let len = end.unwrap_or(lblk + len) - lblk;
                    v.fs.mark_written(&mut v.store, &mut inode, lblk, len).unwrap();
                    model.range_mut(lblk..lblk + len).for_each(|(_, e)| e.1 = false);
                }
                6 => {
                    // Zeroed: what was mapped is unmapped, and comes back unwritten.
                    v.cut(&mut inode, &mut model, lblk, lblk + len, 5);
                    v.put(&mut inode, &mut model, lblk, len, true);
                }
                _ => {
                    let to = lblk + rng.below(longest * 6) + 1;
                    let step = 1 + rng.below(5) as usize;
                    v.cut(&mut inode, &mut model, lblk, to, step);
                }
            }
            if round % 500 == 499 {
                v.compare(&inode, &model);
                v.store.forget_verified();
            }
            if round % 1000 == 999 {
                v.save(&mut inode, &model);
                v.image.check();
            }
        }
        v.cut(&mut inode, &mut model, 0, u64::MAX, 7);
        assert_eq!(inode.blocks, 0);
        assert_eq!(v.fs.layout.root(&inode).unwrap().0.depth, 0);
        v.save(&mut inode, &model);
        v.image.check();
    }
}

/// A tree of several levels, grown in order, backwards and scattered, then thinned out and cut
/// short, is tight enough for e2fsck all the way.
#[test]
fn deep_trees_stay_tight() {
    for order in 0..3 {
        let mut v = Volume::new(256);
        let (mut inode, mut model, mut rng) = (v.file(0), Model::new(), siftfs_base::Rng::new(9));
        let mut blocks: Vec<u64> = (0..4500).map(|i| i * 2).collect();
        match order {
            1 => blocks.reverse(),
            2 => (1..blocks.len()).for_each(|i| blocks.swap(i, rng.below(i as u64 + 1) as usize)),
            _ => {}
        }
        for (i, lblk) in blocks.iter().enumerate() {
            v.put(&mut inode, &mut model, *lblk, 1, false);
            if i == 2500 {
                v.save(&mut inode, &model);
                v.image.check();
            }
        }
        v.compare(&inode, &model);
        v.save(&mut inode, &model);
        v.image.check();
        assert_eq!(v.fs.layout.root(&inode).unwrap().0.depth, 2);
        for i in 0..1500 {
            let at = rng.below(9000);
            v.cut(&mut inode, &mut model, at, at + 1 + rng.below(4), 9);
            if i == 700 {
                v.save(&mut inode, &model);
                v.image.check();
            }
        }
        for to in [7000, 6000, 3000, 500, 12, 3] {
            v.cut(&mut inode, &mut model, to, u64::MAX, 1000);
            v.compare(&inode, &model);
            v.save(&mut inode, &model);
            v.image.check();
        }
    }
}

/// Extents of the greatest length are merged, split and converted at their limits.
#[test]
fn longest_extents() {
    let mut v = Volume::new(600);
    let (mut inode, mut model) = (v.file(0), Model::new());
    v.put(&mut inode, &mut model, 0, 70_000, false);
    v.put(&mut inode, &mut model, 70_000, 40_000, true);
    v.compare(&inode, &model);
    v.cut(&mut inode, &mut model, 0, 65_536, 100);
    v.put(&mut inode, &mut model, 0, 65_536, true);
    v.compare(&inode, &model);
    v.fs.mark_written(&mut v.store, &mut inode, 10, 100_000).unwrap();
    model.range_mut(10..100_010).for_each(|(_, e)| e.1 = false);
    v.compare(&inode, &model);
    v.save(&mut inode, &model);
    v.image.check();
    let far = super::MAX_FILE_BLOCKS;
    let run = v.fs.alloc_blocks(&mut v.store, 0, 1).unwrap();
    assert_eq!(
        v.fs.insert(&mut v.store, &mut inode, far, run, false).unwrap_err().errno(),
        libc::EFBIG
    );
    v.fs.insert(&mut v.store, &mut inode, far - 1, run, false).unwrap();
    assert_eq!(v.fs.layout.map(&mut v.store, &inode, far - 1, 9).unwrap().len(), 1);
    assert_eq!(v.fs.layout.map(&mut v.store, &inode, far, 9).unwrap(), Mapping::Hole { len: 9 });
    assert!(v.fs.remove(&mut v.store, &mut inode, 200_000, u64::MAX, 9).unwrap().done);
}

#[test]
fn mistakes_are_errors() {
    let mut v = Volume::new(64);
    let (mut inode, mut model) = (v.file(0), Model::new());
    v.put(&mut inode, &mut model, 10, 10, true);
    let run = v.fs.alloc_blocks(&mut v.store, 0, 3).unwrap();
    for at in [8, 10, 15, 19] {
        assert!(v.fs.insert(&mut v.store, &mut inode, at, run, false).is_err(), "over {at}");
    }
    assert!(v.fs.mark_written(&mut v.store, &mut inode, 5, 8).is_err());
    let own = BlockRun { start: 1, len: 1 };
    assert!(v.fs.insert(&mut v.store, &mut inode, 50, own, false).is_err());
    // A file with a block map is read, not changed.
    inode.flags &= !crate::format::FL_EXTENTS;
    inode.i_block = [0; 60];
    inode.i_block[..4].copy_from_slice(&(run.start as u32).to_le_bytes());
    let mapped = Mapping::Mapped { pblk: run.start, len: 1, unwritten: false };
    assert_eq!(v.fs.layout.map(&mut v.store, &inode, 0, 5).unwrap(), mapped);
    assert_eq!(v.fs.layout.map(&mut v.store, &inode, 1, 5).unwrap(), Mapping::Hole { len: 5 });
    let text = v.fs.insert(&mut v.store, &mut inode, 9, run, false).unwrap_err().to_string();
    assert!(text.contains("block map"), "{text}");
}

/// A full volume: an insertion that might need a tree block is refused before it changes
/// anything.
#[test]
fn no_space_changes_nothing() {
    let mut v = Volume::new(64);
    let (mut inode, mut model) = (v.file(0), Model::new());
    for i in 0..4 {
        v.put(&mut inode, &mut model, i * 2, 1, false);
    }
    let run = v.fs.alloc_blocks(&mut v.store, 0, 1).unwrap();
    while v.fs.alloc_blocks(&mut v.store, 0, 32768).is_ok() {}
    let before = inode.clone();
    let err = v.fs.insert(&mut v.store, &mut inode, 100, run, false).unwrap_err();
    assert_eq!((err.errno(), &inode), (libc::ENOSPC, &before));
    v.compare(&inode, &model);
}

/// The stated worst case covers what insertions really take.
#[test]
fn worst_case_is_one() {
    let mut v = Volume::new(256);
    let (mut inode, mut model, mut rng) = (v.file(0), Model::new(), siftfs_base::Rng::new(77));
    for _ in 0..60 {
        let (base, n) = (rng.below(1 << 30), 1 + rng.below(600));
        let bound = v.fs.layout.worst_case_blocks(&inode, n).unwrap();
        let before = v.fs.layout.tree_blocks(&mut v.store, &inode).unwrap();
        for i in 0..n {
            if !model.contains_key(&(base + i * 2)) {
                v.put(&mut inode, &mut model, base + i * 2, 1, i % 2 == 0);
            }
        }
        let took = v.fs.layout.tree_blocks(&mut v.store, &inode).unwrap() - before.min(1 << 40);
        assert!(took <= bound, "{took} blocks for {n} extents, bound {bound}");
    }
}

/// A tree loosened beyond what one change repairs is packed by `tidy`.
#[test]
fn tidy_packs_a_loose_tree() {
    let mut v = Volume::new(256);
    let (mut inode, mut model, mut rng) = (v.file(0), Model::new(), siftfs_base::Rng::new(5));
    let mut blocks: Vec<u64> = (0..20_000).map(|i| i * 2).collect();
    (1..blocks.len()).for_each(|i| blocks.swap(i, rng.below(i as u64 + 1) as usize));
    for lblk in blocks {
        v.put(&mut inode, &mut model, lblk, 1, false);
    }
    v.fs.tidy(&mut v.store, &mut inode).unwrap();
    assert!(!v.fs.tidy(&mut v.store, &mut inode).unwrap());
    v.compare(&inode, &model);
    v.save(&mut inode, &model);
    v.image.check();
}

/// Up to 33 leaves no packing is needed, in whatever order the extents come and go.
#[test]
fn eleven_thousand_extents_stay_tight() {
    let mut v = Volume::new(256);
    let (mut inode, mut model, mut rng) = (v.file(0), Model::new(), siftfs_base::Rng::new(6));
    let mut blocks: Vec<u64> = (0..11_000).map(|i| i * 2).collect();
    (1..blocks.len()).for_each(|i| blocks.swap(i, rng.below(i as u64 + 1) as usize));
    for (i, lblk) in blocks.iter().enumerate() {
        v.put(&mut inode, &mut model, *lblk, 1, false);
        if i % 3500 == 3499 {
            v.save(&mut inode, &model);
            v.image.check();
        }
    }
    for (i, lblk) in blocks.iter().enumerate().take(9000) {
        v.cut(&mut inode, &mut model, *lblk, lblk + 1, 1);
        if i % 3000 == 2999 {
            v.save(&mut inode, &model);
            v.image.check();
        }
    }
    v.compare(&inode, &model);
}

/// Entries come back from their bytes as they went in.
#[test]
fn extents_survive_encoding() {
    for (len, unwritten) in [(1, false), (32768, false), (1, true), (32767, true)] {
        let e = Extent { lblk: 0xFFFF_0000, len, pblk: 0x1234_5678_9ABC, unwritten };
        let bytes: Entry = e.encode();
        assert_eq!(Extent::decode(&bytes), e);
    }
}

/// The kernel reads what this code maps, and this code maps what the kernel writes.
#[test]
fn kernel_agrees() {
    let mut v = Volume::new(128);
    let (mut inode, mut model, mut rng) = (v.file(0), Model::new(), siftfs_base::Rng::new(21));
    for _ in 0..900 {
        let at = rng.below(4000);
        if !model.contains_key(&at) {
            v.put(&mut inode, &mut model, at, 1, at % 5 == 0);
        }
    }
    for (lblk, (pblk, _)) in &model {
        v.store.create(*pblk).unwrap().fill(*lblk as u8 | 1);
    }
    v.save(&mut inode, &model);
    let name = v.image.name_of(FIRST_FILE);
    v.image.mounted(|dir| {
        let bytes = std::fs::read(dir.join(&name)).unwrap();
        assert_eq!(bytes.len() as u64, inode.size);
        for (lblk, chunk) in (0u64..).zip(bytes.chunks_exact(BLOCK_SIZE)) {
            let written = model.get(&lblk).is_some_and(|(_, unwritten)| !unwritten);
            let want = if written { lblk as u8 | 1 } else { 0 };
            assert!(chunk.iter().all(|b| *b == want), "block {lblk}");
        }
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(dir.join("kernel")).unwrap();
        for at in (0..3000u64).rev() {
            if at % 3 != 0 {
                file.write_all_at(&[at as u8 | 1; BLOCK_SIZE], at * 2 * BLOCK_BYTES).unwrap();
            }
        }
    });
    v.image.check();
    let mut store = v.image.load();
    let fs = Fs::open(&mut store).unwrap();
    let inode = fs.read_inode(&mut store, FIRST_FILE + 2).unwrap();
    for at in 0..6000u64 {
        match fs.layout.map(&mut store, &inode, at, 1).unwrap() {
            Mapping::Mapped { pblk, unwritten: false, .. } => {
                assert!(at % 2 == 0 && (at / 2) % 3 != 0);
                assert!(store.read(pblk).unwrap().iter().all(|b| *b == (at / 2) as u8 | 1));
            }
            other => assert!(at % 2 != 0 || (at / 2) % 3 == 0, "{at}: {other:?}"),
        }
    }
}
