use super::super::{Cut, FaultDevice};
use super::*;
use crate::{Device, WriteOp};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than any test takes that is not wrong.
const LONG: Duration = Duration::from_secs(20);

/// A device that stalls for long, from now on.
fn stalled() -> Arc<FaultDevice> {
    let device = Arc::new(FaultDevice::new(1 << 20, 1));
    device.set_stalls(Some(Stalls::new(HOUR, LONG)));
    device
}

fn byte(device: &FaultDevice) -> u8 {
    let mut buf = [0];
    device.read(0, &mut buf).unwrap();
    buf[0]
}

/// Does something on a thread of its own, and returns once it stalls.
fn begin<T: Send + 'static>(
    device: &Arc<FaultDevice>,
    call: impl FnOnce(&FaultDevice) -> T + Send + 'static,
) -> JoinHandle<T> {
    let before = device.stats().stalled;
    let on = device.clone();
    let start = Instant::now();
    let thread = thread::spawn(move || call(&on));
    while device.stats().stalled == before {
        assert!(start.elapsed() < LONG / 2, "the call does not stall");
        thread::sleep(Duration::from_millis(1));
    }
    thread
}

#[test]
fn a_stall_begins_with_each_period() {
    let stalls = Stalls::new(Duration::from_secs(10), Duration::from_secs(2));
    let left = |ms| stalls.left(Duration::from_millis(ms)).as_millis();
    assert_eq!((left(0), left(500), left(1999)), (2000, 1500, 1));
    assert_eq!((left(2000), left(9999)), (0, 0));
    assert_eq!((left(10_000), left(11_000), left(12_000)), (2000, 1000, 0));
    assert_eq!(left(36_000_000 + 1500), 500);
}

#[test]
#[should_panic(expected = "between two stalls the device answers")]
fn a_stall_ends_before_the_next() {
    Stalls::new(HOUR, HOUR);
}

#[test]
fn a_stalled_write_lands_when_the_stall_ends() {
    for fua in [false, true] {
        let start = Instant::now();
        let device = stalled();
        let write = begin(&device, move |d| d.write(0, &[7; 512], fua));
        // Until then it is on its way: a power cut may bring it or not, and no read shows it.
        assert_eq!(byte(&device), 0);
        assert!(device.pending()[0].in_flight);
        assert_eq!(device.image(Cut::LoseAll).bytes(0, 1), [0]);
        assert_eq!(device.image(Cut::KeepAll).bytes(0, 1), [7]);
        device.set_stalls(None);
        write.join().unwrap().unwrap();
        assert!(start.elapsed() < LONG / 2, "the end of all stalls is the end of this one");
        assert_eq!(byte(&device), 7);
        assert_eq!(device.durable().bytes(0, 1)[0], if fua { 7 } else { 0 });
    }
}

#[test]
fn flushes_batches_and_discards_stall_and_reads_only_if_asked() {
    let device = stalled();
    device.enable_discard();
    let batch = begin(&device, |d| d.write_batch(&[WriteOp { offset: 0, data: &[1; 512] }]));
    let discard = begin(&device, |d| d.discard(4096, 4096));
    let flush = begin(&device, Device::flush);
    assert_eq!((byte(&device), device.stats().stalled), (0, 3));
    device.set_stalls(Some(Stalls { reads: true, ..Stalls::new(HOUR, LONG) }));
    let read = begin(&device, byte);
    device.set_stalls(None);
    batch.join().unwrap().unwrap();
    discard.join().unwrap().unwrap();
    flush.join().unwrap().unwrap();
    assert!(read.join().unwrap() <= 1);
}

#[test]
fn what_was_stalled_is_late_by_the_stall() {
    let device = FaultDevice::new(1 << 20, 1);
    let lasts = Duration::from_millis(40);
    let start = Instant::now();
    device.set_stalls(Some(Stalls::new(HOUR, lasts)));
    device.write(0, &[1; 512], false).unwrap();
    assert!(start.elapsed() >= lasts);
    // The next stall is an hour away.
    device.write(0, &[2; 512], false).unwrap();
    assert_eq!((device.stats().stalled, byte(&device)), (1, 2));
}

#[test]
fn a_power_cut_ends_a_stall() {
    let start = Instant::now();
    let device = stalled();
    let write = begin(&device, |d| d.write(0, &[7; 512], true));
    device.cut_now();
    assert!(write.join().unwrap().is_err());
    assert!(start.elapsed() < LONG / 2);
    assert_eq!(device.image(Cut::LoseAll).bytes(0, 1), [0]);
}
