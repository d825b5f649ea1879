use crate::spare::test_util::*;
use crate::spare::{LogPair, SpareState};
use siftfs_base::Error;
use siftfs_device::{Cut, Device, Fault, OpClass, WriteOp};
use std::time::Instant;

/// Seen to fail when the first log is never left, and when a read asks the first device alone.
#[test]
fn a_write_that_stalls_goes_to_the_spare_log_and_home_again() {
    let rig = Rig::new();
    let pair = rig.armed();
    pair.write(at(1), &block(1), true).unwrap();
    assert_eq!((value(&*rig.first, 1), pair.report().state), (1, SpareState::First));
    let gate = rig.stall(OpClass::Write);
    let since = Instant::now();
    pair.write(at(2), &block(2), true).unwrap();
    assert!(since.elapsed() >= BOUND, "it waited for the first log");
    pair.write(at(3), &block(3), false).unwrap();
    pair.flush().unwrap();
    let report = pair.report();
    assert_eq!((report.state, report.stalls), (SpareState::Spare, 1));
    assert_eq!((value(&*rig.first, 2), value(&*rig.first, 3)), (0, 0));
    assert_eq!((value(&*pair, 1), value(&*pair, 2), value(&*pair, 3)), (1, 2, 3));
    rig.go_on(&gate);
    wait_for(&pair, SpareState::First);
    assert_eq!((value(&*rig.first, 2), value(&*rig.first, 3)), (2, 3));
    let report = pair.report();
    assert!(report.longest >= BOUND && report.lacking == 0, "{report:?}");
    pair.write(at(2), &block(4), true).unwrap();
    assert_eq!((value(&*rig.first, 2), pair.report().stalls), (4, 1));
}

/// A flush that stalls: what the first log had answered and not flushed is durable all the same.
///
/// Seen to fail when only what was not answered goes to the spare log.
#[test]
fn a_flush_that_stalls_is_made_good_by_the_spare_log() {
    let rig = Rig::new();
    let pair = rig.armed();
    pair.write_batch(&[
        WriteOp { offset: at(1), data: &block(1) },
        WriteOp { offset: at(2), data: &block(2) },
    ])
    .unwrap();
    let gate = rig.stall(OpClass::Flush);
    pair.flush().unwrap();
    for cut in cuts(1) {
        let back = Rig::of(rig.device.image(cut));
        back.open();
        assert_eq!((value(&*back.first, 1), value(&*back.first, 2)), (1, 2), "{cut:?}");
    }
    rig.go_on(&gate);
    wait_for(&pair, SpareState::First);
}

/// A write that was given up lands while the spare log has a newer one of the same place.
///
/// Seen to fail when the first log is given what it lacks although a call is inside it.
#[test]
fn a_write_that_lands_late_changes_nothing() {
    let rig = Rig::new();
    let pair = rig.armed();
    let gate = rig.stall(OpClass::Write);
    pair.write(at(1), &block(1), true).unwrap();
    rig.device.remove_all();
    pair.write(at(1), &block(2), true).unwrap();
    std::thread::sleep(BOUND);
    assert_eq!(pair.report().state, SpareState::Spare, "a call is inside the first device");
    gate.open();
    wait_for(&pair, SpareState::First);
    assert_eq!(value(&*rig.first, 1), 2);
}

/// Seen to fail when the header that ends a generation is written before the first log is flushed,
/// or when the places of one generation are read under the next.
#[test]
fn power_is_cut_at_every_write_with_each_device_apart() {
    let rig = Rig::new();
    rig.device.record_history();
    let pair = rig.armed();
    let mut log = History::default();
    for round in 0..3 {
        log.work(&rig, &pair, round, 4);
        let class = if round == 1 { OpClass::Flush } else { OpClass::Write };
        let gate = rig.stall(class);
        log.work(&rig, &pair, round, 8);
        rig.go_on(&gate);
        log.work(&rig, &pair, round, 6);
        wait_for(&pair, SpareState::First);
    }
    log.work(&rig, &pair, 9, 4);
    pair.disarm().unwrap();
    assert_eq!(pair.report().stalls, 3);
    let states = each_cut(&rig, |cut, what, image| {
        let back = Rig::of(image);
        let opened = LogPair::open(Some(back.first.clone()), back.spare.clone(), true);
        drop(opened.unwrap_or_else(|e| panic!("{what}: {e}")));
        log.judge(&*back.first, cut, what);
    });
    assert!(states > 300, "{states} states");
}

