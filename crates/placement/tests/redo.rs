//! A volume with a redo lane: made, opened, recovered and given up, without a target.

use siftfs_base::{Clock, Error, ManualClock};
use siftfs_device::{Device, MemDevice};
use siftfs_log::RedoSlot;
use siftfs_placement::{
    Discarded, LocalVolume, Media, MkfsOptions, OpenOptions, Threads, discard_log_on, mkfs_on,
    recover_on, release_on,
};
use siftfs_service::{RedoLane, RedoParts};
use std::sync::Arc;

const REDO: u64 = 2 << 20;
/// A place in the area that the file system does not use.
const FREE: u64 = 12 << 20;

fn made(apart: bool) -> Media {
    let device = |size| -> Arc<dyn Device> { Arc::new(MemDevice::new(size)) };
    let media = match apart {
        true => Media::split(device(24 << 20), device(8 << 20)),
        false => Media::from(device(24 << 20)),
    };
    let log_size = Some(if apart { 8 << 20 } else { 6 << 20 });
    let opts = MkfsOptions { log_size, redo_lane: Some(REDO), ..MkfsOptions::default() };
    let report = mkfs_on(media.clone(), &opts).unwrap();
    assert_eq!(report.redo_lane_bytes, REDO);
    media
}

/// A mount that died.
fn die(media: &Media) {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(1_700_000_000));
    let opts = OpenOptions::default();
    LocalVolume::open_on(media.clone(), clock, &opts, Threads::None).unwrap().abandon();
}

/// Commits these bytes at [`FREE`], as a target that dies then.
fn commit(media: &Media, bytes: &[u8]) {
    let lane = RedoLane::open(RedoParts::of(media, &media.read().unwrap()).unwrap(), 9).unwrap().0;
    lane.append(1, 1, FREE, bytes).unwrap();
    lane.commit(1, 1).unwrap();
}

fn there(media: &Media) -> [u8; 4] {
    let mut bytes = [0; 4];
    media.area.read(FREE, &mut bytes).unwrap();
    bytes
}

fn errors(media: &Media) -> Vec<&'static str> {
    let (log, bytes) = (media.log.as_deref(), media.bytes.as_deref());
    let found = siftfs_fsck::check_on(siftfs_fsck::Devices {
        area: &*media.area,
        log,
        bytes,
        spare: false,
    });
    let errors = found.iter().filter(|f| f.severity == siftfs_fsck::Severity::Error);
    errors.map(|f| f.code).collect()
}

#[test]
fn what_was_committed_is_recovered() {
    for apart in [false, true] {
        let media = made(apart);
        assert_eq!(errors(&media), [""; 0]);
        assert!(recover_on(media.clone(), &OpenOptions::default()).unwrap().clean);
        die(&media);
        commit(&media, b"redo");
        assert_eq!((there(&media), errors(&media)), ([0; 4], vec![]));
        let report = recover_on(media.clone(), &OpenOptions::default()).unwrap();
        assert_eq!((report.redo_transactions, report.clean), (1, false));
        assert_eq!((&there(&media), errors(&media)), (b"redo", vec![]));
        // A mount does the same, and a release; each leaves an empty lane.
        die(&media);
        commit(&media, b"more");
        die(&media);
        assert_eq!((&there(&media), errors(&media)), (b"more", vec![]));
        commit(&media, b"last");
        release_on(media.clone(), &OpenOptions::default(), &mut |_, _, _| {}).unwrap();
        assert_eq!(&there(&media), b"last");
    }
}

/// Others may have written the file system of a volume that is not marked as in use.
#[test]
fn a_clean_volume_is_not_written_over() {
    let media = made(false);
    commit(&media, b"redo");
    let refused = recover_on(media.clone(), &OpenOptions::default());
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert_eq!((there(&media), errors(&media)), ([0; 4], vec!["redo.clean"]));
    assert_eq!(discard_log_on(media.clone()).unwrap(), Discarded::Emptied);
    assert_eq!((there(&media), errors(&media)), ([0; 4], vec![]));
}

#[test]
fn a_damaged_lane_is_given_up_with_the_log_alone() {
    for apart in [false, true] {
        let media = made(apart);
        die(&media);
        commit(&media, b"redo");
        let view = media.read().unwrap();
        let slot = media.redo(&view).unwrap().read_slot().unwrap();
        let at = view.header.redo.unwrap().offset + RedoSlot::place(slot.seq);
        media.log_device().write(at + 40, &[0xff], true).unwrap();
        let refused = recover_on(media.clone(), &OpenOptions::default());
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
        assert!(errors(&media).contains(&"redo.slot"));
        assert_eq!(discard_log_on(media.clone()).unwrap(), Discarded::Emptied);
        assert_eq!((there(&media), errors(&media)), ([0; 4], vec![]));
        // It serves again.
        die(&media);
        commit(&media, b"redo");
        recover_on(media.clone(), &OpenOptions::default()).unwrap();
        assert_eq!(&there(&media), b"redo");
    }
}

/// A whole one is brought home first.
#[test]
fn a_log_that_is_given_up_gives_its_redo_lane_first() {
    let media = made(false);
    die(&media);
    commit(&media, b"redo");
    assert_eq!(discard_log_on(media.clone()).unwrap(), Discarded::Emptied);
    assert_eq!((&there(&media), errors(&media)), (b"redo", vec![]));
}

#[test]
fn a_lane_that_cannot_be_is_refused() {
    let make = |redo: u64, size: u64| {
        let media: Arc<dyn Device> = Arc::new(MemDevice::new(size));
        let log_size = Some(6 << 20);
        let opts = MkfsOptions { log_size, redo_lane: Some(redo), ..MkfsOptions::default() };
        mkfs_on(media, &opts).map(drop)
    };
    assert!(matches!(make((1 << 20) - 1, 24 << 20), Err(Error::Refused(_))));
    assert!(matches!(make(17 << 30, 24 << 20), Err(Error::Refused(_))));
    assert!(matches!(make(9 << 20, 20 << 20), Err(Error::Refused(_))), "no room for the area");
    make(1 << 20, 20 << 20).unwrap();
}
