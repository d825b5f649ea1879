//! Programs of the system that `siftfs` waits for, and what it makes of their ends.

use crate::support::{Ran, SIFTFS, Setup};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs the program where `name` is this script.
fn with_fake(s: &Setup, name: &str, script: &str, args: &[&str]) -> Ran {
    let dir = s.tmp.path().join("fake");
    fs::create_dir_all(&dir).unwrap();
    let fake = dir.join(name);
    fs::write(&fake, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&fake, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default());
    Command::new(SIFTFS).args(args).env("PATH", path).output().unwrap().into()
}

/// An e2fsck that goes in circles is ended, and reported once. If it had found damage before, the
/// volume counts as damaged.
#[test]
fn a_loop_of_e2fsck_ends() {
    let s = Setup::new();
    let fsck = ["fsck", s.volume(), "--timeout", "1"];
    for (script, code) in [
        ("while :; do :; done", 8),
        ("trap '' TERM; while :; do :; done", 8),
        ("echo 'Inode 12 is strange.  Fix? no'; while :; do :; done", 4),
        // Beginning anew is not getting further.
        ("fd=${2#-C}; while :; do eval \"echo 1 5 9 /x >&$fd\"; done", 8),
    ] {
        let start = Instant::now();
        let ran = with_fake(&s, "e2fsck", script, &fsck);
        assert_eq!(ran.code, code, "{script}: {ran:?}");
        assert!(start.elapsed() < Duration::from_secs(60), "{script}");
        assert_eq!(ran.out.matches("without getting further").count(), 1, "{ran:?}");
        assert!(ran.out.contains("--timeout") && ran.err.is_empty(), "{ran:?}");
    }
    let json = with_fake(&s, "e2fsck", "while :; do :; done", &[&fsck[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert!(report["e2fsck_exit"].is_null() && report["clean"] == false, "{report}");
    assert!(report["e2fsck_trouble"].as_str().unwrap().contains("killed"), "{report}");
}

/// An e2fsck that works slowly is waited for: it sleeps, or says that it gets further.
#[test]
fn slow_work_of_e2fsck_is_waited_for() {
    let s = Setup::new();
    let fsck = ["fsck", s.volume(), "--timeout", "1"];
    let ran = with_fake(&s, "e2fsck", "sleep 3; exit 0", &fsck);
    assert_eq!(ran.code, 0, "{ran:?}");
    // Its own processor time, without another process to ask for it.
    let steps = "fd=${2#-C}; for i in 1 2 3 4 5 6; do eval \"echo 1 $i 9 /x >&$fd\"; u=0; \
                 while [ $u -lt ${i}0 ]; do read -r a b c d e f g h j k l m n u o < /proc/$$/stat; done; \
                 done; exit 0";
    let ran = with_fake(&s, "e2fsck", steps, &fsck);
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// Each bit of e2fsck's exit status, for a read-only check and for one that repairs.
#[test]
fn the_bits_of_e2fsck() {
    let s = Setup::new();
    for (bits, looks, repairs) in [
        (0, 0, 0),
        (1, 4, 1),
        (2, 4, 1),
        (3, 4, 1),
        (4, 4, 4),
        (5, 4, 4),
        (8, 8, 8),
        (9, 4, 8),
        (12, 4, 4),
        (13, 4, 4),
        (16, 8, 8),
        (32, 8, 8),
        (36, 4, 4),
        (128, 8, 8),
    ] {
        let script = format!("exit {bits}");
        let ran = with_fake(&s, "e2fsck", &script, &["fsck", s.volume()]);
        assert_eq!(ran.code, looks, "{bits}: {ran:?}");
        let ran = with_fake(&s, "e2fsck", &script, &["fsck", "--repair", "all", s.volume()]);
        assert_eq!(ran.code, repairs, "{bits}: {ran:?}");
    }
    let ran = with_fake(&s, "e2fsck", "kill -SEGV $$", &["fsck", s.volume()]);
    assert_eq!(ran.code, 8, "{ran:?}");
    assert_eq!(ran.out.matches("killed by signal 11").count(), 1, "{ran:?}");
    let ran = with_fake(&s, "e2fsck", "echo 'Clear? no'; kill -SEGV $$", &["fsck", s.volume()]);
    assert_eq!(ran.code, 4, "{ran:?}");
}

/// The child ends with the program that started it, however that ends.
#[test]
fn no_child_is_left_behind() {
    let s = Setup::new();
    let dir = s.tmp.path().join("fake");
    let pid_file = s.tmp.path().join("pid");
    let script =
        format!("trap '' TERM; echo $$ > {}; while :; do sleep 1; done", pid_file.display());
    fs::create_dir_all(&dir).unwrap();
    let fake = dir.join("e2fsck");
    fs::write(&fake, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&fake, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default());
    let mut fsck =
        Command::new(SIFTFS).args(["fsck", s.volume()]).env("PATH", path).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let pid = loop {
        assert!(Instant::now() < end, "e2fsck never began");
        match fs::read_to_string(&pid_file) {
            Ok(pid) if pid.ends_with('\n') => break pid.trim().to_string(),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    fsck.kill().unwrap();
    fsck.wait().unwrap();
    while std::path::Path::new("/proc").join(&pid).exists() {
        assert!(Instant::now() < end + Duration::from_secs(20), "e2fsck goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}
