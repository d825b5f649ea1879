//! Rules about a medium that fails: R9, R21.

use super::{bytes, fsync_on_thread, images};
use siftfs_base::Error;
use siftfs_crash::{Back, Bench, Layout, VolumeKind};
use siftfs_device::{Cut, Fault, Gate, OpClass};
use siftfs_placement::{MkfsOptions, OpenOptions, mkfs, recover};
use std::thread;
use std::time::Duration;

/// A volume that one process has open cannot be opened again, in this process or another.
///
/// Seen to fail when no lock is taken.
#[test]
fn r09_one_writer() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("volume");
    let opts = MkfsOptions { size: Some(32 << 20), lanes: 1, ..MkfsOptions::default() };
    mkfs(&path, &opts, &mut |_, _, _| {}).expect("mkfs");
    let open =
        || siftfs_placement::LocalVolume::open(&path, &OpenOptions::default(), &mut |_, _, _| {});
    let first = open().expect("opens");
    let Err(error) = open() else { panic!("opened twice") };
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert!(error.to_string().len() > 20, "{error}");
    assert!(recover(&path, &OpenOptions::default(), &mut |_, _, _| {}).is_err());
    first.close().expect("closes");
    open().expect("free again").close().expect("closes");
}

/// A failed write or flush is an EIO for its caller, and for every later caller: nothing more is
/// promised. What was acknowledged before stays.
///
/// Seen to fail when a failed write of a record is ignored.
#[test]
fn r21_failed_flush() {
    for class in [OpClass::Write, OpClass::Flush] {
        let b = Bench::new(VolumeKind::SMALL);
        b.durable("before", &bytes(1, 5000));
        b.durable("other", &bytes(1, 100));
        b.write("before", 0, &bytes(2, 5000));
        b.device.inject(Fault::fail(class, libc::EIO).once());
        // A record alone in flight is made durable by its write; a commit always flushes.
        let failed = match class {
            OpClass::Write => b.try_fsync("before"),
            _ => siftfs_model::Control::commit(&b.driver, true),
        };
        assert_eq!(failed.map_err(|e| e.errno()), Err(libc::EIO), "{class:?}");
        let later = b.try_write("other", 0, b"new").and_then(|()| b.try_fsync("other"));
        assert_eq!(later.map_err(|e| e.errno()), Err(libc::EIO), "{class:?}");
        let all = images(&b);
        b.stop();
        for image in all {
            let found = Back::from(&image).bytes("before");
            assert!(found == bytes(1, 5000) || found == bytes(2, 5000));
        }
    }
}

/// A flush that two fsyncs share fails: the caller whose record only the flush would have made
/// durable gets EIO, and so does every later caller.
///
/// Seen to fail when the result of a shared flush is ignored.
#[test]
fn r21_a_failed_shared_flush() {
    let b = Bench::new(VolumeKind::SMALL);
    for name in ["a", "b"] {
        b.durable(name, &bytes(1, 5000));
        b.write(name, 0, &bytes(2, 5000));
    }
    let gate = Gate::new();
    let staging = Layout::of(VolumeKind::SMALL).staging;
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(staging).once());
    let first = fsync_on_thread(&b, "a");
    assert!(gate.wait_arrived(1, Duration::from_secs(5)));
    let fault = b.device.inject(Fault::fail(OpClass::Flush, libc::EIO).once());
    // Something else is in flight, so this record is not durable by its own write.
    let second = fsync_on_thread(&b, "b");
    while b.device.pending().len() < 2 {
        thread::sleep(Duration::from_millis(5));
    }
    gate.open();
    let acknowledged = [first, second].map(|t| t.join().expect("no panic"));
    assert_eq!(b.device.fired(fault), 1, "the flush was shared");
    let image = b.device.image(Cut::LoseAll);
    assert_eq!(b.try_fsync("a").map_err(|e| e.errno()), Err(libc::EIO));
    b.stop();
    let back = Back::from(&image);
    for (name, acknowledged) in ["a", "b"].into_iter().zip(acknowledged) {
        let kept = back.bytes(name) == bytes(2, 5000);
        assert!(kept || !acknowledged, "{name} was acknowledged and is lost");
    }
    assert!(!acknowledged[1], "the flush failed unnoticed");
}

/// A flush of the area fails, whichever of a checkpoint: the Service reclaims nothing, and what
/// was acknowledged is still recovered when the writes that the flush should have covered are
/// lost.
///
/// Seen to fail when the result of the area flush is ignored.
#[test]
fn r21_a_failed_area_flush_reclaims_nothing() {
    for skip in 0..8 {
        let b = Bench::new(VolumeKind::SMALL);
        for i in 0..10 {
            b.durable(&format!("f{i}"), &bytes(i, 5000));
        }
        b.commit(true);
        let fault = b.device.inject(Fault::fail(OpClass::Flush, libc::EIO).after(skip).once());
        let failed = siftfs_model::Control::checkpoint(&b.driver);
        if b.device.fired(fault) == 0 {
            b.stop();
            assert!(skip > 0, "a checkpoint without a flush");
            return;
        }
        assert!(failed.is_err(), "flush {skip} failed unnoticed");
        let lost = b.device.image(Cut::LoseAll);
        let kept = b.device.image(Cut::KeepAll);
        b.stop();
        for image in [lost, kept] {
            let back = Back::from(&image);
            for i in 0..10 {
                assert!(back.bytes(&format!("f{i}")) == bytes(i, 5000), "f{i} after flush {skip}");
            }
        }
    }
}
