use crate::spare::test_util::*;
use crate::spare::{LogPair, SpareState, read_spare_header};
use crate::{format_headers, test_util as small};
use siftfs_base::{Epoch, Error};
use siftfs_device::{Cut, Device, Fault, Gate, MemDevice, OpClass, WriteOp};
use siftfs_log::{EpochKey, HEADER_LEN, HostRecord};
use std::sync::Arc;

fn fail(rig: &Rig, class: OpClass) {
    rig.device.inject(Fault::fail(class, libc::EIO).within(0..LOG));
}

/// The log, opened from the spare device alone.
fn alone(rig: &Rig) -> Arc<LogPair> {
    LogPair::open(None, rig.spare.clone(), true).unwrap()
}

/// Seen to fail when what is not durable on the first device is not written to the image, when its
/// caller is answered before the header says so, and when a stale first device is looked at.
#[test]
fn a_write_that_fails_leaves_the_first_device_for_good() {
    let rig = Rig::roomy();
    let pair = rig.armed();
    pair.write(at(1), &block(1), true).unwrap();
    pair.write(at(2), &block(2), false).unwrap();
    fail(&rig, OpClass::Write);
    pair.write(at(3), &block(3), true).unwrap();
    assert_eq!(pair.report().state, SpareState::Alone);
    pair.write(at(1), &block(4), true).unwrap();
    pair.flush().unwrap();
    assert_eq!((value(&*rig.first, 1), value(&*rig.first, 3)), (1, 0));
    for cut in cuts(1) {
        let back = Rig::of(rig.device.image(cut));
        for log in [alone(&back), back.open()] {
            let found = [1, 2, 3].map(|number| value(&*log, number));
            assert_eq!((found, log.report().state), ([4, 2, 3], SpareState::Alone), "{cut:?}");
        }
    }
    pair.disarm().unwrap();
    pair.write(at(5), &block(5), true).unwrap();
    assert_eq!((value(&*pair, 5), value(&*rig.first, 5)), (5, 0));
}

/// A device that loses what it has in its cache when it fails a flush, and says so once.
///
/// Seen to fail when what was answered and not flushed does not go along.
#[test]
fn a_flush_that_fails_is_made_good() {
    let rig = Rig::roomy();
    let pair = rig.armed();
    let ops = [1, 2].map(|value| (at(u64::from(value)), block(value)));
    let ops = ops.each_ref().map(|(offset, data)| WriteOp { offset: *offset, data });
    pair.write_batch(&ops).unwrap();
    rig.device.inject(Fault::fail(OpClass::Flush, libc::EIO).within(0..LOG).once());
    pair.flush().unwrap();
    for cut in cuts(2) {
        let log = alone(&Rig::of(rig.device.image(cut)));
        assert_eq!((value(&*log, 1), value(&*log, 2)), (1, 2), "{cut:?}");
    }
}

/// A device that stalls, and fails once it answers again.
#[test]
fn a_device_that_stalls_and_then_fails_is_left_too() {
    let rig = Rig::roomy();
    let pair = rig.armed();
    let gate = rig.stall(OpClass::Write);
    pair.write(at(1), &block(1), true).unwrap();
    assert_eq!(pair.report().state, SpareState::Spare);
    rig.device.remove_all();
    fail(&rig, OpClass::Write);
    gate.open();
    wait_for(&pair, SpareState::Alone);
    pair.write(at(2), &block(2), true).unwrap();
    pair.disarm().unwrap();
    let log = alone(&Rig::of(rig.device.image(Cut::LoseAll)));
    assert_eq!((value(&*log, 1), value(&*log, 2)), (1, 2));
}

/// Seen to fail when the last flush of a watch that ends is told its error at once.
#[test]
fn the_last_flush_may_fail() {
    let rig = Rig::roomy();
    let pair = rig.armed();
    pair.write(at(1), &block(1), false).unwrap();
    fail(&rig, OpClass::Flush);
    pair.disarm().unwrap();
    assert_eq!(pair.report().state, SpareState::Alone);
    let log = alone(&Rig::of(rig.device.image(Cut::LoseAll)));
    assert_eq!(value(&*log, 1), 1);
}

