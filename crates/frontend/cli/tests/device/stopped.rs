//! A device process that does not run and has not ended, or that is gone when the volume is closed.

use crate::support::{SIFTFS, Setup, siftfs};
use crate::{Device, address, await_that, has, link, mount, mount_log, put, status};
use rustix::process::Signal;
use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;

/// A stopped device process keeps its lock: no takeover happens, status and log say which process
/// is waited for, and all goes on when it runs again.
#[test]
fn one_that_is_stopped_is_named_and_waited_for() {
    let setup = Setup::new();
    let device = Device::start(&setup, &[]);
    mount(&setup, &["--service-fallback=0"]).ok();
    put(&setup, "before");
    siftfs(&["checkpoint", setup.dir()]).ok();
    device.stop();
    let process = format!("process {}", device.child.id());
    await_that("the takeover is tried and refused", || {
        let why = link(&setup)["trouble"].as_str().unwrap_or_default().to_owned();
        why.contains("cannot take over") && why.contains("in use by") && why.contains(&process)
    });
    let now = link(&setup);
    assert_eq!((&now["connected"], &now["takeovers"]), (&false.into(), &0.into()), "{now}");
    let text = siftfs(&["status", setup.dir()]).ok().out;
    let line = text.lines().find(|l| l.starts_with("service")).unwrap();
    assert!(line.contains("WAITING for ") && line.contains(&process), "{line}");
    let log = mount_log(&setup);
    assert!(log.contains("was silent for") && log.contains(&process), "{log}");
    // The log has room.
    put(&setup, "meanwhile");
    device.signal(Signal::CONT);
    await_that("it serves again", || link(&setup)["connected"] == true);
    siftfs(&["checkpoint", setup.dir()]).ok();
    put(&setup, "after");
    let now = link(&setup);
    assert_eq!((&now["connected"], &now["fallback"]), (&true.into(), &false.into()), "{now}");
    assert_eq!(now["takeovers"], 0, "{now}");
    // Nor does an unmount do without it.
    device.stop();
    let mut leaving = Command::new(SIFTFS).args(["umount", setup.dir()]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(leaving.try_wait().unwrap().is_none(), "closed beside a process that keeps its lock");
    device.signal(Signal::CONT);
    assert!(leaving.wait().unwrap().success());
    assert_eq!(device.end(Signal::TERM), 0);
    assert!(!mount_log(&setup).contains("in this process now"));
    setup.assert_plain_ext4();
    setup.mount("ro");
    has(&setup, &["before", "meanwhile", "after"]);
    setup.umount();
}

/// With a fallback, what needs a device process that is stopped does not wait without an end: it is
/// told, and so is what calls later. Nothing is lost or latched.
#[test]
fn one_that_is_stopped_is_not_waited_for_without_end() {
    let setup = Setup::new();
    let device = Device::start(&setup, &[]);
    mount(&setup, &["--service-fallback=1"]).ok();
    put(&setup, "before");
    siftfs(&["checkpoint", setup.dir()]).ok();
    device.stop();
    // One that waits already, and holds what assembly needs.
    fs::write(setup.path("large"), vec![7; 3 << 20]).unwrap();
    let large = fs::File::open(setup.path("large")).unwrap();
    let waiting = std::thread::spawn(move || large.sync_all());
    await_that("the takeover is refused", || link(&setup)["overdue"] == true);
    let told = waiting.join().unwrap().expect_err("nobody journals it");
    assert_eq!(told.raw_os_error(), Some(libc::ETIMEDOUT), "{told}");
    // And one that comes now.
    let synced = siftfs(&["sync", setup.dir()]);
    assert!(synced.code == 1 && synced.err.contains("timed out"), "{synced:?}");
    let now = link(&setup);
    assert_eq!((&now["fallback_after_s"], &now["takeovers"]), (&1.0.into(), &0.into()), "{now}");
    let text = siftfs(&["status", setup.dir()]).ok().out;
    assert!(text.contains("what needs it gets ETIMEDOUT"), "{text}");
    put(&setup, "meanwhile");
    device.signal(Signal::CONT);
    await_that("it serves again", || link(&setup)["connected"] == true);
    siftfs(&["sync", setup.dir()]).ok();
    put(&setup, "after");
    assert!(status(&setup)["runtime"]["failed"].is_null());
    setup.umount();
    assert_eq!(device.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
    setup.mount("ro");
    has(&setup, &["before", "meanwhile", "after"]);
    assert!(fs::read(setup.path("large")).unwrap() == vec![7; 3 << 20]);
    setup.umount();
}

/// A process listens and does not answer: an unmount says at once which process it waits for.
#[test]
fn an_unmount_says_whom_it_waits_for() {
    let setup = Setup::new();
    let device = Device::start(&setup, &[]);
    mount(&setup, &[]).ok();
    put(&setup, "kept");
    device.kill();
    let path = setup.tmp.path().join("service");
    fs::remove_file(&path).unwrap();
    let silent = UnixListener::bind(&path).unwrap();
    await_that("the loss is noticed", || link(&setup)["connected"] == false);
    let said = setup.umount();
    let line = format!("s for the device process at {}", address(&setup));
    assert!(said.err.contains("waiting up to ") && said.err.contains(&line), "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    assert!(mount_log(&setup).contains(&line));
    drop(silent);
    setup.assert_plain_ext4();
    setup.mount("ro");
    has(&setup, &["kept"]);
    setup.umount();
}
