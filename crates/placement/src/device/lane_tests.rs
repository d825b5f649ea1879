use super::*;
use crate::{Media, MkfsOptions, mkfs_on};
use siftfs_device::{Fault, FaultDevice, Gate, OpClass, RegionKind};
use siftfs_service::RedoParts;
use siftfs_volume::{read_headers, region_descs};
use std::time::Duration;

/// The lane makes a checkpoint when it is half full, and its end waits for one that writes to the
/// area: nothing of this process does when the host's role is given back.
#[test]
fn its_end_waits_for_what_it_is_at() {
    let disk = Arc::new(FaultDevice::new(32 << 20, 1));
    let options = MkfsOptions {
        log_size: Some(6 << 20),
        lanes: 1,
        redo_lane: Some(1 << 20),
        ..MkfsOptions::default()
    };
    mkfs_on(disk.clone(), &options).unwrap();
    let header = read_headers(&*disk).unwrap().header;
    let area = region_descs(&header).into_iter().find(|d| d.kind == RegionKind::Area).unwrap();
    let media = Media::from(disk.clone());
    let parts = RedoParts::of(&media, &media.read().unwrap()).unwrap();
    let open = OpenLane::new(RedoLane::open(parts, 9).unwrap().0.into()).unwrap();
    let lane = open.lane();
    let gate = Gate::new();
    let home = area.offset..area.offset + area.len;
    disk.inject(Fault::hold(OpClass::Write, &gate).within(home).once());
    // Blocks that the file system does not use.
    for round in 0..40 {
        lane.append(1, 1, (14 << 20) + round * 4096, &[7; 16 << 10]).unwrap();
        lane.commit(1, 1).unwrap();
    }
    assert!(gate.wait_arrived(1, Duration::from_secs(20)), "nobody makes a checkpoint");
    let ending = thread::spawn(move || drop(open));
    thread::sleep(Duration::from_millis(20));
    assert!(!ending.is_finished(), "it writes to the area");
    gate.open();
    ending.join().unwrap();
    assert_eq!(Arc::strong_count(&lane), 1, "no thread has it");
}
