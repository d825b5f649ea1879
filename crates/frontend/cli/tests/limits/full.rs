//! Volumes filled to the last block, emptied and filled again: nothing leaks.

use crate::listing::assert_kernel_agrees;
use crate::support::{Setup, run, siftfs, writes_back};
use rustix::fs::{CWD, Mode, OFlags, StatVfs, fdatasync, fsync, ftruncate, openat, statvfs};
use rustix::io::{Errno, pread, pwrite};
use std::fs;

fn room(s: &Setup) -> StatVfs {
    siftfs(&["sync", s.dir()]).ok();
    siftfs(&["checkpoint", s.dir()]).ok();
    statvfs(s.dir()).unwrap()
}

/// Files of 4 KiB until nothing fits; how many.
fn fill(s: &Setup) -> usize {
    for n in 0usize.. {
        let dir = s.path(&format!("d{}", n / 1000));
        let made = if n.is_multiple_of(1000) { fs::create_dir(&dir) } else { Ok(()) };
        let path = dir.join(format!("f{n}"));
        let done = made.and_then(|()| fs::write(&path, page(n)));
        if let Err(e) = done {
            assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "{path:?}");
            let _ = fs::remove_file(&path);
            return n;
        }
    }
    unreachable!()
}

fn page(n: usize) -> Vec<u8> {
    (0..4096).map(|i| (n * 31 + i) as u8).collect()
}

fn check(s: &Setup, count: usize) {
    for n in 0..count {
        let path = s.path(&format!("d{}/f{n}", n / 1000));
        assert!(fs::read(&path).unwrap() == page(n), "{path:?}");
    }
}

fn empty(s: &Setup) {
    for entry in fs::read_dir(s.dir()).unwrap().map(Result::unwrap) {
        if entry.file_name() == "lost+found" {
            continue;
        }
        match entry.file_type().unwrap().is_dir() {
            true => fs::remove_dir_all(entry.path()).unwrap(),
            false => fs::remove_file(entry.path()).unwrap(),
        }
    }
}

/// Two rounds of filling with `once`, which says how much fitted: both come to the same within
/// `slack`, and the space is back each time.
fn rounds(s: &Setup, slack: usize, once: impl Fn(&Setup) -> usize) -> usize {
    let before = room(s);
    let first = once(s);
    empty(s);
    let after = room(s);
    assert_eq!((after.f_bfree, after.f_ffree), (before.f_bfree, before.f_ffree), "leaked");
    let second = once(s);
    assert!(first.abs_diff(second) <= slack, "{second} fit after {first} did");
    first
}

fn small_files(s: &Setup) -> usize {
    let count = fill(s);
    check(s, count);
    count
}

/// One file until nothing fits; how many bytes. Where the kernel keeps written bytes back, each
/// piece is asked for before the next; of one that did not fit it may go on showing some.
fn large_file(s: &Setup) -> usize {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let f = openat(CWD, s.path("large"), flags, Mode::from_raw_mode(0o600)).unwrap();
    let (mut len, held_back) = (0u64, writes_back(""));
    let error = loop {
        let piece: Vec<u8> = (0..1 << 18).map(|i| ((len >> 12) + (i >> 12)) as u8).collect();
        let put = pwrite(&f, &piece, len);
        match if held_back { put.and_then(|n| fdatasync(&f).map(|()| n)) } else { put } {
            Ok(n) => len += n as u64,
            Err(e) => break e,
        }
    };
    assert_eq!(error, Errno::NOSPC);
    if held_back {
        ftruncate(&f, len).unwrap();
        // The first syncfs(2) after a loss tells of it as well.
        let told = siftfs(&["sync", s.dir()]);
        assert!(told.code == 0 || told.err.contains("No space left"), "{told:?}");
    }
    fsync(&f).unwrap();
    let mut buf = vec![0; 1 << 20];
    for at in (0..len).step_by(buf.len()) {
        let mut read = pread(&f, &mut buf[..], at);
        if held_back && read == Err(Errno::NOSPC) && at + buf.len() as u64 > len {
            // Across the end the kernel asks for attributes, as before a write(2), and is told of
            // the loss in its place.
            read = pread(&f, &mut buf[..], at);
        }
        let n = read.unwrap();
        let wrong = (0..n).find(|i| buf[*i] != ((at + *i as u64) >> 12) as u8);
        assert_eq!(wrong, None, "at {at}");
    }
    usize::try_from(len).unwrap()
}

#[test]
fn filled_with_4_kib_files_emptied_and_filled_again() {
    let s = Setup::empty();
    // An inode for every block: the blocks are what ends first.
    let log = s.tmp.path().join("log");
    let features = ["-q", "-t", "ext4", "-b", "4096", "-i", "4096", "-N", "20000"];
    run("mke2fs", &[&features[..], &[s.volume(), "72M"]].concat()).ok();
    siftfs(&["adopt", s.volume(), "--log", log.to_str().unwrap(), "--log-size", "16M"]).ok();
    s.mount("");
    let blocks = statvfs(s.dir()).unwrap().f_bfree;
    // How much is held back for the worst case depends on what the background has done already.
    let count = rounds(&s, 300, small_files);
    assert!(count as u64 > blocks * 9 / 10, "{count} files in {blocks} blocks");
    assert!(statvfs(s.dir()).unwrap().f_ffree > 0, "the inodes ended first");
    assert_kernel_agrees(&s);
}

#[test]
fn filled_with_files_to_the_last_inode() {
    let s = Setup::new();
    s.mount("");
    let inodes = statvfs(s.dir()).unwrap().f_ffree;
    let count = rounds(&s, 0, small_files);
    assert_eq!(statvfs(s.dir()).unwrap().f_ffree, 0);
    assert_eq!(count + count.div_ceil(1000), usize::try_from(inodes).unwrap());
    assert_kernel_agrees(&s);
}

#[test]
fn filled_with_one_file_emptied_and_filled_again() {
    let s = Setup::empty();
    siftfs(&["mkfs", s.volume(), "--size", "256M"]).ok();
    s.mount("");
    let blocks = statvfs(s.dir()).unwrap().f_bfree;
    let len = rounds(&s, 1 << 20, large_file) as u64;
    assert!(len > blocks * 4096 * 9 / 10, "{len} bytes in {blocks} blocks");
    assert_kernel_agrees(&s);
}
