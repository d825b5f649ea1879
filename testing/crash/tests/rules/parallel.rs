//! Durable writes of several callers in flight at once: R3, R21.

use super::{bytes, images};
use siftfs_base::Error;
use siftfs_crash::{Back, Bench, Layout, VolumeKind};
use siftfs_device::{Cut, Fault, Gate, Image, OpClass};
use siftfs_proto::{Credentials, Reply, Request};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const FILES: u64 = 4;

/// What becomes of the one durable write that is late.
#[derive(Clone, Copy, Debug)]
enum End {
    Well,
    Failed,
    Torn,
}

fn name(file: u64) -> String {
    format!("f{file}")
}

fn content(file: u64) -> Vec<u8> {
    bytes(file + 7, 3000)
}

/// An fsync whose caller goes away; the answer comes here.
fn fsync_then(b: &Bench, file: u64) -> Receiver<Result<Reply, Error>> {
    let (tell, told) = channel();
    let req = Request::Fsync { file: b.ino(&name(file)).into(), datasync: false };
    let done = Box::new(move |answer| tell.send(answer).expect("listens"));
    b.service.submit(&Credentials::default(), req, done);
    told
}

/// An fsync on a thread of its own: its write is held there.
fn fsync_held(b: &Bench, file: u64) -> JoinHandle<bool> {
    super::fsync_on_thread(b, &name(file))
}

/// What is acknowledged is in every image.
fn judge(acknowledged: &[u64], images: &[Image], case: &str) {
    for image in images {
        let back = Back::from(image);
        for file in acknowledged {
            assert!(back.bytes(&name(*file)) == content(*file), "{case}: file {file} is lost");
        }
    }
}

/// Each of four callers has a file; the durable write of one of them, `late`, ends last, as `end`
/// says, while all the others succeed. No caller above it is acknowledged before it has ended well.
fn one_is_late(late: u64, end: End) {
    let case = format!("{end:?}, {late} is late");
    let b = Bench::parallel(VolumeKind::SMALL);
    for file in 0..FILES {
        b.create(&name(file));
        b.write(&name(file), 0, &content(file));
    }
    let flushes = b.device.stats().flushes;
    let (gate, staging) = (Gate::new(), Layout::of(VolumeKind::SMALL).staging);
    let of_late = |fault: Fault| b.device.inject(fault.within(staging.clone()).after(late).once());
    of_late(Fault::hold(OpClass::Write, &gate));
    match end {
        End::Well => {}
        End::Failed => drop(of_late(Fault::fail(OpClass::Write, libc::EIO))),
        End::Torn => drop(of_late(Fault::fail_torn(libc::EIO))),
    }
    let below: Vec<_> = (0..late).map(|file| fsync_then(&b, file)).collect();
    let held = fsync_held(&b, late);
    assert!(gate.wait_arrived(1, Duration::from_secs(5)), "{case}");
    // Their writes end before this returns, and their callers are not kept.
    let above: Vec<_> = (late + 1..FILES).map(|file| fsync_then(&b, file)).collect();
    assert_eq!(b.device.stats().flushes, flushes, "{case}: durable by their own writes");
    thread::sleep(Duration::from_millis(20));
    let mut acknowledged: Vec<u64> = (0..late).collect();
    assert!(below.iter().all(|told| told.try_recv().is_ok_and(|a| a.is_ok())), "{case}");
    for told in &above {
        assert!(told.try_recv().is_err(), "{case}: acknowledged over a hole");
    }
    judge(&acknowledged, &images(&b), &case);
    gate.open();
    assert_eq!(held.join().expect("no panic"), matches!(end, End::Well), "{case}");
    for told in above {
        let answer = told.recv_timeout(Duration::from_secs(5)).expect("answered");
        assert_eq!(answer.is_ok(), matches!(end, End::Well), "{case}: {answer:?}");
    }
    if matches!(end, End::Well) {
        acknowledged = (0..FILES).collect();
    } else {
        assert!(b.try_fsync(&name(0)).is_err(), "{case}: the failure stays");
    }
    let after = images(&b);
    b.stop();
    judge(&acknowledged, &after, &case);
}

/// Seen to fail when the watermark is the newest record that is durable, whatever is below it.
#[test]
fn r03_durable_writes_in_parallel_leave_no_hole() {
    (0..FILES).for_each(|late| one_is_late(late, End::Well));
}

/// Seen to fail when the watermark is the newest record that is durable, and when a failed write of
/// a record is reported and not latched.
#[test]
fn r21_a_failed_durable_write_below_others() {
    for end in [End::Failed, End::Torn] {
        (0..FILES).for_each(|late| one_is_late(late, end));
    }
}

/// Power fails while several durable writes are in flight and above one that is lost: recovery ends
/// before that one, and what was acknowledged is there.
#[test]
fn r03_a_power_cut_between_durable_writes() {
    let b = Bench::parallel(VolumeKind::SMALL);
    for file in 0..FILES {
        b.create(&name(file));
        b.write(&name(file), 0, &content(file));
    }
    let gate = Gate::new();
    let staging = Layout::of(VolumeKind::SMALL).staging;
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(staging).after(1).once());
    let first = fsync_then(&b, 0);
    let held = fsync_held(&b, 1);
    assert!(gate.wait_arrived(1, Duration::from_secs(5)));
    let above: Vec<_> = (2..FILES).map(|file| fsync_then(&b, file)).collect();
    b.device.cut_now();
    assert!(!held.join().expect("no panic"), "power is gone");
    assert!(first.try_recv().is_ok_and(|a| a.is_ok()));
    for told in above {
        assert!(told.recv_timeout(Duration::from_secs(5)).expect("answered").is_err());
    }
    let cuts = [Cut::LoseAll, Cut::KeepAll].into_iter().chain((0..20).map(Cut::Random));
    let after: Vec<_> = cuts.map(|cut| b.device.image(cut)).collect();
    b.stop();
    judge(&[0], &after, "a power cut");
    for image in &after {
        let back = Back::from(image);
        let there = |file: u64| back.has(&name(file)) && back.bytes(&name(file)) == content(file);
        assert!(there(1) || !there(2) && !there(3), "what lies behind the hole came back");
    }
}
