//! One of both processes is killed.

use crate::support::Connection;
use crate::support::serving::Server;
use crate::{Served, errno, siftfs};
use rustix::fs::{Advice, FlockOperation};
use rustix::process::{Pid, Signal, kill_process};
use siftfs::Volume;
use siftfs_rig::descriptors::own_table;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// With `soft` every call is an error after its time, those that wait among them; nothing hangs,
/// and it is said.
#[test]
fn a_killed_server_is_an_error_of_a_soft_mount() {
    let mut served = Served::start();
    let mount = served.mount("m", "soft,timeo=1");
    std::fs::create_dir(mount.path("d")).unwrap();
    std::fs::write(mount.path("d/kept"), vec![7; 10_000]).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(mount.path("d/kept"));
    let file = file.unwrap();
    file.sync_all().unwrap();
    assert_eq!(std::fs::read(mount.path("d/kept")).unwrap().len(), 10_000);
    // Somebody waits for a lock that is never granted.
    let locked = std::fs::File::open(mount.path("d/kept")).unwrap();
    rustix::fs::flock(&locked, FlockOperation::LockExclusive).unwrap();
    let wanted = std::fs::File::open(mount.path("d/kept")).unwrap();
    let waits =
        std::thread::spawn(move || rustix::fs::flock(&wanted, FlockOperation::LockExclusive));
    std::thread::sleep(Duration::from_millis(300));
    served.server.take().unwrap().end(Signal::KILL);
    let begun = Instant::now();
    assert_eq!(waits.join().unwrap(), Err(rustix::io::Errno::IO));
    // The kernel is told to forget what it knows; until it has, it may still answer for itself.
    while std::fs::metadata(mount.path("d/kept")).is_ok() || file.read_at(&mut [0; 10], 0).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(5), "it is still answered");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(errno(std::fs::metadata(mount.path("d/kept"))), libc::EIO);
    assert_eq!(
        errno(std::fs::read_dir(mount.path("d")).and_then(|mut d| d.next().unwrap())),
        libc::EIO
    );
    assert_eq!(errno(std::fs::write(mount.path("new"), "")), libc::EIO);
    assert_eq!(errno(file.read_at(&mut [0; 10], 0)), libc::EIO);
    assert_eq!(errno(file.write_at(&[1; 10], 0)), libc::EIO);
    assert_eq!(errno(file.sync_all()), libc::EIO);
    drop((file, locked));
    let status = mount.status();
    assert!(status["server"]["lost"].as_str().is_some(), "{status}");
    let text = siftfs(&["status", mount.dir()]).ok().out;
    assert!(text.contains("LOST") && text.contains("FAILED"), "{text}");
    siftfs(&["sync", mount.dir()]).fails(1, &[]);
    let said = crate::patient(|| siftfs(&["umount", mount.dir()]));
    said.fails(1, &["it is unmounted", "server was lost"]);
    assert!(!mount.is_there());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());

    served.server = Some(Server::start(served.setup.volume()));
    let again = served.mount("again", "");
    assert_eq!(std::fs::read(again.path("d/kept")).unwrap(), vec![7; 10_000]);
    again.umount();
    served.end();
}

/// A server that ends in order says so to its clients, and does not wait for them.
#[test]
fn a_server_that_ends_tells_its_mounts() {
    let mut served = Served::start();
    let mount = served.mount("m", "soft,timeo=1");
    std::fs::write(mount.path("f"), "x").unwrap();
    assert!(served.server.take().unwrap().end(Signal::TERM).success());
    served.setup.assert_plain_ext4();
    let begun = Instant::now();
    while std::fs::metadata(mount.path("f")).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(5), "it is still answered");
        std::thread::sleep(Duration::from_millis(10));
    }
    let why = mount.status()["server"]["lost"].as_str().unwrap().to_string();
    assert!(why.contains("the server ends"), "{why}");
    // umount(8)'s own way, without our command.
    siftfs_fuse::unmount(Path::new(mount.dir())).unwrap();
}

/// A mount's daemon that is killed keeps nothing: its locks are free, its changes are there, and
/// others do not wait for it.
#[test]
fn a_killed_mount_keeps_nothing() {
    let served = Served::start();
    let (one, other) = (served.mount("one", ""), served.mount("other", ""));
    let a = std::fs::File::create(one.path("f")).unwrap();
    a.write_all_at(b"written", 0).unwrap();
    rustix::fs::flock(&a, FlockOperation::LockExclusive).unwrap();
    let b = std::fs::File::open(other.path("f")).unwrap();
    let refused = rustix::fs::flock(&b, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    let pid = i32::try_from(one.status()["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let begun = Instant::now();
    rustix::fs::flock(&b, FlockOperation::LockExclusive).unwrap();
    std::fs::write(other.path("g"), "").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(std::fs::read(other.path("f")).unwrap(), b"written");
    drop(a);
    siftfs(&["umount", one.dir()]).fails(1, &["its daemon had died", "mount it again"]);
    let volume = Volume::connect(served.address()).unwrap();
    assert_eq!(volume.status().unwrap().failed, None);
    drop((b, volume));
    other.umount();
    served.end();
}

/// A mount whose server is lost is killed while a program waits for a page: the call ends with the
/// daemon, which leaves nothing behind in the kernel.
///
/// Seen to hang when a thread with `/dev/fuse` has the kernel drop pages as soon as the server is
/// lost: it waits for the page that the call has locked, also when the daemon was killed.
#[test]
fn a_mount_is_killed_while_its_server_is_lost() {
    let mut served = Served::start();
    let mount = served.mount("m", "");
    std::fs::write(mount.path("f"), vec![7; 2 << 20]).unwrap();
    let connection = Connection::of(mount.dir());
    let (tell, told) = channel();
    let (goes_on, stopped) = channel();
    let path = mount.path("f");
    std::thread::spawn(move || {
        // Of which a program that is started meanwhile has no copy, and closes none.
        own_table().unwrap();
        let file = std::fs::File::open(path).unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
        file.read_exact_at(&mut [0; 10], 0).unwrap();
        goes_on.send(()).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        tell.send(file.read_exact_at(&mut [0; 10], 1 << 20))
    });
    stopped.recv().unwrap();
    served.server.as_ref().unwrap().signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(800));
    std::thread::sleep(Duration::from_millis(300));
    served.server.take().unwrap().end(Signal::KILL);
    while mount.status()["server"]["lost"].as_str().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    mount.kill();
    let ended = told.recv_timeout(Duration::from_secs(10)).expect("the call ends with the daemon");
    assert!(ended.is_err(), "nobody has answered it");
    drop(connection);
    served.server = Some(Server::start(served.setup.volume()));
    drop(mount);
    served.end();
}
