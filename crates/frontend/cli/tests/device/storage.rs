//! A device process as the target: the one process that has the storage open. The host names it,
//! and reaches the volume through it alone.

use crate::support::keys::Keys;
use crate::support::{Ran, Setup, siftfs};
use crate::{Device, address, await_that, has, kill_host, link, mount_log, put, status};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The volume as its target calls it.
fn place(address: &str) -> String {
    format!("target:{address}/volume")
}

fn mount_through(setup: &Setup, address: &str, more: &[&str]) -> Ran {
    let log = setup.tmp.path().join("mount.log").display().to_string();
    let place = place(address);
    siftfs(&[&["mount", &place, setup.dir(), "--log-file", &log], more].concat())
}

/// The process has the volume's file open.
fn has_open(pid: u32, volume: &str) -> bool {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let volume = Path::new(volume).canonicalize().unwrap();
    fds.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == volume))
}

fn daemon_pid(setup: &Setup) -> u32 {
    status(setup)["pid"].as_u64().unwrap() as u32
}

fn a_life(listen: &str, options: &[&str], more: &[&str]) {
    let setup = Setup::of_size("256M");
    let listen = match listen {
        "unix" => address(&setup),
        other => other.to_owned(),
    };
    let device = Device::at(&setup, &listen, setup.volume(), more);
    let address = device.address.clone();
    mount_through(&setup, &address, options).ok();
    for name in ["first", "second"] {
        put(&setup, name);
    }
    assert!(has_open(device.child.id(), setup.volume()));
    assert!(!has_open(daemon_pid(&setup), setup.volume()), "the host has the storage open");
    let now = status(&setup);
    assert_eq!(now["runtime"]["link"]["placement"], "device", "its Service is there, too");
    let storage = &now["runtime"]["storage"];
    assert!(now.to_string().contains("at a target"), "{storage}");
    siftfs(&["checkpoint", setup.dir()]).ok();
    device.kill();
    // It waits for the target.
    let path = setup.path("third");
    let waiting =
        thread::spawn(move || crate::write_synced(&path, "third".repeat(3000).as_bytes()));
    thread::sleep(Duration::from_millis(300));
    assert!(!waiting.is_finished(), "an fsync without storage");
    assert!(siftfs(&["status", setup.dir()]).ok().out.contains("which is LOST: waiting for it"));
    let device = Device::at(&setup, &address, setup.volume(), more);
    waiting.join().unwrap();
    put(&setup, "fourth");
    siftfs(&["checkpoint", setup.dir()]).ok();
    assert_eq!(link(&setup)["takeovers"], 0);
    setup.umount();
    assert_eq!(device.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
    setup.mount("ro");
    has(&setup, &["first", "second", "third", "fourth"]);
    setup.umount();
}

#[test]
fn over_a_unix_socket_and_shared_memory() {
    a_life("unix", &[], &[]);
}

#[test]
fn over_tcp_with_keys() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::new(dir.path(), "role=host volumes=volume");
    let admits = keys.admits();
    let admits: Vec<&str> = admits.iter().map(|word| &**word).collect();
    a_life("tcp:127.0.0.1:0", &["-o", &keys.option()], &admits);
}

#[test]
fn over_tcp_that_everybody_can_read() {
    a_life("tcp:127.0.0.1:0", &["-o", "insecure"], &["--insecure"]);
}

/// A key that may mount the volume may not write its blocks.
#[test]
fn a_clients_key_does_not_get_the_storage() {
    let setup = Setup::new();
    let keys = Keys::new(setup.tmp.path(), "role=client");
    let admits = keys.admits();
    let admits: Vec<&str> = admits.iter().map(|word| &**word).collect();
    let device = Device::at(&setup, "tcp:127.0.0.1:0", setup.volume(), &admits);
    let before = fs::read(setup.volume()).unwrap();
    let address = device.address.clone();
    mount_through(&setup, &address, &["-o", &keys.option()]).fails(1, &["is no host's"]);
    assert!(fs::read(setup.volume()).unwrap() == before, "the volume was written");
}

/// What was fsynced is there, whatever dies; the mount outlives its target.
#[test]
fn the_target_dies_again_and_again_under_load() {
    let setup = Setup::of_size("256M");
    let device = Device::start(&setup, &[]);
    mount_through(&setup, &address(&setup), &[]).ok();
    let (file, ended) = (File::create_new(setup.path("log")).unwrap(), AtomicBool::new(false));
    let line = |n: u64| format!("{n:015}\n").repeat(40);
    let (synced, device) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 0;
            while !ended.load(Ordering::SeqCst) {
                file.write_all_at(line(n).as_bytes(), n * 640).unwrap();
                file.sync_data().unwrap();
                n += 1;
            }
            n
        });
        let mut device = device;
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(400));
            device.kill();
            device = Device::start(&setup, &[]);
        }
        put(&setup, "beside");
        ended.store(true, Ordering::SeqCst);
        (writer.join().unwrap(), device)
    });
    kill_host(&setup);
    device.kill();
    siftfs(&["recover", setup.volume()]).ok();
    setup.assert_plain_ext4();
    setup.mount("ro");
    has(&setup, &["beside"]);
    let found = fs::read_to_string(setup.path("log")).unwrap();
    assert!(found == (0..synced).map(line).collect::<String>(), "{synced} lines");
    setup.umount();
}

