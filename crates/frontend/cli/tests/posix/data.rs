//! File data: open flags, reads and writes, holes, truncation, mappings, preallocation, copies.

use crate::pair::{Place, hash, open, same};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, ftruncate, seek, unlink};
use rustix::io::{Errno, pread, pwrite, read, readv, write, writev};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

/// A mapping of a file's range.
pub struct Map {
    at: *mut u8,
    len: usize,
}

#[allow(unsafe_code)]
impl Map {
    /// Maps a range of a file.
    pub fn new(fd: &OwnedFd, offset: u64, len: usize, flags: MapFlags) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping chosen by the kernel aliases nothing of ours.
        let at = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) }?;
        Ok(Self { at: at.cast(), len })
    }

    /// Stores bytes.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: inside the mapping; the file is as long as what is touched.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(at), bytes.len()) }
    }

    /// Loads bytes.
    pub fn load(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len);
        let mut out = vec![0; len];
        // SAFETY: inside the mapping; the file is as long as what is touched.
        unsafe { std::ptr::copy_nonoverlapping(self.at.add(at), out.as_mut_ptr(), len) }
        out
    }

    /// msync(2) with MS_SYNC.
    pub fn sync(&self) -> rustix::io::Result<()> {
        // By the C library: rustix, when it calls that too, takes its -1 for the error.
        // SAFETY: the mapping's own range.
        match unsafe { libc::msync(self.at.cast(), self.len, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }
}

#[allow(unsafe_code)]
impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        let _ = unsafe { munmap(self.at.cast(), self.len) };
    }
}

/// One byte stored through a shared mapping, and msync.
pub fn store_through_map(fd: &OwnedFd, at: usize, byte: u8) {
    let map = Map::new(fd, 0, 8192, MapFlags::SHARED).unwrap();
    map.store(at, &[byte]);
    map.sync().unwrap();
}

/// Bytes that say where they stand.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed) as u8 | 1).collect()
}

pub fn say_read(c: &mut Place, what: &str, fd: &OwnedFd, at: u64, len: usize) {
    let mut buf = vec![0u8; len];
    let got = pread(fd, &mut buf[..], at).map(|n| (n, hash(&buf[..n])));
    c.v(what, got);
}

#[test]
pub(crate) fn open_flags() {
    same(|c| {
        c.dir("d");
        c.file("f", &pattern(1, 10_000));
        c.r("symlink", rustix::fs::symlink("f", c.p("s")));
        c.r("symlink", rustix::fs::symlink("gone", c.p("dangling")));
        c.r("symlink", rustix::fs::symlink("d", c.p("sd")));
        let base = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR];
        let more = [
            OFlags::empty(),
            OFlags::CREATE,
            OFlags::CREATE | OFlags::EXCL,
            OFlags::NOFOLLOW,
            OFlags::DIRECTORY,
            OFlags::DIRECTORY | OFlags::NOFOLLOW,
            OFlags::PATH,
            OFlags::PATH | OFlags::NOFOLLOW,
            OFlags::APPEND,
            OFlags::SYNC,
            OFlags::DSYNC,
            OFlags::NOATIME,
            OFlags::NONBLOCK,
            OFlags::CREATE | OFlags::DIRECTORY,
        ];
        for base in base {
            for flags in more {
                for name in ["f", "d", "s", "sd", "dangling", "none", "f/", "d/", "f/x", "none/x"] {
                    let opened = open(&c.p(name), base | flags, 0o640);
                    c.r(&format!("open {name} {:?}", base | flags), opened);
                    c.r("unlink", unlink(c.p("none")));
                    c.r("unlink", unlink(c.p("gone")));
                }
            }
        }
        for name in ["f", "d", "s", "dangling"] {
            for flags in [OFlags::RDONLY, OFlags::WRONLY] {
                c.open(name, flags | OFlags::TRUNC);
                c.stat("f");
            }
        }
    });
}

