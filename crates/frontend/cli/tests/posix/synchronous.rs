//! What a descriptor with O_DSYNC or O_SYNC promises, by every way of writing; and writes past the
//! kernel's cache beside reads through it.

use crate::pair::open;
use crate::support::Setup;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::{ReadWriteFlags, pread, pwrite, pwritev2};
use rustix::process::Signal;
use siftfs_kills::asynchronous::{Way, Writes, write_at};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LEN: usize = 64 << 10;
const WAYS: [&str; 13] = [
    "write",
    "write direct",
    "pwritev2",
    "splice",
    "sendfile",
    "copy_file_range",
    "zero range",
    "punch hole",
    "aio",
    "aio direct",
    "io_uring",
    "io_uring direct",
    "io_uring direct, many",
];

/// Page-aligned bytes.
#[repr(align(4096))]
struct Aligned([u8; LEN]);

/// splice(2) of a page, to the file's position.
#[allow(unsafe_code)] // no safe wrapper here
fn splice_page(from: &std::io::PipeReader, to: &OwnedFd) {
    let none = std::ptr::null_mut();
    // SAFETY: both descriptors are open, and the call is told no offsets.
    let n = unsafe { libc::splice(from.as_raw_fd(), none, to.as_raw_fd(), none, 4096, 0) };
    assert_eq!(n, 4096, "{}", std::io::Error::last_os_error());
}

/// Makes the file at `path` consist of N, or of zeros, in a way that promises durability.
fn rewrite(path: &Path, way: &str, sync: OFlags, source: &OwnedFd) {
    let direct = if way.contains("direct") { OFlags::DIRECT } else { OFlags::empty() };
    let flags = if way == "pwritev2" { OFlags::empty() } else { sync };
    let fd = open(path, OFlags::RDWR | flags | direct, 0).unwrap();
    let new = Aligned([b'N'; LEN]);
    let by = |way| assert_eq!(write_at(way, &fd, 0, &new.0).unwrap(), LEN);
    match way {
        "write" | "write direct" => assert_eq!(pwrite(&fd, &new.0, 0).unwrap(), LEN),
        "pwritev2" => {
            let how = if sync.contains(OFlags::SYNC) {
                ReadWriteFlags::SYNC
            } else {
                ReadWriteFlags::DSYNC
            };
            assert_eq!(pwritev2(&fd, &[IoSlice::new(&new.0)], 0, how).unwrap(), LEN);
        }
        "splice" => {
            let (out, mut input) = std::io::pipe().unwrap();
            for _ in 0..LEN / 4096 {
                std::io::Write::write_all(&mut input, &new.0[..4096]).unwrap();
                splice_page(&out, &fd);
            }
        }
        "sendfile" => {
            assert_eq!(rustix::fs::sendfile(&fd, source, Some(&mut 0), LEN).unwrap(), LEN);
        }
        "copy_file_range" => {
            let n = rustix::fs::copy_file_range(source, Some(&mut 0), &fd, Some(&mut 0), LEN);
            assert_eq!(n.unwrap(), LEN);
        }
        "zero range" => fallocate(&fd, FallocateFlags::ZERO_RANGE, 0, LEN as u64).unwrap(),
        "punch hole" => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&fd, flags, 0, LEN as u64).unwrap();
        }
        "aio" | "aio direct" => by(Way::Aio),
        "io_uring" | "io_uring direct" => by(Way::Uring),
        "io_uring direct, many" => {
            let mut writes = Writes::new(Way::Uring, 16).unwrap();
            for page in 0..16 {
                writes.submit(&fd, page * 4096, &new.0[..4096]).unwrap();
            }
            for _ in 0..16 {
                assert_eq!(writes.wait().unwrap().1.unwrap(), 4096);
            }
        }
        _ => unreachable!("{way}"),
    }
    // The file stays open: closing it must not be what makes it durable.
    std::mem::forget(fd);
}

fn durable_by_every_way(sync: OFlags, options: &str) {
    let setup = Setup::new();
    setup.mount(options);
    let source = setup.path("source");
    std::fs::write(&source, vec![b'N'; LEN]).unwrap();
    let source = open(&source, OFlags::RDONLY, 0).unwrap();
    for way in WAYS {
        let path = setup.path(way);
        std::fs::write(&path, vec![b'O'; LEN]).unwrap();
        rustix::fs::fsync(open(&path, OFlags::RDONLY, 0).unwrap()).unwrap();
    }
    for way in WAYS {
        // On a mount with `sync` the descriptor says nothing.
        let descriptor = if options.contains("sync") { OFlags::empty() } else { sync };
        rewrite(&setup.path(way), way, descriptor, &source);
    }
    let daemon = setup.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    setup.mount("commit=30");
    let mut lost = Vec::new();
    for way in WAYS {
        let zeros = ["zero range", "punch hole"].contains(&way);
        let expected = vec![if zeros { 0 } else { b'N' }; LEN];
        if std::fs::read(setup.path(way)).unwrap() != expected {
            lost.push(way);
        }
    }
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    setup.umount();
    setup.assert_plain_ext4();
}

#[test]
fn writes_on_a_dsync_descriptor_are_durable() {
    durable_by_every_way(OFlags::DSYNC, "commit=30");
}

#[test]
fn writes_on_a_sync_descriptor_are_durable() {
    durable_by_every_way(OFlags::SYNC, "commit=30");
}

#[test]
fn writes_on_a_synchronous_mount_are_durable() {
    durable_by_every_way(OFlags::DSYNC, "commit=30,sync");
}

