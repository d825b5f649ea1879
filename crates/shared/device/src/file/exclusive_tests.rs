use std::os::fd::AsRawFd;
use std::process::{Child, Command};

use super::*;
use crate::Device;

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn refusal(result: Result<FileDevice>) -> String {
    match result {
        Err(Error::Refused(message)) => message,
        Ok(_) => panic!("opened what it should have refused"),
        Err(other) => panic!("expected a refusal, got {other}"),
    }
}

fn open_rw(path: &Path) -> Result<FileDevice> {
    open_exclusive(path, true, FileOptions::default())
}

fn volume(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("volume");
    preallocate(&path, 8 << 20).unwrap();
    path
}

/// Runs a command of the system that must succeed.
fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output();
    let out = out.unwrap_or_else(|e| panic!("{program} {args:?}: {e}"));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?}: {said} (needs root and loop devices)");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// An attached loop device.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Self {
        Self(run("losetup", &["--find", "--show", file.to_str().unwrap()]).into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("-d").arg(&self.0).status();
        assert!(detached.is_ok_and(|s| s.success()) || thread::panicking());
    }
}

#[test]
fn a_file_is_opened_for_writing_once() {
    let dir = dir();
    let path = volume(&dir);
    let first = open_rw(&path).unwrap();
    assert_eq!(first.size(), 8 << 20);
    let message = refusal(open_rw(&path));
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    refusal(open_exclusive(&path, false, FileOptions::default()));
    let link = dir.path().join("link");
    std::fs::hard_link(&path, &link).unwrap();
    refusal(open_rw(&link));
    drop(first);
    let readers: Vec<_> =
        (0..2).map(|_| open_exclusive(&path, false, FileOptions::default()).unwrap()).collect();
    refusal(open_rw(&path));
    drop(readers);
    open_rw(&path).unwrap();
}

#[test]
fn what_is_no_volume_is_refused_by_name() {
    let dir = dir();
    assert!(refusal(open_rw(&dir.path().join("absent"))).contains("absent"));
    assert!(refusal(open_rw(dir.path())).contains("neither a regular file"));
    assert!(refusal(open_rw(Path::new("/dev/null"))).contains("neither a regular file"));
}

/// A process that has our open file, and with it the locks, once ours is dropped.
fn heir_of(device: &FileDevice) -> Child {
    let file = device.file.try_clone().unwrap();
    Command::new("sleep").arg("60").stdin(file).spawn().expect("sleep runs")
}

#[test]
fn a_lock_dies_with_its_open_file_and_not_before() {
    let dir = dir();
    let path = volume(&dir);
    let device = open_rw(&path).unwrap();
    let mut child = heir_of(&device);
    drop(device);
    let message = refusal(open_rw(&path));
    assert!(message.contains(&format!("process {} (sleep)", child.id())), "{message}");
    child.kill().unwrap();
    child.wait().unwrap();
    open_rw(&path).unwrap();
}

#[test]
fn each_role_has_a_holder_of_its_own() {
    let dir = dir();
    let path = volume(&dir);
    let host = open_rw(&path).unwrap();
    let service = open_for_service(&path, FileOptions::default()).unwrap();
    let refused = |claimed: Result<()>| claimed.unwrap_err().to_string();
    let now = Duration::ZERO;
    let message = refused(service.claim(Role::Service, now));
    assert!(message.contains("background work"), "{message}");
    host.unclaim(Role::Service).unwrap();
    service.claim(Role::Service, now).unwrap();
    service.claim(Role::Service, now).unwrap();
    refused(host.claim(Role::Service, now));
    let message = refused(service.claim(Role::Host, now));
    assert!(message.contains("unmount it"), "{message}");
    // The host's end leaves the Service its role, and the volume is not free.
    drop(host);
    let message = refusal(open_rw(&path));
    assert!(message.contains("background work"), "{message}");
    service.unclaim(Role::Service).unwrap();
    open_rw(&path).unwrap();
}

#[test]
fn a_host_and_its_service_share_a_block_device() {
    let dir = dir();
    let path = volume(&dir);
    let device = Loop::over(&path);
    let host = open_rw(&device.0).unwrap();
    // Another node of the same device means the same locks.
    let other = dir.path().join("node");
    let rdev = std::fs::metadata(&device.0).unwrap().rdev();
    let (major, minor) = (rustix::fs::major(rdev).to_string(), rustix::fs::minor(rdev).to_string());
    run("mknod", &[other.to_str().unwrap(), "b", &major, &minor]);
    let service = open_for_service(&other, FileOptions::default()).unwrap();
    service.claim(Role::Service, Duration::ZERO).unwrap_err();
    host.unclaim(Role::Service).unwrap();
    service.claim(Role::Service, Duration::ZERO).unwrap();
    host.claim(Role::Service, Duration::ZERO).unwrap_err();
    refusal(open_rw(&device.0));
    drop(service);
    host.claim(Role::Service, Duration::ZERO).unwrap();
    drop(host);
}

#[test]
fn a_file_behind_a_loop_device_is_refused() {
    let dir = dir();
    let path = volume(&dir);
    let device = Loop::over(&path);
    let message = refusal(open_rw(&path));
    assert!(message.contains(device.0.to_str().unwrap()), "{message}");
    drop(device);
    open_rw(&path).unwrap();
}

#[test]
fn a_loop_device_is_refused_while_its_file_is_a_volume() {
    let dir = dir();
    let path = volume(&dir);
    let direct = open_rw(&path).unwrap();
    let device = Loop::over(&path);
    let message = refusal(open_rw(&device.0));
    assert!(message.contains("loop device over") && message.contains("in use by"), "{message}");
    drop(direct);

    let through = open_rw(&device.0).unwrap();
    assert_eq!(through.size(), 8 << 20);
    through.write(4096, &[7; 4096], true).unwrap();
    through.flush().unwrap();
    let message = refusal(open_rw(&device.0));
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    refusal(open_rw(&path));
    drop(through);
}

#[test]
fn a_mounted_device_is_refused_with_its_mount_point() {
    let dir = dir();
    let path = volume(&dir);
    run("mke2fs", &["-q", "-F", "-t", "ext4", path.to_str().unwrap()]);
    let device = Loop::over(&path);
    let at = dir.path().join("mnt");
    std::fs::create_dir(&at).unwrap();
    let (dev, mnt) = (device.0.to_str().unwrap(), at.to_str().unwrap());
    run("mount", &[dev, mnt]);
    let on_device = open_rw(&device.0);
    let on_file = open_rw(&path);
    run("umount", &[mnt]);
    let message = refusal(on_device);
    assert!(message.contains("is mounted on") && message.contains(mnt), "{message}");
    let message = refusal(on_file);
    assert!(message.contains(dev) && message.contains(mnt), "{message}");

    // And the other way round: what we have open, the kernel does not mount.
    let ours = open_rw(&device.0).unwrap();
    assert!(!Command::new("mount").args([dev, mnt]).status().unwrap().success());
    drop(ours);
}

#[test]
fn a_replaced_descriptor_keeps_the_lock() {
    let dir = dir();
    let path = volume(&dir);
    let d = open_rw(&path).unwrap();
    // Opening and closing the file elsewhere in the process must not drop the lock, as it
    // would with the other kind of file locks.
    let other = File::open(&path).unwrap();
    assert!(other.as_raw_fd() >= 0);
    drop(other);
    refusal(open_rw(&path));
    drop(d);
}
