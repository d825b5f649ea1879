//! Commands that a script can rely on.

#[allow(dead_code)] // each test program uses a part of it
mod support;

use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{SIFTFS, Setup, first_options, run, siftfs, writes_back};

#[test]
fn the_life_of_a_volume() {
    let s = Setup::new();
    s.assert_plain_ext4();
    s.mount("commit=1");
    fs::create_dir(s.path("d")).unwrap();
    fs::write(s.path("d/f"), b"hello").unwrap();
    siftfs(&["sync", s.dir()]).ok();
    siftfs(&["checkpoint", s.dir(), "--json"]).ok();
    let status = siftfs(&["status", &format!("{}/d", s.dir()), "--json"]).ok();
    let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    assert_eq!(status["volume"], s.volume());
    assert_eq!(status["dir"], s.dir());
    assert_eq!(status["options"], format!("{}commit=1", first_options()));
    assert!(status["runtime"].is_object());
    assert!(siftfs(&["status", s.dir()]).ok().out.contains("pid"));
    let daemon = s.daemon();
    s.umount();
    daemon.wait();
    s.assert_plain_ext4();
    let again = siftfs(&["recover", s.volume(), "--json"]).ok();
    assert!(again.out.contains("\"clean\": true"), "{again:?}");
    s.mount("ro");
    assert_eq!(fs::read(s.path("d/f")).unwrap(), b"hello");
    let refused = File::create(s.path("new")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    s.umount();
}

/// After SIGKILL the next mount takes the dead one away and recovers.
#[test]
fn a_killed_daemon_is_recovered_by_the_next_mount() {
    let s = Setup::new();
    s.mount("");
    let mut f = File::create(s.path("f")).unwrap();
    f.write_all(b"kept").unwrap();
    f.sync_all().unwrap();
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    drop(f);
    siftfs(&["status", s.dir()]).fails(1, &[s.dir(), "daemon has died", "mount"]);
    let fsck = siftfs(&["fsck", s.volume()]);
    assert_eq!(fsck.code, 4, "{fsck:?}");
    assert!(fsck.out.contains("siftfs recover"), "{fsck:?}");
    s.mount("");
    assert_eq!(fs::read(s.path("f")).unwrap(), b"kept");
    s.umount();
    s.assert_plain_ext4();
}

#[test]
fn a_killed_daemon_is_recovered_without_a_mount() {
    let s = Setup::new();
    s.mount("");
    let f = File::create(s.path("f")).unwrap();
    f.sync_all().unwrap();
    drop(f);
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    siftfs(&["umount", s.dir()]).fails(1, &["not plain ext4 yet", "siftfs recover"]);
    let recovered = siftfs(&["recover", s.volume()]).ok();
    assert!(recovered.out.contains("plain ext4 now"), "{recovered:?}");
    s.assert_plain_ext4();
    s.mount("");
    assert!(s.path("f").exists());
    s.umount();
}

/// Without its log a volume opens only when its owner says so.
#[test]
fn a_lost_log_is_given_up_on_demand_only() {
    let s = Setup::new();
    s.mount("");
    fs::write(s.path("checkpointed"), b"x").unwrap();
    siftfs(&["checkpoint", s.dir()]).ok();
    File::create(s.path("in the log")).unwrap().sync_all().unwrap();
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    siftfs(&["umount", s.dir()]).fails(1, &[]);
    let given_up = siftfs(&["recover", "--discard-log", s.volume()]).ok();
    assert!(given_up.out.contains("e2fsck -f"), "{given_up:?}");
    let mended = run("e2fsck", &["-fy", s.volume()]);
    assert!(mended.code <= 1, "{mended:?}");
    s.mount("");
    assert!(s.path("checkpointed").exists() && !s.path("in the log").exists());
    s.umount();
    s.assert_plain_ext4();
}

/// A bare umount(2) makes the daemon close the volume and exit.
#[test]
fn a_bare_umount_closes_the_volume() {
    let s = Setup::new();
    s.mount("");
    fs::write(s.path("f"), b"x").unwrap();
    let daemon = s.daemon();
    s.bare_umount();
    daemon.wait();
    s.assert_plain_ext4();
    siftfs(&["umount", s.dir()]).fails(1, &["not a SiftFS mount"]);
}

#[test]
fn a_busy_mount_says_so_and_goes_lazily() {
    let s = Setup::new();
    s.mount("");
    let mut f = File::create(s.path("f")).unwrap();
    siftfs(&["umount", s.dir()]).fails(1, &[s.dir(), "in use", "--lazy"]);
    f.write_all(b"after the refusal").unwrap();
    let daemon = s.daemon();
    let lazy = Command::new(SIFTFS).args(["umount", "--lazy", s.dir()]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    f.write_all(b", and detached").unwrap();
    drop(f);
    assert!(lazy.wait_with_output().unwrap().status.success());
    daemon.wait();
    s.assert_plain_ext4();
    s.mount("");
    assert_eq!(fs::read(s.path("f")).unwrap(), b"after the refusal, and detached");
    s.umount();
}

/// SIGTERM unmounts; a program that keeps a file open cannot hold the volume for ever.
#[test]
fn a_signal_ends_the_daemon_cleanly() {
    let s = Setup::new();
    s.mount("");
    let daemon = s.daemon();
    daemon.signal(Signal::TERM);
    daemon.wait();
    s.assert_plain_ext4();
    s.mount("");
    let mut f = File::create(s.path("f")).unwrap();
    f.write_all(b"written before").unwrap();
    let daemon = s.daemon();
    daemon.signal(Signal::TERM);
    daemon.wait();
    let late = f.write_all(b"written after");
    // Kept back, it fails where it is asked for.
    let late = if writes_back("") { late.and_then(|()| f.sync_all()) } else { late };
    assert!(late.is_err());
    drop(f);
    s.assert_plain_ext4();
    s.mount("");
    assert_eq!(fs::read(s.path("f")).unwrap(), b"written before");
    s.umount();
}

#[test]
fn one_volume_has_one_mount() {
    let s = Setup::new();
    s.mount("");
    let other = s.tmp.path().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    siftfs(&["mount", s.volume(), other]).fails(1, &[s.volume()]);
    siftfs(&["mount", s.volume(), s.dir()]).fails(1, &["already mounted"]);
    siftfs(&["fsck", s.volume()]).fails(8, &[s.volume()]);
    siftfs(&["recover", s.volume()]).fails(8, &[s.volume()]);
    siftfs(&["mkfs", s.volume(), "--force"]).fails(1, &[s.volume()]);
    s.umount();
    let kernel = run("mount", &["-t", "ext4", "-o", "loop", s.volume(), other]);
    assert_eq!(kernel.code, 0, "{kernel:?}");
    siftfs(&["mount", s.volume(), s.dir()]).fails(1, &[s.volume()]);
    run("umount", &[other]).ok();
    s.assert_plain_ext4();
}

/// A bench is a program beside the command, which becomes it.
#[test]
fn benches_are_programs_beside_it() {
    let tmp = tempfile::tempdir().unwrap();
    let own = tmp.path().join("siftfs");
    fs::copy(SIFTFS, &own).unwrap();
    let siftfs = |args: &[&str]| run(own.to_str().unwrap(), args);
    for args in [&["bench"][..], &["bench", "paper-fig5"]] {
        siftfs(args).fails(1, &["no bench is beside", "cargo build"]);
    }
    let program = tmp.path().join("siftfs-paper-bench");
    fs::write(&program, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(siftfs(&["bench"]).ok().out, "paper (`siftfs bench paper --help`)\n");
    for (name, first) in [("paper-fig5", "fig5 "), ("paper", "")] {
        let ran = siftfs(&["bench", name, "--rounds", "2", "DIR"]);
        assert_eq!((ran.code, ran.out), (7, format!("{first}--rounds 2 DIR\n")));
        for help in ["--help", "-h", "--version", "help"] {
            assert_eq!(siftfs(&["bench", name, help]).out, format!("{first}{help}\n"));
        }
    }
    let own = siftfs(&["bench", "--help"]).ok();
    assert!(own.out.contains("siftfs bench [NAME [ARGUMENTS]...]"), "{own:?}");
    for name in ["other-fig5", "other", "../siftfs-paper", "help"] {
        siftfs(&["bench", name]).fails(1, &[name, "there is no such bench; there are paper"]);
    }
}

#[test]
fn wrong_usage_and_wrong_things() {
    let s = Setup::empty();
    siftfs(&[]).fails(2, &[]);
    siftfs(&["mkfs"]).fails(2, &[]);
    siftfs(&["mkfs", s.volume(), "--size", "large"]).fails(2, &["large"]);
    siftfs(&["mount", s.volume(), s.dir(), "-o", "speed"]).fails(2, &["unknown mount option"]);
    siftfs(&["mount", s.volume(), s.dir()]).fails(1, &[s.volume(), "No such file"]);
    siftfs(&["status", s.dir()]).fails(1, &["not on a SiftFS mount"]);
    siftfs(&["umount", s.dir()]).fails(1, &["not a SiftFS mount"]);
    siftfs(&["mkfs", s.volume(), "--size", "64K"]).fails(1, &[]);
    fs::write(s.volume(), vec![0; 16 << 20]).unwrap();
    siftfs(&["mount", s.volume(), s.dir()]).fails(1, &[s.volume()]);
    let fsck = siftfs(&["fsck", s.volume()]);
    assert_eq!(fsck.code, 8, "{fsck:?}");
    siftfs(&["mkfs", s.volume(), "--size", "64M", "--force"]).ok();
    siftfs(&["mkfs", s.volume(), "--size", "64M"]).fails(1, &["--force"]);
    siftfs(&["mount", s.volume(), s.volume()]).fails(1, &["not a directory"]);
    s.assert_plain_ext4();
}

#[test]
fn the_foreground_ends_with_the_mount() {
    let s = Setup::new();
    let mut child = Command::new(SIFTFS)
        .args(["mount", "--foreground", s.volume(), s.dir(), "-o", "subtype=,nosuid"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while siftfs(&["status", s.dir()]).code != 0 {
        assert!(Instant::now() < end, "never usable");
        std::thread::sleep(Duration::from_millis(20));
    }
    let entry = siftfs_fuse::top_mount(std::path::Path::new(s.dir())).unwrap().unwrap();
    assert_eq!(entry.fs_type, "fuse");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|l| l.contains(s.dir())).unwrap();
    assert!(line.contains("nosuid") && line.contains("default_permissions"), "{line}");
    s.umount();
    assert!(child.wait().unwrap().success());
}

/// mount(8) calls a helper by name; the log goes where it was told.
#[test]
fn called_by_mount_and_with_a_log() {
    let s = Setup::new();
    let helper = s.tmp.path().join("mount.siftfs");
    std::os::unix::fs::symlink(SIFTFS, &helper).unwrap();
    run(helper.to_str().unwrap(), &[s.volume(), s.dir(), "-n", "-o", "rw,noatime"]).ok();
    s.umount();
    let log = s.tmp.path().join("log");
    siftfs(&["mount", s.volume(), s.dir(), "--log-file", log.to_str().unwrap()]).ok();
    s.umount();
    assert!(fs::read_to_string(&log).unwrap().contains("mounted"));
}

/// The control socket is for root and the mounting user.
#[test]
fn strangers_get_no_status() {
    let s = Setup::new();
    s.mount("");
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let copy = s.tmp.path().join("siftfs");
    fs::copy(SIFTFS, &copy).unwrap();
    for dir in [s.tmp.path(), &s.path("")] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir, open).unwrap();
    }
    let args = [&user[..], &[copy.to_str().unwrap(), "status", s.dir()]].concat();
    run("setpriv", &args).fails(1, &["only root"]);
    s.umount();
}
