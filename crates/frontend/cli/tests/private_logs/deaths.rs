//! Programs and daemons that end with something in a private log.

use crate::program::Program;
use crate::support::{Setup, siftfs};
use crate::{Held, LOGS, lease, mounted, told};
use rustix::process::Signal;
use siftfs_accel::Through;
use std::fs;
use std::os::unix::fs::FileExt;

pub fn kill_daemon(s: &Setup) {
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
}

/// A program is killed: what it wrote is there, as on any mount (rule R47).
///
/// Seen to fail when a session's end does not take in what is published.
#[test]
fn what_a_killed_program_wrote_is_there() {
    let s = mounted();
    let mut wanted = String::new();
    for round in 0..3 {
        let mut program = Program::start(&s.path("f"));
        for n in 0..50 {
            let line = format!("round {round}, line {n}");
            program.append(&line);
            wanted += &format!("{line}\n");
        }
        program.kill();
        assert_eq!(fs::read_to_string(s.path("f")).unwrap(), wanted);
    }
    s.umount();
    s.assert_plain_ext4();
}

/// The daemon is killed. What was synced is there afterwards, also what the program synced by its
/// log for as long as the daemon's words counted; and then it goes on with what the kernel says.
#[test]
fn a_daemon_that_is_killed() {
    let s = mounted();
    let held = Held::of(&s.path("f"));
    held.append(b"durable");
    assert_eq!(held.leased.sync(false).unwrap(), Through::Lease(()));
    kill_daemon(&s);
    let mut synced = b"durable".to_vec();
    while held.leased.append(b"+") != Through::Mount {
        if held.leased.sync(false).unwrap() == Through::Mount {
            break;
        }
        synced.push(b'+');
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(held.leased.append(b"x"), Through::Mount, "the session is known to be over");
    assert!(held.file.sync_all().is_err(), "the kernel says what has become of the mount");
    assert!(held.session.lease(&held.file).is_err());
    drop(held);
    s.mount(LOGS);
    let text = fs::read(s.path("f")).unwrap();
    assert!(text.starts_with(&synced), "{text:?}");
    let held = Held::of(&s.path("f"));
    held.append(b"!");
    drop(held);
    s.umount();
    s.assert_plain_ext4();
}

/// What a log holds is part of `siftfs sync` and `siftfs checkpoint`.
#[test]
fn sync_takes_logs_in() {
    for command in ["sync", "checkpoint"] {
        let s = mounted();
        let held = Held::of(&s.path("f"));
        held.append(b"in the log");
        siftfs(&[command, s.dir()]).ok();
        assert_eq!(told(&s)["records"], 1);
        kill_daemon(&s);
        drop(held);
        s.mount(LOGS);
        assert_eq!(fs::read(s.path("f")).unwrap(), b"in the log");
        s.umount();
    }
}

/// A record that nobody asks for is taken in as old as `commit=`.
#[test]
fn what_is_old_is_taken_in() {
    let s = Setup::new();
    s.mount(&format!("{LOGS},commit=1"));
    let held = Held::of(&s.path("f"));
    held.append(b"x");
    while told(&s)["records"] != 1 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(held.lasts());
    drop(held);
    s.umount();
}

/// The mount is taken away while a program has a session, and no file any more.
#[test]
fn a_session_keeps_no_mount() {
    let s = mounted();
    let Held { file, session, leased } = Held::of(&s.path("f"));
    assert_ne!(leased.append(b"kept"), Through::Mount);
    drop(file);
    s.umount();
    s.assert_plain_ext4();
    assert_eq!(leased.append(b"x"), Through::Mount);
    s.mount(LOGS);
    assert_eq!(fs::read(s.path("f")).unwrap(), b"kept");
    let again = crate::open(&s.path("f"));
    assert!(session.lease(&again).is_err(), "a session ends with its mount");
    again.write_all_at(b"K", 0).unwrap();
    let second = siftfs_accel::Session::enter(&again).unwrap();
    drop(lease(&second, &again));
    drop((leased, session, second, again));
    s.umount();
}

/// A signal ends the daemon while a program has a file open and leased. What was written is in the
/// volume.
#[test]
fn a_daemon_that_is_asked_to_end() {
    let s = mounted();
    let held = Held::of(&s.path("f"));
    held.append(b"kept");
    let daemon = s.daemon();
    daemon.signal(Signal::TERM);
    daemon.wait();
    assert_eq!(held.leased.append(b"x"), Through::Mount);
    drop(held);
    s.mount(LOGS);
    assert_eq!(fs::read(s.path("f")).unwrap(), b"kept");
    s.umount();
    s.assert_plain_ext4();
}
