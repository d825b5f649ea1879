//! A volume that is held for a snapshot: what is on storage then, and at every cut around it (R4,
//! R11, R15, R16, and clause S2).

use super::marker::changed_by_others;
use super::{bytes, fsync_on_thread};
use siftfs_base::Error;
use siftfs_crash::{Back, Bench, VolumeKind, base_image_of, e2fsck_image};
use siftfs_device::{Cut, Device, Fate, Fault, OpClass};
use siftfs_fsck::Severity;
use siftfs_placement::{Frozen, Held};
use siftfs_proto::Request;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(30);

fn freeze(b: &Bench) -> Held {
    match b.driver.volume.freezer().freeze(WITHIN) {
        Ok(Frozen::Held(held)) => held,
        Ok(Frozen::Plain) => panic!("it is marked"),
        Err(e) => panic!("freeze: {e}"),
    }
}

fn thaw(held: Held) {
    assert!(held.thaw().expect("thawed"), "it was held until now");
}

/// Is the image what an unmount leaves? Nothing is recovered.
fn assert_clean(image: &siftfs_device::Image) {
    assert_eq!(e2fsck_image(image), Ok(()));
    let found = siftfs_fsck::check(&siftfs_device::MemDevice::from_image(image.clone()));
    assert!(found.iter().all(|f| f.severity == Severity::Info), "{found:?}");
}

/// Under the hold the storage has a clean ext4 file system with everything in it, also what nobody
/// had synced, and whatever a power cut takes.
///
/// Seen to fail when the marker stays, and when unsynced data is left in memory.
#[test]
fn s2_a_held_volume_is_a_clean_one() {
    for kind in [VolumeKind::SMALL, VolumeKind::TWO_LANES, VolumeKind::SMALL.with_redo_lane()] {
        let b = Bench::new(kind);
        b.durable("synced", &bytes(1, 5000));
        b.create("written");
        b.write("written", 100, &bytes(2, 9000));
        b.mkdir("d");
        b.rename("written", "d/moved");
        let held = freeze(&b);
        for cut in [Cut::LoseAll, Cut::KeepAll, Cut::Random(1)] {
            let image = b.device.image(cut);
            assert_clean(&image);
            let back = Back::from(&image);
            assert!(back.bytes("synced") == bytes(1, 5000));
            assert!(back.bytes("d/moved")[100..] == bytes(2, 9000));
        }
        assert!(b.read("synced") == bytes(1, 5000), "reads go on");
        thaw(held);
        b.durable("later", &bytes(3, 5000));
        let back = b.recovered(Cut::LoseAll);
        assert!(back.bytes("later") == bytes(3, 5000));
        assert!(back.bytes("synced") == bytes(1, 5000));
    }
}

/// Freezes and thaws, twice, between fsyncs, are cut everywhere: what was durable is there, and the
/// recovered volume is clean. A superblock that is torn comes back.
///
/// Seen to fail when the marker comes back before the header says so, and when the header says
/// clean before everything is home.
#[test]
fn r15_a_freeze_is_cut_everywhere() {
    let kinds = [
        VolumeKind::SMALL,
        VolumeKind::APART,
        VolumeKind::TWO_LANES,
        VolumeKind::SMALL.with_area(),
    ];
    for kind in kinds {
        let device = Arc::new(siftfs_crash::fault_device(base_image_of(kind), 1));
        let b = Bench::on_device(device.clone());
        b.durable("first", &bytes(1, 5000));
        device.record_history();
        let mut durable = vec![(device.ops(), "first", bytes(1, 5000))];
        for (name, id) in [("second", 2), ("third", 3)] {
            thaw(freeze(&b));
            b.durable(name, &bytes(id, 5000));
            durable.push((device.ops(), name, bytes(id, 5000)));
        }
        b.stop();
        device.take_history().expect("recorded").each_cut(|cut, cache| {
            let torn = cache.image_with(|w| match w.offset < 4096 {
                true => Fate::Torn(cut),
                false => Fate::Keep,
            });
            let images = [cache.image(Cut::LoseAll), cache.image(Cut::Random(cut)), torn];
            for image in images {
                let back = Back::from(&image);
                for (_, name, data) in durable.iter().filter(|(at, ..)| *at <= cut) {
                    assert!(back.bytes(name) == *data, "{kind:?}, cut {cut}: {name}");
                }
            }
        });
    }
}

