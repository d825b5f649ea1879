//! Rules where log and area lie on two devices, each with flushes of its own: R3, R11, R15, R16,
//! R21.

use super::bytes;
use siftfs_crash::{
    Back, Bench, Split, VolumeKind, base_image_of, deterministic, e2fsck_image, media_of,
    mem_media, recover_image,
};
use siftfs_device::{Cut, Device, Divisible, Fate, Fault, FaultDevice, Image, OpClass, Part};
use siftfs_model::Control;
use siftfs_placement::{MkfsOptions, adopt_on, recover_on, release_on};
use std::ops::Range;
use std::sync::Arc;

const KIND: VolumeKind = VolumeKind::APART;
/// The first byte of the log's device in an image.
const SPLIT: u64 = KIND.size - KIND.log;

fn part<D: Divisible + 'static>(device: &Arc<D>, range: Range<u64>) -> Arc<dyn Device> {
    Arc::new(Part::new(device.clone(), range))
}

fn cuts(seed: u64) -> [Cut; 5] {
    [Cut::LoseAll, Cut::KeepAll, Cut::KeepBefore(SPLIT), Cut::KeepFrom(SPLIT), Cut::Random(seed)]
}

/// An fsync writes and flushes the log's device, and touches the other not at all.
///
/// Seen to fail when a record alone in flight is written without FUA.
#[test]
fn r03_an_fsync_is_the_log_devices_business() {
    let b = Bench::new(KIND);
    b.durable("f", &bytes(1, 4096));
    b.settle();
    let ops = b.log(|b| {
        b.write("f", 0, &bytes(2, 4096));
        b.fsync("f");
    });
    assert_eq!(ops.len(), 1, "one write, durable by itself: {ops:?}");
    assert!(ops.iter().all(|op| op.offset >= SPLIT), "{ops:?}");
    b.stop();
}

/// A flush of the area's device alone fails: the Service reclaims nothing, and everything is
/// recovered from the log when that device loses what it had not flushed.
///
/// Seen to fail when the result of the area flush is ignored.
#[test]
fn r21_a_failed_flush_of_the_area_device_reclaims_nothing() {
    for class in [OpClass::Flush, OpClass::Write] {
        let b = Bench::new(KIND);
        for i in 0..10 {
            b.durable(&format!("f{i}"), &bytes(i, 5000));
        }
        b.commit(true);
        let fault = b.device.inject(Fault::fail(class, libc::EIO).within(0..SPLIT).once());
        assert!(b.driver.checkpoint().is_err(), "{class:?} failed unnoticed");
        assert_eq!(b.device.fired(fault), 1);
        assert!(b.try_write("f1", 0, b"x").and_then(|()| b.try_fsync("f1")).is_err());
        let images = cuts(5).map(|cut| b.device.image(cut));
        b.stop();
        for image in images {
            let back = Back::from(&image);
            (0..10).for_each(|i| assert!(back.bytes(&format!("f{i}")) == bytes(i, 5000)));
        }
    }
}

/// A flush of the log's device alone fails: nothing is promised from then on, and what was promised
/// before is there.
///
/// Seen to fail when a failed flush of the journal is ignored.
#[test]
fn r21_a_failed_flush_of_the_log_device_ends_all_promises() {
    let b = Bench::new(KIND);
    b.durable("before", &bytes(1, 5000));
    b.write("before", 0, &bytes(2, 5000));
    b.device.inject(Fault::fail(OpClass::Flush, libc::EIO).within(SPLIT..KIND.size).once());
    assert!(b.driver.commit(true).is_err(), "failed unnoticed");
    assert!(b.try_write("before", 0, b"x").and_then(|()| b.try_fsync("before")).is_err());
    let images = cuts(5).map(|cut| b.device.image(cut));
    b.stop();
    for image in images {
        let found = Back::from(&image).bytes("before");
        assert!(found == bytes(1, 5000) || found == bytes(2, 5000));
    }
}

/// Mount, use and unmount cut everywhere, with the superblock torn: it comes back from the header
/// on the other device.
///
/// Seen to fail when a torn superblock is not put back.
#[test]
fn r15_a_torn_superblock_is_repaired_from_the_other_device() {
    let base = base_image_of(KIND);
    let device = Arc::new(FaultDevice::from_image(base, 1));
    device.record_history();
    let b = Bench::on_device(device.clone());
    b.durable("f", &bytes(1, 100));
    b.mkdir("d");
    b.close();
    let history = device.take_history().expect("recorded");
    history.each_cut(|cut, cache| {
        for whole in [Fate::Keep, Fate::Lose] {
            for torn in [Fate::Prefix(1), Fate::Torn(cut)] {
                let image = cache
                    .image_with(|w| if w.offset < 4096 { torn.clone() } else { whole.clone() });
                Back::from(&image);
            }
        }
    });
}

