//! Users without rights who make others wait, and daemons whose connection does not end with them:
//! nobody waits but who chose to. Needs root, `/dev/fuse` and e2fsprogs.

#![allow(unsafe_code)]

#[path = "hostile/abandoned.rs"]
mod abandoned;
#[path = "hostile/entries.rs"]
mod entries;
#[path = "hostile/locks.rs"]
mod locks;
#[path = "../../fuse/tests/support/rings.rs"]
mod rings;
#[allow(dead_code)] // each test program uses a part of it
mod support;

use siftfs_rig::hostile::NOBODY;
use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use support::{Connection, Setup, siftfs};

/// After which a call that has not ended waits for ever.
const BOUND: Duration = Duration::from_secs(60);

/// A mounted volume with `mine`, a directory of a user without rights, and `other`, one of root's.
/// Should the test fail, the mount's connection is ended.
fn mounted(size: &str, rings: bool) -> (Setup, Connection) {
    let setup = Setup::of_size(size);
    mount(&setup, rings);
    let connection = Connection::of(setup.dir());
    for name in ["mine", "other"] {
        fs::create_dir(setup.path(name)).unwrap();
    }
    chown(setup.path("mine"), Some(NOBODY), Some(NOBODY)).unwrap();
    (setup, connection)
}

/// Whether by rings or not is this test's to say, whatever the others are told.
fn mount(setup: &Setup, rings: bool) {
    let args = ["mount", setup.volume(), setup.dir(), "-o", "requests=auto"];
    rings::offering(rings, || siftfs(&args)).ok();
}

/// An empty directory for a server of the user's own.
fn place(setup: &Setup) -> PathBuf {
    let place = setup.tmp.path().join("silent");
    fs::create_dir(&place).unwrap();
    place
}

/// What `act` returns, if it ends.
#[track_caller]
fn ends<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    std::thread::spawn(move || drop(tell.send(act())));
    match told.recv_timeout(BOUND) {
        Ok(result) => result,
        Err(_) => panic!("{what}: does not end"),
    }
}

/// Waits until it is so.
#[track_caller]
fn until(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < BOUND, "{what}: not so in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Inodes of the volume that are free: says without any directory's lock that a file was made.
fn free_inodes(setup: &Setup) -> u64 {
    let dir = PathBuf::from(setup.dir());
    ends("statfs", move || rustix::fs::statvfs(&dir).unwrap().f_ffree)
}
