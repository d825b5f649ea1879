//! Growing images that mke2fs made, judged by e2fsck and by reading them again.

use super::*;
use crate::test_image::{Image, tool};
use crate::testing::MemStore;
use std::os::unix::fs::FileExt;

const MIB: u64 = (1 << 20) / BLOCK_SIZE as u64;
const NOW: Timestamp = Timestamp { sec: 1_000_000_000, nsec: 0 };

fn plan(image: &Image, blocks: u64) -> Result<Growth> {
    let mut store = image.load();
    let fs = Fs::open(&mut store)?;
    fs.grow(&mut store, blocks, NOW)
}

fn put(image: &Image, blocks: &[NewBlock]) {
    let file = std::fs::OpenOptions::new().write(true).open(&image.file).unwrap();
    for (nr, block) in blocks {
        file.write_all_at(&block[..], nr * BLOCK_SIZE as u64).unwrap();
    }
}

/// Fills what is behind the end with rubbish, as a log that was there leaves it.
fn lengthen(image: &Image, from: u64, to: u64) {
    let rubbish: Vec<NewBlock> = (from..to).map(|nr| (nr, Box::new([0xA5; BLOCK_SIZE]))).collect();
    put(image, &rubbish);
}

fn zero(image: &Image, runs: &[BlockRun]) {
    let runs = runs.iter().flat_map(|run| run.start..run.end());
    put(image, &runs.map(|nr| (nr, Box::new([0; BLOCK_SIZE]))).collect::<Vec<_>>());
}

fn opened(image: &Image) -> (Fs, MemStore) {
    let mut store = image.load();
    (Fs::open(&mut store).unwrap(), store)
}

#[test]
fn a_grown_file_system_is_one_to_e2fsck_and_the_old_one_is_until_the_last_step() {
    // Lengths in MiB: inside the last group, to its end, one group more, with copies, and many.
    for (from, to) in [(20, 100), (100, 128), (100, 200), (128, 300), (300, 1500)] {
        let image = Image::with_files(from, 20);
        let (old, _) = opened(&image);
        let growth = plan(&image, to * MIB).unwrap();
        assert_eq!(growth.blocks, to * MIB);
        assert!(growth.behind.iter().all(|(nr, _)| *nr >= from * MIB && *nr < to * MIB));
        assert!(growth.changed.iter().all(|(nr, _)| *nr < from * MIB));
        lengthen(&image, from * MIB, (from * MIB + 2000).min(to * MIB));
        let file = std::fs::OpenOptions::new().write(true).open(&image.file).unwrap();
        file.set_len(to << 20).unwrap();
        zero(&image, &growth.zeroed);
        put(&image, &growth.behind);
        image.check();
        assert_eq!(opened(&image).0.layout.block_count(), from * MIB, "nothing names them yet");
        put(&image, &growth.changed);
        image.check();
        let (new, mut store) = opened(&image);
        assert_eq!(new.layout.block_count(), to * MIB);
        let added: u64 = growth.zeroed.iter().map(|run| run.len + 2).sum();
        let copies = new.layout.backup_superblocks().len() - old.layout.backup_superblocks().len();
        let copies = copies as u64 * (1 + new.layout.geo.gdt_blocks);
        let gained = (to - from) * MIB - added - copies;
        assert_eq!(new.free_blocks() - old.free_blocks(), gained, "{from} to {to}");
        uses_all(new, &mut store, &image);
    }
}

/// Every free block can be taken, the new ones among them, and e2fsck agrees with the superblock.
fn uses_all(mut fs: Fs, store: &mut MemStore, image: &Image) {
    let (goal, free) = (fs.layout.block_count() - 1, fs.free_blocks());
    let mut taken = Vec::new();
    while fs.available_blocks() > 0 {
        taken.push(fs.alloc_blocks(store, goal, u64::MAX).unwrap());
    }
    assert_eq!(taken.iter().map(|run| run.len).sum::<u64>(), free);
    for run in taken {
        fs.free_run(store, run).unwrap();
        fs.release_blocks(run);
    }
    image.save(&mut fs, store);
    image.check();
}

