//! Little of everything: space, caches, log; and a daemon that dies in the middle of it.

use crate::data::Map;
use crate::pair::{close, compare, open, tree};
use crate::support::{Setup, siftfs, writes_back};
use rustix::fs::{FallocateFlags, OFlags, fallocate, ftruncate};
use rustix::io::{Errno, pread, pwrite};
use rustix::process::Signal;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SMALL: &str = "cache=8M,meta_cache=8M,commit=0.2";

fn volume(size: &str) -> Setup {
    let s = Setup::empty();
    siftfs(&["mkfs", s.volume(), "--size", size]).ok();
    s
}

/// What a busy program does with a volume that is too small for it; no answer may be anything
/// but success or an error that fits.
fn gnaw(dir: &Path, id: u64, stop: &AtomicBool) {
    let data = vec![id as u8 + 1; 3 << 20];
    let mut rng = siftfs_base::Rng::new(id);
    let mut roll = |n: u64| rng.below(n);
    while !stop.load(Ordering::Relaxed) {
        let path = dir.join(format!("{id}-{}", roll(40)));
        let other = dir.join(format!("{id}-{}", roll(40)));
        let longest = [5000, 200_000, 3 << 20][roll(3) as usize];
        let (at, len) = (roll(4 << 20), roll(longest));
        let flags = OFlags::CREATE | OFlags::RDWR;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let value = vec![1; roll(3000) as usize];
        let result: Result<(), Errno> = match roll(12) {
            0..=3 => with(&path, flags, |f| pwrite(f, &data[..len as usize], at).map(drop)),
            4 => with(&path, flags, |f| ftruncate(f, at)),
            5 => with(&path, flags, |f| fallocate(f, FallocateFlags::empty(), at, len + 1)),
            6 => with(&path, flags, |f| fallocate(f, punch, at, len + 1)),
            7 => with(&path, OFlags::RDWR, |f| rustix::fs::fsync(f)),
            8 => rustix::fs::rename(&path, &other),
            9 => rustix::fs::symlink("s".repeat(roll(300) as usize + 1), &path),
            10 => with(&path, OFlags::RDWR, |f| {
                rustix::fs::fsetxattr(f, "user.x", &value, rustix::fs::XattrFlags::empty())
            }),
            _ => rustix::fs::unlink(&path),
        };
        let fits = [
            Errno::NAMETOOLONG,
            Errno::NOSPC,
            Errno::NOENT,
            Errno::EXIST,
            Errno::NOTCONN,
            Errno::CONNABORTED,
            Errno::CANCELED,
            Errno::INTR,
        ];
        match result {
            Err(e) if !fits.contains(&e) => panic!("{path:?}: {e}"),
            Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED | Errno::INTR) => return,
            _ => {}
        }
    }
}

/// Opens, changes and closes a file. Under the writeback cache any call after a write(2) may be the
/// one that says that the written bytes did not fit. Then the kernel shows more than is kept, and
/// the file goes.
fn with(
    path: &Path,
    flags: OFlags,
    change: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let f = open(path, flags, 0o644)?;
    // The path may be a symbolic link's.
    let name = fs::read_link(format!("/proc/self/fd/{}", f.as_raw_fd())).unwrap();
    let changed = change(&f);
    let closed = close(f);
    if !writes_back(SMALL) {
        // FLUSH alone, which only a daemon that is gone does not answer.
        let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::INTR];
        assert!(closed.is_ok() || gone.iter().any(|e| closed == Err(*e)), "{closed:?}");
        return changed;
    }
    match changed.and(closed) {
        Err(Errno::NOSPC) => rustix::fs::unlink(&name).and(Err(Errno::NOSPC)),
        // What a daemon that is gone was not sent.
        Err(Errno::IO) => rustix::fs::statfs(path).map(drop).and(Err(Errno::IO)),
        // An error of the change does not hide that bytes were lost.
        Err(e) if closed == Err(Errno::NOSPC) => rustix::fs::unlink(&name).and(Err(e)),
        other => other,
    }
}