/// Changes and fsyncs wait for the end of a hold, and then they are done; none is refused.
///
/// Seen to fail when fsyncs do not wait, and when changes do not.
#[test]
fn r01_changes_wait_for_the_end_of_a_hold() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 5000));
    let held = freeze(&b);
    let before = b.device.ops();
    let ino = b.ino("f");
    let (service, other) = (b.service.clone(), b.service.clone());
    let call = |service: Arc<dyn siftfs_proto::FileService>, req: Request| {
        thread::spawn(move || service.call(&siftfs_proto::Credentials::default(), req))
    };
    let write = call(service, Request::write(ino, 0, siftfs_proto::WriteData::copy_of(0, b"new")));
    let parent = siftfs_proto::ROOT_INO;
    let mkdir = call(other, Request::MakeDir { parent, name: "d".into(), perm: 0o755 });
    let fsync = fsync_on_thread(&b, "f");
    thread::sleep(Duration::from_millis(200));
    assert!(!write.is_finished() && !mkdir.is_finished() && !fsync.is_finished());
    // The background has nothing to do, and a command that makes everything durable finds it so.
    b.driver.volume.tick().expect("a round");
    b.commit(true);
    assert!(b.read("f") == bytes(1, 5000));
    let kinds = b.log(|b| b.driver.volume.tick().expect("a round"));
    assert!(kinds.is_empty(), "nothing is written under a hold: {kinds:?}");
    assert_clean(&b.device.image(Cut::LoseAll));
    assert!(b.device.ops() >= before);
    thaw(held);
    write.join().expect("joined").expect("written");
    mkdir.join().expect("joined").expect("made");
    assert!(fsync.join().expect("joined"));
    b.fsync("f");
    assert_eq!(b.recovered(Cut::LoseAll).bytes("f")[..3], b"new"[..]);
}

/// There is one hold at a time; a volume that is opened read-only needs none; a remount waits; and
/// a hold that is dropped, or whose volume is closed, ends.
///
/// Seen to fail when the marker stays.
#[test]
fn r09_one_hold_at_a_time() {
    let b = Bench::new(VolumeKind::SMALL);
    let freezer = b.driver.volume.freezer();
    let held = freeze(&b);
    assert!(matches!(freezer.freeze(WITHIN), Err(Error::Refused(_))));
    assert!(matches!(b.driver.volume.remounter().make_read_only(), Err(Error::Refused(_))));
    drop(held);
    b.durable("f", &bytes(1, 100));
    let held = freeze(&b);
    let closed = b.close();
    assert_clean(&closed);
    assert_eq!(held.thaw(), Ok(false), "it had ended before");
    assert!(matches!(freezer.freeze(WITHIN), Err(Error::Posix(libc::ESHUTDOWN))));
    assert_eq!(Back::from(&closed).bytes("f"), bytes(1, 100));
}

/// A removed file that is open keeps the area from being a clean file system: refused, and changes
/// are taken.
///
/// Seen to fail when such files are not looked for.
#[test]
fn r15_removed_files_that_are_open_are_in_the_way() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 100));
    let handle = b.open("f");
    b.unlink("f");
    let error = b.driver.volume.freezer().freeze(WITHIN).err().expect("refused");
    assert!(error.to_string().contains("lsof"), "{error}");
    b.durable("g", &bytes(2, 100));
    b.call(Request::Release { handle }).expect("released");
    thaw(freeze(&b));
    assert_eq!(b.recovered(Cut::LoseAll).bytes("g"), bytes(2, 100));
}

/// The file system is changed by another program under the hold: nothing is promised any more, and
/// the program's bytes stay.
///
/// Seen to fail when the superblock is not compared.
#[test]
fn r16_a_change_under_the_hold_is_noticed() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 100));
    let held = freeze(&b);
    let changed = changed_by_others(&b.device.contents());
    b.device.write(0, &changed.bytes(0, 4096), false).expect("written");
    assert!(held.thaw().is_err(), "changed unnoticed");
    assert!(b.try_write("f", 0, b"x").is_err(), "nothing more is taken");
    b.stop();
}

/// A write that fails as the marker goes or comes back: nothing is promised, nobody waits for ever,
/// and what was durable is there.
///
/// Seen to fail when the marker comes back before the header says so.
#[test]
fn r21_a_failed_freeze_ends_all_promises() {
    for fails in 0..4 {
        let b = Bench::new(VolumeKind::SMALL);
        b.durable("f", &bytes(1, 5000));
        b.settle();
        b.device.inject(Fault::fail(OpClass::Flush, libc::EIO).after(fails));
        let failed = match b.driver.volume.freezer().freeze(WITHIN) {
            Ok(Frozen::Held(held)) => held.thaw().is_err(),
            Ok(Frozen::Plain) => panic!("it is marked"),
            Err(_) => true,
        };
        assert!(failed && b.try_write("f", 0, b"x").and_then(|()| b.try_fsync("f")).is_err());
        let device = b.device.clone();
        b.stop();
        for cut in [Cut::LoseAll, Cut::KeepAll, Cut::Random(fails)] {
            assert_eq!(Back::from(&device.image(cut)).bytes("f").len(), 5000);
        }
    }
}