#[test]
fn copies_are_of_the_larger_file_system_and_serve_when_the_primary_is_lost() {
    let image = Image::make(300);
    let growth = plan(&image, 1500 * MIB).unwrap();
    std::fs::OpenOptions::new().write(true).open(&image.file).unwrap().set_len(1500 << 20).unwrap();
    put(&image, &growth.behind);
    put(&image, &growth.changed);
    let (_, mut store) = opened(&image);
    // Groups 1, 3, 5, 7 and 9.
    for group in [1u64, 3, 5, 7, 9] {
        let start = group * 32_768;
        let mut copy = [0; SUPER_SIZE];
        copy.copy_from_slice(&store.read(start).unwrap()[..SUPER_SIZE]);
        assert!(csum::super_csum_ok(&copy), "copy in group {group}");
        let sb = super_ref(&copy);
        assert_eq!(u64::from(sb.s_blocks_count_lo.get()), 1500 * MIB);
        assert_eq!(u64::from(sb.s_block_group_nr.get()), group);
        let descriptors = *store.read(1).unwrap();
        assert_eq!(*store.read(start + 1).unwrap(), descriptors);
    }
    let text =
        tool("dumpe2fs", &["-h", "-o", "superblock=294912", "-o", "blocksize=4096"], &image.file);
    assert!(text.contains("Block count:              384000"), "{text}");
}

#[test]
fn reserved_blocks_grow_in_proportion_and_so_do_inodes() {
    let image = Image::make(100);
    let (old, _) = opened(&image);
    let growth = plan(&image, 400 * MIB).unwrap();
    std::fs::OpenOptions::new().write(true).open(&image.file).unwrap().set_len(400 << 20).unwrap();
    put(&image, &growth.behind);
    put(&image, &growth.changed);
    let (new, _) = opened(&image);
    assert_eq!(new.reserved_blocks(), old.reserved_blocks() * 4);
    assert_eq!(new.layout.inode_count(), old.layout.inode_count() * 4);
    assert_eq!(u64::from(new.layout.inode_count()) - new.free_inodes(), 11);
    assert_eq!(new.superblock.write_time(), NOW.sec);
}

#[test]
fn the_bound_is_the_table_of_descriptors_and_is_named() {
    let image = Image::make(100);
    let (fs, mut store) = opened(&image);
    // 64 descriptors of 128 MiB each.
    assert_eq!(fs.most_blocks(), 8192 * MIB);
    let growth = fs.grow(&mut store, 8192 * MIB, NOW).unwrap();
    assert_eq!(growth.zeroed.len(), 63);
    let said = fs.grow(&mut store, 8193 * MIB, NOW).err().unwrap().to_string();
    assert!(said.contains("2097152 blocks, and not for 2097408"), "{said}");
}

#[test]
fn a_last_group_too_short_for_its_structures_is_left_out() {
    let image = Image::make(100);
    let (fs, mut store) = opened(&image);
    let table = fs.layout.geo.table_blocks();
    // Group 1 holds copies, group 2 does not; the last group that is there may have any length.
    let with = 32_768 + 2 + 2 + table + FEWEST;
    let without = 2 * 32_768 + 2 + table + FEWEST;
    for least in [with, without] {
        assert_eq!(fs.fitting_blocks(least), least);
        assert_eq!(fs.fitting_blocks(least - 1), least / 32_768 * 32_768);
        assert!(fs.grow(&mut store, least, NOW).is_ok());
        assert!(fs.grow(&mut store, least - 1, NOW).is_err());
    }
    assert_eq!(fs.fitting_blocks(100 * MIB + 1), 100 * MIB + 1);
}

#[test]
fn what_cannot_be_grown_is_refused() {
    let image = Image::make(100);
    for blocks in [0, 1, 100 * MIB, u64::MAX] {
        assert!(matches!(plan(&image, blocks), Err(Error::Refused(_))), "{blocks}");
    }
    let args: Vec<&str> =
        crate::MKE2FS_ARGS.iter().copied().chain(["-O", "resize_inode"]).collect();
    let image = Image::make_with(100, &args);
    let said = plan(&image, 200 * MIB).err().unwrap().to_string();
    assert!(said.contains("resize_inode"), "{said}");
}

#[test]
fn a_damaged_last_group_is_not_built_on() {
    let image = Image::make(100);
    let (fs, mut store) = opened(&image);
    let map = group::at(&fs.groups, 0).block_bitmap;
    store.raw(map)[BLOCK_SIZE - 1] ^= 1;
    assert!(matches!(fs.grow(&mut store, 120 * MIB, NOW), Err(Error::Corrupt { .. })));
    // Nothing of it is needed where the group is as long as it can be.
    let image = Image::make(128);
    let (fs, mut store) = opened(&image);
    store.raw(group::at(&fs.groups, 0).block_bitmap)[100] ^= 1;
    assert!(fs.grow(&mut store, 256 * MIB, NOW).is_ok());
}
