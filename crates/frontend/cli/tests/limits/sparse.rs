//! A file of 100 GiB that is nearly all hole.

use crate::listing::{assert_kernel_agrees, data_after};
use crate::support::{Setup, run};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, fallocate, fstat, fsync, openat};
use rustix::io::{pread, pwrite};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

const GIB: u64 = 1 << 30;
const SIZE: u64 = 100 * GIB;
/// Where the file has data, and how many bytes: at both ends, in the middle, across 2 and 4 GiB.
const PIECES: [(u64, usize); 6] = [
    (0, 1000),
    (2 * GIB - 1, 2),
    (4 * GIB - 5000, 10_000),
    (50 * GIB + 123, 70_000),
    (77 * GIB, 4096),
    (SIZE - 5, 5),
];

fn open(path: &Path, flags: OFlags) -> OwnedFd {
    openat(CWD, path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644)).unwrap()
}

fn bytes(i: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + i + 1) as u8 | 1).collect()
}

fn write_pieces(f: &OwnedFd) {
    // Out of order, so that extents are put in between others.
    for i in [5, 0, 3, 1, 4, 2] {
        let (at, len) = PIECES[i];
        assert_eq!(pwrite(f, &bytes(i, len), at), Ok(len));
    }
}

#[track_caller]
fn check_pieces(f: &OwnedFd) {
    assert_eq!(fstat(f).unwrap().st_size, i64::try_from(SIZE).unwrap());
    for (i, (at, len)) in PIECES.into_iter().enumerate() {
        let mut got = vec![0; len];
        assert_eq!(pread(f, &mut got[..], at), Ok(len));
        assert!(got == bytes(i, len), "piece {i} at {at}");
        // Right behind it, and far from everything.
        for hole in [at + len as u64, at + GIB / 2, at + GIB + 12_345] {
            let mut got = vec![0xff; 100_000];
            let n = pread(f, &mut got[..], hole).unwrap() as u64;
            assert_eq!(n, SIZE.saturating_sub(hole).min(100_000), "at {hole}");
            assert!(got[..n as usize].iter().all(|b| *b == 0), "no hole at {hole}");
        }
    }
}

/// The pieces of data are the blocks that were written.
#[track_caller]
fn check_map(f: &OwnedFd) {
    let mut at = 0;
    for (start, len) in PIECES {
        let end = (start + len as u64).div_ceil(4096) * 4096;
        let found = data_after(f, at).unwrap_or_else(|| panic!("no data after {at}"));
        assert_eq!(found, (start / 4096 * 4096, end.min(SIZE)));
        at = found.1;
    }
    assert_eq!(data_after(f, at), None);
    let blocks: u64 =
        PIECES.iter().map(|(at, len)| (at + *len as u64).div_ceil(4096) - at / 4096).sum();
    let counted = u64::try_from(fstat(f).unwrap().st_blocks).unwrap() / 8;
    assert!((blocks..blocks + 3).contains(&counted), "{counted} blocks, {blocks} of data");
}

/// Bytes that the daemon has written so far, its answers to the kernel included.
fn written_by(s: &Setup) -> u64 {
    let pid = s.daemon().pid.as_raw_nonzero();
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|l| l.strip_prefix("wchar: ")).unwrap().parse().unwrap()
}

#[test]
fn a_sparse_file_of_100_gib() {
    let s = Setup::new();
    s.mount("");
    let f = open(&s.path("big"), OFlags::CREATE | OFlags::RDWR);
    write_pieces(&f);
    check_pieces(&f);
    fsync(&f).unwrap();
    check_map(&f);
    drop(f);
    let daemon = s.daemon();
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    s.mount("");
    let f = open(&s.path("big"), OFlags::RDWR);
    check_pieces(&f);
    check_map(&f);
    copies(&s);
    // Cut in the middle of a hole, made large again: what was behind the cut does not come back.
    let cut = open(&s.path("cut"), OFlags::RDWR);
    rustix::fs::ftruncate(&cut, 60 * GIB).unwrap();
    rustix::fs::ftruncate(&cut, SIZE).unwrap();
    assert_eq!(data_after(&cut, 51 * GIB), None);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&cut, hole, GIB, 98 * GIB).unwrap();
    assert_eq!(data_after(&cut, 4096), None);
    drop((f, cut));
    assert_kernel_agrees(&s);
}

/// Programs that search for data copy the file without reading its holes.
fn copies(s: &Setup) {
    let (big, copy, cut) = (s.path("big"), s.path("copy"), s.path("cut"));
    let names = [&big, &copy, &cut].map(|p| p.to_str().unwrap());
    let before = written_by(s);
    run("cp", &["--reflink=never", "--sparse=auto", names[0], names[1]]).ok();
    run("cp", &["--sparse=always", names[0], names[2]]).ok();
    let tar = s.tmp.path().join("tar");
    run("tar", &["--sparse", "-cf", tar.to_str().unwrap(), "-C", s.dir(), "big"]).ok();
    assert!(fs::metadata(&tar).unwrap().len() < 1 << 20);
    let answered = written_by(s) - before;
    assert!(answered < 64 << 20, "{answered} bytes for a copy of the few that there are");
    for path in [&copy, &cut] {
        check_pieces(&open(path, OFlags::RDONLY));
    }
}