fn gnaw_for(s: &Setup, time: Duration, kill: bool) {
    let stop = AtomicBool::new(false);
    let daemon = s.daemon();
    std::thread::scope(|scope| {
        for id in 0..3 {
            let (dir, stop) = (Path::new(s.dir()), &stop);
            scope.spawn(move || gnaw(dir, id, stop));
        }
        std::thread::sleep(time);
        if kill {
            daemon.signal(Signal::KILL);
            daemon.wait();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_small_volume_under_load_and_kills() {
    let s = volume("48M");
    for round in 0..5 {
        s.mount(SMALL);
        gnaw_for(&s, Duration::from_millis(700), round % 2 == 0);
        if round % 2 == 1 {
            let before = tree(Path::new(s.dir()));
            s.umount();
            s.assert_plain_ext4();
            s.mount(SMALL);
            compare(&before, &tree(Path::new(s.dir())));
            s.umount();
        }
    }
    siftfs(&["recover", s.volume()]).ok();
    s.assert_plain_ext4();
}

/// A store through a mapping reserves nothing: when it does not fit, msync says so, and neither
/// the file nor its neighbours come to harm.
#[test]
fn a_mapping_of_a_full_volume() {
    let s = volume("48M");
    s.mount("commit=1");
    let sparse = open(&s.path("sparse"), OFlags::CREATE | OFlags::RDWR, 0o644).unwrap();
    ftruncate(&sparse, 64 << 20).unwrap();
    let map = Map::new(&sparse, 0, 64 << 20, rustix::mm::MapFlags::SHARED).unwrap();
    fs::write(s.path("kept"), vec![3; 100_000]).unwrap();
    for page in 0..(64 << 20) / 4096 {
        map.store(page * 4096, &[5]);
    }
    let synced = map.sync();
    assert!(synced == Err(Errno::NOSPC) || synced == Err(Errno::IO), "{synced:?}");
    drop(map);
    assert!(fs::read(s.path("kept")).unwrap().iter().all(|b| *b == 3));
    drop(sparse);
    fs::remove_file(s.path("sparse")).unwrap();
    fs::write(s.path("new"), vec![4; 8 << 20]).unwrap();
    fs::File::open(s.path("new")).unwrap().sync_all().unwrap();
    s.umount();
    s.assert_plain_ext4();
}

/// What was stored through a mapping that was neither synced nor closed is the kernel's until the
/// kernel is asked for it: `siftfs sync` does so, and so does the end of the mount.
#[test]
fn stores_through_a_mapping_are_synced() {
    let s = volume("128M");
    s.mount("commit=3600");
    for round in 1..6u8 {
        let pages = 6000;
        let f = open(&s.path("f"), OFlags::CREATE | OFlags::RDWR, 0o644).unwrap();
        ftruncate(&f, pages * 4096).unwrap();
        let map = Map::new(&f, 0, pages as usize * 4096, rustix::mm::MapFlags::SHARED).unwrap();
        for page in 0..pages {
            map.store(page as usize * 4096 + 17, &[round]);
        }
        let daemon = s.daemon();
        if round % 2 == 1 {
            siftfs(&["sync", s.dir()]).ok();
            daemon.signal(Signal::KILL);
            daemon.wait();
            drop((map, f));
        } else {
            drop((map, f));
            s.bare_umount();
            daemon.wait();
            s.assert_plain_ext4();
        }
        s.mount("commit=3600");
        let bytes = fs::read(s.path("f")).unwrap();
        let lost = bytes.chunks(4096).filter(|page| page[17] != round).count();
        assert_eq!((bytes.len(), lost), (pages as usize * 4096, 0), "round {round}");
    }
    s.umount();
    s.assert_plain_ext4();
}

/// Reading and writing far more than the caches hold.
#[test]
fn files_larger_than_the_caches() {
    let s = volume("400M");
    s.mount(SMALL);
    let name = s.path("big");
    let f = open(&name, OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT, 0o644).unwrap();
    let page = |i: u64| vec![(i % 251) as u8; 256 << 10];
    let mut block = Box::new(Aligned([[0; 4096]; 64]));
    for i in 0..400u64 {
        block.0.as_flattened_mut().copy_from_slice(&page(i));
        assert_eq!(pwrite(&f, block.0.as_flattened(), i << 18), Ok(256 << 10));
    }
    for i in (0..400u64).rev() {
        assert_eq!(pread(&f, block.0.as_flattened_mut(), i << 18), Ok(256 << 10));
        assert_eq!(block.0.as_flattened(), page(i), "piece {i}");
    }
    rustix::fs::fsync(&f).unwrap();
    drop(f);
    s.umount();
    s.assert_plain_ext4();
}

/// The kernel wants direct reads and writes in whole pages.
#[repr(align(4096))]
struct Aligned([[u8; 4096]; 64]);
