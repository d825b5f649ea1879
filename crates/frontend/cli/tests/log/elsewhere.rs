//! Volumes whose log was put elsewhere when they were made.

use crate::setup::{Apart, Loop, clean, umount};
use crate::support::run;
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn the_life_of_a_volume_with_its_log_elsewhere() {
    let s = Apart::new();
    assert_eq!(fs::metadata(s.volume()).unwrap().len(), 32 << 20, "the volume is ext4 alone");
    assert_eq!(fs::metadata(s.log()).unwrap().len(), 8 << 20);
    s.assert_plain_ext4();
    s.mount();
    fs::create_dir(s.path("d")).unwrap();
    fs::write(s.path("d/f"), vec![7; 300_000]).unwrap();
    assert_eq!(s.status()["log"], s.log());
    assert_eq!(s.status()["volume"], s.volume());
    s.siftfs(&["status", &s.dir(), "--log", &s.log()]).ok();
    s.siftfs(&["status", &s.dir(), "--log", &s.volume()]).fails(1, &["its log is", &s.log()]);
    s.siftfs(&["umount", &s.dir(), "--log", &s.volume()]).fails(1, &["its log is"]);
    s.siftfs(&["umount", &s.dir(), "--log", &s.log()]).ok();
    s.assert_plain_ext4();
    s.kernel("ro", |m| assert_eq!(fs::read(m.join("d/f")).unwrap(), vec![7; 300_000]));
}

#[test]
fn a_log_is_said_or_found() {
    let s = Apart::new();
    let (volume, dir) = (s.volume(), s.dir());
    let moved = s.text("elsewhere");
    fs::rename(s.log(), &moved).unwrap();
    // What is remembered is a hint, and wrong now.
    s.siftfs(&["mount", &volume, &dir]).fails(1, &[&volume, "was not found", "--log"]);
    s.siftfs(&["mount", &volume, &dir, "--log", &s.log()]).fails(1, &["No such file"]);
    s.siftfs(&["mount", &volume, &dir, "-o", &format!("ro,log={moved}")]).ok();
    s.umount();
    s.siftfs(&["mount", &volume, &dir]).ok();
    s.umount();
    s.forget();
    s.siftfs(&["recover", &volume]).fails(8, &["was not found"]);
    s.siftfs(&["recover", &volume, "--log", &moved]).ok();
    s.siftfs(&["recover", &volume]).ok();
    s.forget();
    fs::rename(&moved, format!("{volume}.log")).unwrap();
    s.mount();
    assert_eq!(s.status()["log"], format!("{volume}.log"));
    s.umount();
    s.assert_plain_ext4();
}

/// On block devices nothing needs to be said or remembered: every device is searched.
#[test]
fn a_log_on_a_block_device_is_found_by_its_uuid() {
    let s = Apart::empty();
    let (area, log) = (s.text("area"), s.text("log.img"));
    fs::File::create(&area).unwrap().set_len(40 << 20).unwrap();
    fs::File::create(&log).unwrap().set_len(6 << 20).unwrap();
    let (area_dev, log_dev) = (Loop::over(&area), Loop::over(&log));
    symlink(&area_dev.0, s.volume()).unwrap();
    let mkfs = ["mkfs", &area_dev.0, "--log", &log_dev.0];
    s.siftfs(&[&mkfs[..], &["--log-size", "7M"]].concat()).fails(1, &["fewer than asked for"]);
    s.siftfs(&mkfs).ok();
    s.forget();
    s.crash_with("kept");
    assert_eq!(s.siftfs(&["fsck", &area_dev.0]).code, 4);
    s.forget();
    s.siftfs(&["recover", &area_dev.0]).ok();
    s.mount();
    assert_eq!(fs::read(s.path("kept")).unwrap(), b"kept");
    assert_eq!(s.status()["log"], log_dev.0);
    let other = s.siftfs(&["mkfs", &s.text("other"), "--size", "16M", "--log", &log_dev.0]);
    other.fails(1, &["in use by"]);
    s.umount();
    clean(&area_dev.0);
    // A second device with the same log: SiftFS cannot tell which one is meant.
    let copy = s.text("copy.img");
    fs::copy(&log, &copy).unwrap();
    let copy_dev = Loop::over(&copy);
    s.forget();
    let both = [&log_dev.0[..], &copy_dev.0];
    s.siftfs(&["mount", &area_dev.0, &s.dir()]).fails(1, &both);
    s.siftfs(&["mount", &area_dev.0, &s.dir(), "--log", &log_dev.0]).ok();
    s.umount();
    clean(&area_dev.0);
}