/// What cannot be copied, or has no room, ends all promises, and nobody was answered.
#[test]
fn what_cannot_be_copied_latches() {
    let rig = Rig::roomy();
    let pair = rig.armed();
    pair.write(at(1), &block(1), true).unwrap();
    fail(&rig, OpClass::Write);
    fail(&rig, OpClass::Read);
    let told = pair.write(at(2), &block(2), true);
    assert!(matches!(told, Err(Error::Latched(_))), "{told:?}");
    assert!(pair.flush().is_err() && pair.disarm().is_err());
    drop(pair);
    rig.device.remove_all();
    let log = rig.open();
    assert_eq!((value(&*log, 1), log.report().state), (1, SpareState::Off));
    let rig = Rig::roomy();
    let pair = rig.armed();
    fail(&rig, OpClass::Write);
    rig.device.inject(Fault::fail(OpClass::Write, libc::EIO).within(LOG..LOG + rig.spare.size()));
    assert!(matches!(pair.write(at(2), &block(2), true), Err(Error::Latched(_))));
}

/// Seen to fail when a log's device that cannot be written is an error of opening, and when one
/// that lacks nothing is not tried.
#[test]
fn a_device_that_fails_while_the_log_is_opened_is_left() {
    let rig = Rig::roomy();
    rig.open().write(at(1), &block(1), true).unwrap();
    fail(&rig, OpClass::Write);
    assert_eq!(rig.open().report().state, SpareState::Alone);
    assert_eq!(value(&*alone(&rig), 1), 1);
    for class in [OpClass::Write, OpClass::Flush] {
        let rig = Rig::roomy();
        let pair = rig.armed();
        let gate = rig.stall(OpClass::Write);
        pair.write(at(1), &block(1), true).unwrap();
        let back = Rig::of(rig.device.image(Cut::LoseAll));
        fail(&back, class);
        let log = back.open();
        assert_eq!((value(&*log, 1), log.report().state), (1, SpareState::Alone));
        drop(log);
        assert_eq!(value(&*alone(&back), 1), 1);
        rig.go_on(&gate);
    }
}

/// The log's device comes back with what it had, and is not believed.
#[test]
fn a_stale_log_is_not_looked_at() {
    let rig = Rig::roomy();
    let pair = rig.armed();
    fail(&rig, OpClass::Write);
    pair.write(at(1), &block(1), true).unwrap();
    drop(pair);
    rig.device.remove_all();
    rig.first.write(0, &vec![7; HEADER_LEN as usize], true).unwrap();
    assert_eq!(value(&*rig.open(), 1), 1);
    let reader = LogPair::open(Some(rig.first.clone()), rig.spare.clone(), false).unwrap();
    assert_eq!(value(&*reader, 1), 1);
    let missing = LogPair::open(None, Rig::roomy().spare, true).map(drop).unwrap_err();
    assert!(missing.to_string().contains("is missing"), "{missing}");
    let short = MemDevice::new(rig.spare.size() - 4096);
    let mut bytes = vec![0; short.size() as usize];
    rig.spare.read(0, &mut bytes).unwrap();
    short.write(0, &bytes, false).unwrap();
    let short = LogPair::open(None, Arc::new(short), true).map(drop).unwrap_err();
    assert!(short.to_string().contains("truncated"), "{short}");
}

/// From the first answer behind the failure on, the spare device has all.
///
/// Seen to fail when the header is written before the image is flushed, and when batches are
/// answered while the image is made.
#[test]
fn power_is_cut_at_every_write_of_a_device_that_fails() {
    for class in [OpClass::Write, OpClass::Flush] {
        let rig = Rig::roomy();
        rig.device.record_history();
        let pair = rig.armed();
        let mut log = History::default();
        log.work(&rig, &pair, 0, 6);
        let gate = rig.stall(OpClass::Write);
        log.work(&rig, &pair, 1, 6);
        rig.go_on(&gate);
        wait_for(&pair, SpareState::First);
        log.work(&rig, &pair, 2, 3);
        fail(&rig, class);
        if class == OpClass::Flush {
            pair.flush().unwrap();
        }
        let before = log.count();
        log.work(&rig, &pair, 3, 24);
        let answered = log.answered_since(before);
        assert_eq!(pair.report().state, SpareState::Alone);
        pair.disarm().unwrap();
        let mut states = 0;
        each_cut(&rig, |cut, what, image| {
            let (back, without) = (Rig::of(image.clone()), Rig::of(image));
            let opened = LogPair::open(Some(back.first.clone()), back.spare.clone(), true);
            log.judge(&*opened.unwrap_or_else(|e| panic!("{what}: {e}")), cut, what);
            if cut >= answered {
                log.judge(&*alone(&without), cut, &format!("{what}, alone"));
                states += 1;
            }
        });
        assert!(states > 50, "{states} states");
    }
}