/// A host that does not run is taken for dead: another one gets the volume, and the first writes
/// nothing more when it wakes (rule R9).
#[test]
fn a_host_that_is_stopped_is_fenced() {
    let setup = Setup::new();
    let device = Device::start(&setup, &[]);
    let place = place(&address(&setup));
    mount_through(&setup, &address(&setup), &[]).ok();
    put(&setup, "before");
    let first = setup.daemon();
    first.stop();
    let second = setup.tmp.path().join("second");
    fs::create_dir(&second).unwrap();
    let dir = second.display().to_string();
    siftfs(&["mount", &place, &dir]).fails(1, &["in use by another host, the Runtime in process"]);
    let begun = Instant::now();
    await_that("another host gets the volume", || {
        let out = succeeds(&["mount", &place, &dir]);
        assert!(out || begun.elapsed() < Duration::from_secs(40), "never");
        out
    });
    fs::write(second.join("after"), "another host's").unwrap();
    File::open(second.join("after")).unwrap().sync_all().unwrap();
    first.signal(Signal::CONT);
    let refused = File::create(setup.path("late")).and_then(|file| file.sync_all());
    assert!(refused.is_err(), "a fenced host promises something");
    assert!(mount_log(&setup).contains("another host has had the volume"), "{}", mount_log(&setup));
    siftfs(&["checkpoint", &dir]).ok();
    assert_eq!(fs::read(second.join("before")).unwrap(), "before".repeat(3000).as_bytes());
    siftfs(&["umount", &dir]).ok();
    first.signal(Signal::KILL);
    first.wait();
    while siftfs_fuse::detach(Path::new(setup.dir())).is_ok() {}
    assert_eq!(device.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
    setup.mount("ro");
    has(&setup, &["before"]);
    assert_eq!(fs::read_to_string(setup.path("after")).unwrap(), "another host's");
    assert!(!setup.path("late").exists());
    setup.umount();
}

fn succeeds(args: &[&str]) -> bool {
    std::process::Command::new(crate::SIFTFS).args(args).output().unwrap().status.success()
}

/// Commands name the volume as the mount did.
#[test]
fn commands_through_a_target() {
    let setup = Setup::new();
    let device = Device::start(&setup, &[]);
    let at = place(&address(&setup));
    mount_through(&setup, &address(&setup), &[]).ok();
    put(&setup, "kept");
    siftfs(&["recover", &at]).fails(8, &["in use by"]);
    kill_host(&setup);
    let seen = siftfs(&["inspect", &at]).ok().out;
    assert!(seen.contains("staged transactions") || seen.contains("lane"), "{seen}");
    let said = siftfs(&["recover", &at]).ok().out;
    assert!(said.contains("recovered"), "{said}");
    mount_through(&setup, &address(&setup), &["-o", "ro"]).ok();
    has(&setup, &["kept"]);
    assert!(fs::write(setup.path("no"), "").is_err());
    siftfs(&["umount", &at]).ok();
    assert_eq!(device.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
}

#[test]
fn what_does_not_go() {
    let setup = Setup::new();
    let device = Device::start(&setup, &[]);
    let (address, dir) = (address(&setup), setup.dir());
    let at = place(&address);
    let before = fs::read(setup.volume()).unwrap();
    siftfs(&["mount", "target:nowhere/volume", dir]).fails(2, &["nowhere"]);
    siftfs(&["mount", &format!("target:{address}/"), dir]).fails(2, &["say which volume"]);
    let other = format!("target:{address}/other");
    siftfs(&["mount", &other, dir]).fails(1, &["no volume 'other'", "volume"]);
    await_that("the refusal is logged", || device.log().contains("no volume 'other'"));
    siftfs(&["mount", &at, dir, "--log", "/dev/null"]).fails(1, &["the target has"]);
    siftfs(&["mount", &at, dir, "-o", "soft"]).fails(2, &["another process serves"]);
    let logs = ["mount", &at, dir, "-o", "private_logs=on"];
    siftfs(&logs).fails(2, &["private_logs=daemon"]);
    siftfs(&["mkfs", &at, "--size", "64M"]).fails(2, &["where its storage is"]);
    siftfs(&["adopt", &at, "--log", "/tmp/none"]).fails(2, &["where its storage is"]);
    siftfs(&["fsck", &at]).fails(16, &["where its storage is"]);
    siftfs(&["device", &at, "--listen", "unix:/tmp/none"]).fails(2, &["another process's"]);
    let none = format!("target:unix:{}/volume", setup.tmp.path().join("none").display());
    siftfs(&["mount", &none, dir]).fails(1, &["no device process is at"]);
    siftfs(&["inspect", &none]).fails(8, &["nobody listens there"]);
    assert!(fs::read(setup.volume()).unwrap() == before, "the volume was written");
    assert_eq!(device.end(Signal::TERM), 0);
}
