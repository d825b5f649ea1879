use super::*;
use crate::test_image::{Image, Rng, fsck};
use crate::testing::MemStore;
use crate::{BlockStore, Fs, Inode};
use siftfs_base::{BlockRun, Timestamp};

const NOW: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 5 };

/// Gives the volume's root directory an inode to hold data: lost+found's neighbour, unlinked in
/// no directory, so that only its tree is judged.
#[test]
fn experiment() {
    for n in [100usize, 341, 400, 600, 700, 900, 1400, 2000, 3000] {
        for mode in 0..3 {
            let image = Image::make(256);
            let mut store = image.load();
            let mut fs = Fs::open(&mut store).unwrap();
            let ino = 8u32; // reserved, unused: journal
            let _ = ino;
            let ino = fs.alloc_inode(&mut store, 2, false).unwrap();
            let mut inode = fs.new_inode(ino, 7, 0o100644, NOW);
            inode.nlink = 1;
            inode.size = 1 << 30;
            let mut rng = Rng(42);
            let mut keys: Vec<u64> = (0..n as u64).map(|i| i * 2).collect();
            if mode == 1 {
                for i in (1..keys.len()).rev() {
                    let j = rng.below(i as u64 + 1) as usize;
                    keys.swap(i, j);
                }
            }
            if mode == 2 {
                keys.reverse();
            }
            for k in keys {
                let run = fs.alloc_blocks(&mut store, 0, 1).unwrap();
                fs.insert(&mut store, &mut inode, k, run, false).unwrap();
            }
            fs.write_inode(&mut store, &inode).unwrap();
            image.save(&mut fs, &mut store);
            let out = std::process::Command::new("/usr/sbin/e2fsck")
                .arg("-fn")
                .arg(&image.file)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&out.stdout);
            println!(
                "n={n} mode={mode} blocks={} {}",
                inode.blocks / 8 - n as u64,
                text.lines()
                    .filter(|l| !l.starts_with("Pass") && !l.is_empty())
                    .collect::<Vec<_>>()
                    .join(" | ")
            );
        }
    }
    let _ = fsck;
    let _: Option<MemStore> = None;
    let _: Option<Inode> = None;
    let _: Option<&dyn BlockStore> = None;
    let _: Option<BlockRun> = None;
}
