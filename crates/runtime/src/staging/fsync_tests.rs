use super::*;
use siftfs_base::LaneId;
use siftfs_device::{MemDevice, RegionDesc, RegionKind, Storage};
use std::cell::RefCell;
use std::sync::Arc;

/// Lanes 0 and 1 on one device, lane 2 on another.
fn lanes() -> Vec<StagingWriter> {
    let lane =
        |index: u16, offset| RegionDesc { kind: RegionKind::Staging, index, offset, len: 65_536 };
    let device = || Arc::new(MemDevice::new(1 << 20));
    let both = (device() as Arc<_>, vec![lane(0, 0), lane(1, 65_536)]);
    let other = (device() as Arc<_>, vec![lane(2, 0)]);
    let storage = Storage::on(&[both, other]).unwrap();
    (0..3).map(|lane| storage.take_staging(LaneId(lane)).unwrap()).collect()
}

/// What is waited for is flushed where it lies, once per device, and nothing else.
#[test]
fn each_device_is_flushed_once() {
    let lanes = lanes();
    for (wanted, flushed) in
        [(&[0][..], &[0][..]), (&[1], &[1]), (&[2], &[2]), (&[0, 1], &[0]), (&[0, 1, 2], &[0, 2])]
    {
        let seen = RefCell::new(Vec::new());
        let number = |lane: &StagingWriter| lanes.iter().position(|l| std::ptr::eq(l, lane));
        let set = wanted.iter().map(|lane| LaneId(*lane)).collect();
        flush_each(&lanes, set, |lane| {
            seen.borrow_mut().push(number(lane).unwrap() as u16);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen.into_inner(), flushed, "{wanted:?}");
    }
}