#[test]
fn append_and_positions() {
    same(|c| {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::APPEND;
        let Some(a) = c.open("f", flags) else { return };
        let Some(b) = c.open("f", flags) else { return };
        for i in 0..50u64 {
            c.v("a", write(&a, &pattern(i, 333)));
            c.v("b", write(&b, &pattern(i, 4097)));
        }
        // Linux appends with pwrite too.
        c.v("pwrite", pwrite(&a, b"tail", 10));
        c.v("position", seek(&a, SeekFrom::Current(0)));
        c.r("truncate", ftruncate(&a, 5));
        c.v("after truncate", write(&b, b"xyz"));
        c.content("f");
        let Some(r) = c.open("f", OFlags::RDONLY) else { return };
        c.v("write to a read-only file", write(&r, b"x"));
        let Some(w) = c.open("f", OFlags::WRONLY) else { return };
        let mut buf = [0; 4];
        c.v("read of a write-only file", read(&w, &mut buf[..]));
        c.v("read past the end", pread(&r, &mut buf[..], 1 << 40));
        c.v("seek before the start", seek(&r, SeekFrom::Current(-1)));
        let (x, y) = (pattern(1, 5000), pattern(2, 7));
        let both = [IoSlice::new(&x), IoSlice::new(&[]), IoSlice::new(&y)];
        c.v("writev", writev(&w, &both));
        let (mut p, mut q) = (vec![0; 3], vec![0; 9000]);
        let got = readv(&r, &mut [IoSliceMut::new(&mut p), IoSliceMut::new(&mut q)]);
        c.v("readv", got);
        c.say(format!("{p:?} {:x}", hash(&q)));
        let Some(d) = c.open("f", OFlags::RDWR | OFlags::DSYNC) else { return };
        c.v("O_DSYNC", pwrite(&d, &pattern(9, 5000), 100));
        let Some(d) = c.open("f", OFlags::RDWR | OFlags::SYNC) else { return };
        c.v("O_SYNC", pwrite(&d, &pattern(8, 5000), 9000));
        c.content("f");
    });
}

#[repr(align(4096))]
struct Aligned([u8; 16384]);

#[test]
fn direct_io() {
    same(|c| {
        let Some(d) = c.open("f", OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT) else { return };
        let Some(n) = c.open("f", OFlags::RDWR) else { return };
        let mut page = Aligned([5; 16384]);
        c.v("direct write", pwrite(&d, &page.0, 0));
        say_read(c, "buffered read", &n, 0, 20_000);
        c.v("buffered write", pwrite(&n, b"buffered", 5000));
        c.v("direct read", pread(&d, &mut page.0[..], 4096));
        c.say(format!("{:x}", hash(&page.0[..12_288])));
        c.v("direct write past the end", pwrite(&d, &page.0[..4096], 40_960));
        c.v("direct read at the end", pread(&d, &mut page.0[..], 40_960));
        let map = Map::new(&n, 0, 8192, MapFlags::SHARED).unwrap();
        c.say(format!("{:?}", map.load(0, 4)));
        map.store(10, b"mapped");
        c.v("direct read sees a store", pread(&d, &mut page.0[..4096], 0));
        c.say(format!("{:x}", hash(&page.0[..4096])));
        c.v("direct write under a mapping", pwrite(&d, &[9; 4096][..0], 0));
        page.0.fill(9);
        c.v("direct write under a mapping", pwrite(&d, &page.0[..4096], 0));
        c.say(format!("{:?}", map.load(8, 4)));
        drop(map);
        c.content("f");
    });
}

/// The largest size.
const MOST: u64 = (1 << 44) - 4096;

/// Writes at `at`, and says how far it went. With the writeback cache the kernel asks no daemon and
/// takes all: there fsync(2) and the next write(2) fail, what fits is kept, and the size that the
/// kernel shows is too large until it is set.
fn write_near_the_end(c: &mut Place, what: &str, f: &OwnedFd, bytes: &[u8], at: u64) {
    if !c.held_back() || bytes.is_empty() || at + bytes.len() as u64 <= MOST {
        return c.v(what, pwrite(f, bytes, at));
    }
    let size = || rustix::fs::fstat(f).unwrap().st_size as u64;
    let before = size();
    assert_eq!(pwrite(f, bytes, at), Ok(bytes.len()), "{what}");
    assert_eq!(size(), at + bytes.len() as u64, "{what}");
    assert_eq!(rustix::fs::fsync(f), Err(Errno::FBIG), "{what}");
    let told = |_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        pwrite(f, b"", 0) == Err(Errno::FBIG)
    };
    assert!((0..1000).any(told), "{what}: the next write is not told");
    c.pages_are_lost();
    let fits = MOST.saturating_sub(at);
    ftruncate(f, if fits > 0 { MOST } else { before }).unwrap();
    c.v(what, if fits > 0 { Ok(fits) } else { Err(Errno::FBIG) });
}