/// A mount is cut everywhere: the log that was there before it never passes for that of the marked
/// area, whatever either device lost (the older copy of the log is clean, and would be taken for
/// that of an interrupted mount).
///
/// Seen to fail when the epochs of marker and header are not compared.
#[test]
fn r16_an_older_log_never_serves_a_marked_area() {
    let base = base_image_of(KIND);
    let device = Arc::new(FaultDevice::from_image(base.clone(), 1));
    device.record_history();
    let b = Bench::on_device(device.clone());
    b.durable("f", &bytes(1, 100));
    b.stop();
    let (mut marked, mut served) = (0, 0);
    device.take_history().expect("recorded").each_cut(|cut, cache| {
        for kind in cuts(cut) {
            let mut image = cache.image(kind);
            recover_image(&image).unwrap_or_else(|e| panic!("cut {cut}, {kind:?}: {e}"));
            let is_marked = image.bytes(1024 + 0x63, 1)[0] & 0x20 != 0;
            let len = usize::try_from(KIND.log).expect("small");
            image.write(SPLIT, &base.bytes(SPLIT, len));
            match recover_image(&image) {
                Ok(_) => {
                    assert!(!is_marked, "cut {cut}: a marked area went with an older log");
                    served += 1;
                }
                Err(e) => {
                    assert!(is_marked && e.contains("older copy"), "cut {cut}, {kind:?}: {e}");
                    marked += 1;
                }
            }
        }
    });
    assert!(marked > 0 && served > 0, "{marked} marked, {served} not");
}

/// A plain ext4 area and an erased log.
fn plain() -> Image {
    let (device, media) = mem_media(&base_image_of(KIND));
    release_on(media, &deterministic(), &mut |_, _, _| {}).expect("released");
    let image = device.snapshot();
    assert_eq!(Split::of(&image).log, None, "the superblock forgot its log");
    image
}

/// What is left is a volume that opens, or plain ext4 that can be adopted.
fn whole(image: &Image, what: &str) {
    e2fsck_image(&if Split::of(image).log.is_some() {
        recover_image(image).unwrap_or_else(|e| panic!("{what}: {e}"))
    } else {
        image.clone()
    })
    .unwrap_or_else(|e| panic!("{what}: {e}"));
    if Split::of(image).log.is_none() {
        let device = Arc::new(siftfs_device::MemDevice::from_image(image.clone()));
        let (area, log) = (part(&device, 0..SPLIT), part(&device, SPLIT..KIND.size));
        adopt_on(&area, &log, &MkfsOptions::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
        Back::from(&device.snapshot());
    }
}

/// Adoption cut everywhere: the superblock names the log only when that is whole.
///
/// Seen to fail when the superblock is written before the log's header.
#[test]
fn r16_an_interrupted_adoption_leaves_ext4_or_a_volume() {
    let device = Arc::new(FaultDevice::from_image(plain(), 1));
    device.record_history();
    let (area, log) = (part(&device, 0..SPLIT), part(&device, SPLIT..KIND.size));
    adopt_on(&area, &log, &MkfsOptions::default()).expect("adopted");
    let mut linked = 0;
    device.take_history().expect("recorded").each_cut(|cut, cache| {
        for kind in cuts(cut) {
            let image = cache.image(kind);
            linked += u64::from(Split::of(&image).log.is_some());
            whole(&image, &format!("adoption cut at {cut}, {kind:?}"));
        }
    });
    assert!(linked > 0, "never adopted");
}

/// The same for giving a volume back, a dirty one.
///
/// Seen to fail when the log is made invalid before the superblock forgets it.
#[test]
fn r16_an_interrupted_release_leaves_ext4_or_a_volume() {
    let b = Bench::new(KIND);
    b.durable("f", &bytes(1, 9000));
    let dirty = b.crash(Cut::LoseAll);
    let device = Arc::new(FaultDevice::from_image(dirty.clone(), 1));
    device.record_history();
    let media = media_of(&device, &dirty);
    release_on(media, &deterministic(), &mut |_, _, _| {}).expect("released");
    device.take_history().expect("recorded").each_cut(|cut, cache| {
        for kind in cuts(cut) {
            whole(&cache.image(kind), &format!("release cut at {cut}, {kind:?}"));
        }
    });
    let (back, _) = mem_media(&device.contents());
    assert!(recover_on(back, &deterministic()).is_err(), "no volume any more");
}
