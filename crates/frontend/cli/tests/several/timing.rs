//! One more mount at odd moments: while the volume is unmounted, opened or recovered, when its
//! daemon is stopped or was killed, and again and again.

use crate::support::{Ran, SIFTFS, siftfs};
use crate::{Beside, THROUGH, names, places, shared, status};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(SIFTFS);
    if let (Ok(options), "mount") = (std::env::var("SIFTFS_TEST_OPTIONS"), args[0]) {
        command.args(["mount", "-o", &options]).args(&args[1..]);
    } else {
        command.args(args);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> Ran {
    child.wait_with_output().unwrap().into()
}

/// A hundred come and go.
#[test]
fn a_hundred_in_a_row() {
    let s = shared();
    let dir = Beside::of(&s, "other");
    let threads = || {
        let pid = s.daemon().pid.as_raw_nonzero();
        (
            fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(),
            fs::read_dir(format!("/proc/{pid}/task")).unwrap().count(),
        )
    };
    let mut first = None;
    for i in 0..100 {
        dir.attach(&s, "requests=device").ok();
        fs::write(dir.path(&format!("f{i}")), "x").unwrap();
        assert!(s.path(&format!("f{i}")).exists());
        dir.umount();
        if i == 20 {
            first = Some(threads());
        }
    }
    let (first, last) = (first.unwrap(), threads());
    assert!(last.0 < first.0 + 20 && last.1 < first.1 + 20, "{first:?}, then {last:?}");
    assert_eq!(places(s.dir()), [s.dir()]);
    s.umount();
    s.assert_plain_ext4();
}

/// The last mount goes while another one comes: the new one is of the same daemon, or of the next,
/// and nothing that was written is lost.
#[test]
fn beside_the_last_unmount() {
    let s = shared();
    let other = Beside::of(&s, "other");
    let (mut here, mut there) = (s.dir().to_string(), other.dir().to_string());
    for i in 0..40 {
        fs::write(format!("{here}/f{i}"), "x").unwrap();
        let options = format!("{THROUGH},shared");
        // One before the other, or both at once.
        let wait = Duration::from_millis(i % 8);
        let going = if i % 2 == 0 {
            let going = start(&["umount", &here]);
            std::thread::sleep(wait);
            going
        } else {
            // Another test's child may have a file of it open for a moment.
            let begun = Instant::now();
            while let Err(e) = siftfs_fuse::unmount(here.as_ref()) {
                assert!(begun.elapsed() < Duration::from_secs(20), "{e}");
                std::thread::sleep(Duration::from_millis(1));
            }
            start(&["status", "/"])
        };
        let ran = siftfs(&["mount", s.volume(), &there, "-o", &options]);
        let gone = ended(going);
        assert_eq!(ran.code, 0, "turn {i}: {ran:?}, {gone:?}");
        assert!(i % 2 == 1 || gone.code == 0, "turn {i}: {gone:?}");
        assert_eq!(places(&there), [&*there], "turn {i}");
        for j in 0..=i {
            assert!(fs::exists(format!("{there}/f{j}")).unwrap(), "turn {i}: f{j}");
        }
        std::mem::swap(&mut here, &mut there);
    }
    siftfs(&["umount", &here]).ok();
    s.assert_plain_ext4();
}

/// Several commands at once: all of them are mounts of one daemon.
#[test]
fn several_at_once() {
    let s = shared();
    let dirs: Vec<Beside> = (0..8).map(|i| Beside::of(&s, &format!("d{i}"))).collect();
    let options = format!("{THROUGH},requests=device");
    let args = |dir: &Beside| [s.volume(), dir.dir()].map(str::to_string);
    let all: Vec<Child> = dirs
        .iter()
        .map(|dir| {
            let [volume, dir] = args(dir);
            start(&["mount", &volume, &dir, "-o", &options])
        })
        .collect();
    all.into_iter().for_each(|child| drop(ended(child).ok()));
    assert_eq!(places(s.dir()).len(), 9);
    fs::write(s.path("file"), "all").unwrap();
    assert!(dirs.iter().all(|dir| fs::read(dir.path("file")).unwrap() == b"all"));
    let all: Vec<Child> = dirs.iter().map(|dir| start(&["umount", dir.dir()])).collect();
    all.into_iter().for_each(|child| drop(ended(child).ok()));
    s.umount();
    s.assert_plain_ext4();
}

/// Both mounts go at once: the volume is closed when the later command ends.
#[test]
fn both_go_at_once() {
    let s = shared();
    let other = Beside::of(&s, "other");
    for i in 0..10 {
        other.attach(&s, "").ok();
        fs::write(other.path(&format!("f{i}")), "x").unwrap();
        let both = [s.dir(), other.dir()].map(|dir| start(&["umount", dir]));
        both.into_iter().for_each(|child| drop(ended(child).ok()));
        s.assert_plain_ext4();
        s.mount(&format!("{THROUGH},shared"));
    }
    assert_eq!(names(&s.path("")).len(), 11);
    s.umount();
}

/// The volume's daemon is still opening it, and recovers it first: one message, or a mount.
#[test]
fn while_it_is_recovered() {
    let s = shared();
    for i in 0..10 {
        fs::write(s.path(&format!("f{i}")), vec![i; 1 << 20]).unwrap();
        let daemon = s.daemon();
        siftfs(&["sync", s.dir()]).ok();
        daemon.signal(Signal::KILL);
        daemon.wait();
        let other = Beside::of(&s, &format!("other{i}"));
        let first = start(&["mount", s.volume(), s.dir(), "-o", &format!("{THROUGH},shared")]);
        let begun = Instant::now();
        let second = start(&["mount", s.volume(), other.dir(), "-o", &format!("{THROUGH},shared")]);
        let (first, second) = (ended(first), ended(second));
        assert!(begun.elapsed() < Duration::from_secs(120), "{first:?}, {second:?}");
        for ran in [&first, &second] {
            assert!(ran.code == 0 || ran.err.contains("in use"), "{first:?}, {second:?}");
        }
        assert!(first.code == 0 || second.code == 0, "{first:?}, {second:?}");
        if first.code != 0 {
            s.mount(THROUGH);
        }
        assert_eq!(fs::read(s.path(&format!("f{i}"))).unwrap(), vec![i; 1 << 20]);
        if other.is_mounted() {
            assert_eq!(status(other.dir())["pid"], status(s.dir())["pid"]);
            other.umount();
        }
    }
    s.umount();
    s.assert_plain_ext4();
}

/// Its daemon was killed: both mounts are dead, and the next mount recovers the volume.
#[test]
fn of_a_killed_daemon() {
    let s = shared();
    let (other, third) = (Beside::of(&s, "other"), Beside::of(&s, "third"));
    other.attach(&s, "").ok();
    fs::write(other.path("file"), "kept").unwrap();
    siftfs(&["sync", other.dir()]).ok();
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    third.attach(&s, "shared").ok();
    assert_eq!(fs::read(third.path("file")).unwrap(), b"kept");
    // The dead ones are taken away where they are mounted again.
    let ran = other.attach(&s, "").ok();
    assert!(ran.err.contains("detached a mount whose daemon had died"), "{ran:?}");
    assert_eq!(fs::read(other.path("file")).unwrap(), b"kept");
    siftfs(&["umount", s.dir()]).fails(1, &["its daemon had died"]);
    other.umount();
    third.umount();
    s.assert_plain_ext4();
}

/// Its daemon is stopped: one message, within seconds.
#[test]
fn of_a_stopped_daemon() {
    let s = shared();
    let other = Beside::of(&s, "other");
    let daemon = s.daemon();
    daemon.stop();
    let ran = other.attach(&s, "");
    daemon.signal(Signal::CONT);
    let ran = ran.fails(1, &["is stopped", "kill -CONT"]);
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(!other.is_mounted());
    other.attach(&s, "").ok();
    other.umount();
    s.umount();
    s.assert_plain_ext4();
}

/// A command that is killed at any moment leaves a mount that works, or none.
#[test]
fn a_command_that_is_killed() {
    let s = shared();
    for i in 0..30 {
        let other = Beside::of(&s, &format!("other{i}"));
        let mut child = start(&["mount", s.volume(), other.dir(), "-o", THROUGH]);
        std::thread::sleep(Duration::from_millis(i));
        let _ = child.kill();
        let _ = child.wait();
        // What came of it is decided when the daemon has heard of it.
        let begun = Instant::now();
        loop {
            let mounted = other.is_mounted();
            let known = places(s.dir()).len() == 2;
            if mounted == known {
                break;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(90),
                "mounted: {mounted}, known: {known}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        if other.is_mounted() {
            fs::write(other.path("file"), "x").unwrap();
            other.umount();
        }
    }
    s.umount();
    s.assert_plain_ext4();
}

/// A command asks for a mount and does nothing with it, while the last mount goes: the unmount ends
/// when the volume is closed, and not before.
#[test]
fn a_command_that_stands_still() {
    let s = shared();
    let mount = siftfs_fuse::top_mount(s.dir().as_ref()).unwrap().unwrap();
    let socket = format!("/run/siftfs/{}-{}.sock", mount.major, mount.minor);
    let mut command = UnixStream::connect(socket).unwrap();
    // Messages of another version are refused with the number that is wanted.
    let ask = br#"{"version":6,"mount":null,"op":{"attach":{"options":[]}}}"#;
    command.write_all(&u32::try_from(ask.len()).unwrap().to_le_bytes()).unwrap();
    command.write_all(ask).unwrap();
    let mut len = [0; 4];
    command.read_exact(&mut len).unwrap();
    let mut answer = vec![0; u32::from_le_bytes(len) as usize];
    command.read_exact(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("\"made\""), "{answer}");
    let mut going = start(&["umount", s.dir()]);
    while siftfs_fuse::top_mount(s.dir().as_ref()).unwrap().is_some() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(going.try_wait().unwrap().is_none(), "the unmount did not wait");
    drop(command);
    ended(going).ok();
    s.assert_plain_ext4();
}
