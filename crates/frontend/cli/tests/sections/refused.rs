//! What programs may do wrong, or to each other: the errno that the page says, nothing applied, and
//! nobody else is disturbed.

use crate::calls::{ABORT, COMMIT, File, START};
use crate::mounted;
use crate::support::caches;
use crate::support::{Setup, run, siftfs};
use rustix::fs::{FallocateFlags, OFlags, fallocate, rename, unlink};
use siftfs_proto::Level;
use siftfs_proto::ioctl::{Entry, Publish, Source};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// The volume serves, and another file is written and synced as ever.
#[track_caller]
fn undisturbed(s: &Setup, cache: &str) {
    let status = siftfs(&["status", s.dir(), "--json"]).ok();
    let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    assert!(status["runtime"]["failed"].is_null(), "{cache}: {status}");
    let other = File::create(&s.path("other"), b"other");
    other.sync();
    assert_eq!(other.all(), b"other", "{cache}");
}

/// A file that is removed or replaced while it has a section: its commit is refused. One that gets
/// another name is the same file, and is committed.
#[test]
fn names_change_meanwhile() {
    for cache in caches() {
        let s = mounted(cache);
        for (change, void) in [("unlink", true), ("replace", true), ("rename", false)] {
            let case = &format!("{cache}, {change}");
            let f = File::create(&s.path("f"), &[1; 9000]);
            f.sync();
            f.call(START).unwrap();
            f.write(100, &[2; 5000]);
            match change {
                "unlink" => unlink(s.path("f")).unwrap(),
                "replace" => {
                    File::create(&s.path("g"), &[3; 100]).sync();
                    rename(s.path("g"), s.path("f")).unwrap();
                }
                _ => rename(s.path("f"), s.path("h")).unwrap(),
            }
            undisturbed(&s, case);
            if void {
                assert_eq!(f.call(COMMIT), Err(libc::ECANCELED), "{case}");
                assert_eq!(f.call(COMMIT), Err(libc::ECANCELED), "{case}");
                assert_eq!(f.all()[100], 2, "{case}: it can be read until it ends");
                f.call(ABORT).unwrap();
                assert!(f.all() == [1; 9000], "{case}");
            } else {
                f.call(COMMIT).unwrap();
            }
            drop(f);
            match change {
                "unlink" => assert!(!s.path("f").exists(), "{case}"),
                "replace" => assert!(std::fs::read(s.path("f")).unwrap() == [3; 100], "{case}"),
                _ => assert_eq!(std::fs::read(s.path("h")).unwrap()[99..102], [1, 2, 2], "{case}"),
            }
        }
        s.kill_and_mount(cache);
        assert_eq!(std::fs::read(s.path("h")).unwrap()[99..102], [1, 2, 2], "{cache}: durable");
        s.umount();
        s.assert_plain_ext4();
    }
}

/// A full disk refuses the commit whole. What needs no space is committed, and with space again
/// the same section is.
#[test]
fn a_full_disk() {
    for cache in caches() {
        let s = mounted(cache);
        let old = vec![1; 8 * 4096];
        let f = File::create(&s.path("f"), &old);
        f.sync();
        File::create(&s.path("other"), b"other").sync();
        let fill = File::create(&s.path("fill"), b"");
        let mut at = 0;
        for piece in [16 << 20, 1 << 20, 64 << 10, 4096] {
            while fallocate(&fill.0, FallocateFlags::empty(), at, piece).is_ok() {
                at += piece;
            }
        }
        f.call(START).unwrap();
        f.write(0, &[2; 4096]);
        f.write(1 << 20, &[2; 64 << 10]);
        assert_eq!(f.call(COMMIT), Err(libc::ENOSPC), "{cache}");
        let direct = File::open(&s.path("f"), OFlags::RDONLY | OFlags::DIRECT);
        if cache == "writethrough" {
            assert!(direct.all() == old, "{cache}: nothing is applied");
        }
        f.call(ABORT).unwrap();
        assert!(f.all() == old && direct.all() == old, "{cache}: nothing is applied");
        f.call(START).unwrap();
        f.write(4096, &[3; 4096]);
        f.call(COMMIT).unwrap_or_else(|e| panic!("{cache}: what has a home: {e}"));
        f.call(START).unwrap();
        f.write(1 << 20, &[4; 64 << 10]);
        assert_eq!(f.call(COMMIT), Err(libc::ENOSPC), "{cache}");
        let other = File::open(&s.path("other"), OFlags::RDWR);
        other.write(0, b"OTHER");
        other.sync();
        drop((fill, other));
        unlink(s.path("fill")).unwrap();
        siftfs(&["checkpoint", s.dir()]).ok();
        f.call(COMMIT).unwrap_or_else(|e| panic!("{cache}: there is space: {e}"));
        drop((f, direct));
        s.kill_and_mount(cache);
        let new = std::fs::read(s.path("f")).unwrap();
        assert!(new[..4096] == old[..4096] && new[4096..8192] == [3; 4096], "{cache}");
        assert!(new[1 << 20..] == [4; 64 << 10], "{cache}");
        s.umount();
        s.assert_plain_ext4();
    }
}

