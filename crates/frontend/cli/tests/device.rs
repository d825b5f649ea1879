//! Two processes: a mount and the device process that does its background work. Needs root,
//! `/dev/fuse` and e2fsprogs.

#[path = "device/accel.rs"]
mod accel;
#[path = "device/direct.rs"]
mod direct;
#[path = "device/direct_kills.rs"]
mod direct_kills;
#[path = "device/discards.rs"]
mod discards;
#[path = "device/lies.rs"]
mod lies;
#[path = "device/members.rs"]
mod members;
#[path = "device/programs.rs"]
mod programs;
#[path = "device/refused.rs"]
mod refused;
#[path = "device/reports.rs"]
mod reports;
#[path = "device/sections.rs"]
mod sections;
#[path = "device/served.rs"]
mod served;
#[path = "device/stopped.rs"]
mod stopped;
#[path = "device/storage.rs"]
mod storage;
#[path = "device/stripes.rs"]
mod stripes;
#[allow(dead_code)] // each test program uses a part of it
mod support;
#[path = "device/transports.rs"]
mod transports;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Process, Ran, SIFTFS, Setup, siftfs};

/// Longest wait for something that must come.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until `done`; panics with `what` if it does not come.
#[track_caller]
fn await_that(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A device process, and what it says.
struct Device {
    child: Child,
    log: String,
    /// Where the device process listens.
    address: String,
    /// Where it admits programs, if it has a door for those.
    programs: Option<String>,
}

impl Device {
    fn start(setup: &Setup, more: &[&str]) -> Self {
        Self::of(setup, setup.volume(), more)
    }

    fn of(setup: &Setup, volume: &str, more: &[&str]) -> Self {
        Self::at(setup, &address(setup), volume, more)
    }

    fn at(setup: &Setup, listen: &str, volume: &str, more: &[&str]) -> Self {
        let log = setup.tmp.path().join("device.log").display().to_string();
        let mut child = Command::new(SIFTFS)
            .args(["device", volume, "--listen", listen, "--log-file", &log, "--json"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Option<Value> = serde_json::from_str(&line).ok();
        let Some(said) = said else { panic!("{line:?}, {:?}", child.wait_with_output()) };
        let programs = said["programs"].as_str().map(str::to_owned);
        let address = said["listening"].as_str().unwrap().to_owned();
        Self { child, log, address, programs }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Comes back when none of its threads runs any more.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let stopped = waitpid(Some(Pid::from_child(&self.child)), WaitOptions::UNTRACED);
        let (_, status) = stopped.unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it by a signal; its exit status.
    fn end(mut self, signal: Signal) -> i32 {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

/// A test that fails leaves no process behind, stopped ones included.
impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(setup: &Setup) -> String {
    format!("unix:{}", setup.tmp.path().join("service").display())
}

fn mount(setup: &Setup, more: &[&str]) -> Ran {
    mount_by(setup, &address(setup), more)
}

fn mount_by(setup: &Setup, address: &str, more: &[&str]) -> Ran {
    let log = setup.tmp.path().join("mount.log").display().to_string();
    let first = ["mount", setup.volume(), setup.dir(), "--service", address, "--log-file", &log];
    siftfs(&[&first, more].concat())
}

fn mount_log(setup: &Setup) -> String {
    fs::read_to_string(setup.tmp.path().join("mount.log")).unwrap()
}

/// The volume's header as it stands.
fn view(setup: &Setup) -> siftfs_volume::HeaderView {
    let device = siftfs_device::open_for_service(setup.volume().as_ref(), Default::default());
    siftfs_volume::read_headers(&device.unwrap()).unwrap()
}

fn status(setup: &Setup) -> Value {
    let status = siftfs(&["status", setup.dir(), "--json"]).ok();
    serde_json::from_str(&status.out).unwrap()
}

fn link(setup: &Setup) -> Value {
    status(setup)["runtime"]["link"].clone()
}

fn write_synced(path: &Path, data: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(data).unwrap();
    file.sync_all().unwrap();
}

fn kill_host(setup: &Setup) {
    kill_daemon(setup, &setup.daemon());
}

fn kill_daemon(setup: &Setup, daemon: &Process) {
    daemon.signal(Signal::KILL);
    daemon.wait();
    while siftfs_fuse::detach(Path::new(setup.dir())).is_ok() {}
}

#[track_caller]
fn has(setup: &Setup, names: &[&str]) {
    for name in names {
        assert_eq!(fs::read(setup.path(name)).unwrap(), name.repeat(3000).as_bytes(), "{name}");
    }
}

fn put(setup: &Setup, name: &str) {
    write_synced(&setup.path(name), name.repeat(3000).as_bytes());
}

#[test]
fn a_volume_is_mounted_used_and_unmounted_with_a_device_process() {
    let setup = Setup::new();
    let device = Device::start(&setup, &["--cpus", "0"]);
    mount(&setup, &[]).ok();
    put(&setup, "first");
    siftfs(&["checkpoint", setup.dir()]).ok();
    let status = status(&setup);
    let (link, service) = (&status["runtime"]["link"], &status["runtime"]["service"]);
    assert_eq!(link["placement"], "device");
    assert_eq!(link["connected"], true);
    assert!(link["host_cpu_us"].as_u64().unwrap() > 0);
    assert!(service["device"]["cpu_us"].as_u64().unwrap() > 0);
    assert_eq!(service["device"]["pid"].as_u64().unwrap(), u64::from(device.child.id()));
    // Journal and area are written by the device process alone.
    assert!(
        service["device"]["io"]["area"]["background"]["writes"].as_u64().unwrap() > 0
            || service["device"]["io"]["area"]["foreground"]["writes"].as_u64().unwrap() > 0
    );
    for origin in ["foreground", "background"] {
        assert_eq!(status["runtime"]["storage"]["area"][origin]["writes"], 0);
        assert_eq!(status["runtime"]["storage"]["journal"][origin]["writes"], 0);
    }
    setup.umount();
    setup.assert_plain_ext4();
    // It stands ready, and has nothing open: the volume can be mounted without it.
    setup.mount("ro");
    has(&setup, &["first"]);
    setup.umount();
    assert_eq!(device.end(Signal::TERM), 0);
    assert!(!setup.tmp.path().join("service").exists(), "the socket is gone");
}

#[test]
fn each_side_may_die() {
    let setup = Setup::new();
    let device = Device::start(&setup, &[]);
    mount(&setup, &[]).ok();
    put(&setup, "one");
    device.kill();
    await_that("the loss is noticed", || link(&setup)["connected"] == false);
    // The log has room: fsync does not need the device process.
    put(&setup, "two");
    assert!(link(&setup)["trouble"].is_string());
    let device = Device::start(&setup, &[]);
    siftfs(&["checkpoint", setup.dir()]).ok();
    put(&setup, "three");
    kill_host(&setup);
    // What was durable is finished without it.
    await_that("the device process finishes", || device.log().contains("in the file system"));
    mount(&setup, &[]).ok();
    has(&setup, &["one", "two", "three"]);
    put(&setup, "four");
    kill_host(&setup);
    device.kill();
    siftfs(&["recover", setup.volume()]).ok();
    setup.assert_plain_ext4();
    setup.mount("ro");
    has(&setup, &["one", "two", "three", "four"]);
    setup.umount();
}

#[test]
fn the_mount_takes_over_and_gives_back() {
    let setup = Setup::new();
    // No device process runs: with a fallback that is no reason not to mount.
    mount(&setup, &["--service-fallback=0"]).ok();
    put(&setup, "alone");
    siftfs(&["checkpoint", setup.dir()]).ok();
    assert_eq!(link(&setup)["fallback"], true);
    let device = Device::start(&setup, &[]);
    await_that("the work is given back", || link(&setup)["fallback"] == false);
    siftfs(&["checkpoint", setup.dir()]).ok();
    put(&setup, "together");
    device.kill();
    siftfs(&["checkpoint", setup.dir()]).ok();
    await_that("the work is taken over", || link(&setup)["takeovers"].as_u64() >= Some(2));
    has(&setup, &["alone", "together"]);
    setup.umount();
    setup.assert_plain_ext4();
}

#[test]
fn a_device_process_that_is_told_to_end_hands_over() {
    let setup = Setup::new();
    let device = Device::start(&setup, &[]);
    mount(&setup, &[]).ok();
    put(&setup, "before");
    assert_eq!(device.end(Signal::TERM), 0);
    put(&setup, "without");
    // An unmount does not wait where no process listens: the lock says that this process may go on.
    let said = setup.umount();
    assert_eq!((&*said.out, &*said.err), ("", ""));
    setup.assert_plain_ext4();
}

#[test]
fn strangers_are_refused_on_both_sides() {
    let setup = Setup::new();
    // No device process runs, and there is no fallback: nothing is written.
    let before = fs::read(setup.volume()).unwrap();
    mount(&setup, &[]).fails(1, &["no device process is at", "--service-fallback"]);
    assert!(fs::read(setup.volume()).unwrap() == before, "the volume was written");

    // A device process that has another volume.
    let other = setup.tmp.path().join("other").display().to_string();
    siftfs(&["mkfs", &other, "--size", "64M"]).ok();
    let device = Device::of(&setup, &other, &[]);
    mount(&setup, &[]).fails(1, &["serves the volume"]);
    assert!(device.log().contains("serves the volume"), "{}", device.log());
    assert_eq!(device.end(Signal::TERM), 0);
    siftfs(&["fsck", &other]).ok();
    setup.assert_plain_ext4();

    // A mount while a device process has the volume, a second host.
    let device = Device::start(&setup, &[]);
    mount(&setup, &[]).ok();
    let second = setup.tmp.path().join("second");
    fs::create_dir(&second).unwrap();
    let second = second.display().to_string();
    siftfs(&["mount", setup.volume(), &second]).fails(1, &["in use by"]);
    let address = address(&setup);
    siftfs(&["mount", setup.volume(), &second, "--service", &address]).fails(1, &["in use by"]);
    siftfs(&["recover", setup.volume()]).fails(8, &["in use by"]);
    put(&setup, "safe");
    // A device process for the volume of another one that serves it.
    let third = setup.tmp.path().join("third").display().to_string();
    let mut rival = Command::new(SIFTFS)
        .args(["device", setup.volume(), "--listen", &address])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(rival.wait().unwrap().code(), Some(1), "{third}: the address is taken");
    has(&setup, &["safe"]);
    setup.umount();
    assert_eq!(device.end(Signal::INT), 0);
}

#[test]
fn wrong_words_are_refused() {
    let setup = Setup::new();
    let dir = setup.dir();
    let listen = address(&setup);
    let device = |more: &[&str]| siftfs(&[&["device", setup.volume()], more].concat());
    device(&[]).fails(2, &["--listen"]);
    device(&["--listen", "nowhere"]).fails(2, &["nowhere"]);
    device(&["--listen", &listen, "--cpus", "x"]).fails(2, &["list of processors"]);
    device(&["--listen", &listen, "--cpu-quota", "0"]).fails(2, &["--cpu-quota"]);
    let none = setup.tmp.path().join("none").display().to_string();
    siftfs(&["device", &none, "--listen", &listen]).fails(1, &["none"]);
    siftfs(&["mount", setup.volume(), dir, "--service-fallback=3"]).fails(2, &["--service"]);
    let ro = ["mount", setup.volume(), dir, "--service", &listen, "-o", "ro"];
    siftfs(&ro).fails(2, &["read-only"]);
    siftfs(&["mount", setup.volume(), dir, "-o", "service=x"]).fails(2, &["service=x"]);
}

/// The quota is a control group of the process's own, which goes with it.
#[test]
fn a_quota_makes_a_weak_processor() {
    let setup = Setup::new();
    let device = Device::start(&setup, &["--cpu-quota", "50"]);
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", device.child.id())).unwrap();
    let name = format!("siftfs-device-{}", device.child.id());
    assert!(groups.contains(&name), "{groups}");
    mount(&setup, &[]).ok();
    put(&setup, "slowly");
    setup.umount();
    assert_eq!(device.end(Signal::TERM), 0);
    let found = Command::new("find").args(["/sys/fs/cgroup", "-name", &name]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}
