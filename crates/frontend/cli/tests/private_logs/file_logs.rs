//! Programs whose fsync(2) is one write of their own, on a real mount.

use crate::deaths::kill_daemon;
use crate::support::{Setup, run, siftfs};
use crate::{Held, LOGS, counted, lease, mounted, open, told};
use siftfs_accel::{Session, Through};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the logs of a volume lie.
fn logs_of(s: &Setup) -> PathBuf {
    PathBuf::from(format!("{}.logs", s.volume()))
}

/// How many files there are.
fn files_in(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

#[track_caller]
fn sync(held: &Held) {
    assert_eq!(held.leased.sync(false).unwrap(), Through::Lease(()));
}

/// Neither kernel nor daemon has a part in it; what was synced is there when the daemon was killed,
/// and after the end nothing is left of the logs.
#[test]
fn a_sync_is_the_programs_own() {
    let s = mounted();
    let held = Held::of(&s.path("f"));
    sync(&held);
    assert_eq!(told(&s)["file_logs"], 1);
    assert_eq!(files_in(&logs_of(&s)), 2, "a registry and a log");
    let kinds = ["WRITE", "FSYNC", "IOCTL", "GETATTR"];
    let before = counted(&s, kinds);
    for n in 0..200 {
        held.append(format!("line {n}\n").as_bytes());
        sync(&held);
    }
    assert_eq!(counted(&s, kinds), before);
    assert_eq!(told(&s)["records"], 0, "the daemon has taken nothing in");
    let wanted: String = (0..200).map(|n| format!("line {n}\n")).collect();
    kill_daemon(&s);
    drop(held);
    s.mount(LOGS);
    assert_eq!(fs::read_to_string(s.path("f")).unwrap(), wanted);
    s.umount();
    s.assert_plain_ext4();
    assert_eq!(files_in(&logs_of(&s)), 0);
}

/// The daemon dies, and programs go on for as long as its words count: whatever they were told is
/// durable is there. Recovery waits for them.
#[test]
fn r37_what_a_program_syncs_after_its_daemon_died_is_there() {
    let s = mounted();
    let held = Held::of(&s.path("f"));
    sync(&held);
    let killed = std::sync::atomic::AtomicBool::new(false);
    let synced = std::thread::scope(|scope| {
        let program = scope.spawn(|| {
            let mut synced = 0;
            while held.leased.append(b"12345678") != Through::Mount
                && held.leased.sync(false).unwrap() != Through::Mount
            {
                synced += 8;
                if synced == 80 {
                    killed.store(true, std::sync::atomic::Ordering::SeqCst);
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            synced
        });
        while !killed.load(std::sync::atomic::Ordering::SeqCst) {
            std::thread::yield_now();
        }
        kill_daemon(&s);
        // At once, while the program goes on.
        s.mount(LOGS);
        program.join().unwrap()
    });
    let there = fs::metadata(s.path("f")).unwrap().len();
    assert!(there >= synced, "{there} of {synced} bytes");
    drop(held);
    s.umount();
    s.assert_plain_ext4();
}

/// Everybody dies: `siftfs recover` says what it took in.
#[test]
fn recover_takes_logs_in() {
    let s = mounted();
    let held = Held::of(&s.path("f"));
    sync(&held);
    held.append(b"durable");
    sync(&held);
    kill_daemon(&s);
    drop(held);
    run("umount", &["-l", s.dir()]).ok();
    let logs = logs_of(&s);
    let aside = logs.with_extension("aside");
    fs::rename(&logs, &aside).unwrap();
    siftfs(&["recover", s.volume()]).fails(8, &["--discard-log"]);
    let checked = siftfs(&["fsck", s.volume()]).fails(4, &[]).out;
    assert!(checked.contains("logs of programs in"), "{checked}");
    fs::rename(&aside, &logs).unwrap();
    let said = siftfs(&["recover", s.volume()]).ok().out;
    assert!(said.contains("1 records of 1 batches"), "{said}");
    s.assert_plain_ext4();
    s.mount(LOGS);
    assert_eq!(fs::read(s.path("f")).unwrap(), b"durable");
    s.umount();
}

/// Programs beside each other, of one mount and of two: each has a log.
#[test]
fn each_program_has_a_log() {
    let s = mounted();
    let (one, other) = (Held::of(&s.path("f")), Held::of(&s.path("g")));
    let third = {
        let file = open(&s.path("h"));
        let leased = lease(&one.session, &file);
        assert_eq!(leased.sync(true).unwrap(), Through::Lease(()));
        (file, leased)
    };
    sync(&one);
    sync(&other);
    assert_eq!(told(&s)["file_logs"], 2, "files of one session share it");
    for _ in 0..20 {
        one.append(b"1");
        other.append(b"2");
        assert_ne!(third.1.append(b"3"), Through::Mount);
        sync(&one);
        sync(&other);
    }
    // What it was not asked to sync is in the log as well, because that is one.
    kill_daemon(&s);
    drop((one, other, third));
    s.mount(LOGS);
    assert_eq!(fs::read(s.path("f")).unwrap(), b"1".repeat(20));
    assert_eq!(fs::read(s.path("g")).unwrap(), b"2".repeat(20));
    assert!(fs::metadata(s.path("h")).unwrap().len() >= 19);
    s.umount();
    s.assert_plain_ext4();
}

/// Names before the file, by any program, are not overtaken.
#[test]
fn r46_renames_before_a_sync_are_there() {
    let s = mounted();
    fs::write(s.path("a"), "old").unwrap();
    fs::File::open(s.path("a")).unwrap().sync_all().unwrap();
    let held = Held::of(&s.path("f"));
    sync(&held);
    for n in 0..10 {
        let (from, to) = (s.path(&format!("{n}")), s.path("a"));
        fs::write(&from, n.to_string()).unwrap();
        fs::File::open(&from).unwrap().sync_all().unwrap();
        fs::rename(&from, &to).unwrap();
        held.append(b"x");
        sync(&held);
    }
    kill_daemon(&s);
    drop(held);
    s.mount(LOGS);
    assert_eq!(fs::read(s.path("f")).unwrap(), b"x".repeat(10));
    assert_eq!(fs::read_to_string(s.path("a")).unwrap(), "9");
    s.umount();
}

/// Where logs may lie.
#[test]
fn where_logs_lie() {
    let s = Setup::new();
    let memory = s.tmp.path().join("memory");
    fs::create_dir(&memory).unwrap();
    run("mount", &["-t", "tmpfs", "none", memory.to_str().unwrap()]).ok();
    let option = |dir: &Path| format!("write_cache=writethrough,private_logs={}", dir.display());
    siftfs(&["mount", s.volume(), s.dir(), "-o", &option(&memory)])
        .fails(1, &["private_logs", "memory"]);
    run("umount", &[memory.to_str().unwrap()]).ok();
    let dir = s.tmp.path().join("elsewhere");
    s.mount(&option(&dir));
    let held = Held::of(&s.path("f"));
    sync(&held);
    assert_eq!((files_in(&dir), files_in(&logs_of(&s))), (2, 0));
    drop(held);
    s.umount();
    assert_eq!(files_in(&dir), 0);
    // By the daemon.
    s.mount("write_cache=writethrough,private_logs=daemon");
    let held = Held::of(&s.path("f"));
    sync(&held);
    held.append(b"x");
    sync(&held);
    assert_eq!((&told(&s)["file_logs"], &told(&s)["records"]), (&0.into(), &1.into()));
    drop(held);
    s.umount();
    assert_eq!(files_in(&logs_of(&s)), 0);
}

/// A session that ends leaves no log, also of a program that was killed.
#[test]
fn a_log_goes_with_its_session() {
    let s = mounted();
    let file = open(&s.path("f"));
    for _ in 0..3 {
        let session = Session::enter(&file).unwrap();
        let leased = lease(&session, &file);
        assert_ne!(leased.append(b"x"), Through::Mount);
        assert_eq!(leased.sync(false).unwrap(), Through::Lease(()));
        drop((leased, session));
        while told(&s)["sessions"] != 0 {
            std::thread::yield_now();
        }
        assert_eq!(files_in(&logs_of(&s)), 1, "the registry");
    }
    drop(file);
    s.umount();
}

/// A volume on a cluster outlives this machine: logs that do not are refused beside it, unless the
/// mount says that they may die.
#[test]
fn logs_that_may_die_are_named_so_beside_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    let mount =
        |volume: &str, options: &str| siftfs(&["mount", "--fake", volume, at, "-o", options]);
    for volume in ["rbd:p/i", "stripe:rbd:p/i,rbd:p/j"] {
        for logs in ["private_logs=/logs", "private_logs=on"] {
            mount(volume, logs).fails(2, &["log_may_die"]);
        }
        mount(volume, "private_logs=on,log_may_die").fails(2, &["in which directory"]);
        for good in ["private_logs=/logs,log_may_die", "private_logs=daemon", "log_may_die"] {
            mount(volume, good).ok();
        }
    }
}