/// Many callers at once beside a device that fails, and what each wrote last.
#[test]
fn callers_at_once_outlive_the_device() {
    let rig = Rig::roomy();
    let pair = rig.armed();
    six_callers(&pair, || {
        wait_until("a write", || value(&*rig.first, 0) > 20);
        fail(&rig, OpClass::Write);
    });
    assert_eq!(pair.report().state, SpareState::Alone);
    pair.disarm().unwrap();
    let log = alone(&Rig::of(rig.device.image(Cut::LoseAll)));
    (0..6).for_each(|number| assert_eq!(value(&*log, number), 120));
}

/// A device that is alone is waited for, however slow it is.
///
/// Seen to fail when it is left for itself.
#[test]
fn the_last_device_is_not_left() {
    let rig = Rig::roomy();
    let pair = rig.armed();
    fail(&rig, OpClass::Write);
    pair.write(at(1), &block(1), true).unwrap();
    let before = pair.report();
    let gate = Gate::new();
    rig.device.inject(Fault::hold(OpClass::Write, &gate).within(LOG..LOG + rig.spare.size()));
    std::thread::scope(|scope| {
        let late = scope.spawn(|| pair.write(at(2), &block(2), true));
        std::thread::sleep(BOUND * 3);
        let waits = !late.is_finished();
        rig.go_on(&gate);
        late.join().unwrap().unwrap();
        assert!(waits, "there is no other one");
    });
    let after = pair.report();
    assert_eq!((after.stalls, after.batches), (before.stalls, before.batches));
}

/// The log's device, of which another host has become the owner.
struct Taken(Arc<dyn Device>);

impl Device for Taken {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> siftfs_base::Result<()> {
        self.0.read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> siftfs_base::Result<()> {
        self.0.write(offset, data, fua)
    }
    fn flush(&self) -> siftfs_base::Result<()> {
        self.0.flush()
    }
    fn was_taken(&self) -> Option<String> {
        Some("it was fenced".into())
    }
}

/// Seen to fail when the log of another host is copied.
#[test]
fn a_log_that_another_host_has_is_not_copied() {
    let rig = Rig::roomy();
    let taken: Arc<dyn Device> = Arc::new(Taken(rig.first.clone()));
    let pair = LogPair::open(Some(taken), rig.spare.clone(), true).unwrap();
    pair.arm().unwrap();
    fail(&rig, OpClass::Write);
    let told = pair.write(at(1), &block(1), true);
    assert!(matches!(&told, Err(Error::Latched(why)) if why.contains("fenced")), "{told:?}");
    drop(pair);
    rig.device.remove_all();
    assert_eq!(rig.open().report().state, SpareState::Off);
}

/// Seen to fail when a device is given up for a spare log of another mount.
#[test]
fn an_older_copy_does_not_become_the_log() {
    let rig = Rig::roomy();
    let lane_key = EpochKey { epoch: Epoch(EPOCH.0 + 1), nonce: 1 };
    let host = HostRecord { lane_key, ..small::host() };
    format_headers(&*rig.first, &header(), &host, &small::service()).unwrap();
    fail(&rig, OpClass::Write);
    let opened = LogPair::open(Some(rig.first.clone()), rig.spare.clone(), true);
    assert!(matches!(opened.map(drop), Err(Error::Io { .. })));
    assert!(!read_spare_header(&*rig.spare).unwrap().alone, "nothing was written");
}
