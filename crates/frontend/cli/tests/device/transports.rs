//! One life over each transport: mount, load, the device process dies, another takes over, unmount.

use crate::support::keys::Keys;
use crate::support::{Setup, siftfs};
use crate::{Device, address, await_that, has, link, mount_by, put};
use rustix::process::Signal;
use std::fs;

/// Files and their newest contents; each is overwritten, and some go again.
fn load(setup: &Setup, name: &str) {
    for i in 0..10 {
        put(setup, "overwritten");
        put(setup, &format!("{name}-{i}"));
        put(setup, "gone");
        fs::remove_file(setup.path("gone")).unwrap();
    }
}

fn holds(setup: &Setup, name: &str) {
    let names: Vec<String> = (0..10).map(|i| format!("{name}-{i}")).collect();
    has(setup, &names.iter().map(|n| &n[..]).collect::<Vec<_>>());
    has(setup, &["overwritten"]);
    assert!(!setup.path("gone").exists());
}

fn shares_memory(device: &Device) -> bool {
    let maps = fs::read_to_string(format!("/proc/{}/maps", device.child.id())).unwrap();
    maps.contains("memfd:")
}

fn a_life(listen: &str, options: &[&str], more: &[&str], shared: bool) {
    // Room for what is staged while no device process serves.
    let setup = Setup::of_size("256M");
    let listen = match listen {
        "unix" => address(&setup),
        other => other.to_owned(),
    };
    let device = Device::at(&setup, &listen, setup.volume(), more);
    let address = device.address.clone();
    mount_by(&setup, &address, options).ok();
    load(&setup, "first");
    assert_eq!(shares_memory(&device), shared, "{listen} {options:?}");
    siftfs(&["checkpoint", setup.dir()]).ok();
    load(&setup, "second");
    device.kill();
    await_that("the loss is noticed", || link(&setup)["connected"] == false);
    load(&setup, "alone");
    let device = Device::at(&setup, &address, setup.volume(), more);
    load(&setup, "third");
    siftfs(&["checkpoint", setup.dir()]).ok();
    let now = link(&setup);
    assert_eq!(
        (&now["greetings"], &now["losses"], &now["takeovers"]),
        (&2.into(), &1.into(), &0.into())
    );
    setup.umount();
    assert_eq!(device.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
    setup.mount("ro");
    for name in ["first", "second", "alone", "third"] {
        holds(&setup, name);
    }
    setup.umount();
}

#[test]
fn over_tcp_with_keys() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::new(dir.path(), "role=host volumes=volume");
    let admits = keys.admits();
    let admits: Vec<&str> = admits.iter().map(|word| &**word).collect();
    a_life("tcp:127.0.0.1:0", &["-o", &keys.option()], &admits, false);
}

#[test]
fn over_tcp_that_everybody_can_read() {
    a_life("tcp:127.0.0.1:0", &["-o", "insecure"], &["--insecure"], false);
}

/// A port that knows no keys is opened by that name alone, and a mount does not fall back to one.
#[test]
fn tcp_asks_for_keys() {
    let setup = Setup::of_size("64M");
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::new(dir.path(), "role=host volumes=other");
    let missing = dir.path().join("missing").display().to_string();
    for words in [&["--key", &missing[..]][..], &["--authorized", &missing]] {
        let listen = ["device", setup.volume(), "--listen", "tcp:127.0.0.1:0"];
        let said = siftfs(&[&listen, words].concat());
        let told = said.err.lines().filter(|line| line.starts_with("siftfs: ")).count();
        assert_eq!((said.code, told), (1, 1), "{}", said.err);
        assert!(
            said.err.contains("siftfs key new") && said.err.contains("--insecure"),
            "{}",
            said.err
        );
    }
    let plain = Device::at(&setup, "tcp:127.0.0.1:0", setup.volume(), &["--insecure"]);
    let said = mount_by(&setup, &plain.address, &["-o", &keys.option()]);
    assert!(said.code != 0 && said.err.contains("does not speak TLS"), "{}", said.err);
    let said = mount_by(&setup, &plain.address, &["-o", &format!("key={missing}")]);
    assert!(said.code != 0 && said.err.contains("siftfs key new"), "{}", said.err);
    assert_eq!(plain.end(Signal::TERM), 0);

    // The volume is not in the key's list; then the key is no host's.
    let admits = keys.admits();
    let admits: Vec<&str> = admits.iter().map(|word| &**word).collect();
    let device = Device::at(&setup, "tcp:127.0.0.1:0", setup.volume(), &admits);
    let said = mount_by(&setup, &device.address, &["-o", &keys.option()]);
    assert!(said.code != 0 && said.err.contains("may not reach this volume"), "{}", said.err);
    let known = std::fs::read_to_string(keys.file("client")).unwrap();
    let line = known.lines().next().unwrap();
    keys.admit(&format!("role=admin {line}\n"));
    let said = mount_by(&setup, &device.address, &["-o", &keys.option()]);
    assert!(said.code != 0 && said.err.contains("is no host's"), "{}", said.err);
    keys.admit(&format!("role=host volumes=volume {line}\n"));
    mount_by(&setup, &device.address, &["-o", &keys.option()]).ok();
    put(&setup, "kept");
    setup.umount();
    assert_eq!(device.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
}

#[test]
fn over_shared_memory() {
    a_life("unix", &[], &[], true);
}

#[test]
fn over_a_unix_socket_alone() {
    a_life("unix", &["-o", "service_memory=0"], &[], false);
}
