//! Mounts whose daemon does not answer any more: each command ends, and ends such a mount where the
//! daemon is dead, or where it is told to by force.

use crate::support::{Process, Setup, siftfs};
use crate::{ends, mount, mounted};
use rustix::process::Signal;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// A copy of the daemon's `/dev/fuse`. As long as it is open the connection does not end with the
/// daemon, as if a thread of it stayed in the kernel.
fn keep_connection(daemon: &Process) -> OwnedFd {
    let dir = format!("/proc/{}/fd", daemon.pid.as_raw_nonzero());
    let is_fuse = |path: &Path| fs::read_link(path).is_ok_and(|to| to == Path::new("/dev/fuse"));
    let found = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).find(|path| is_fuse(path));
    let number: i32 = found.unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap();
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, daemon.fd.as_raw_fd(), number, 0) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor, which has no other owner.
    unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) }
}

/// The mount's daemon is dead, and its connection is not: every program that asks the mount waits.
fn abandoned(rings: bool) -> (Setup, crate::support::Connection, OwnedFd) {
    let (setup, connection) = mounted("64M", rings);
    let daemon = setup.daemon();
    let kept = keep_connection(&daemon);
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert!(siftfs_fuse::is_silent(Path::new(setup.dir())), "the connection ended");
    (setup, connection, kept)
}

#[test]
fn a_mount_that_a_dead_daemon_left_is_unmounted() {
    for rings in [false, true] {
        let (setup, _connection, _kept) = abandoned(rings);
        let (dir, volume) = (setup.dir(), setup.volume());
        let waits = std::thread::spawn(move || fs::metadata(Path::new(dir).join("none")));
        ends("umount", move || siftfs(&["umount", dir])).fails(1, &["died", "recover"]);
        ends("who waited", move || waits.join().unwrap()).unwrap_err();
        ends("recover", move || siftfs(&["recover", volume])).ok();
        setup.assert_plain_ext4();
    }
}

#[test]
fn a_mount_that_a_dead_daemon_left_is_ended_by_recover() {
    let (setup, _connection, _kept) = abandoned(false);
    let (dir, volume) = (setup.dir(), setup.volume());
    let waits = std::thread::spawn(move || fs::metadata(Path::new(dir).join("none")));
    ends("recover", move || siftfs(&["recover", volume])).ok();
    ends("who waited", move || waits.join().unwrap()).unwrap_err();
    ends("umount", move || siftfs(&["umount", dir])).fails(1, &["died"]);
    setup.assert_plain_ext4();
}

#[test]
fn a_mount_that_a_dead_daemon_left_is_mounted_over() {
    let (setup, _connection, _kept) = abandoned(false);
    let (dir, volume) = (setup.dir(), setup.volume());
    ends("mount", move || siftfs(&["mount", volume, dir])).ok();
    ends("a look", move || fs::metadata(Path::new(dir).join("lost+found"))).unwrap();
    ends("umount", move || siftfs(&["umount", dir])).ok();
}

/// A daemon that is stopped is alive: nothing ends its mount but force. With force every call ends
/// (by rings, as soon as the daemon runs or is killed), and the daemon closes the volume as soon as
/// it runs.
#[test]
fn a_stopped_daemons_mount_ends_by_force_alone() {
    for rings in [false, true] {
        let (setup, _connection) = mounted("64M", rings);
        fs::write(setup.path("other/synced"), "x").unwrap();
        fs::File::open(setup.path("other/synced")).unwrap().sync_all().unwrap();
        let daemon = setup.daemon();
        daemon.stop();
        let (dir, volume) = (setup.dir(), setup.volume());
        let waits = std::thread::spawn(move || fs::metadata(Path::new(dir).join("none")));
        ends("umount", move || siftfs(&["umount", dir])).fails(1, &["stopped"]);
        ends("mount", move || siftfs(&["mount", volume, dir])).fails(1, &["stopped"]);
        ends("recover", move || siftfs(&["recover", volume])).fails(8, &["stopped"]);
        assert!(!waits.is_finished(), "its caller waits, rings {rings}");
        ends("umount", move || siftfs(&["umount", "--force", dir])).fails(1, &["stopped"]);
        assert_eq!(siftfs_fuse::top_mount(Path::new(dir)).unwrap(), None, "it is gone");
        // A request that is on its way into a ring is the stopped thread's to end.
        if rings {
            daemon.signal(Signal::CONT);
        }
        ends("who waited", move || waits.join().unwrap()).unwrap_err();
        daemon.signal(Signal::CONT);
        daemon.wait();
        setup.assert_plain_ext4();
        mount(&setup, false);
        assert_eq!(fs::read(setup.path("other/synced")).unwrap(), b"x");
        setup.umount();
    }
}

/// Files that are open do not hinder it.
#[test]
fn a_mount_in_use_ends_by_force() {
    let (setup, _connection) = mounted("64M", false);
    let file = fs::File::create(setup.path("other/f")).unwrap();
    let dir = setup.dir();
    ends("umount", move || siftfs(&["umount", dir])).fails(1, &["in use"]);
    ends("umount", move || siftfs(&["umount", "--force", dir])).ok();
    file.sync_all().unwrap_err();
    setup.assert_plain_ext4();
}
