//! Volumes in files on a small file system that has less room than they may come to need.

use crate::support::{Setup, run, siftfs};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, fallocate, fsync, openat};
use rustix::io::{Errno, pwrite};
use serde_json::Value;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An ext4 of its own in a file, mounted by the kernel; taken away at the end.
pub struct SmallDisk {
    image: tempfile::NamedTempFile,
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Of this size, such as `96M`.
    pub fn new(size: &str) -> Self {
        let (image, dir) = (tempfile::NamedTempFile::new().unwrap(), tempfile::tempdir().unwrap());
        let disk = Self { image, dir };
        let path = disk.image.path().to_str().unwrap();
        run("mke2fs", &["-q", "-F", "-t", "ext4", "-m", "0", "-O", "^has_journal", path, size])
            .ok();
        run("mount", &["-o", "loop", path, disk.dir.path().to_str().unwrap()]).ok();
        disk
    }

    /// Gives all that is left to another file.
    fn fill(&self) -> PathBuf {
        let filler = self.dir.path().join("filler");
        let f = open(&filler).unwrap();
        let mut at = 0;
        for piece in [1 << 20, 4096] {
            while fallocate(&f, FallocateFlags::empty(), at, piece).is_ok() {
                at += piece;
            }
        }
        filler
    }

    /// No volume yet, and a directory to mount one on.
    pub fn setup(&self) -> Setup {
        let tmp = tempfile::tempdir_in(self.dir.path()).unwrap();
        fs::create_dir(tmp.path().join("m")).unwrap();
        Setup { tmp }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &["-l", self.dir.path().to_str().unwrap()]);
    }
}

/// Bytes of the blocks that a file has.
fn taken(path: &str) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// A file that may outgrow what it lies on is made, with a warning; one that shall have all of its
/// blocks is not made at all, or has them.
#[test]
fn a_volume_that_is_larger_than_what_it_lies_on() {
    let disk = SmallDisk::new("96M");
    let s = disk.setup();
    let sparse = siftfs(&["mkfs", s.volume(), "--size", "512M", "--log-size", "16M"]).ok();
    assert!(sparse.err.contains("--reserve") && sparse.err.contains("free"), "{sparse:?}");
    assert!(taken(s.volume()) < 40 << 20, "a file is sparse");
    let asked = ["mkfs", s.volume(), "--size", "512M", "--reserve", "--force"];
    siftfs(&asked).fails(1, &["cannot reserve 536870912 bytes", "No space left"]);
    fs::remove_file(s.volume()).unwrap();
    siftfs(&["mkfs", s.volume(), "--size", "512M", "--reserve"]).fails(1, &["cannot reserve"]);
    assert!(!fs::exists(s.volume()).unwrap(), "an unfinished file stays");

    let made = siftfs(&["mkfs", s.volume(), "--size", "48M", "--reserve"]).ok();
    assert!(made.out.contains("its blocks are reserved") && made.err.is_empty(), "{made:?}");
    assert!(taken(s.volume()) >= 48 << 20, "{} bytes taken", taken(s.volume()));
    // A sparse file that is there gets its blocks as well.
    siftfs(&["mkfs", s.volume(), "--size", "40M", "--force"]).ok();
    assert!(taken(s.volume()) < 36 << 20, "{} bytes taken", taken(s.volume()));
    let seen = siftfs(&["inspect", s.volume(), "--json"]).ok();
    assert!(seen.out.contains("\"reserved\": false"), "{seen:?}");
    siftfs(&["mkfs", s.volume(), "--force", "--reserve"]).ok();
    assert!(taken(s.volume()) >= 40 << 20, "{} bytes taken", taken(s.volume()));
    let seen = siftfs(&["inspect", s.volume(), "--json"]).ok();
    assert!(seen.out.contains("\"reserved\": true"), "{seen:?}");
    s.mount("");
    fs::write(s.path("f"), b"works").unwrap();
    s.umount();
    s.assert_plain_ext4();
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::from_raw_mode(0o644))
}

fn page(i: u64) -> Vec<u8> {
    (0..8192).map(|at| (at * 3 + i * 7) as u8).collect()
}

/// Makes a file durable; what fsync says.
fn durable(s: &Setup, i: u64) -> Result<(), Errno> {
    let f = open(&s.path(&format!("f{i}")))?;
    pwrite(&f, &page(i), 0)?;
    fsync(&f)
}

fn runtime(s: &Setup) -> Value {
    let status = siftfs(&["status", s.dir(), "--json"]).ok();
    serde_json::from_str::<Value>(&status.out).unwrap()["runtime"].clone()
}

