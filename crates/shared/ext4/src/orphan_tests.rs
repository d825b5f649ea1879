use siftfs_base::Timestamp;

use super::*;
use crate::test_image::Image;

const NOW: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 0 };

/// The chain on disk is always what a plain list says, also when inodes are written from copies
/// that know nothing of it.
#[test]
fn chain_agrees_with_a_list() {
    let image = Image::make(64);
    let mut store = image.load();
    let mut fs = Fs::open(&mut store).unwrap();
    let mut inodes = Vec::new();
    for _ in 0..12 {
        let ino = fs.alloc_inode(&mut store, 2, false).unwrap();
        let inode = fs.new_inode(ino, 1, 0o100_644, NOW);
        fs.write_inode(&mut store, &inode).unwrap();
        inodes.push(inode);
    }
    let (mut list, mut rng) = (Vec::<InodeNr>::new(), siftfs_base::Rng::new(5));
    for _ in 0..400 {
        let inode = &inodes[rng.below(12) as usize];
        match list.iter().position(|i| *i == inode.ino) {
            Some(at) => {
                fs.orphan_remove(&mut store, inode).unwrap();
                list.remove(at);
            }
            None => {
                fs.orphan_add(&mut store, inode).unwrap();
                list.insert(0, inode.ino);
            }
        }
        fs.write_inode(&mut store, &inodes[rng.below(12) as usize]).unwrap();
        assert_eq!(fs.read_inode(&mut store, inode.ino).unwrap().dtime, 0);
        fs.sync_super(&mut store).unwrap();
        let mut fresh = Fs::open(&mut store).unwrap();
        assert_eq!(fresh.read_orphans(&mut store).unwrap(), list);
        assert_eq!(fresh.superblock.is_clean(), list.is_empty());
    }
}

#[test]
fn loops_are_found() {
    let image = Image::make(64);
    let mut store = image.load();
    let mut fs = Fs::open(&mut store).unwrap();
    let mut make = |next: InodeNr| {
        let ino = fs.alloc_inode(&mut store, 2, false).unwrap();
        let mut inode = fs.new_inode(ino, 1, 0o100_644, NOW);
        inode.dtime = next;
        fs.write_inode(&mut store, &inode).unwrap();
        ino
    };
    let first = make(0);
    let second = make(first);
    let looped = make(second + 1);
    assert_eq!(looped, second + 1, "an inode that names itself");
    for (head, ok) in
        [(second, true), (looped, false), (3, false), (u32::MAX, false), (5000, false)]
    {
        fs.orphans = None;
        fs.superblock.set_last_orphan(head);
        assert_eq!(fs.read_orphans(&mut store).is_ok(), ok, "head {head}");
    }
}
