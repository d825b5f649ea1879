//! A program that reads and writes a file's blocks at the target by itself: three processes, of
//! which the target and the host die.

use crate::support::{SIFTFS, Setup};
use crate::{Device, address, await_that};
use rustix::process::Signal;
use siftfs::{Direct, DirectFile, Volume};
use siftfs_rig::device::Device as Server;
use std::path::Path;

/// The host: it serves the volume, whose storage the target at `target` has.
fn host(setup: &Setup, target: &str) -> Server {
    let listen = format!("unix:{}", setup.tmp.path().join("host.sock").display());
    let (place, log) = (format!("target:{target}/volume"), setup.tmp.path().join("host.log"));
    Server::serve(Path::new(SIFTFS), Path::new(&place), &listen, &log, &[]).unwrap()
}

fn until_direct(file: &DirectFile) {
    await_that("something is granted", || file.is_direct());
}

/// What the program has synced is there, whatever process has died; others see what it writes.
#[test]
fn a_program_a_host_and_a_target() {
    let setup = Setup::of_size("256M");
    let target = Device::start(&setup, &[]);
    let server = host(&setup, &address(&setup));
    let direct = Direct::connect(server.address(), "").unwrap();
    let file = direct.create("/f", 0o644).unwrap();
    let mut model = vec![1; 300_000];
    file.write_at(0, &model).unwrap();
    file.sync_all().unwrap();
    until_direct(&file);
    file.write_at(5000, &[2; 9000]).unwrap();
    file.sync_data().unwrap();
    model[5000..14_000].fill(2);
    // Another program has the file recalled, and sees it.
    let other = Volume::connect(server.address()).unwrap();
    let theirs = other.open_file("/f").unwrap();
    assert!(theirs.read_at(0, 300_000).unwrap() == model);
    theirs.write_at(0, &[3; 10]).unwrap();
    model[..10].fill(3);
    until_direct(&file);
    assert!(file.read_at(0, 300_000).unwrap() == model);
    file.write_at(20_000, &[4; 4096]).unwrap();
    file.sync_data().unwrap();
    model[20_000..24_096].fill(4);
    // The target dies: what was synced is there, and the program goes on.
    target.kill();
    let target = Device::start(&setup, &[]);
    assert!(file.read_at(0, 300_000).unwrap() == model);
    file.write_at(40_000, &[5; 4096]).unwrap();
    file.sync_all().unwrap();
    model[40_000..44_096].fill(5);
    until_direct(&file);
    file.write_at(60_000, &[6; 4096]).unwrap();
    file.sync_data().unwrap();
    model[60_000..64_096].fill(6);
    drop((theirs, other));
    // The host dies: the program's session with it, and nothing that was synced.
    server.kill().unwrap();
    let lost = file.sync_all();
    assert!(lost.is_err(), "the session was the host's");
    drop((file, direct));
    let server = host(&setup, &address(&setup));
    let volume = Volume::connect(server.address()).unwrap();
    let found = volume.open_file("/f").unwrap().read_at(0, 300_000).unwrap();
    assert!(found == model);
    volume.close().unwrap();
    server.end().unwrap();
    assert_eq!(target.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
}

/// A volume whose storage the host has itself grants nothing, and says so; files work all the same.
#[test]
fn without_a_target_nothing_is_granted() {
    let setup = Setup::new();
    let listen = format!("unix:{}", setup.tmp.path().join("host.sock").display());
    let log = setup.tmp.path().join("host.log");
    let image = Path::new(setup.volume());
    let server = Server::serve(Path::new(SIFTFS), image, &listen, &log, &[]).unwrap();
    let direct = Direct::connect(server.address(), "").unwrap();
    let file = direct.create("/f", 0o644).unwrap();
    file.write_at(3, b"bytes").unwrap();
    file.sync_all().unwrap();
    assert!(!file.is_direct());
    assert_eq!(file.read_at(0, 100).unwrap(), b"\0\0\0bytes");
    assert_eq!(direct.names().stat("/f").unwrap().size, 8);
    drop((file, direct));
    server.end().unwrap();
    let volume = Volume::open(image).unwrap();
    let refused = Direct::of(&volume).map(drop).unwrap_err().to_string();
    assert!(refused.contains("whose storage a target has"), "{refused}");
    volume.close().unwrap();
}
