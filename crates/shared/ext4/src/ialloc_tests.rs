use std::collections::BTreeSet;

use siftfs_base::Timestamp;

use super::*;
use crate::test_image::Image;

const NOW: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 0 };

/// Random allocation and freeing of inodes, files and directories, agrees with a set, and e2fsck
/// finds bitmaps, counts and unused-table fields right.
#[test]
fn random_history_agrees_with_a_set() {
    let image = Image::make(300);
    let mut store = image.load();
    let mut fs = Fs::open(&mut store).unwrap();
    let (mut rng, total) = (siftfs_base::Rng::new(11), fs.available_inodes());
    let (mut used, mut held, mut generation) = (Vec::new(), BTreeSet::new(), 0);
    for _ in 0..5000 {
        match rng.below(8) {
            0..4 => {
                let is_dir = rng.below(3) == 0;
                let parent = if rng.below(2) == 0 { 2 } else { 1 + rng.below(19200) as u32 };
                let ino = fs.alloc_inode(&mut store, parent, is_dir).unwrap();
                assert!(ino > 11 && !held.contains(&ino));
                assert!(!used.iter().any(|(i, _)| *i == ino));
                generation += 1;
                let mode = if is_dir { 0o040_755 } else { 0o100_644 };
                let mut inode = fs.new_inode(ino, generation, mode, NOW);
                inode.nlink = 1;
                fs.write_inode(&mut store, &inode).unwrap();
                assert_eq!(fs.read_inode(&mut store, ino).unwrap().generation, generation);
                used.push((ino, is_dir));
            }
            4..7 if !used.is_empty() => {
                let (ino, is_dir) = used.swap_remove(rng.below(used.len() as u64) as usize);
                let mut inode = fs.read_inode(&mut store, ino).unwrap();
                inode.retire(NOW);
                fs.write_inode(&mut store, &inode).unwrap();
                fs.free_inode(&mut store, ino, is_dir).unwrap();
                assert!(fs.free_inode(&mut store, ino, is_dir).is_err(), "freed twice");
                held.insert(ino);
            }
            _ => {
                if let Some(ino) = held.pop_first() {
                    fs.release_inode(ino);
                }
            }
        }
        assert_eq!(fs.available_inodes(), total - used.len() as u64 - held.len() as u64);
    }
    for (ino, is_dir) in used {
        let mut inode = fs.read_inode(&mut store, ino).unwrap();
        inode.retire(NOW);
        fs.write_inode(&mut store, &inode).unwrap();
        fs.free_inode(&mut store, ino, is_dir).unwrap();
    }
    image.save(&mut fs, &mut store);
    image.check();
}

#[test]
fn all_inodes_can_be_had_and_no_more() {
    let image = Image::make(64);
    let mut store = image.load();
    let mut fs = Fs::open(&mut store).unwrap();
    for _ in 0..fs.available_inodes() {
        fs.alloc_inode(&mut store, 2, false).unwrap();
    }
    assert_eq!(fs.alloc_inode(&mut store, 2, false).unwrap_err().errno(), libc::ENOSPC);
    fs.free_inode(&mut store, 500, false).unwrap();
    assert_eq!(fs.alloc_inode(&mut store, 2, true).unwrap_err().errno(), libc::ENOSPC);
    fs.release_inode(500);
    assert_eq!(fs.alloc_inode(&mut store, 2, true).unwrap(), 500);
}

/// A number that is withheld is not chosen, whether it was free or is freed later; and it is, when
/// that ends.
#[test]
fn a_withheld_number_is_not_chosen() {
    let image = Image::make(64);
    let mut store = image.load();
    let mut fs = Fs::open(&mut store).unwrap();
    let all = fs.available_inodes();
    for _ in 0..all - 2 {
        fs.alloc_inode(&mut store, 2, false).unwrap();
    }
    let last = fs.layout.inode_count();
    fs.free_inode(&mut store, 500, false).unwrap();
    fs.withhold_inode(500);
    fs.release_inode(500);
    fs.withhold_inode(last);
    fs.withhold_inode(u32::MAX);
    assert_eq!(fs.alloc_inode(&mut store, 2, false).unwrap(), last - 1);
    assert_eq!(fs.alloc_inode(&mut store, 2, false).unwrap_err().errno(), libc::ENOSPC);
    fs.end_withholding(500);
    fs.end_withholding(501);
    assert_eq!(fs.alloc_inode(&mut store, 2, false).unwrap(), 500);
    assert_eq!(fs.alloc_inode(&mut store, 2, false).unwrap_err().errno(), libc::ENOSPC);
    // By its number it is there for recovery, and for a creation that is made once more.
    fs.alloc_inode_at(&mut store, last, false).unwrap();
    fs.end_withholding(last);
    assert_eq!(fs.alloc_inode(&mut store, 2, false).unwrap_err().errno(), libc::ENOSPC);
}

#[test]
fn recovery_takes_the_very_number() {
    let image = Image::make(300);
    let mut store = image.load();
    let mut fs = Fs::open(&mut store).unwrap();
    // In a group whose bitmap was never written.
    let ino = fs.layout.inode_count() - 7;
    assert!(!fs.inode_in_use(&mut store, ino).unwrap());
    fs.alloc_inode_at(&mut store, ino, false).unwrap();
    assert!(fs.inode_in_use(&mut store, ino).unwrap());
    assert!(fs.alloc_inode_at(&mut store, ino, false).is_err());
    for bad in [0, 1, 2, 10, fs.layout.inode_count() + 1] {
        assert!(fs.alloc_inode_at(&mut store, bad, false).is_err());
        assert!(fs.free_inode(&mut store, bad, false).is_err());
    }
    let mut inode = fs.new_inode(ino, 1, 0o100_644, NOW);
    inode.nlink = 1;
    fs.write_inode(&mut store, &inode).unwrap();
    image.save(&mut fs, &mut store);
    // Nothing is wrong with it but that it has no name.
    let mut fsck = std::process::Command::new("/usr/sbin/e2fsck");
    let out = fsck.arg("-fn").arg(&image.file).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let lines = text.lines().filter(|l| !l.starts_with("Pass ") && !l.contains(" files ("));
    let odd: Vec<&str> = lines.filter(|l| !l.is_empty() && !l.contains("errors")).collect();
    let name = |l: &&str| !l.contains("Unattached") && !l.contains("Connect to /lost+found");
    assert_eq!(odd.into_iter().find(name), None, "{text}");
    inode.retire(NOW);
    fs.write_inode(&mut store, &inode).unwrap();
    fs.free_inode(&mut store, ino, false).unwrap();
    assert_eq!(fs.alloc_inode_at(&mut store, ino, false).unwrap_err().errno(), libc::EBUSY);
    image.save(&mut fs, &mut store);
    image.check();
}

/// Every table of every group, in order, and each inode's block in one of them.
#[test]
fn inode_tables_hold_all_inodes() {
    let image = Image::make(300);
    let fs = Fs::open(&mut image.load()).unwrap();
    let runs = fs.inode_tables();
    let bytes: u64 = runs.iter().map(|r| r.len * siftfs_base::BLOCK_BYTES).sum();
    assert_eq!(bytes, u64::from(fs.layout.inode_count()) * fs.layout.inode_size() as u64);
    assert!(runs.windows(2).all(|w| w[0].end() < w[1].start), "{runs:?}");
    for group in &fs.groups {
        let (first, last) =
            (group.inode_table, group.inode_table + fs.layout.geo.table_blocks() - 1);
        assert!(runs.iter().any(|r| r.start <= first && last < r.end()), "{first}");
    }
}