#[test]
fn sparse_files_and_truncation() {
    same(|c| {
        let Some(f) = c.open("f", OFlags::CREATE | OFlags::RDWR) else { return };
        for (at, len) in [(1 << 20, 5), (0, 100), (8190, 4), (300_000, 9000), (1 << 32, 1)] {
            c.v("pwrite", pwrite(&f, &pattern(at, len), at));
            c.fstat("f", &f);
        }
        for at in [0, 50, 4090, 8000, 1 << 20, (1 << 32) - 5] {
            say_read(c, "pread", &f, at, 10_000);
        }
        for size in [(1 << 32) - 1, 1 << 21, (1 << 20) + 2, 1 << 20, 300_005, 8192, 8191, 1, 0] {
            c.r("truncate down", ftruncate(&f, size));
            c.r("truncate up", ftruncate(&f, size + 5000));
            say_read(c, "end", &f, size.saturating_sub(100), 6000);
            c.r("truncate back", ftruncate(&f, size));
            c.fstat("f", &f);
        }
        c.r("too big", ftruncate(&f, i64::MAX as u64));
        write_near_the_end(c, "too far", &f, b"x", MOST);
        c.v("as far as it goes", pwrite(&f, b"x", (1 << 44) - 4097));
        c.fstat("f", &f);
        c.r("as long as it goes", ftruncate(&f, (1 << 44) - 4096));
        c.r("longer", ftruncate(&f, (1 << 44) - 4095));
        c.r("short again", ftruncate(&f, 0));
        c.r("truncate a directory", rustix::fs::open(c.p("."), OFlags::WRONLY, 0o644.into()));
        let Some(big) = c.open("big", OFlags::CREATE | OFlags::RDWR) else { return };
        c.r("100 GiB", ftruncate(&big, 100 << 30));
        for i in 0..20u64 {
            c.v("pwrite", pwrite(&big, &pattern(i, 4096), i * (5 << 30) + 17));
        }
        for i in 0..20u64 {
            say_read(c, "pread", &big, i * (5 << 30), 9000);
        }
        c.fstat("big", &big);
        let blocks = rustix::fs::fstat(&big).unwrap().st_blocks;
        assert!(blocks < 1000, "{blocks} blocks for 20 pages in a sparse file");
    });
}

#[test]
pub(crate) fn holes_and_preallocation() {
    same(|c| {
        let keep = FallocateFlags::KEEP_SIZE;
        let modes = [
            FallocateFlags::empty(),
            keep,
            FallocateFlags::PUNCH_HOLE | keep,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::ZERO_RANGE | keep,
        ];
        let ranges = [
            (0, 4096),
            (100, 50),
            (4000, 200),
            (5000, 9000),
            (28_000, 9000),
            (0, 100_000),
            (60_000, 1),
            (65_536, 65_536),
        ];
        for (m, mode) in modes.into_iter().enumerate() {
            for (r, (at, len)) in ranges.into_iter().enumerate() {
                for synced in [false, true] {
                    let name = format!("f{m}{r}{synced}");
                    c.file(&name, &pattern(3, 30_000));
                    let Some(f) = c.open(&name, OFlags::RDWR) else { return };
                    if synced {
                        c.r("fsync", rustix::fs::fsync(&f));
                    }
                    c.r(&format!("fallocate {mode:?} {at} {len}"), fallocate(&f, mode, at, len));
                    c.fstat(&name, &f);
                    c.content(&name);
                    c.v("write behind", pwrite(&f, b"behind", 200_000));
                    c.content(&name);
                }
            }
        }
        let Some(f) = c.open("f000", OFlags::CREATE | OFlags::RDWR) else { return };
        for (mode, at, len) in [
            (FallocateFlags::empty(), 0, 0),
            (FallocateFlags::PUNCH_HOLE, 0, 4096),
            (FallocateFlags::empty(), (1 << 44) - 4096, 4096),
            (FallocateFlags::empty(), i64::MAX as u64, 10),
            (keep, 0, 1 << 43),
        ] {
            c.r(&format!("fallocate {mode:?} {at} {len}"), fallocate(&f, mode, at, len));
        }
        c.fstat("f", &f);
        if let Some(r) = c.open("f000", OFlags::RDONLY) {
            c.r("fallocate read-only", fallocate(&r, FallocateFlags::empty(), 0, 10));
            c.r("truncate read-only", ftruncate(&r, 10));
        }
    });
}

