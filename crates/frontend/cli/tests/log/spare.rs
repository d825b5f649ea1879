//! Volumes whose log has a spare one.

use crate::setup::Apart;
use crate::support::{Ran, run};
use std::fs;
use std::io::Write;

/// A fresh volume with a log of 8 MiB and a spare one.
fn new() -> Apart {
    let s = Apart::empty();
    let made = with(&s, &["--log-spare", &s.text("other")]).ok();
    assert!(made.out.contains("a spare log of 256.0 MiB"), "{made:?}");
    s
}

/// Makes the volume with a log, and what is asked for `more`.
fn with(s: &Apart, more: &[&str]) -> Ran {
    let mkfs = ["mkfs", &s.volume(), "--size", "32M", "--log", &s.log(), "--log-size", "8M"];
    s.siftfs(&[&mkfs[..], more].concat())
}

#[test]
fn the_life_of_a_volume_with_a_spare_log() {
    let s = new();
    s.crash_with("kept");
    s.mount();
    assert_eq!(fs::read(s.path("kept")).unwrap(), b"kept");
    let log = s.status()["spare_log"].clone();
    assert_eq!((&log["state"], &log["path"]), (&"first".into(), &s.text("other").into()), "{log}");
    assert_eq!((&log["stalls"], &log["lacking_bytes"]), (&0.into(), &0.into()), "{log}");
    let text = s.siftfs(&["status", &s.dir()]).ok().out;
    assert!(text.contains("not needed now; 0 stall(s)"), "{text}");
    s.siftfs(&["mount", &s.volume(), &s.dir(), "-o", "remount,log_stall=250"]).ok();
    s.umount();
    s.assert_plain_ext4();
    let released = s.siftfs(&["release", &s.volume()]).ok();
    assert!(released.out.contains("plain ext4"), "{released:?}");
    let adopt = ["adopt", &s.volume(), "--log", &s.log(), "--log-spare", &s.text("other")];
    s.siftfs(&[&adopt[..], &["--force"]].concat()).ok();
    s.crash_with("again");
    s.siftfs(&["recover", &s.volume()]).ok();
    s.assert_plain_ext4();
}

#[test]
fn a_spare_log_is_said_or_found_and_needed() {
    let s = new();
    let (volume, dir, moved) = (s.volume(), s.dir(), s.text("elsewhere"));
    s.crash_with("kept");
    fs::rename(s.text("other"), &moved).unwrap();
    s.siftfs(&["mount", &volume, &dir]).fails(1, &["spare log", "--log-spare"]);
    s.siftfs(&["recover", &volume]).fails(8, &["spare log"]);
    let judged = |more: &[&str], parts: &[&str]| {
        let ran = s.siftfs(&[&["fsck", &volume][..], more].concat());
        let says = parts.iter().all(|part| ran.out.contains(part));
        assert!(ran.code == 4 && says, "{ran:?}");
    };
    judged(&[], &["spare log was not found", "--log-spare"]);
    judged(&["--log-spare", &moved], &["recover"]);
    s.siftfs(&["mount", &volume, &dir, "--log-spare", &moved]).ok();
    s.umount();
    s.siftfs(&["mount", &volume, &dir]).ok();
    s.umount();
    s.forget();
    s.siftfs(&["mount", &volume, &dir, "--log", &s.log()]).fails(1, &["--log-spare"]);
    fs::rename(&moved, format!("{volume}.spare")).unwrap();
    s.siftfs(&["mount", &volume, &dir, "--log", &s.log()]).ok();
    assert_eq!(fs::read(s.path("kept")).unwrap(), b"kept");
    s.umount();
    s.assert_plain_ext4();
    // It is lost for good.
    fs::remove_file(format!("{volume}.spare")).unwrap();
    s.siftfs(&["recover", "--discard-log", &volume]).ok();
    s.kernel("ro", |m| assert_eq!(fs::read(m.join("kept")).unwrap(), b"kept"));
}

