//! Freed space goes back by the device process, which has the right to write the area.

use crate::support::{Setup, siftfs};
use crate::{Device, await_that, mount, put, status, write_synced};
use std::fs;
use std::os::unix::fs::MetadataExt;

const LARGE: usize = 24 << 20;

/// Bytes that the volume's file takes.
fn taken(setup: &Setup) -> u64 {
    let file = fs::File::open(setup.volume()).unwrap();
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks() * 512
}

/// Bytes that this side of the connection has discarded: the mount, or the device process.
fn discarded(setup: &Setup, by_device: bool) -> u64 {
    let all = &status(setup)["runtime"];
    let io = if by_device { &all["service"]["device"]["io"] } else { &all["storage"] };
    let origins = ["foreground", "background", "admin"].iter();
    origins.map(|origin| io["area"][origin]["discard_bytes"].as_u64().unwrap()).sum()
}

#[test]
fn the_device_process_gives_freed_space_back() {
    let setup = Setup::of_size("128M");
    let device = Device::start(&setup, &[]);
    mount(&setup, &[]).ok();
    write_synced(&setup.path("large"), &vec![7; LARGE]);
    siftfs(&["checkpoint", setup.dir()]).ok();
    let full = taken(&setup);
    fs::remove_file(setup.path("large")).unwrap();
    siftfs(&["checkpoint", setup.dir()]).ok();
    await_that("freed space goes back", || discarded(&setup, true) >= LARGE as u64);
    assert_eq!(discarded(&setup, false), 0, "the mount has no right to");
    assert!(taken(&setup) < full - LARGE as u64 + (1 << 20));
    setup.umount();
    setup.assert_plain_ext4();
    device.kill();
}

/// What the device process was asked for when it died is asked of the next one.
#[test]
fn a_discard_outlives_the_device_process() {
    let setup = Setup::of_size("128M");
    let device = Device::start(&setup, &[]);
    mount(&setup, &[]).ok();
    write_synced(&setup.path("large"), &vec![7; LARGE]);
    siftfs(&["checkpoint", setup.dir()]).ok();
    let full = taken(&setup);
    // Freed, journaled and reclaimed by the next one; or by this one, and discarded by the next.
    fs::remove_file(setup.path("large")).unwrap();
    siftfs(&["sync", setup.dir()]).ok();
    device.kill();
    let device = Device::start(&setup, &[]);
    siftfs(&["checkpoint", setup.dir()]).ok();
    put(&setup, "meanwhile");
    await_that("freed space goes back", || {
        status(&setup)["runtime"]["discard"]["blocks"].as_u64().unwrap() >= (LARGE / 4096) as u64
    });
    setup.umount();
    assert!(taken(&setup) < full - LARGE as u64 + (2 << 20));
    setup.assert_plain_ext4();
    device.kill();
}
