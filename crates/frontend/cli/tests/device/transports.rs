//! One life over each transport: mount, load, the device process dies, another takes over, unmount.

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

fn a_life(listen: &str, options: &[&str], shared: bool) {
    // Room for what is staged while no device process serves.
    let setup = Setup::of_size("256M");
    let listen = match listen {
        "unix" => address(&setup),
        other => other.to_owned(),
    };
    let device = Device::at(&setup, &listen, setup.volume(), &[]);
    let address = device.address.clone();
    mount_by(&setup, &address, options).ok();
    load(&setup, "first");
    assert_eq!(shares_memory(&device), shared, "{listen} {options:?}");
    siftfs(&["checkpoint", setup.dir()]).ok();
    load(&setup, "second");
    device.kill();
    await_that("the loss is noticed", || link(&setup)["connected"] == false);
    load(&setup, "alone");
    let device = Device::at(&setup, &address, setup.volume(), &[]);
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
fn over_tcp() {
    a_life("tcp:127.0.0.1:0", &[], false);
}

#[test]
fn over_shared_memory() {
    a_life("unix", &[], true);
}

#[test]
fn over_a_unix_socket_alone() {
    a_life("unix", &["-o", "service_memory=0"], false);
}
