//! Rules about a medium that fails: R9, R21.

use super::{bytes, images};
use siftfs_base::Error;
use siftfs_crash::{Back, Bench, VolumeKind};
use siftfs_device::{Cut, Fault, OpClass};
use siftfs_placement::{MkfsOptions, OpenOptions, mkfs, recover};

/// A volume that one process has open opens for nobody else, in this process or another.
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

/// A failed write or flush is an EIO for its caller, and for everyone after: nothing more is
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
