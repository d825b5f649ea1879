//! The server dies, and comes back: its mounts have waited.

use crate::support::serving::Server;
use crate::{Served, siftfs};
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(300);

/// What was not synced is there again, under the names and numbers that it had: open files stay
/// open, and the fsync that comes afterwards covers what was written before.
#[test]
fn a_mount_goes_on_after_its_server_was_killed() {
    let mut served = Served::start();
    let mount = served.mount("m", "");
    std::fs::create_dir(mount.path("d")).unwrap();
    let mut open = OpenOptions::new();
    open.read(true).write(true).create_new(true);
    let file = open.open(mount.path("d/first")).unwrap();
    file.write_all_at(&[1; 5000], 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[2; 5000], 5000).unwrap();
    let unsynced = open.open(mount.path("d/second")).unwrap();
    unsynced.write_all_at(b"never synced", 0).unwrap();
    std::fs::rename(mount.path("d/second"), mount.path("third")).unwrap();
    std::fs::write(mount.path("d/gone"), "x").unwrap();
    std::fs::remove_file(mount.path("d/gone")).unwrap();
    let before = unsynced.metadata().unwrap();
    let begun = Instant::now();
    let again = served.restart_after(Signal::KILL, PAUSE);
    // It waits for the server, and covers what was written before its death.
    file.write_all_at(&[3; 100], 10_000).unwrap();
    file.sync_all().unwrap();
    unsynced.sync_all().unwrap();
    assert!(begun.elapsed() > PAUSE);
    served.server = Some(again.join().unwrap());
    let after = unsynced.metadata().unwrap();
    assert_eq!((before.ino(), before.len()), (after.ino(), after.len()));
    assert_eq!(std::fs::metadata(mount.path("third")).unwrap().ino(), before.ino());
    assert!(!mount.path("d/gone").exists() && !mount.path("d/second").exists());
    // What the server has now is there after one more death, without any client.
    mount.kill();
    served.server.take().unwrap().end(Signal::KILL);
    served.server = Some(Server::start(served.setup.volume()));
    let fresh = served.mount("fresh", "");
    let first = std::fs::read(fresh.path("d/first")).unwrap();
    let expected = [vec![1; 5000], vec![2; 5000], vec![3; 100]].concat();
    assert!(first == expected, "{} bytes", first.len());
    assert_eq!(std::fs::read(fresh.path("third")).unwrap(), b"never synced");
    fresh.umount();
    served.end();
}

/// An upgrade of the server: it ends in order, and another one takes its place.
#[test]
fn a_mount_goes_on_after_its_server_was_restarted() {
    let mut served = Served::start();
    let mount = served.mount("m", "");
    std::fs::write(mount.path("f"), "before").unwrap();
    let file = OpenOptions::new().append(true).open(mount.path("f")).unwrap();
    let again = served.restart_after(Signal::TERM, PAUSE);
    std::io::Write::write_all(&mut &file, b" and after").unwrap();
    assert_eq!(std::fs::read(mount.path("f")).unwrap(), b"before and after");
    served.server = Some(again.join().unwrap());
    assert_eq!(mount.status()["server"]["lost"].as_str(), None);
    drop(file);
    mount.umount();
    served.end();
}

/// Locks are kept, and programs that wait for one go on to wait.
#[test]
fn locks_outlive_the_server() {
    let mut served = Served::start();
    let (one, other) = (served.mount("one", ""), served.mount("other", ""));
    std::fs::write(one.path("f"), "x").unwrap();
    let held = File::open(one.path("f")).unwrap();
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    let wanted = File::open(other.path("f")).unwrap();
    let waits = std::thread::spawn(move || {
        rustix::fs::flock(&wanted, FlockOperation::LockExclusive).map(|()| wanted)
    });
    std::thread::sleep(PAUSE);
    let again = served.restart_after(Signal::KILL, PAUSE);
    let third = File::open(other.path("f")).unwrap();
    let refused = rustix::fs::flock(&third, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    if waits.is_finished() {
        panic!("{:?}", waits.join().unwrap());
    }
    drop(held);
    let granted = waits.join().unwrap().unwrap();
    served.server = Some(again.join().unwrap());
    drop((granted, third));
    one.umount();
    other.umount();
    served.end();
}

/// A mount that is gone with its server keeps others waiting for the grace time and no longer.
#[test]
fn others_wait_for_the_grace_time_only() {
    let mut served = Served::start();
    let (gone, other) = (served.mount("gone", ""), served.mount("other", ""));
    std::fs::write(other.path("f"), "x").unwrap();
    let again = served.restart_after(Signal::KILL, PAUSE);
    gone.kill();
    served.server = Some(again.join().unwrap());
    let begun = Instant::now();
    std::fs::write(other.path("g"), "y").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    siftfs(&["umount", gone.dir()]);
    other.umount();
    served.end();
}