#[test]
fn what_a_spare_log_cannot_be() {
    let s = Apart::empty();
    let (volume, log, spare) = (s.volume(), s.log(), s.text("other"));
    let with = |more: &[&str]| with(&s, more);
    s.siftfs(&["mkfs", &volume, "--size", "32M", "--log-spare", &spare]).fails(2, &["--log"]);
    with(&["--log-spare", &log]).fails(1, &["the log itself"]);
    with(&["--log-spare", &volume]).fails(1, &["the volume itself"]);
    with(&["--log-spare", &spare, "--redo-lane", "64M"]).fails(1, &["redo lane"]);
    fs::write(&spare, vec![1; 1 << 20]).unwrap();
    with(&["--log-spare", &spare, "--force"]).fails(1, &["too small"]);
    fs::write(&spare, vec![1; 17 << 20]).unwrap();
    with(&["--log-spare", &spare]).fails(1, &["spare log", "holds data"]);
    fs::remove_file(&spare).unwrap();
    with(&["--log-spare", &spare]).ok();
    let device = ["device", &volume, "--listen", &format!("unix:{}", s.text("socket"))];
    s.siftfs(&device).fails(1, &["spare log", "one process"]);
    let plain = Apart::new();
    let (volume, dir) = (plain.volume(), plain.dir());
    let more = ["mount", &volume, &dir, "--log-spare", &spare];
    plain.siftfs(&more).fails(1, &["has no spare log"]);
}

/// A file system with room for 12 MiB, taken away at the end.
struct Small(String);

impl Small {
    fn at(dir: String) -> Self {
        fs::create_dir(&dir).unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=12M", "tmpfs", &dir]).ok();
        Self(dir)
    }

    /// No block is free any more, and what has only zeroes has no blocks.
    fn fill(&self, sparse: &str) {
        run("fallocate", &["--dig-holes", sparse]).ok();
        let mut full = fs::File::create(format!("{}/full", self.0)).unwrap();
        while full.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        run("umount", &["-l", &self.0]);
    }
}

/// Writes and syncs a file of this name.
fn sync(s: &Apart, name: &str) {
    let mut file = fs::File::create(s.path(name)).unwrap();
    file.write_all(&name.repeat(20_000).into_bytes()).unwrap();
    file.sync_all().unwrap();
}

fn assert_there(s: &Apart, names: &[&str]) {
    for name in names {
        assert!(fs::read(s.path(name)).unwrap() == name.repeat(20_000).into_bytes(), "{name}");
    }
}

/// The log's device fails under a mount, here because there is no block left for it: fsyncs go on,
/// and from then on the spare log is the log, whether or not the other one is there, named, or
/// found as it was.
#[test]
fn a_log_that_fails_is_left_for_good() {
    let s = Apart::empty();
    let small = Small::at(s.text("small"));
    let (volume, dir, log) = (s.volume(), s.dir(), s.text("small/log"));
    let mkfs = ["mkfs", &volume, "--size", "32M", "--log", &log, "--log-size", "8M"];
    s.siftfs(&[&mkfs[..], &["--log-spare", &s.text("other")]].concat()).ok();
    s.mount();
    sync(&s, "before");
    s.umount();
    fs::copy(&log, s.text("stale")).unwrap();
    s.mount();
    let state = || s.status()["spare_log"]["state"].clone();
    assert_eq!(state(), "first");
    small.fill(&log);
    ["a", "b", "c"].iter().for_each(|name| sync(&s, name));
    assert_eq!(state(), "alone");
    let text = s.siftfs(&["status", &dir]).ok().out;
    assert!(text.contains("this is the log alone"), "{text}");
    s.kill();
    let fsck = s.siftfs(&["fsck", &volume]);
    assert!(fsck.code == 4 && fsck.out.contains("recover"), "{fsck:?}");
    drop(small);
    s.mount();
    assert_there(&s, &["before", "a", "b", "c"]);
    sync(&s, "d");
    s.kill();
    s.siftfs(&["mount", &volume, &dir, "--log", &log]).ok();
    assert_there(&s, &["d"]);
    assert_eq!(state(), "alone");
    s.umount();
    s.assert_plain_ext4();
    fs::rename(s.text("stale"), &log).unwrap();
    s.siftfs(&["mount", &volume, &dir, "--log", &log]).ok();
    assert_there(&s, &["before", "a", "b", "c", "d"]);
    s.umount();
    let adopt = ["adopt", &volume, "--log", &log, "--log-spare", &s.text("other"), "--force"];
    s.siftfs(&["release", &volume]).ok();
    s.siftfs(&adopt).ok();
    s.mount();
    assert_eq!(state(), "first");
    assert_there(&s, &["before", "a", "b", "c", "d"]);
    s.umount();
    s.assert_plain_ext4();
}

/// A spare log that is shorter than the log and what a stall needs helps against stalls alone.
#[test]
fn a_spare_log_without_room_for_the_log_is_said_to_be_so() {
    let s = Apart::empty();
    fs::write(s.text("other"), vec![0; 20 << 20]).unwrap();
    let made = with(&s, &["--log-spare", &s.text("other")]).ok();
    assert!(made.out.contains("too small to be the log alone"), "{made:?}");
    s.mount();
    assert_eq!(s.status()["spare_log"]["may_stand_alone"], false);
    s.umount();
}
