//! A device with an area and a redo lane.

use crate::redo::{RedoLane, RedoParts};
use siftfs_device::{Device, FaultDevice, Image};
use siftfs_log::{LaneEntry, LaneMedium, RedoRegion, StaticHeader};
use siftfs_volume::{Media, RedoMedium};
use std::sync::Arc;

pub const AREA: u64 = 1 << 20;
pub const LANE: u64 = 1 << 20;
pub const SIZE: u64 = AREA + LANE;
/// Whose transactions they are.
pub const OWNER: u64 = 7;

pub fn medium(device: &Arc<FaultDevice>) -> RedoMedium {
    let lane = LaneEntry {
        id: siftfs_base::LaneId(0),
        medium: LaneMedium::Block,
        offset: 0,
        len: 4096,
        owner: 0,
    };
    let header = StaticHeader {
        compat: 0,
        ro_compat: 0,
        incompat: 8,
        volume: [3; 16],
        area_uuid: [0; 16],
        area_offset: 0,
        area_len: AREA,
        journal_offset: 0,
        journal_len: 0,
        header_offsets: [0, 0],
        lanes: vec![lane],
        redo: Some(RedoRegion { offset: AREA, len: LANE }),
    };
    RedoMedium::of(&Media::from(device.clone()), &header).unwrap()
}

pub fn parts(device: &Arc<FaultDevice>) -> RedoParts {
    RedoParts::for_test(medium(device), AREA, false)
}

/// A device with an empty lane; byte `i` of the area is `i % 251`.
pub fn formatted() -> Arc<FaultDevice> {
    let mut image = Image::new(SIZE);
    let area: Vec<u8> = (0..AREA).map(|i| (i % 251) as u8).collect();
    image.write(0, &area);
    let device = Arc::new(FaultDevice::from_image(image, 1));
    medium(&device).format(1).unwrap();
    device
}

/// What a power cut left, as a device.
pub fn after(image: Image) -> Arc<FaultDevice> {
    Arc::new(FaultDevice::from_image(image, 2))
}

pub fn open(device: &Arc<FaultDevice>) -> RedoLane {
    RedoLane::open(parts(device), 1000 + device.ops()).unwrap().0
}

/// Opens the lane, and says how many transactions were replayed.
pub fn replay(device: &Arc<FaultDevice>) -> siftfs_base::Result<u64> {
    parts(device).replay().map(|(_, transactions)| transactions)
}

/// The area, as the device has it.
pub fn area(device: &FaultDevice) -> Vec<u8> {
    device.contents().bytes(0, AREA as usize)
}

/// The area as a program reads it.
pub fn read(lane: &RedoLane, device: &FaultDevice) -> Vec<u8> {
    let held = lane.hold();
    let mut bytes = vec![0; AREA as usize];
    device.read(0, &mut bytes).unwrap();
    held.patch(0, &mut bytes);
    bytes
}

/// Commits one transaction of these writes.
pub fn atomic(lane: &RedoLane, writes: &[(u64, &[u8])]) -> siftfs_base::Result<()> {
    writes.iter().try_for_each(|(offset, bytes)| lane.append(OWNER, 1, *offset, bytes))?;
    lane.commit(OWNER, 1)
}

pub fn put(area: &mut [u8], writes: &[(u64, &[u8])]) {
    for (offset, bytes) in writes {
        area[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}
