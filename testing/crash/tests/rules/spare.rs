//! Rules where the log has a spare one, and its device stalls or fails: R3, R4, R8, R14, R16, R21.
//! Area, log and spare log are three devices, whose power fails at once and which lose what they
//! like.

use super::bytes;
use siftfs_crash::{Back, Bench, SPARE, Split, VolumeKind, base_image_of, fault_device, mem_media};
use siftfs_device::{Fate, Fault, FaultDevice, Gate, Image, OpClass, VolatileCache};
use siftfs_placement::{discard_log_on, recover_on};
use std::sync::Arc;
use std::time::{Duration, Instant};

const KIND: VolumeKind = VolumeKind::APART.with_spare();
/// The same with a spare log that may be the log alone.
const ROOMY: VolumeKind = VolumeKind::with_roomy_spare();
/// Where the spare log's device begins in an image, and before it the log's.
const SPARE_AT: u64 = KIND.size - SPARE;
const LOG_AT: u64 = SPARE_AT - KIND.log;
/// A bound that a test waits for many times.
const SOON: Duration = Duration::from_millis(30);

fn device() -> Arc<FaultDevice> {
    Arc::new(fault_device(base_image_of(KIND), 1))
}

fn roomy_device() -> Arc<FaultDevice> {
    Arc::new(fault_device(base_image_of(ROOMY), 1))
}

/// From now on calls of this class fail at the log's device.
fn fail(device: &FaultDevice, class: OpClass) {
    device.inject(Fault::fail(class, libc::EIO).within(LOG_AT..SPARE_AT));
}

/// The same image without the log's device.
fn without_log(image: &Image) -> Image {
    let mut image = image.clone();
    image.write(LOG_AT, &vec![0; usize::try_from(KIND.log).expect("small")]);
    image
}

/// Calls of this class stop at the log's device until the gate is opened.
fn stall(device: &FaultDevice, class: OpClass) -> Gate {
    let gate = Gate::new();
    device.inject(Fault::hold(class, &gate).within(LOG_AT..SPARE_AT));
    gate
}

fn go_on(device: &FaultDevice, gate: &Gate) {
    device.remove_all();
    gate.open();
}

fn state(b: &Bench) -> String {
    b.driver.volume.spare_log()().expect("there is a spare log").state
}

