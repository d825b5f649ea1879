use super::*;
use crate::spare::store::MIN_SPARE;
use crate::spare::test_util::*;
use crate::spare::{SpareState, erase_spare, format_spare};
use crate::test_util as small;
use siftfs_base::Epoch;
use siftfs_device::{Cut, Image, OpClass};
use siftfs_log::SPARE_FIRST;

/// The image of a log whose spare one has a block, after a power cut.
fn left() -> Image {
    let rig = Rig::new();
    let pair = rig.armed();
    let gate = rig.stall(OpClass::Write);
    pair.write(at(1), &block(1), true).unwrap();
    pair.write(at(2), &block(2), true).unwrap();
    let image = rig.device.image(Cut::LoseAll);
    rig.go_on(&gate);
    image
}

fn refusal(rig: &Rig) -> String {
    let opened = LogPair::open(Some(rig.first.clone()), rig.spare.clone(), true);
    opened.map(drop).unwrap_err().to_string()
}

#[test]
fn what_the_first_log_lacks_is_read_from_the_spare_one_or_brought_home() {
    let rig = Rig::of(left());
    let reader = LogPair::open(Some(rig.first.clone()), rig.spare.clone(), false).unwrap();
    assert_eq!((value(&*reader, 1), value(&*reader, 2), value(&*rig.first, 1)), (1, 2, 0));
    assert!(reader.write(at(3), &block(3), true).is_err(), "a reader writes nothing");
    drop(reader);
    let pair = rig.open();
    assert_eq!((value(&*rig.first, 1), value(&*rig.first, 2)), (1, 2));
    assert_eq!((pair.report().state, pair.report().lacking), (SpareState::Off, 0));
    pair.write(at(1), &block(7), true).unwrap();
    drop(pair);
    rig.open();
    assert_eq!(value(&*rig.first, 1), 7, "the generation is over");
}

/// Seen to fail when the epochs are not compared.
#[test]
fn an_older_copy_is_refused() {
    let rig = Rig::of(left());
    let host = siftfs_log::HostRecord {
        lane_key: siftfs_log::EpochKey { epoch: Epoch(4), nonce: 1 },
        ..small::host()
    };
    crate::format_headers(&*rig.first, &header(), &host, &small::service()).unwrap();
    assert!(refusal(&rig).contains("older copy"));
    assert_eq!(value(&*rig.first, 1), 0, "nothing was written");
}

#[test]
fn what_belongs_to_another_volume_or_to_none_is_refused() {
    let rig = Rig::of(left());
    let other = siftfs_log::StaticHeader { volume: *b"another-volume-x", ..header() };
    format_spare(&*rig.spare, &other, LOG, 1).unwrap();
    assert!(refusal(&rig).contains("is that of volume"));
    erase_spare(&*rig.spare).unwrap();
    assert!(refusal(&rig).contains("no spare log is there"));
    let rig = Rig::of(left());
    let plain =
        siftfs_log::StaticHeader { incompat: siftfs_log::INCOMPAT_EXTERNAL_LOG, ..header() };
    crate::format_headers(&*rig.first, &plain, &small::host(), &small::service()).unwrap();
    assert!(refusal(&rig).contains("has no spare log"));
}

/// A batch that is torn at the end was answered to nobody; one that is damaged before another one
/// was (rule R14).
///
/// Seen to fail when nothing behind the end is looked at.
#[test]
fn rot_is_no_torn_tail() {
    let second = SPARE_FIRST + 8192;
    for (at, rotten) in
        [(SPARE_FIRST + 100, true), (SPARE_FIRST + 5000, true), (second + 100, false)]
    {
        let rig = Rig::of(left());
        rig.device.flip_bits(LOG + at, 1);
        match rotten {
            true => assert!(refusal(&rig).contains("lost acknowledged data"), "byte {at}"),
            false => {
                rig.open();
                assert_eq!((value(&*rig.first, 1), value(&*rig.first, 2)), (1, 0));
            }
        }
    }
}

#[test]
fn a_device_that_is_shorter_now_is_refused() {
    let rig = Rig::of(left());
    let image = rig.device.contents();
    let len = MIN_SPARE - 4096;
    let bytes = image.bytes(LOG, usize::try_from(len).unwrap());
    let short = siftfs_device::MemDevice::new(len);
    short.write(0, &bytes, false).unwrap();
    let opened = LogPair::open(Some(rig.first.clone()), Arc::new(short), true);
    assert!(opened.map(drop).unwrap_err().to_string().contains("truncated"));
    let small = siftfs_device::MemDevice::new(MIN_SPARE - 4096);
    assert!(format_spare(&small, &header(), LOG, 1).is_err());
}
