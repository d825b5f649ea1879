//! The redo lane at a target: no host writes it, and what it has comes home before a host is
//! answered.

use super::machine::{Machine, Way};
use super::{area, host, opened, volume_with};
use siftfs_base::Error;
use siftfs_device::{Device, FaultDevice, Role};
use siftfs_device_target::Target;
use siftfs_placement::Media;
use siftfs_service::{RedoLane, RedoParts};
use std::sync::Arc;
use std::time::Duration;

const SIZE: u64 = 32 << 20;
const REDO: u64 = 2 << 20;
/// A place in the area that the file system does not use.
const FREE: u64 = 14 << 20;

/// A volume that is in use, with a committed transaction in its lane.
fn left_by_a_target(dir: &std::path::Path) -> FaultDevice {
    let machine = Machine::start(volume_with(SIZE, Some(REDO)), Way::Unix, dir);
    host(&machine).unwrap().abandon();
    let disk = Arc::new(FaultDevice::from_image(machine.disk.contents(), 1));
    drop(machine);
    let media = Media::from(disk.clone());
    let lane = RedoLane::open(RedoParts::of(&media, &media.read().unwrap()).unwrap(), 9).unwrap().0;
    lane.append(1, 1, FREE, b"redo").unwrap();
    lane.commit(1, 1).unwrap();
    FaultDevice::from_image(disk.contents(), 2)
}

/// Rule R34: whatever roles a host has.
#[test]
fn r34_no_host_writes_the_redo_lane() {
    let dir = tempfile::tempdir().unwrap();
    let disk = volume_with(SIZE, Some(REDO));
    let redo = siftfs_volume::read_headers(&disk).unwrap().header.redo.unwrap();
    let machine = Machine::start(disk, Way::SharedMemory, dir.path());
    let device = area(&opened(&machine).unwrap());
    let refuses = |device: &Arc<dyn Device>, when: &str| {
        let end = redo.offset + redo.len;
        for at in [redo.offset - 8, redo.offset, redo.offset + 8192, end - 16, end - 8] {
            let mut there = [0; 16];
            device.read(at, &mut there).unwrap();
            let refused = device.write(at, &there, false);
            assert!(matches!(refused, Err(Error::Refused(_))), "{when}, {at}: {refused:?}");
        }
    };
    refuses(&device, "both roles");
    for role in Role::ALL {
        device.unclaim(role).unwrap();
        refuses(&device, "another role");
        device.claim(role, Duration::ZERO).unwrap();
        refuses(&device, "both roles again");
    }
    let mut there = [0; 16];
    device.read(redo.offset - 16, &mut there).unwrap();
    device.write(redo.offset - 16, &there, false).unwrap();
}

/// Rule R33: who may only read gets what is there; with the host's role the lane is empty.
#[test]
fn r33_the_lane_is_brought_home_before_a_host_is_answered() {
    for alone in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(left_by_a_target(dir.path()), Way::Unix, dir.path());
        let read = |target: &Arc<Target>| {
            let mut bytes = [0; 4];
            area(target).read(FREE, &mut bytes).unwrap();
            bytes
        };
        let reader = Target::open(machine.place(), false).unwrap();
        assert_eq!(read(&reader), [0; 4]);
        assert_eq!(machine.disk.stats().writes, 0, "a reader changes nothing");
        if alone {
            let target = opened(&machine).unwrap();
            assert_eq!(&read(&target), b"redo");
        } else {
            host(&machine).unwrap().close().unwrap();
            assert_eq!(&read(&reader), b"redo");
        }
        let media = Media::from(machine.disk.clone());
        let medium = media.redo(&media.read().unwrap()).unwrap();
        let end = medium.end(&medium.read_slot().unwrap()).unwrap();
        assert_eq!(end.transactions, 0);
    }
}

/// A lane that is damaged is no storage for a host.
#[test]
fn a_damaged_lane_is_said_to_a_host() {
    let dir = tempfile::tempdir().unwrap();
    let disk = left_by_a_target(dir.path());
    let redo = siftfs_volume::read_headers(&disk).unwrap().header.redo.unwrap();
    disk.write(redo.offset + 40, &[0xff], true).unwrap();
    let machine = Machine::start(disk, Way::Unix, dir.path());
    let refused = opened(&machine).map(drop);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
}
