//! A user who keeps the lock of a directory of his own.

use crate::support::{Setup, siftfs};
use crate::{ends, free_inodes, mount, mounted, place, until};
use rustix::process::Signal;
use siftfs_rig::hostile::lock::Held;
use siftfs_rig::hostile::{NOBODY, become_user, callers};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Has the user make a file in his directory by a compound; it has been carried out when this
/// returns, and its answer comes later.
fn own_compound(setup: &Setup) -> Receiver<io::Result<()>> {
    let (dir, before) = (setup.path("mine"), free_inodes(setup));
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let made = become_user(NOBODY).and_then(|()| callers::make(&dir, "own"));
        drop(tell.send(made));
    });
    until("the user's own compound", || free_inodes(setup) < before);
    told
}

/// All that other users do goes on, and the user's own call when he lets go.
#[test]
fn who_keeps_a_directorys_lock_delays_himself_alone() {
    for rings in [false, true] {
        let (setup, _connection) = mounted("64M", rings);
        let held = Held::new(&place(&setup), &setup.path("mine"), NOBODY).unwrap();
        let own = own_compound(&setup);
        let other = setup.path("other");
        let dir = other.clone();
        ends("a compound", move || callers::make(&dir, "a")).unwrap();
        let dir = other.clone();
        let [a, b] = ["a", "b"].map(|name| dir.join(name).to_str().unwrap().to_string());
        ends("a publish", move || siftfs(&["publish", &a, &b])).ok();
        let dir = other.clone();
        ends("another compound", move || callers::remove(&dir, "b")).unwrap();
        let dir = other.clone();
        ends("a plain file", move || fs::write(dir.join("c"), "c")).unwrap();
        let names = ends("a listing", move || fs::read_dir(other).unwrap().count());
        assert_eq!(names, 1, "rings {rings}");
        assert!(own.try_recv().is_err(), "the user's own call waits for the lock");
        drop(held);
        let own = ends("the user's own call", move || own.recv().unwrap());
        own.unwrap();
        assert!(setup.path("mine/own").exists());
        assert_eq!(fs::read_dir(setup.path("mine")).unwrap().count(), 1);
        setup.umount();
        setup.assert_plain_ext4();
    }
}

/// The daemon is killed while a thread of it waits for the lock: the connection ends all the same,
/// and every command, while the lock is still held.
#[test]
fn a_daemon_killed_beside_a_lock_that_is_kept_is_dead() {
    for rings in [false, true] {
        let (setup, _connection) = mounted("64M", rings);
        let held = Held::new(&place(&setup), &setup.path("mine"), NOBODY).unwrap();
        let _own = own_compound(&setup);
        let daemon = setup.daemon();
        daemon.signal(Signal::KILL);
        let dir = setup.dir();
        // A thread that runs when the signal comes may answer once more.
        let looked = ends("a look", move || {
            loop {
                let error = fs::metadata(Path::new(dir).join("none")).unwrap_err();
                if error.kind() != io::ErrorKind::NotFound {
                    return error;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(siftfs_fuse::says_dead(&looked), "rings {rings}: {looked}");
        let volume = setup.volume();
        ends("recover", move || siftfs(&["recover", volume])).ok();
        mount(&setup, false);
        ends("a listing of the next mount", move || fs::read_dir(dir).unwrap().count());
        let umounted = ends("umount", move || siftfs(&["umount", dir]));
        umounted.ok();
        drop(held);
        daemon.wait();
        setup.assert_plain_ext4();
    }
}

/// One user's compounds wait in a directory for ever. Names are told to the kernel by one thread
/// per directory, and so others' are told.
#[test]
fn a_directory_that_others_share_is_waited_for_by_those_alone() {
    let (setup, _connection) = mounted("64M", false);
    let shared = setup.path("shared");
    fs::create_dir(&shared).unwrap();
    let held = Held::new(&place(&setup), &shared, NOBODY).unwrap();
    let before = free_inodes(&setup);
    let (tell, told) = channel();
    let dir = shared.clone();
    std::thread::spawn(move || drop(tell.send(callers::make(&dir, "root's"))));
    until("root's compound there", || free_inodes(&setup) < before);
    let dir = setup.path("other");
    ends("root's next compound", move || callers::make(&dir, "next")).unwrap();
    assert!(told.try_recv().is_err());
    drop(held);
    ends("the first one", move || told.recv().unwrap()).unwrap();
    assert!(shared.join("root's").exists());
    setup.umount();
}