/// The file system below fills up under a sparse volume: small fsyncs go on, status says what is
/// waited for, what needs room gets ENOSPC, and with room again everything goes on by itself.
#[test]
fn the_file_system_below_is_full_for_a_while() {
    let disk = SmallDisk::new("96M");
    let s = disk.setup();
    siftfs(&["mkfs", s.volume(), "--size", "256M", "--log-size", "24M"]).ok();
    s.mount("");
    let mut kept = Vec::new();
    let mut keep = |s: &Setup, i: u64| {
        let done = durable(s, i);
        done.map(|()| kept.push(i))
    };
    keep(&s, 0).unwrap();
    let filler = disk.fill();
    // Until the background comes to a block that the volume's file has not.
    let mut i = 1;
    while runtime(&s)["no_room"].is_null() {
        match keep(&s, i) {
            Ok(()) | Err(Errno::NOSPC) => {}
            Err(e) => panic!("fsync {i}: {e}"),
        }
        i += 1;
        assert!(i < 20_000, "the file system below is never full");
    }
    let text = siftfs(&["status", s.dir()]).ok().out;
    assert!(text.contains("WAITING FOR ROOM") && text.contains("No space left"), "{text}");
    // What needs no background work is made durable all the same, or says what is missing.
    let mut refused = None;
    for more in i..i + 20_000 {
        if let Err(e) = keep(&s, more) {
            refused = Some(e);
            break;
        }
    }
    assert_eq!(refused, Some(Errno::NOSPC), "the log has an end");
    let synced = siftfs(&["sync", s.dir()]);
    assert!(synced.code == 1 && synced.err.contains("No space left"), "{synced:?}");
    assert!(runtime(&s)["failed"].is_null(), "nothing is latched");
    fs::remove_file(&filler).unwrap();
    while !runtime(&s)["no_room"].is_null() {
        std::thread::sleep(Duration::from_millis(100));
    }
    keep(&s, 50_000).unwrap();
    siftfs(&["sync", s.dir()]).ok();
    assert!(runtime(&s)["failed"].is_null());
    let daemon = s.daemon();
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    s.mount("");
    for i in &kept {
        assert!(fs::read(s.path(&format!("f{i}"))).unwrap() == page(*i), "f{i}");
    }
    s.umount();
    s.assert_plain_ext4();
}

/// The last unmount finds no room below for what was acknowledged. It ends, and says what to do;
/// with room again, recovery or the next mount brings all of it. The background may have begun to
/// wait for room before, or not.
#[test]
fn an_unmount_without_room_below() {
    for (waiting, mounted_again) in [(false, false), (false, true), (true, false), (true, true)] {
        let disk = SmallDisk::new("96M");
        let s = disk.setup();
        siftfs(&["mkfs", s.volume(), "--size", "256M", "--log-size", "24M"]).ok();
        s.mount("");
        let filler = disk.fill();
        let mut kept = Vec::new();
        while kept.len() < 200 || waiting && runtime(&s)["no_room"].is_null() {
            match durable(&s, kept.len() as u64) {
                Ok(()) => kept.push(kept.len() as u64),
                Err(e) => assert!(e == Errno::NOSPC && waiting, "{e}"),
            }
        }
        let daemon = s.daemon();
        let ended = siftfs(&["umount", s.dir()]);
        let said = ["No space left", "siftfs recover"].iter().all(|word| ended.err.contains(word));
        assert!(ended.code == 1 && said, "waiting {waiting}: {ended:?}");
        daemon.wait();
        let full = siftfs(&["recover", s.volume()]);
        assert!(full.code != 0 && full.err.contains("No space left"), "{full:?}");
        fs::remove_file(&filler).unwrap();
        if !mounted_again {
            siftfs(&["recover", s.volume()]).ok();
            s.assert_plain_ext4();
        }
        s.mount("");
        for i in &kept {
            assert!(fs::read(s.path(&format!("f{i}"))).unwrap() == page(*i), "f{i}");
        }
        s.umount();
        s.assert_plain_ext4();
    }
}

/// A volume's file is cut shorter below the mount: no fsync succeeds any more, and status says why.
#[test]
fn a_volume_that_is_cut_shorter() {
    let s = Setup::new();
    s.mount("");
    durable(&s, 0).unwrap();
    fs::File::options().write(true).open(s.volume()).unwrap().set_len(40 << 20).unwrap();
    assert_eq!(durable(&s, 1), Err(Errno::IO));
    assert_eq!(durable(&s, 2), Err(Errno::IO));
    assert_eq!(fs::metadata(s.volume()).unwrap().len(), 40 << 20, "made long again");
    let status = runtime(&s);
    let why = status["failed"].as_str().unwrap();
    assert!(why.contains("cut shorter") && status["failed_s"].is_f64(), "{why}");
    assert!(status["remedy"].as_str().unwrap().contains("mount again"), "{status}");
    let text = siftfs(&["status", s.dir()]).ok().out;
    assert!(text.contains("FAILED") && text.contains("cut shorter"), "{text}");
    siftfs(&["umount", s.dir()]);
}