/// Seen to fail when a failed write to the spare log is taken for done.
#[test]
fn a_device_that_fails_ends_all_promises() {
    let rig = Rig::new();
    let pair = rig.armed();
    pair.write(at(1), &block(1), false).unwrap();
    rig.device.inject(Fault::fail(OpClass::Flush, libc::EIO).within(0..LOG).once());
    assert!(matches!(pair.flush(), Err(Error::Io { .. })));
    assert!(matches!(pair.flush(), Err(Error::Latched(_))));
    assert!(pair.write(at(2), &block(2), true).is_err() && pair.disarm().is_err());
    let rig = Rig::new();
    let pair = rig.armed();
    let gate = rig.stall(OpClass::Write);
    rig.device.inject(Fault::fail(OpClass::Write, libc::EIO).within(LOG..LOG + 1_000_000));
    assert!(matches!(pair.write(at(1), &block(1), true), Err(Error::Latched(_))));
    assert!(pair.flush().is_err());
    gate.open();
}

/// A write that the first log refuses while it answers is its caller's business, as without a spare
/// log.
#[test]
fn an_error_of_a_write_is_told() {
    let rig = Rig::new();
    let pair = rig.armed();
    rig.device.inject(Fault::fail(OpClass::Write, libc::ENOSPC).within(0..LOG).once());
    let error = pair.write(at(1), &block(1), true).unwrap_err();
    assert!(matches!(error, Error::Io { errno: libc::ENOSPC, .. }), "{error}");
    pair.write(at(1), &block(1), true).unwrap();
}

/// A companion of the others: the end of the watch waits for calls, and for what is brought home.
#[test]
fn ending_the_watch_brings_all_home() {
    let rig = Rig::new();
    let pair = rig.armed();
    let gate = rig.stall(OpClass::Write);
    pair.write(at(1), &block(1), true).unwrap();
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| pair.disarm());
        std::thread::sleep(BOUND);
        assert!(!ended.is_finished(), "the first log lacks a block");
        rig.go_on(&gate);
        ended.join().unwrap().unwrap();
    });
    assert_eq!((value(&*rig.first, 1), pair.report().state), (1, SpareState::Off));
    pair.write(at(1), &block(2), true).unwrap();
    assert_eq!(value(&*rig.first, 1), 2);
    let back = Rig::of(rig.device.image(Cut::LoseAll));
    back.open();
    assert_eq!(value(&*back.first, 1), 2);
}

/// Seen to fail when calls that leave the log's device are taken.
#[test]
fn what_is_no_block_of_the_log_is_refused() {
    let rig = Rig::new();
    let pair = rig.armed();
    for (offset, len) in [(at(1) + 512, 4096), (at(1), 512), (LOG, 4096), (LOG - 4096, 8192)] {
        let error = pair.write(offset, &vec![0; len], true).unwrap_err();
        assert!(matches!(error, Error::Io { errno: libc::EINVAL, .. }), "{offset}, {len}: {error}");
    }
}

/// Many callers at once, a device that stalls again and again, and what each wrote last.
///
/// Seen to fail when a call that the first log answers after it was left is counted a second time.
#[test]
fn callers_at_once_each_find_their_own() {
    let rig = Rig::new();
    let pair = rig.armed();
    six_callers(&pair, || {
        for _ in 0..3 {
            let gate = rig.stall(OpClass::Write);
            std::thread::sleep(BOUND * 2);
            rig.go_on(&gate);
            std::thread::sleep(BOUND);
        }
    });
    pair.flush().unwrap();
    pair.disarm().unwrap();
    let back = Rig::of(rig.device.image(Cut::LoseAll));
    back.open();
    (0..6).for_each(|number| assert_eq!(value(&*back.first, number), 120));
}

/// Without room callers wait for the first log, however slow it is, and go on there.
///
/// Seen to fail when a caller ends the wait although there is no room for what waits.
#[test]
fn a_full_spare_log_goes_back_to_a_slow_first_log() {
    let rig = Rig::with_spare(siftfs_log::SPARE_FIRST + 4 * 4096);
    let pair = rig.armed();
    let gate = rig.stall(OpClass::Write);
    pair.write(at(1), &block(1), true).unwrap();
    std::thread::scope(|scope| {
        let waits: Vec<_> = (2..6)
            .map(|number| {
                let pair = &pair;
                scope.spawn(move || pair.write(at(number), &block(7), true))
            })
            .collect();
        std::thread::sleep(BOUND * 2);
        assert!(waits.iter().any(|wait| !wait.is_finished()), "there is room for two");
        rig.device.set_flush_delay(BOUND);
        rig.go_on(&gate);
        waits.into_iter().for_each(|wait| wait.join().unwrap().unwrap());
    });
    rig.device.set_flush_delay(std::time::Duration::ZERO);
    pair.disarm().unwrap();
    (2..6).for_each(|number| assert_eq!(value(&*rig.first, number), 7));
}