fn wait_for(b: &Bench, wanted: &str) {
    let since = Instant::now();
    while state(b) != wanted {
        assert!(since.elapsed() < Duration::from_secs(60), "the log stays {}", state(b));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a power cut leaves when each of the three devices keeps all that was not flushed, or none:
/// by the bits of `kept`.
fn apart(cache: &VolatileCache, kept: u8) -> Image {
    cache.image_with(|write| {
        let device = u8::from(write.offset >= LOG_AT) + u8::from(write.offset >= SPARE_AT);
        if kept & (1 << device) != 0 { Fate::Keep } else { Fate::Lose }
    })
}

/// The log stalls: fsyncs go on, none takes longer than twice the bound, and what they promised is
/// there after a power cut at once.
#[test]
fn r03_fsyncs_go_on_while_the_log_stalls() {
    let bound = Duration::from_millis(300);
    let device = device();
    let b = Bench::failing_over(device.clone(), bound);
    b.durable("before", &bytes(1, 5000));
    let gate = stall(&device, OpClass::Write);
    let mut longest = Duration::ZERO;
    for i in 0..20 {
        let since = Instant::now();
        b.durable(&format!("f{i}"), &bytes(i, 3000 + i * 500));
        longest = longest.max(since.elapsed());
    }
    assert!(longest >= bound && longest < 2 * bound, "{longest:?}");
    assert_eq!(state(&b), "spare");
    // A full commit, its transaction and a checkpoint go on as well.
    b.write("f1", 0, &bytes(99, 100_000));
    b.settle();
    b.durable("after", &bytes(3, 4000));
    let images: Vec<Image> = (0..8u8)
        .map(|kept| {
            device.image_with(|write| {
                let part = u8::from(write.offset >= LOG_AT) + u8::from(write.offset >= SPARE_AT);
                if kept & (1 << part) != 0 { Fate::Keep } else { Fate::Lose }
            })
        })
        .collect();
    go_on(&device, &gate);
    wait_for(&b, "first");
    b.durable("home", &bytes(4, 4000));
    let last = b.crash(siftfs_device::Cut::LoseAll);
    for image in images {
        let back = Back::from(&image);
        assert!(back.bytes("before") == bytes(1, 5000) && back.bytes("after") == bytes(3, 4000));
        for i in (0..20).filter(|i| *i != 1) {
            assert!(back.bytes(&format!("f{i}")) == bytes(i, 3000 + i * 500), "file {i}");
        }
        assert!(back.bytes("f1") == bytes(99, 100_000));
        assert!(!back.has("home"));
    }
    assert!(Back::from(&last).bytes("home") == bytes(4, 4000));
}

/// What was fsynced into seven files, and when it was answered.
struct Ledger<'a> {
    device: &'a FaultDevice,
    acked: Vec<(String, u64, u64)>,
    drawn: u64,
}

impl<'a> Ledger<'a> {
    fn new(device: &'a FaultDevice) -> Self {
        Self { device, acked: Vec::new(), drawn: 0 }
    }

    fn work(&mut self, b: &Bench, count: u64, commit: bool) {
        for i in 0..count {
            self.drawn += 1;
            let name = format!("f{}", self.drawn % 7);
            if b.try_ino(&name).is_none() {
                b.create(&name);
            }
            b.write(&name, 0, &bytes(self.drawn, 2000));
            b.fsync(&name);
            self.acked.push((name, self.drawn, self.device.ops()));
            if commit && i == count / 2 {
                b.settle();
            }
        }
    }

    /// What was answered before this cut is there.
    fn judge(&self, back: &Back, cut: u64, what: &str) {
        for name in (0..7).map(|i| format!("f{i}")) {
            let own = || self.acked.iter().filter(|(n, ..)| *n == name);
            let durable = own().filter(|(.., ops)| *ops <= cut).map(|a| a.1).max();
            let found = back.bytes(&name);
            let at = own().map(|a| a.1).find(|id| found == bytes(*id, 2000));
            assert!(at >= durable, "{what}: {name} has {at:?}, durable is {durable:?}");
        }
    }
}

/// A run with stalls of writes and of flushes is cut at every write and flush, with each of the
/// three devices apart: what was answered as durable is there.
#[test]
fn r03_power_cuts_with_each_of_three_devices_apart() {
    let device = device();
    device.record_history();
    let b = Bench::failing_over(device.clone(), SOON);
    let mut ledger = Ledger::new(&device);
    ledger.work(&b, 3, true);
    for class in [OpClass::Write, OpClass::Flush] {
        let gate = stall(&device, class);
        ledger.work(&b, 5, true);
        go_on(&device, &gate);
        ledger.work(&b, 3, false);
        wait_for(&b, "first");
        ledger.work(&b, 2, true);
    }
    b.close();
    let (mut cuts, mut states) = (0u64, 0);
    device.take_history().expect("recorded").each_cut(|cut, cache| {
        cuts += 1;
        let kept = match cache.pending().is_empty() {
            true => vec![0],
            false => vec![[0, 7][(cuts % 2) as usize], 1 + (cuts % 6) as u8],
        };
        for kept in kept {
            let what = format!("cut {cut}, kept {kept:03b}");
            let back = Back::from(&apart(cache, kept));
            states += 1;
            ledger.judge(&back, cut, &what);
        }
    });
    assert!(states > 100, "{states} states of {cuts} cuts");
}

/// Recovery of a volume whose log was left is cut everywhere, and goes on where it was.
#[test]
fn r18_an_interrupted_recovery_of_both_logs_starts_again() {
    let device = device();
    let b = Bench::failing_over(device.clone(), SOON);
    b.durable("a", &bytes(1, 6000));
    let gate = stall(&device, OpClass::Write);
    b.durable("b", &bytes(2, 6000));
    let left = device.image(siftfs_device::Cut::LoseAll);
    go_on(&device, &gate);
    b.stop();
    let again = Arc::new(FaultDevice::from_image(left.clone(), 2));
    again.record_history();
    let media = siftfs_crash::media_of(&again, &left);
    recover_on(media, &siftfs_crash::deterministic()).expect("recovered");
    again.take_history().expect("recorded").each_cut(|cut, cache| {
        for kept in [0, 7, 1 + (cut % 6) as u8] {
            let back = Back::from(&apart(cache, kept));
            let both = back.bytes("a") == bytes(1, 6000) && back.bytes("b") == bytes(2, 6000);
            assert!(both, "recovery cut at {cut}, kept {kept:03b}");
        }
    });
}

/// Without its spare log, with an older copy of it, or with an older log, a volume is refused, and
/// nothing is written.
#[test]
fn r16_both_logs_are_needed() {
    let base = base_image_of(KIND);
    let device = device();
    let b = Bench::failing_over(device.clone(), SOON);
    b.durable("a", &bytes(1, 6000));
    let gate = stall(&device, OpClass::Write);
    b.durable("b", &bytes(2, 6000));
    let left = device.image(siftfs_device::Cut::LoseAll);
    go_on(&device, &gate);
    b.stop();
    let refused = |image: &Image, without: bool| {
        let (device, media) = mem_media(image);
        let media = if without { media.with_spare(None) } else { media };
        let result = recover_on(media, &siftfs_crash::deterministic());
        let error = result.expect_err("refused").to_string();
        let len = usize::try_from(image.size()).expect("small");
        assert!(device.snapshot().bytes(0, len) == image.bytes(0, len), "something was written");
        error
    };
    assert!(refused(&left, true).contains("the spare log of volume"));
    let copy = |from: u64, len: u64| {
        let mut image = left.clone();
        image.write(from, &base.bytes(from, usize::try_from(len).expect("small")));
        refused(&image, false)
    };
    assert!(copy(SPARE_AT, SPARE).contains("older copy"));
    assert!(copy(LOG_AT, KIND.log).contains("older copy"));
    assert!(Back::from(&left).bytes("b") == bytes(2, 6000));
}

/// A spare log that is lost is given up with the log, and a volume without one is plain ext4.
#[test]
fn r16_a_lost_spare_log_is_given_up_with_the_log() {
    let device = device();
    let b = Bench::failing_over(device.clone(), SOON);
    b.durable("a", &bytes(1, 6000));
    b.settle();
    let left = b.crash(siftfs_device::Cut::LoseAll);
    let (device, media) = mem_media(&left);
    let what = discard_log_on(media.with_spare(None)).expect("given up");
    assert_eq!(what, siftfs_placement::Discarded::Forgotten);
    assert_eq!(Split::of(&device.snapshot()).log, None);
    siftfs_crash::e2fsck_image(&device.snapshot()).expect("a clean file system");
}

/// The log's device fails, and the spare one has no room for what it has: the mount latches, and
/// what was promised is there.
#[test]
fn r21_a_log_that_fails_ends_all_promises() {
    let device = device();
    let b = Bench::failing_over(device.clone(), SOON);
    b.durable("a", &bytes(1, 6000));
    let gate = stall(&device, OpClass::Write);
    b.durable("b", &bytes(2, 6000));
    device.remove_all();
    device.inject(Fault::fail(OpClass::Write, libc::EIO).within(LOG_AT..SPARE_AT));
    gate.open();
    let since = Instant::now();
    while b.try_write("a", 0, b"x").and_then(|()| b.try_fsync("a")).is_ok() {
        assert!(since.elapsed() < Duration::from_secs(60), "failed unnoticed");
    }
    let image = device.image(siftfs_device::Cut::LoseAll);
    b.stop();
    let back = Back::from(&image);
    assert!(back.bytes("b") == bytes(2, 6000) && back.bytes("a")[1..] == bytes(1, 6000)[1..]);
}

/// The log's device fails: fsyncs go on, and from the next answer on the spare log has everything,
/// whatever becomes of the other device.
///
/// Seen to fail when a log that is not there is demanded of a volume whose spare log is alone.
#[test]
fn r21_a_log_that_fails_is_left_for_good() {
    for class in [OpClass::Write, OpClass::Flush] {
        let device = roomy_device();
        let b = Bench::failing_over(device.clone(), SOON);
        b.durable("a", &bytes(1, 6000));
        fail(&device, class);
        b.durable("b", &bytes(2, 6000));
        b.write("a", 0, &bytes(3, 100_000));
        b.settle();
        b.durable("c", &bytes(4, 6000));
        assert_eq!(state(&b), "alone");
        let left = device.image(siftfs_device::Cut::LoseAll);
        b.durable("d", &bytes(5, 6000));
        b.close();
        let closed = device.image(siftfs_device::Cut::LoseAll);
        for image in [&left, &closed, &without_log(&left), &without_log(&closed)] {
            let back = Back::from(image);
            assert!(back.bytes("a") == bytes(3, 100_000) && back.bytes("b") == bytes(2, 6000));
            assert!(back.bytes("c") == bytes(4, 6000));
        }
        assert!(Back::from(&without_log(&closed)).bytes("d") == bytes(5, 6000));
        // It is used on, for as long as its owner likes.
        let again = Arc::new(FaultDevice::from_image(without_log(&closed), 2));
        let b = Bench::failing_over(again.clone(), SOON);
        b.durable("e", &bytes(6, 6000));
        assert_eq!(state(&b), "alone");
        let last = b.crash(siftfs_device::Cut::LoseAll);
        assert!(Back::from(&last).bytes("e") == bytes(6, 6000));
    }
}

/// The log's device can be read, and not written any more, when the volume is opened after a
/// crash.
#[test]
fn r21_a_log_that_fails_between_two_mounts_is_left() {
    let b = Bench::failing_over(roomy_device(), SOON);
    b.durable("a", &bytes(1, 6000));
    let left = b.crash(siftfs_device::Cut::LoseAll);
    let device = Arc::new(FaultDevice::from_image(left, 2));
    fail(&device, OpClass::Write);
    let b = Bench::failing_over(device.clone(), SOON);
    b.durable("b", &bytes(2, 6000));
    assert_eq!(state(&b), "alone");
    let back = Back::from(&without_log(&b.crash(siftfs_device::Cut::LoseAll)));
    assert!(back.bytes("a") == bytes(1, 6000) && back.bytes("b") == bytes(2, 6000));
}

/// A run in which the log's device stalls, and then fails, is cut at every write and flush, with
/// each of the three devices apart; from the first answer behind the failure on also without the
/// log's device.
#[test]
fn r21_power_cuts_while_a_log_fails() {
    let device = roomy_device();
    device.record_history();
    let b = Bench::failing_over(device.clone(), SOON);
    let mut ledger = Ledger::new(&device);
    ledger.work(&b, 3, true);
    let gate = stall(&device, OpClass::Write);
    ledger.work(&b, 3, false);
    device.remove_all();
    fail(&device, OpClass::Write);
    gate.open();
    wait_for(&b, "alone");
    let alone = device.ops();
    ledger.work(&b, 4, true);
    b.close();
    let (mut cuts, mut states) = (0u64, 0);
    device.take_history().expect("recorded").each_cut(|cut, cache| {
        cuts += 1;
        for kept in [[0, 7][(cuts % 2) as usize], 1 + (cuts % 6) as u8] {
            let image = apart(cache, kept);
            let what = format!("cut {cut}, kept {kept:03b}");
            ledger.judge(&Back::from(&image), cut, &what);
            if cut >= alone {
                ledger.judge(&Back::from(&without_log(&image)), cut, &format!("{what}, alone"));
            }
            states += 1;
        }
    });
    assert!(states > 60, "{states} states of {cuts} cuts");
}
