//! Large volumes, and volumes on other storage than a file on a disk.

use crate::listing::{assert_kernel_agrees, assert_kernel_shows, content, listing};
use crate::support::{Setup, patient, run, siftfs};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, fallocate, fsync, openat, statfs};
use rustix::io::pwrite;
use rustix::process::Signal;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

const GIB: u64 = 1 << 30;
/// statfs(2)'s number of tmpfs.
const TMPFS_MAGIC: i64 = 0x0102_1994;

fn kill(s: &Setup) {
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
}

fn open(path: &Path) -> OwnedFd {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::from_raw_mode(0o644)).unwrap()
}

/// Block groups from the first to the last are used, with block numbers beyond 2^23.
#[test]
fn a_volume_of_60_gib() {
    let s = Setup::empty();
    siftfs(&["mkfs", s.volume(), "--size", "60G", "--log-size", "128M"]).ok();
    s.mount("");
    let free = rustix::fs::statvfs(s.dir()).unwrap().f_bavail * 4096;
    assert!(free > 55 * GIB, "{free}");
    let f = open(&s.path("most"));
    fallocate(&f, FallocateFlags::empty(), 0, 55 * GIB).unwrap();
    for g in 0..55 {
        let piece = [g as u8 + 1; 5000];
        assert_eq!(pwrite(&f, &piece, g * GIB + g * 4096 + 77), Ok(5000));
    }
    fsync(&f).unwrap();
    // What is made now lies behind all that.
    fs::create_dir(s.path("far")).unwrap();
    for i in 0..200u32 {
        let far = open(&s.path(&format!("far/f{i}")));
        let text = format!("far away {i}").repeat(1 + i as usize * 10);
        assert_eq!(pwrite(&far, text.as_bytes(), 0), Ok(text.len()));
        fsync(&far).unwrap();
    }
    let before = (listing(&s.path("far")), content(&f));
    drop(f);
    kill(&s);
    siftfs(&["umount", s.dir()]).fails(1, &["siftfs recover"]);
    siftfs(&["recover", s.volume()]).ok();
    s.mount("");
    let after = listing(&s.path("far"));
    assert_eq!(after.len(), 200);
    assert_eq!(content(&open(&s.path("most"))), before.1);
    assert!(after.keys().eq(before.0.keys()));
    assert_kernel_agrees(&s);
    let farthest = (0..55).map(|g| block_of(s.volume(), g * GIB / 4096 + g)).max().unwrap();
    assert!(farthest > 55 * GIB / 4096, "nothing lies beyond block {farthest}");
}

/// Where a block of the large file lies in the volume.
fn block_of(volume: &str, block: u64) -> u64 {
    let said = run("debugfs", &["-R", &format!("bmap /most {block}"), volume]).ok().out;
    said.trim().parse().unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// A loop device, detached at the end.
pub struct Loop(pub String);

impl Loop {
    pub fn over(file: &str) -> Self {
        Self(run("losetup", &["--find", "--show", file]).ok().out.trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}

/// Some of everything, fsynced; the daemon is killed, the volume recovered.
fn used(s: &Setup, volume: &str) {
    siftfs(&["mkfs", volume]).ok();
    siftfs(&["mount", volume, s.dir()]).ok();
    fs::create_dir(s.path("d")).unwrap();
    for i in 0..300usize {
        let f = open(&s.path(&format!("d/f{i}")));
        let data: Vec<u8> = (0..i * 100).map(|b| (b + i) as u8).collect();
        assert_eq!(pwrite(&f, &data, (i % 5 * 3000) as u64), Ok(data.len()));
        if i.is_multiple_of(3) {
            fsync(&f).unwrap();
        }
    }
    siftfs(&["sync", s.dir()]).ok();
    let large = open(&s.path("large"));
    for i in 0..64u64 {
        assert_eq!(pwrite(&large, &vec![i as u8; 1 << 18], i << 18), Ok(1 << 18));
    }
    fsync(&large).unwrap();
    let before = listing(Path::new(s.dir()));
    drop(large);
    kill(s);
    siftfs(&["mount", volume, s.dir()]).ok();
    let after = listing(Path::new(s.dir()));
    assert!(after.keys().eq(before.keys()));
    for (path, seen) in &before {
        let content = |text: &str| text.split(" [").skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(content(&after[path]), content(seen), "{}", String::from_utf8_lossy(path));
    }
}

#[test]
fn on_a_loop_device() {
    let s = Setup::empty();
    let backing = s.tmp.path().join("backing");
    fs::File::create(&backing).unwrap().set_len(128 << 20).unwrap();
    let device = Loop::over(backing.to_str().unwrap());
    used(&s, &device.0);
    let ours = listing(Path::new(s.dir()));
    patient(|| siftfs(&["umount", &device.0])).ok();
    siftfs(&["fsck", &device.0]).ok();
    run("e2fsck", &["-fn", &device.0]).ok();
    assert_kernel_shows(&device.0, &ours);
}

/// A tmpfs of its own, taken away at the end.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().to_str().unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=256M", "tmpfs", name]).ok();
        Self(dir)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        run("umount", &["-l", self.0.path().to_str().unwrap()]);
    }
}

#[test]
fn on_tmpfs() {
    let tmpfs = Tmpfs::new();
    assert_eq!(statfs(tmpfs.0.path()).unwrap().f_type, TMPFS_MAGIC);
    let tmp = tempfile::tempdir_in(tmpfs.0.path()).unwrap();
    fs::create_dir(tmp.path().join("m")).unwrap();
    let s = Setup { tmp };
    fs::File::create(s.volume()).unwrap().set_len(128 << 20).unwrap();
    used(&s, s.volume());
    let ours = listing(Path::new(s.dir()));
    s.umount();
    s.assert_plain_ext4();
    assert_kernel_shows(s.volume(), &ours);
}