#[test]
fn seek_to_holes_and_data() {
    same(|c| {
        let Some(f) = c.open("f", OFlags::CREATE | OFlags::RDWR) else { return };
        for block in [0, 3, 4, 10, 200] {
            c.v("pwrite", pwrite(&f, &pattern(block, 4096), block * 4096));
        }
        c.r("truncate", ftruncate(&f, 300 * 4096 + 10));
        for synced in [false, true] {
            if synced {
                c.r("fsync", rustix::fs::fsync(&f));
            }
            for at in [0, 1, 4096, 8192, 12_288, 20_480, 40_960, 45_056, 819_200, 823_296, 1 << 40]
            {
                c.v(&format!("data from {at}"), seek(&f, SeekFrom::Data(at)));
                c.v(&format!("hole from {at}"), seek(&f, SeekFrom::Hole(at)));
            }
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        c.r("punch", fallocate(&f, punch, 12_288, 4096));
        c.v("data", seek(&f, SeekFrom::Data(4096)));
        c.v("hole", seek(&f, SeekFrom::Hole(0)));
        c.r("truncate", ftruncate(&f, 0));
        c.v("data", seek(&f, SeekFrom::Data(0)));
        c.v("hole", seek(&f, SeekFrom::Hole(0)));
    });
}

#[test]
fn mappings_are_coherent() {
    same(|c| {
        c.file("f", &pattern(1, 40_000));
        let Some(f) = c.open("f", OFlags::RDWR) else { return };
        let shared = Map::new(&f, 0, 40_960, MapFlags::SHARED).unwrap();
        let private = Map::new(&f, 0, 40_960, MapFlags::PRIVATE).unwrap();
        c.say(format!("{:x}", hash(&shared.load(0, 40_000))));
        private.store(100, b"private");
        shared.store(5000, b"stored");
        say_read(c, "read sees the store", &f, 4990, 30);
        c.v("write", pwrite(&f, b"written", 9000));
        c.say(format!("{:?}", shared.load(9000, 7)));
        c.say(format!("{:?}", private.load(9000, 7)));
        c.say(format!("{:?}", private.load(100, 7)));
        shared.store(39_998, b"xxBEYOND");
        c.r("msync", shared.sync());
        c.r("grow", ftruncate(&f, 40_960));
        // What was stored behind the end may or may not be there now, but not after a write-back.
        say_read(c, "below the old end", &f, 39_990, 10);
        c.r("shrink", ftruncate(&f, 4096));
        c.r("grow", ftruncate(&f, 40_960));
        c.say(format!("{:x}", hash(&shared.load(0, 40_960))));
        shared.store(30_000, b"after");
        c.r("fsync", rustix::fs::fsync(&f));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        c.r("punch", fallocate(&f, punch, 28_672, 4096));
        c.say(format!("{:?}", shared.load(30_000, 5)));
        shared.store(30_001, b"again");
        c.r("rename", rustix::fs::rename(c.p("f"), c.p("g")));
        drop(shared);
        drop(private);
        drop(f);
        c.content("g");
        let Some(r) = c.open("g", OFlags::RDONLY) else { return };
        c.r("shared map of a read-only file", Map::new(&r, 0, 4096, MapFlags::SHARED).map(drop));
        c.r("private map of it", Map::new(&r, 0, 4096, MapFlags::PRIVATE).map(drop));
    });
}

#[test]
fn copies_between_files() {
    same(|c| {
        c.file("a", &pattern(4, 3_000_000));
        let Some(a) = c.open("a", OFlags::RDWR) else { return };
        let Some(b) = c.open("b", OFlags::CREATE | OFlags::RDWR) else { return };
        let (mut from, mut to) = (1000u64, 7u64);
        let mut left = 2_000_000;
        while left > 0 {
            let copied = rustix::fs::copy_file_range(&a, Some(&mut from), &b, Some(&mut to), left);
            let n = copied.unwrap();
            assert!(n > 0);
            left -= n;
        }
        c.content("b");
        let mut at = 5u64;
        let mut left = 1_000_000;
        while left > 0 {
            let n = rustix::fs::sendfile(&b, &a, Some(&mut at), left).unwrap();
            assert!(n > 0);
            left -= n;
        }
        c.content("b");
        let over = rustix::fs::copy_file_range(&a, Some(&mut 0), &a, Some(&mut 10), 100);
        c.v("overlapping copy", over);
        let clone = rustix::fs::ioctl_ficlone(&b, &a);
        c.r("no clones", clone);
    });
}

/// Starts a program that was just written. A process that another test starts holds our open files
/// until it runs its own program; meanwhile ours is busy.
fn patiently<T>(start: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    for _ in 0..100 {
        match start() {
            Err(e) if e.raw_os_error() == Some(libc::ETXTBSY) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            other => return other,
        }
    }
    start()
}

/// Programs can be run from the mount, also while it is written to.
#[test]
fn programs_run() {
    same(|c| {
        let copied = std::fs::copy("/bin/echo", c.p("echo"));
        c.say(format!("copy: {:?}", copied.map_err(|e| e.kind())));
        let out = patiently(|| std::process::Command::new(c.p("echo")).arg("hello").output());
        c.say(format!("{:?}", out.map(|o| o.stdout).map_err(|e| e.raw_os_error())));
        c.r("chmod", rustix::fs::chmod(c.p("echo"), 0o644.into()));
        let out = patiently(|| std::process::Command::new(c.p("echo")).output());
        c.say(format!("{:?}", out.map(|o| o.stdout).map_err(|e| e.raw_os_error())));
        c.r("chmod", rustix::fs::chmod(c.p("echo"), 0o755.into()));
        c.file("script", b"#!/bin/sh\necho from a script\n");
        c.r("chmod", rustix::fs::chmod(c.p("script"), 0o755.into()));
        let out = patiently(|| std::process::Command::new(c.p("script")).output());
        c.say(format!("{:?}", out.map(|o| o.stdout).map_err(|e| e.raw_os_error())));
        let copied = std::fs::copy("/bin/sleep", c.p("sleep"));
        c.say(format!("copy: {:?}", copied.map_err(|e| e.kind())));
        let child = patiently(|| std::process::Command::new(c.p("sleep")).arg("60").spawn());
        let mut child = child.unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        c.open("sleep", OFlags::WRONLY);
        c.r("unlink", unlink(c.p("sleep")));
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

/// copy_file_range(2) keeps holes, here as large as they were.
#[test]
fn copies_keep_holes() {
    same(|c| {
        let Some(a) = c.open("a", OFlags::CREATE | OFlags::RDWR) else { return };
        c.v("data", pwrite(&a, &[1; 8192], 1 << 20));
        c.v("more", pwrite(&a, &[2; 100], (8 << 20) + 10));
        c.r("a hole at the end", ftruncate(&a, 40 << 20));
        c.file("b", &[3; 5000]);
        let Some(b) = c.open("b", OFlags::RDWR) else { return };
        let (mut from, mut to) = (0u64, 0u64);
        while from < 40 << 20 {
            let n = rustix::fs::copy_file_range(&a, Some(&mut from), &b, Some(&mut to), 40 << 20);
            assert!(n.unwrap() > 0);
        }
        c.content("b");
        c.stat("b");
        let blocks = rustix::fs::fstat(&b).unwrap().st_blocks;
        // The kernel's own copy for ext4 fills holes, so only SiftFS can be held to this.
        if rustix::fs::fstatfs(&b).unwrap().f_type == 0x6573_5546 {
            assert!(blocks <= 64, "{blocks} blocks of 512 bytes for three pages of data");
        }
    });
}

/// What was stored through a shared mapping is data, also while the mapping stays, with its
/// descriptor closed, and in copies.
#[test]
pub(crate) fn stores_through_mappings_are_data_for_seek_and_copies() {
    same(|c| {
        let Some(f) = c.open("f", OFlags::CREATE | OFlags::RDWR) else { return };
        c.r("truncate", ftruncate(&f, 1 << 20));
        let map = Map::new(&f, 0, 1 << 20, MapFlags::SHARED).unwrap();
        say_seeks(c, &f);
        map.store(300_000, &pattern(1, 5000));
        say_seeks(c, &f);
        map.store(900_000, b"more");
        drop(f);
        let Some(r) = c.open("f", OFlags::RDONLY) else { return };
        say_seeks(c, &r);
        map.store(40_960, &pattern(2, 8192));
        let Some(to) = c.open("copy", OFlags::CREATE | OFlags::RDWR) else { return };
        c.r("truncate", ftruncate(&to, 1 << 20));
        // Of the target, too, the kernel holds something that is older than the copy.
        let old = Map::new(&to, 0, 1 << 20, MapFlags::SHARED).unwrap();
        old.store(45_000, &pattern(3, 20_000));
        let (mut from, mut at) = (0, 0);
        while at < 1 << 20 {
            let n = rustix::fs::copy_file_range(&r, Some(&mut from), &to, Some(&mut at), 1 << 20);
            assert!(n.unwrap() > 0);
        }
        c.say(format!("{:x}", hash(&old.load(0, 1 << 20))));
        c.content("copy");
        for how in ["auto", "always"] {
            map.store(500_000, how.as_bytes());
            let name = format!("cp-{how}");
            let (from, to) = (c.p("f"), c.p(&name));
            let how = format!("--sparse={how}");
            let args = [how.as_str(), from.to_str().unwrap(), to.to_str().unwrap()];
            let cp = crate::support::run("cp", &args);
            c.say(format!("cp {how}: {}", cp.code));
            c.content(&name);
        }
        drop(map);
        say_seeks(c, &r);
        c.content("f");
    });
}

fn say_seeks(c: &mut Place, fd: &OwnedFd) {
    for at in [0, 40_960, 100_000, 299_008, 300_000, 310_000, 900_000, 950_000] {
        c.v(&format!("data from {at}"), seek(fd, SeekFrom::Data(at)));
        c.v(&format!("hole from {at}"), seek(fd, SeekFrom::Hole(at)));
    }
}

/// A write that crosses the largest size goes as far as there.
#[test]
pub(crate) fn the_largest_size() {
    same(|c| {
        let bytes = pattern(9, 20_000);
        for (flags, name) in [(OFlags::empty(), "f"), (OFlags::APPEND, "a")] {
            let Some(f) = c.open(name, OFlags::CREATE | OFlags::RDWR | flags) else { return };
            if name == "a" {
                c.r("truncate", ftruncate(&f, MOST - 5000));
                write_near_the_end(c, "append across", &f, &bytes, MOST - 5000);
                write_near_the_end(c, "append", &f, &bytes, MOST);
            }
            for (at, len) in [
                (MOST - 100, 200),
                (MOST - 8192, 12_288),
                (MOST - 4096, 20_000),
                (MOST - 5000, 20_000),
                (MOST - 1, 1),
                (MOST, 1),
                (MOST, 0),
                (MOST + 1, 10),
            ] {
                let what = format!("write of {len} at most {:+}", at as i64 - MOST as i64);
                let at = if name == "a" { MOST } else { at };
                write_near_the_end(c, &what, &f, &bytes[..len], at);
                c.fstat(&what, &f);
            }
            say_read(c, "read", &f, MOST - 9000, 20_000);
            let Some(from) = c.open("from", OFlags::CREATE | OFlags::RDWR) else { return };
            c.v("write", pwrite(&from, &bytes, 0));
            for at in [MOST - 5000, MOST, MOST + 1] {
                let mut to = at;
                let n = rustix::fs::copy_file_range(&from, Some(&mut 0), &f, Some(&mut to), 20_000);
                c.v("copy", n);
            }
            c.v("sendfile", rustix::fs::sendfile(&f, &from, Some(&mut 0), 1));
            for (at, len) in [(MOST - 100, 100), (MOST - 100, 101), (MOST, 1)] {
                c.r("fallocate", fallocate(&f, FallocateFlags::empty(), at, len));
            }
            for size in [MOST + 1, MOST] {
                c.r("truncate", ftruncate(&f, size));
            }
            c.fstat("in the end", &f);
            c.r("truncate", ftruncate(&f, 0));
        }
    });
}
