//! A process that is killed while the storage has power, and power that is lost later.

use super::bytes;
use siftfs_crash::{Back, Bench, VolumeKind, base_image_of, deterministic, open};
use siftfs_device::{Cut, Fate, FaultDevice, History, Image, SharedDevice};
use siftfs_placement::{Media, recover_on};
use std::sync::Arc;

/// What was written before the daemon died and not flushed is lost, and what recovery wrote is not.
fn only_recovery_survives(history: &History, begun: u64, mut check: impl FnMut(&Image)) {
    history.each_cut(|cut, cache| {
        if cut > begun {
            check(&cache.image_with(|w| if w.op < begun { Fate::Lose } else { Fate::Keep }));
            check(&cache.image(Cut::Random(cut)));
        }
    });
}

/// A daemon works on files that are durable and dies before its n-th access. How many of its fsyncs
/// returned, and when it died.
fn killed(device: &Arc<FaultDevice>, n: u64) -> (u64, bool) {
    let seat = SharedDevice::new(device.clone()).open();
    let driver = open(Media::from(seat.clone())).expect("it lives");
    let b = Bench { device: device.clone(), service: driver.volume.endpoint(), driver };
    for i in 0..4 {
        b.durable(&format!("f{i}"), &bytes(i, 6000));
    }
    b.settle();
    seat.kill_after(n);
    let mut acknowledged = 0;
    for i in 0..4 {
        let path = format!("f{i}");
        let done = b.try_write(&path, 1000, &bytes(10 + i, 9000)).and_then(|()| b.try_fsync(&path));
        acknowledged += u64::from(done.is_ok() && acknowledged == i);
        if i % 2 == 1 {
            // It may be dead.
            let _ = b.driver.volume.commit(true).and_then(|()| b.driver.volume.checkpoint());
        }
    }
    let died = seat.is_dead();
    b.stop();
    (acknowledged, died)
}

/// The journal's and the service's records lie in a volatile cache when the daemon is killed;
/// recovery reads them, and power is lost in the middle of it.
///
/// Seen to fail when what can be read is not flushed before recovery.
#[test]
fn r18_a_killed_process_then_power_lost_in_recovery() {
    let mut cuts = 0;
    for n in 0.. {
        let device = Arc::new(FaultDevice::from_image(base_image_of(VolumeKind::SMALL), n));
        device.record_history();
        let (acknowledged, died) = killed(&device, n);
        let begun = device.ops();
        recover_on(Media::from(device.clone()), &deterministic()).expect("recovery");
        let history = device.take_history().expect("recorded");
        only_recovery_survives(&history, begun, |image| {
            cuts += 1;
            let back = Back::from(image);
            for i in 0..acknowledged {
                let whole = [&bytes(i, 1000)[..], &bytes(10 + i, 9000)].concat();
                assert_eq!(back.bytes(&format!("f{i}")), whole, "f{i}, killed before access {n}");
            }
        });
        if !died {
            assert!(acknowledged == 4 && n > 10, "{n} accesses");
            break;
        }
    }
    assert!(cuts > 100, "{cuts} cuts");
}
