//! One write and one flush per fsync, counted by the kernel, and the same by the daemon's own
//! counters. Needs root, `/dev/fuse`, loop devices and e2fsprogs.
//!
//! `support/counts.rs` says how. The background is kept idle: nothing is old enough to be
//! journaled, staging is never low, and the journal is large enough for one transaction to hold
//! everything.

#[path = "support/counts.rs"]
#[allow(dead_code)] // as below
mod counts;
#[allow(dead_code)] // each test program uses a part of it
mod support;

use counts::{Counts, Loop, ours, status};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::{Setup, run, siftfs};

/// Repetitions of each operation.
const TIMES: u64 = 50;
/// The background has nothing to do.
const IDLE: &str = "commit=3600,low_watermark=1";

/// Makes a volume on `storage`, mounts it with an idle background and one settled file `f`.
fn mounted(storage: &str) -> Setup {
    let s = Setup::empty();
    siftfs(&["mkfs", storage, "--size", "128M", "--log-size", "48M"]).ok();
    siftfs(&["mount", storage, s.dir(), "-o", IDLE]).ok();
    fs::create_dir(s.path("d")).expect("a directory");
    // Bytes that no operation writes: a page that the kernel sends is compared with the one that is
    // there.
    fs::write(s.path("f"), vec![0xee; 1 << 20]).expect("a file");
    s
}

/// Everything is in its place: the next transaction is empty.
fn settle(s: &Setup) {
    siftfs(&["sync", s.dir()]).ok();
    siftfs(&["checkpoint", s.dir()]).ok();
}

fn fsync(path: &Path) {
    File::open(path).and_then(|f| f.sync_all()).expect("syncs");
}

fn make(s: &Setup, name: &str, i: u64) {
    let f = File::create(s.path(name)).expect("made");
    f.write_all_at(&vec![i as u8; 4096], 0).expect("written");
    f.sync_all().expect("syncs");
}

/// What one repetition does, and the writes and flushes that it may cost.
type Operation = (&'static str, fn(&Setup, u64), u64);

const OPERATIONS: [Operation; 6] = [
    ("overwrite", overwrite, 1),
    ("append 512 bytes", append, 1),
    ("create", |s, i| make(s, &format!("d/c{i}"), i), 1),
    ("create and fsync of the directory", create_and_directory, 1),
    ("replacement by rename", replace, 2),
    ("nothing new", |s, _| fsync(&s.path("f")), 0),
];

fn overwrite(s: &Setup, i: u64) {
    let f = File::options().write(true).open(s.path("f")).expect("opens");
    f.write_all_at(&[i as u8; 4096], i * 8192).expect("written");
    f.sync_all().expect("syncs");
}

fn append(s: &Setup, i: u64) {
    let f = File::options().write(true).open(s.path("f")).expect("opens");
    f.write_all_at(&[i as u8; 512], (1 << 20) + i * 512).expect("written");
    f.sync_all().expect("syncs");
}

fn create_and_directory(s: &Setup, i: u64) {
    make(s, &format!("d/n{i}"), i);
    fsync(&s.path("d"));
}

fn replace(s: &Setup, i: u64) {
    make(s, "d/tmp", i);
    fs::rename(s.path("d/tmp"), s.path("d/target")).expect("renames");
    fsync(&s.path("d"));
}

/// Runs every operation [`TIMES`] times; `kernel` counts beside the daemon.
fn one_write_and_one_flush(s: &Setup, kernel: impl Fn() -> Counts) {
    make(s, "d/target", 0);
    for (name, operation, each) in OPERATIONS {
        settle(s);
        let before = (ours(s), kernel());
        (0..TIMES).for_each(|i| operation(s, i));
        let (ours, kernel) = (ours(s) - before.0, kernel() - before.1);
        println!("{name}: {ours:?} by us, {kernel:?} by the kernel");
        assert_eq!((kernel.writes, kernel.flushes), (each * TIMES, each * TIMES), "{name}");
        assert_eq!(ours, kernel, "{name}");
    }
}

fn chosen(s: &Setup) -> (String, String) {
    let device = &status(s)["runtime"]["devices"][0];
    let text = |name: &str| device[name].as_str().expect("text").to_owned();
    assert!(!text("why").is_empty());
    let shown = siftfs(&["status", s.dir()]).ok().out;
    assert!(shown.contains(&text("kind")) && shown.contains(&text("durable_write")), "{shown}");
    (text("kind"), text("durable_write"))
}

fn umount(s: &Setup) {
    support::patient(|| siftfs(&["umount", s.dir()])).ok();
}

#[test]
fn on_a_loop_device() {
    let tmp = tempfile::tempdir().expect("a directory");
    let device = Loop::over(&tmp.path().join("below"));
    let s = mounted(&device.0);
    assert_eq!(chosen(&s), ("block device".into(), "write, fdatasync".into()));
    one_write_and_one_flush(&s, || device.counts());
    umount(&s);
}

/// A file on ext4 on a loop device, whose statistics count.
#[test]
fn on_a_file_on_a_disk() {
    let tmp = tempfile::tempdir().expect("a directory");
    let device = Loop::over(&tmp.path().join("below"));
    let eager = "lazy_itable_init=0,lazy_journal_init=0";
    run("mkfs.ext4", &["-q", "-E", eager, &device.0]).ok();
    let disk = Mounted::new(&["-t", "ext4", "-o", "noatime,commit=3600", &device.0]);
    let s = mounted(&disk.file());
    assert_eq!(chosen(&s), ("file on ext4".into(), "RWF_DSYNC".into()));
    one_write_and_one_flush(&s, || device.counts());
    umount(&s);
}

/// Nothing reaches a disk from a file in memory, whatever is asked for: the kernel counts no byte
/// of the daemon's that is to be stored, and the daemon asks for what it always does.
#[test]
fn on_a_file_in_memory() {
    let memory = Mounted::new(&["-t", "tmpfs", "-o", "size=256M", "tmpfs"]);
    let s = mounted(&memory.file());
    assert_eq!(chosen(&s).0, "file on tmpfs");
    let pid = status(&s)["pid"].as_u64().expect("a process");
    let stored = |name: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/io")).expect("its I/O");
        let line = text.lines().find_map(|l| l.strip_prefix(&format!("{name}: ")));
        line.and_then(|n| n.parse::<u64>().ok()).expect("a count")
    };
    make(&s, "d/target", 0);
    for (name, operation, each) in OPERATIONS {
        settle(&s);
        let (before, bytes, handed) = (ours(&s), stored("write_bytes"), stored("wchar"));
        (0..TIMES).for_each(|i| operation(&s, i));
        let ours = ours(&s) - before;
        assert_eq!((ours.writes, ours.flushes), (each * TIMES, each * TIMES), "{name}");
        assert_eq!(stored("write_bytes"), bytes, "{name}: bytes for a disk");
        assert!(stored("wchar") - handed >= ours.bytes, "{name}: its writes are the kernel's");
    }
    umount(&s);
}