/// A 32-bit program makes the same bytes, and gets the same answers.
#[test]
fn a_32_bit_program() {
    let s = mounted("writethrough");
    File::create(&s.path("f"), &[1; 8192]).sync();
    File::create(&s.path("old"), b"old").sync();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sections/caller32.c");
    let program = s.tmp.path().join("caller32");
    let program = program.to_str().unwrap();
    let flags = "-m32 -O1 -Wall -Werror -ffreestanding -fno-pic -fno-stack-protector \
                 -fno-asynchronous-unwind-tables -nostdlib -static -no-pie -o";
    let words: Vec<&str> = flags.split_whitespace().chain([program, source]).collect();
    run("cc", &words).ok();
    let (file, dir) = (s.path("f"), s.path(""));
    run(program, &[file.to_str().unwrap(), dir.to_str().unwrap()]).ok();
    s.kill_and_mount("writethrough");
    let all = std::fs::read(s.path("f")).unwrap();
    assert!(all[..4096] == [5; 4096] && all[4096..] == [1; 4096]);
    assert!(!s.path("old").exists() && s.path("made").exists());
    assert_eq!(std::fs::read(s.path("new")).unwrap(), b"old");
    s.umount();
    s.assert_plain_ext4();
}

/// Arguments and pages that another thread changes while the call runs: what counts is the old
/// bytes or the new ones, and the mount goes on.
#[test]
fn buffers_that_change_meanwhile() {
    for cache in caches() {
        let s = mounted(cache);
        File::create(&s.path("p"), b"content").sync();
        let dir = File::open(&s.path(""), OFlags::RDONLY | OFlags::DIRECTORY);
        let entry = Entry { source: Source::Path(b"p".into()), to: b"q".into(), replace: false };
        let publish = Publish { entries: vec![entry], level: Level::Visible };
        let (command, mut argument) = publish.encode().unwrap();
        let (from, to) = (argument.len() - 2, argument.len() - 1);
        // The other thread changes both names, the number of entries, and a length.
        let places = [(from, b'p' ^ b'q'), (to, b'p' ^ b'q'), (0, 1), (10, 0xFF)];
        let at = Shared(argument.as_mut_ptr());
        let stop = AtomicBool::new(false);
        let mut answers = std::collections::BTreeMap::new();
        std::thread::scope(|scope| {
            scope.spawn(|| at.flip(&places, &stop));
            for _ in 0..2000 {
                // SAFETY: as long as the command says, whatever is in it.
                let failed = unsafe { libc::ioctl(dir.0.as_raw_fd(), command.into(), at.0) } != 0;
                let errno = std::io::Error::last_os_error().raw_os_error().unwrap();
                *answers.entry(if failed { errno } else { 0 }).or_insert(0) += 1;
                assert!(s.path("p").exists() || s.path("q").exists(), "{cache}: {answers:?}");
            }
            stop.store(true, Ordering::SeqCst);
        });
        let known = [0, libc::EINVAL, libc::ENOENT, libc::EEXIST];
        assert!(answers.keys().all(|errno| known.contains(errno)), "{cache}: {answers:?}");
        assert!(answers.len() > 1, "{cache}: {answers:?}");
        assert_ne!(s.path("p").exists(), s.path("q").exists(), "{cache}: one file, one name");
        undisturbed(&s, cache);
        stored_meanwhile(&s, cache);
        drop(dir);
        s.kill_and_mount(cache);
        s.umount();
        s.assert_plain_ext4();
    }
}

/// Stores through a mapping, and a buffer of write(2) that changes, while sections are committed:
/// each byte is one that was there at some time.
fn stored_meanwhile(s: &Setup, cache: &str) {
    let f = File::create(&s.path("f"), &[1; 4 * 4096]);
    f.sync();
    let other = File::open(&s.path("f"), OFlags::RDWR);
    let map = other.map(4 * 4096);
    let mut page = vec![2u8; 4096];
    let (buffer, mapped) = (Shared(page.as_mut_ptr()), Shared(map.start()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| buffer.flip(&[(0, 1), (4095, 1)], &stop));
        scope.spawn(|| mapped.flip(&[(8192, 4), (3 * 4096, 4)], &stop));
        for round in 0..60 {
            f.call(START).unwrap();
            // SAFETY: a page of memory, whatever is in it.
            let n = unsafe { libc::pwrite(f.0.as_raw_fd(), buffer.0.cast(), 4096, 4096) };
            assert_eq!(n, 4096);
            let committed = f.call(if round % 3 == 0 { ABORT } else { COMMIT });
            committed.unwrap_or_else(|e| panic!("{cache}, round {round}: {e}"));
        }
        stop.store(true, Ordering::SeqCst);
    });
    let all = f.all();
    assert!([2, 3].contains(&all[4096]) && [2, 3].contains(&all[8191]), "{cache}");
    assert!(all[4097..8191].iter().all(|byte| *byte == 2), "{cache}");
    assert!([1, 5].contains(&all[8192]) && [1, 5].contains(&all[3 * 4096]), "{cache}");
    undisturbed(s, cache);
}

/// Memory that threads change without a lock.
struct Shared(*mut u8);

// SAFETY: each access of ours is of one byte, and volatile; the kernel's are its own.
unsafe impl Sync for Shared {}

impl Shared {
    /// Changes a byte at each of `places`, again and again.
    fn flip(&self, places: &[(usize, u8)], stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            for (at, bits) in places {
                // SAFETY: inside of memory that outlives the thread.
                unsafe {
                    let at = self.0.add(*at);
                    at.write_volatile(at.read_volatile() ^ bits);
                }
            }
        }
    }
}