#[test]
fn places_that_a_log_cannot_have() {
    let s = Apart::empty();
    let (volume, log) = (s.volume(), s.log());
    let mkfs = |more: &[&str]| {
        let base = ["mkfs", &volume, "--size", "32M"];
        s.siftfs(&[&base[..], more].concat())
    };
    mkfs(&["--log", &log]).fails(1, &["--log-size"]);
    mkfs(&["--log", &log, "--log-size", "1M"]).fails(1, &["too small", "at least 3276800 bytes"]);
    mkfs(&["--log", &log, "--log-size", "much"]).fails(2, &["much"]);
    mkfs(&["--log", &volume, "--log-size", "8M"]).fails(1, &["another file or device"]);
    mkfs(&["--log", &s.dir(), "--log-size", "8M"]).fails(1, &["neither a regular file nor"]);
    mkfs(&["--log", &s.text("no/where"), "--log-size", "8M"]).fails(1, &["No such file"]);
    for file in [&volume, &log] {
        assert!(!fs::exists(file).unwrap(), "{file}: nothing was made");
    }
    fs::write(&log, "precious").unwrap();
    mkfs(&["--log", &log, "--log-size", "8M"]).fails(1, &[&log, "holds data already", "--force"]);
    assert_eq!(fs::read(&log).unwrap(), b"precious");
    mkfs(&["--log", &log, "--log-size", "8M", "--force"]).ok();
    // The log of a volume is no free place, mounted or not.
    let other = s.text("other");
    let again = ["mkfs", &other, "--size", "32M", "--log", &log, "--log-size", "8M"];
    s.siftfs(&again).fails(1, &[&log, "log", "of a volume already"]);
    s.mount();
    s.siftfs(&again).fails(1, &[&log, "in use by"]);
    s.siftfs(&[&again[..], &["--force"]].concat()).fails(1, &[&log, "in use by"]);
    s.umount();
    s.assert_plain_ext4();
}

#[test]
fn a_log_on_a_mounted_device_is_refused() {
    let s = Apart::empty();
    let file = s.text("mounted.img");
    fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
    run("mke2fs", &["-q", "-F", &file]).ok();
    let device = Loop::over(&file);
    run("mount", &[&device.0, &s.dir()]).ok();
    for log in [&device.0, &file] {
        let mkfs =
            ["mkfs", &s.volume(), "--size", "32M", "--log", log, "--log-size", "8M", "--force"];
        s.siftfs(&mkfs).fails(1, &[log, "mounted on", &s.dir()]);
    }
    umount(&s.dir());
    clean(&file);
}

#[test]
fn what_is_given_in_place_of_a_log() {
    let s = Apart::new();
    let (volume, log, dir) = (s.volume(), s.log(), s.dir());
    let with = |log: &str| s.siftfs(&["mount", &volume, &dir, "--log", log]);
    let whole = s.text("whole");
    s.siftfs(&["mkfs", &whole, "--size", "32M"]).ok();
    with(&whole).fails(1, &["holds its own log"]);
    with(&volume).fails(1, &["the volume itself"]);
    fs::write(s.text("zeros"), vec![0; 8 << 20]).unwrap();
    with(&s.text("zeros")).fails(1, &["no log is on the device"]);
    s.siftfs(&["mount", &log, &dir]).fails(1, &["log", "and not the volume"]);
    s.siftfs(&["mount", &whole, &dir, "--log", &log]).fails(1, &["belongs to another volume"]);
    let cut = s.text("cut");
    fs::write(&cut, &fs::read(&log).unwrap()[..7 << 20]).unwrap();
    with(&cut).fails(1, &["truncated"]);
    s.siftfs(&["fsck", &volume, "--log", &cut]).fails(4, &[]);
    s.siftfs(&["recover", &volume, "--log", &cut]).fails(4, &["truncated"]);
    s.assert_plain_ext4();
}
