//! Mounts that are refused: with one message that says why and what to do, and nobody else notices.

use crate::support::{Ran, SIFTFS, Setup, siftfs};
use crate::{Beside, THROUGH, places, shared, status};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The first mount is as it was, and takes another one.
#[track_caller]
fn undisturbed(s: &Setup) {
    assert_eq!(places(s.dir()), [s.dir()]);
    fs::write(s.path("undisturbed"), "works").unwrap();
    let dir = Beside::of(s, "undisturbed");
    dir.attach(s, "").ok();
    assert_eq!(fs::read(dir.path("undisturbed")).unwrap(), b"works");
    dir.umount();
    fs::remove_dir(dir.dir()).unwrap();
}

/// It is one message of one line.
#[track_caller]
fn refused(ran: Ran, parts: &[&str]) {
    let ran = ran.fails(1, parts);
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

/// Without `shared` the first mount keeps its locks to itself: no second one.
#[test]
fn without_shared() {
    let s = Setup::new();
    s.mount("");
    let dir = Beside::of(&s, "other");
    let pid = status(s.dir())["pid"].to_string();
    let umount = format!("siftfs umount {}", s.dir());
    refused(dir.attach(&s, ""), &[s.volume(), s.dir(), &pid, "-o shared", &umount]);
    refused(dir.attach(&s, "shared"), &["without the option `shared`"]);
    assert!(!dir.is_mounted());
    assert_eq!(places(s.dir()), [s.dir()]);
    fs::write(s.path("file"), "works").unwrap();
    s.umount();
    s.assert_plain_ext4();
}

/// What belongs to the volume is refused by name, unless it is as it is; so is the writeback cache.
#[test]
fn options_of_the_volume() {
    let s = Setup::new();
    let log = s.tmp.path().join("daemon.log");
    let log = log.to_str().unwrap();
    s.mount(&format!("{THROUGH},shared,commit=7,cache=32M,log_file={log}"));
    let dir = Beside::of(&s, "other");
    for word in [
        "commit=8",
        "cache=64M",
        "meta_cache=8M",
        "noatime",
        "discard=off",
        "replay=ordered",
        "metrics=127.0.0.1:1",
        "log=/dev/null",
        "log_file=/nowhere/else",
        "service=unix:/nowhere",
        "fsyncs=shared",
    ] {
        let (name, _) = word.split_once('=').unwrap_or((word, ""));
        refused(dir.attach(&s, word), &[name, "belongs to the volume"]);
    }
    refused(dir.attach(&s, "write_cache=writeback"), &["write_cache=writeback", "exclude"]);
    siftfs(&["mount", s.volume(), dir.dir(), "--foreground", "-o", THROUGH])
        .fails(1, &["--foreground"]);
    dir.attach(&s, "nothing_such").fails(2, &["unknown mount option `nothing_such`"]);
    assert!(!dir.is_mounted());
    // The same is no change.
    let same = format!("commit=7,cache=32M,log_file={log},relatime,async,defaults");
    dir.attach(&s, &same).ok();
    dir.umount();
    undisturbed(&s);
    s.umount();
    s.assert_plain_ext4();
}

/// The directory is one as for a first mount: there, and not of ours already.
#[test]
fn the_directory() {
    let s = shared();
    let dir = Beside::of(&s, "other");
    dir.attach(&s, "").ok();
    refused(dir.attach(&s, ""), &["already mounted", s.volume()]);
    refused(siftfs(&["mount", s.volume(), s.dir(), "-o", THROUGH]), &["already mounted"]);
    dir.umount();
    fs::write(s.tmp.path().join("file"), "").unwrap();
    for (name, why) in [("file", "not a directory"), ("missing", "No such file")] {
        let place = s.tmp.path().join(name);
        let place = place.to_str().unwrap();
        refused(siftfs(&["mount", s.volume(), place, "-o", THROUGH]), &[why]);
    }
    // Something else that is mounted there is covered, as by a first mount.
    mount_tmpfs(dir.dir());
    dir.attach(&s, "").ok();
    fs::write(s.path("file"), "seen").unwrap();
    assert_eq!(fs::read(dir.path("file")).unwrap(), b"seen");
    dir.umount();
    assert!(dir.is_mounted() && !dir.path("file").exists());
    // And a directory of the volume itself.
    fs::create_dir(s.path("inside")).unwrap();
    let inside = s.path("inside");
    siftfs(&["mount", s.volume(), inside.to_str().unwrap(), "-o", THROUGH]).ok();
    assert_eq!(fs::read(inside.join("file")).unwrap(), b"seen");
    siftfs(&["umount", s.dir()]).fails(1, &["in use", "is mounted below it"]);
    siftfs(&["umount", inside.to_str().unwrap()]).ok();
    undisturbed(&s);
    s.umount();
    s.assert_plain_ext4();
}

fn mount_tmpfs(dir: &str) {
    let out = Command::new("mount").args(["-t", "tmpfs", "none", dir]).output().unwrap();
    assert!(out.status.success(), "{out:?}");
}

/// Another user than root and the daemon's own.
#[test]
fn another_user() {
    let s = shared();
    for path in [s.tmp.path(), s.volume().as_ref()] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let dir = Beside::of(&s, "other");
    let mut command = Command::new(SIFTFS);
    command.args(["mount", s.volume(), dir.dir(), "-o", THROUGH]).uid(65_534).gid(65_534);
    refused(command.output().unwrap().into(), &["mounted by another user", "root"]);
    assert!(!dir.is_mounted());
    undisturbed(&s);
    s.umount();
    s.assert_plain_ext4();
}

/// A command in another mount namespace than the daemon.
#[test]
fn another_namespace() {
    let s = shared();
    let dir = Beside::of(&s, "other");
    let mut command = Command::new("unshare");
    command.args(["--mount", SIFTFS, "mount", s.volume(), dir.dir(), "-o", THROUGH]);
    let pid = status(s.dir())["pid"].to_string();
    refused(command.output().unwrap().into(), &["another mount namespace", &pid]);
    assert!(!dir.is_mounted());
    undisturbed(&s);
    s.umount();
    s.assert_plain_ext4();
}

/// More than a bound.
#[test]
fn too_many() {
    let s = shared();
    let mut dirs = Vec::new();
    let over = loop {
        let dir = Beside::of(&s, &format!("d{}", dirs.len()));
        let ran = dir.attach(&s, "threads=1,requests=device");
        if ran.code != 0 {
            break ran;
        }
        dirs.push(dir);
        assert!(dirs.len() < 100, "no bound");
    };
    refused(over, &["too often"]);
    assert_eq!(places(s.dir()).len(), 64);
    for dir in dirs {
        dir.umount();
    }
    undisturbed(&s);
    s.umount();
    s.assert_plain_ext4();
}