/// A program that saw an asynchronous direct write complete, and then reads through the cache,
/// reads what was written, while other threads read the same pages all the time.
#[test]
fn reads_after_asynchronous_direct_writes_are_new() {
    const PAGES: u64 = 8;
    let setup = Setup::new();
    setup.mount("commit=1");
    let path = setup.path("f");
    std::fs::write(&path, vec![0; PAGES as usize * 4096]).unwrap();
    let direct = open(&path, OFlags::RDWR | OFlags::DIRECT, 0).unwrap();
    let cached = open(&path, OFlags::RDONLY, 0).unwrap();
    let stop = AtomicBool::new(false);
    let mut stale = 0;
    let mut rounds = 0u64;
    std::thread::scope(|scope| {
        scope.spawn(|| read_all_the_time(&cached, PAGES, &stop));
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            for way in [Way::Aio, Way::Uring] {
                rounds += 1;
                stale += stale_reads(way, rounds as u8 | 1, &direct, &cached, PAGES);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(rounds > 20, "{rounds} rounds");
    assert_eq!(stale, 0, "stale reads in {rounds} rounds of {PAGES} pages");
    drop((direct, cached));
    setup.umount();
}

/// The same with far more of them in flight than requests are carried out at a time: each answer
/// waits until the old pages are dropped, however many do.
#[test]
fn reads_after_very_many_asynchronous_direct_writes_are_new() {
    const PROGRAMS: u8 = 12;
    const ROUNDS: u8 = 16;
    const PAGES: u64 = 64;
    let setup = Setup::new();
    setup.mount("commit=1");
    let files: Vec<(OwnedFd, OwnedFd)> = (0..PROGRAMS)
        .map(|program| {
            let path = setup.path(&format!("f{program}"));
            std::fs::write(&path, vec![0; PAGES as usize * 4096]).unwrap();
            let direct = open(&path, OFlags::RDWR | OFlags::DIRECT | OFlags::DSYNC, 0).unwrap();
            (direct, open(&path, OFlags::RDONLY, 0).unwrap())
        })
        .collect();
    let stop = AtomicBool::new(false);
    let stale: u64 = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (direct, cached) in &files {
            scope.spawn(|| read_all_the_time(cached, PAGES, &stop));
            running.push(scope.spawn(move || {
                let way = |round: u8| if round.is_multiple_of(2) { Way::Aio } else { Way::Uring };
                (1..=ROUNDS).map(|r| stale_reads(way(r), r, direct, cached, PAGES)).sum::<u64>()
            }));
        }
        let stale = running.into_iter().map(|program| program.join().unwrap()).sum();
        stop.store(true, Ordering::Relaxed);
        stale
    });
    assert_eq!(stale, 0, "stale reads");
    drop(files);
    setup.umount();
}

fn read_all_the_time(file: &OwnedFd, pages: u64, stop: &AtomicBool) {
    let mut page = [0; 4096];
    for at in (0..pages).cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        pread(file, &mut page, at * 4096).unwrap();
    }
}

/// Writes all pages at once, and reads each when its write is complete: how many were old.
fn stale_reads(way: Way, byte: u8, direct: &OwnedFd, cached: &OwnedFd, pages: u64) -> u64 {
    let mut writes = Writes::new(way, 64).unwrap();
    let (new, mut got) = ([byte; 4096], [0; 4096]);
    for page in 0..pages {
        assert_eq!(writes.submit(direct, page * 4096, &new).unwrap(), page);
    }
    let mut stale = 0;
    for _ in 0..pages {
        let (page, result) = writes.wait().unwrap();
        assert_eq!(result.unwrap(), 4096);
        pread(cached, &mut got, page * 4096).unwrap();
        stale += u64::from(got != new);
    }
    stale
}

/// Direct writes that hold the file's lock until they are answered, beside reads: the kernel is
/// asked to drop pages for each, and closing the file that it was asked through wants that lock.
#[test]
fn direct_writes_that_hold_the_file_beside_reads_end() {
    let setup = Setup::new();
    setup.mount("commit=1,write_cache=writeback");
    let path = setup.path("f");
    std::fs::write(&path, vec![0; 64 * 4096]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::fs::read(&path).unwrap();
            }
        });
        let writers: Vec<_> = (0..4u64)
            .map(|writer| {
                let direct = open(&path, OFlags::RDWR | OFlags::DIRECT, 0).unwrap();
                scope.spawn(move || {
                    let new = Aligned([b'0' + writer as u8; LEN]);
                    for i in 0..300 {
                        let at = (writer * 16 + i % 16) * 4096;
                        assert_eq!(pwrite(&direct, &new.0[..4096], at).unwrap(), 4096);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    for (i, page) in std::fs::read(&path).unwrap().chunks(4096).enumerate() {
        assert!(page.iter().all(|b| *b == b'0' + (i / 16) as u8), "page {i}");
    }
    setup.umount();
}

/// Direct writes beside reads do not block other requests: more of them are in flight than the
/// kernel has requests of the background, while the pages are read.
#[test]
fn many_direct_writes_beside_reads_end() {
    const DEPTH: u32 = 1000;
    let setup = Setup::new();
    setup.mount("commit=1");
    let path = setup.path("f");
    std::fs::write(&path, vec![0; 64 * 4096]).unwrap();
    let direct = open(&path, OFlags::RDWR | OFlags::DIRECT, 0).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::fs::read(&path).unwrap();
                }
            });
        }
        for byte in 1..4 {
            let mut writes = Writes::new(Way::Aio, DEPTH).unwrap();
            for i in 0..u64::from(DEPTH) {
                writes.submit(&direct, i % 64 * 4096, &[byte; 4096]).unwrap();
            }
            for _ in 0..DEPTH {
                assert_eq!(writes.wait().unwrap().1.unwrap(), 4096);
            }
            assert_eq!(std::fs::read(&path).unwrap(), vec![byte; 64 * 4096]);
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(direct);
    setup.umount();
}
