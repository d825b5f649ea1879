//! Damaged images: every operation ends, with a result or an error, and never panics.

use siftfs_base::{BLOCK_SIZE, BlockRun, Timestamp};

use crate::format::*;
use crate::test_image::{FIRST_FILE, Image};
use crate::testing::MemStore;
use crate::{BlockStore, Fs, csum};

const NOW: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 0 };

/// A volume with a fragmented file of two levels, and its metadata blocks.
fn victim() -> (MemStore, Vec<u64>) {
    let image = Image::with_files(64, 2);
    let mut store = image.load();
    let mut fs = Fs::open(&mut store).unwrap();
    let mut inode = fs.read_inode(&mut store, FIRST_FILE).unwrap();
    store.dirty.clear();
    for i in 0..1800u64 {
        let run = fs.alloc_blocks(&mut store, 0, 1).unwrap();
        fs.insert(&mut store, &mut inode, i * 3, run, i % 4 == 0).unwrap();
    }
    fs.write_inode(&mut store, &inode).unwrap();
    fs.sync_super(&mut store).unwrap();
    let mut blocks: Vec<u64> = store.dirty.iter().copied().collect();
    blocks.extend([0, 1]);
    (store, blocks)
}

/// Everything that reads or changes the volume, errors ignored.
fn exercise(store: &mut MemStore, rng: &mut siftfs_base::Rng) {
    let Ok(mut fs) = Fs::open(store) else { return };
    let _ = fs.read_orphans(store);
    for ino in [2, FIRST_FILE, FIRST_FILE + 1] {
        let Ok(mut inode) = fs.read_inode(store, ino) else { continue };
        let mut at = 0;
        for _ in 0..5000 {
            match fs.layout.next_mapped(store, &inode, at, u64::MAX) {
                Ok(Some(r)) => at = r.lblk + r.run.len,
                _ => break,
            }
        }
        let lblk = rng.below(6000);
        if let Ok(run) = fs.alloc_blocks(store, rng.below(1 << 14), 3) {
            let _ = fs.insert(store, &mut inode, lblk, run, false);
        }
        let _ = fs.mark_written(store, &mut inode, rng.below(6000), 30);
        let _ = fs.tidy(store, &mut inode);
        let _ = fs.remove(store, &mut inode, rng.below(6000), u64::MAX, 400);
        let _ = fs.remove(store, &mut inode, rng.below(6000), rng.below(6000), 400);
        let _ = fs.orphan_add(store, &inode);
        if rng.below(2) == 0 {
            let _ = fs.orphan_remove(store, &inode);
        }
        let _ = fs.write_inode(store, &inode);
    }
    for _ in 0..5 {
        if let Ok(ino) = fs.alloc_inode(store, 2, rng.below(2) == 0) {
            let _ = fs.write_inode(store, &fs.new_inode(ino, 1, 0o100_644, NOW));
        }
        let ino = 12 + rng.below(20) as u32;
        if !fs.is_orphan(ino) {
            let _ = fs.free_inode(store, ino, rng.below(2) == 0);
        }
        let start = rng.below(1 << 15);
        let _ = fs.free_run(store, BlockRun { start, len: rng.below(300) });
    }
    let _ = fs.sync_super(store);
}

/// Flipped bytes anywhere in the metadata.
#[test]
fn flipped_bytes_never_panic() {
    let (clean, blocks) = victim();
    let mut rng = siftfs_base::Rng::new(99);
    for _ in 0..1500 {
        let mut store = clean.clone();
        store.forget_verified();
        for _ in 0..1 + rng.below(3) {
            let nr = blocks[rng.below(blocks.len() as u64) as usize];
            let at = rng.below(BLOCK_SIZE as u64) as usize;
            store.raw(nr)[at] ^= 1 << rng.below(8);
        }
        exercise(&mut store, &mut rng);
    }
}

/// The same with every checksum made right again, as an attacker would.
#[test]
fn flipped_bytes_under_valid_checksums_never_panic() {
    let (clean, blocks) = victim();
    let seed = {
        let mut store = clean.clone();
        Fs::open(&mut store).unwrap().layout.csum_seed()
    };
    let mut rng = siftfs_base::Rng::new(1234);
    for _ in 0..6000 {
        let mut store = clean.clone();
        store.forget_verified();
        // Cells that steer: superblock, descriptor, the inode, headers and entries of the tree.
        let nr = blocks[rng.below(blocks.len() as u64) as usize];
        let at = match (nr, rng.below(3)) {
            (0, _) => 1024 + rng.below(700),
            (1, _) => rng.below(64),
            (_, 0) => rng.below(60),
            (_, 1) => 11 * 256 + rng.below(160),
            _ => rng.below(BLOCK_SIZE as u64),
        } as usize;
        store.raw(nr)[at] = rng.below(256) as u8;
        reseal(&mut store, &blocks, seed);
        exercise(&mut store, &mut rng);
    }
}

/// Makes checksums right: superblock, first descriptor with its bitmaps, the file's inode and
/// its tree blocks.
fn reseal(store: &mut MemStore, blocks: &[u64], seed: u32) {
    for &nr in blocks {
        let block = store.raw(nr);
        if block[..2] == EXTENT_MAGIC.to_le_bytes() {
            let sum = csum::extent_csum(
                csum::inode_seed(seed, FIRST_FILE, generation(store)),
                store.raw(nr),
            );
            store.raw(nr)[EXTENT_TAIL..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let (table, at) = inode_place(store);
    let generation = generation(store);
    let raw = &mut store.raw(table)[at..at + 256];
    let sum = csum::inode_csum(seed, FIRST_FILE, generation, raw, true).to_le_bytes();
    raw[I_CHECKSUM_LO..I_CHECKSUM_LO + 2].copy_from_slice(&sum[..2]);
    raw[I_CHECKSUM_HI..I_CHECKSUM_HI + 2].copy_from_slice(&sum[2..]);
    let word = |store: &mut MemStore, at: usize| {
        u64::from(u32::from_le_bytes(store.raw(1)[at..at + 4].try_into().unwrap()))
    };
    for (place, lo, hi, bits) in [(0, 0x18, 0x38, 32768), (4, 0x1A, 0x3A, 4096)] {
        let nr = word(store, place);
        if nr < store.count() {
            let sum = csum::bitmap_csum(seed, store.raw(nr), bits).to_le_bytes();
            store.raw(1)[lo..lo + 2].copy_from_slice(&sum[..2]);
            store.raw(1)[hi..hi + 2].copy_from_slice(&sum[2..]);
        }
    }
    let sum = csum::group_csum(seed, 0, &store.raw(1)[..64]).to_le_bytes();
    store.raw(1)[0x1E..0x20].copy_from_slice(&sum);
    let mut sb = [0; SUPER_SIZE];
    sb.copy_from_slice(&store.raw(0)[1024..2048]);
    csum::set_super_csum(&mut sb);
    store.raw(0)[1024..2048].copy_from_slice(&sb);
}

fn inode_place(store: &mut MemStore) -> (u64, usize) {
    let bytes = store.read(1).unwrap();
    let table = u64::from(u32::from_le_bytes(bytes[8..12].try_into().unwrap()));
    (table.min(store.count() - 1), (FIRST_FILE as usize - 1) * 256 % BLOCK_SIZE)
}

fn generation(store: &mut MemStore) -> u32 {
    let (table, at) = inode_place(store);
    u32::from_le_bytes(store.raw(table)[at + 0x64..at + 0x68].try_into().unwrap())
}