/// Writing a stream makes and drops a page for each 4 KiB: their memory is used again, and is not
/// the kernel's in between. Of 32,768 pages fewer than one in sixty-four is faulted in anew, once
/// the cache and the requests in flight have been at their largest: how much is in flight at once
/// is the kernel's and the scheduler's choice, so that one of the first streams may need more
/// memory than those before it. A stream that keeps nothing faults in all its pages every time.
#[test]
fn a_stream_keeps_its_memory() {
    let memory = Mounted::new(&["-t", "tmpfs", "-o", "size=512M", "tmpfs"]);
    let s = Setup::empty();
    siftfs(&["mkfs", &memory.file(), "--size", "448M"]).ok();
    siftfs(&["mount", &memory.file(), s.dir(), "-o", "cache=32M"]).ok();
    let pid = status(&s)["pid"].as_u64().expect("a process");
    let faults = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("its statistics");
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
        let minor = fields.and_then(|mut f| f.nth(7)).and_then(|n| n.parse::<u64>().ok());
        minor.expect("minor faults")
    };
    let stream = |name: &str| {
        let f = File::create(s.path(name)).expect("made");
        (0..128).for_each(|i| f.write_all_at(&[7; 1 << 20], i << 20).expect("written"));
        f.sync_all().expect("syncs");
    };
    stream("first");
    let anew = || {
        let before = faults();
        stream("second");
        faults() - before
    };
    let mut seen = Vec::new();
    while seen.len() < 8 && seen.last().is_none_or(|last| *last >= 512) {
        seen.push(anew());
    }
    println!("{seen:?} pages faulted in");
    assert!(seen.last().is_some_and(|last| *last < 512), "{seen:?} pages faulted in");
    umount(&s);
}

/// A file system of its own, taken away at the end.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().to_str().expect("a plain path");
        run("mount", &[args, &[at]].concat()).ok();
        Self(dir)
    }

    fn file(&self) -> String {
        self.0.path().join("volume").to_str().expect("a plain path").into()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: after a test that failed, the daemon may still have the volume open.
        run("umount", &["-l", self.0.path().to_str().expect("a plain path")]);
    }
}
