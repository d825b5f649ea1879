use std::time::Instant;

use super::super::{Fault, Gate};
use super::*;
use crate::Part;
use siftfs_base::Error;

const SIZE: u64 = 1 << 20;

fn device() -> FaultDevice {
    FaultDevice::new(SIZE, 1)
}

fn errno(result: Result<()>) -> i32 {
    match result {
        Err(Error::Io { errno, .. }) => errno,
        other => panic!("expected an I/O error, got {other:?}"),
    }
}

fn byte(d: &FaultDevice, offset: u64) -> u8 {
    let mut buf = [0];
    d.read(offset, &mut buf).unwrap();
    buf[0]
}

#[test]
fn after_the_cut_everything_fails_and_nothing_more_becomes_durable() {
    let d = device();
    d.write(0, &[1; 512], false).unwrap();
    d.flush().unwrap();
    d.write(512, &[2; 512], false).unwrap();
    d.cut_at(4);
    d.write(1024, &[3; 512], false).unwrap();
    assert_eq!(d.ops(), 4);
    assert_eq!(errno(d.flush()), libc::EIO);
    assert!(d.is_cut());
    assert_eq!(errno(d.write(0, &[9; 512], true)), libc::EIO);
    assert_eq!(errno(d.flush()), libc::EIO);
    assert_eq!(errno(d.read(0, &mut [0])), libc::EIO);
    let lost = d.image(Cut::LoseAll);
    assert_eq!((lost.bytes(0, 1)[0], lost.bytes(512, 1)[0]), (1, 0));
    let kept = d.image(Cut::KeepAll);
    assert_eq!((kept.bytes(512, 1)[0], kept.bytes(1024, 1)[0]), (2, 3));

    let again = FaultDevice::from_image(d.power_cut_image(7), 2);
    assert_eq!(byte(&again, 0), 1);
    again.flush().unwrap();
}

#[test]
fn the_write_at_the_cut_may_survive() {
    for fua in [false, true] {
        let d = device();
        d.cut_at(0);
        assert_eq!(errno(d.write(0, &[5; 4096], fua)), libc::EIO);
        assert!(d.pending()[0].in_flight);
        let seen: std::collections::HashSet<_> =
            (0..200).map(|s| d.power_cut_image(s).bytes(0, 4096)).collect();
        assert!(seen.contains(&vec![0; 4096]) && seen.contains(&vec![5; 4096]));
        assert!(seen.len() > 2, "and torn ones");
    }
}

#[test]
fn faults_strike_by_class_range_and_count() {
    let d = device();
    let id =
        d.inject(Fault::fail(OpClass::Write, libc::ENOSPC).within(4096..8192).after(1).times(2));
    let results: Vec<bool> = (0..5).map(|_| d.write(4000, &[1; 200], false).is_ok()).collect();
    assert_eq!(results, [true, false, false, true, true]);
    d.write(0, &[1; 4096], false).unwrap();
    d.write(8192, &[1; 10], false).unwrap();
    assert_eq!(d.fired(id), 2);
    d.remove(id);

    d.inject(Fault::fail(OpClass::Read, libc::EIO).within(0..512));
    assert_eq!(errno(d.read(100, &mut [0; 1])), libc::EIO);
    assert_eq!(errno(d.read(0, &mut [0; 4096])), libc::EIO);
    d.read(512, &mut [0; 10]).unwrap();
    d.remove_all();
    d.read(100, &mut [0; 1]).unwrap();
}

#[test]
fn a_failed_write_leaves_nothing_a_torn_one_some_of_its_sectors() {
    let d = device();
    d.inject(Fault::fail(OpClass::Write, libc::EIO).once());
    assert_eq!(errno(d.write(0, &[1; 4096], false)), libc::EIO);
    assert_eq!(d.contents(), Image::new(SIZE));
    d.inject(Fault::fail_torn(libc::EIO).once());
    assert_eq!(errno(d.write(100, &[1; 16384], false)), libc::EIO);
    let written = d.contents().bytes(0, 32768).iter().filter(|b| **b == 1).count();
    assert!(written > 0 && written < 16384);
}

#[test]
fn a_failed_flush_leaves_doubt_and_a_lying_one_says_nothing() {
    let d = device();
    d.write(0, &[1; 512], false).unwrap();
    d.inject(Fault::fail(OpClass::Flush, libc::EIO).once());
    assert_eq!(errno(d.flush()), libc::EIO);
    d.flush().unwrap();
    assert_eq!(d.durable().bytes(0, 1), [0]);

    d.write(512, &[2; 512], false).unwrap();
    d.inject(Fault::swallow(OpClass::Flush).once());
    d.flush().unwrap();
    assert_eq!(d.durable().bytes(512, 1), [0]);
    assert!(d.pending().iter().all(|p| p.abandoned));
}

#[test]
fn lost_and_misdirected_writes_report_success() {
    let d = device();
    d.inject(Fault::swallow(OpClass::Write).once());
    d.write(0, &[1; 512], false).unwrap();
    assert_eq!(byte(&d, 0), 0);
    d.inject(Fault::misdirect(8192).once());
    d.write(0, &[2; 512], false).unwrap();
    assert_eq!((byte(&d, 0), byte(&d, 8192)), (0, 2));
    d.inject(Fault::misdirect(SIZE).once());
    d.write(0, &[3; 512], false).unwrap();
    assert_eq!(byte(&d, 0), 0);
}

#[test]
fn wrong_bytes_on_read_and_at_rest() {
    let d = device();
    d.write(0, &[0xf0; 512], false).unwrap();
    d.flush().unwrap();
    let id = d.inject(Fault::flip_on_read(10, 0x01));
    let mut buf = [0; 4];
    d.read(8, &mut buf).unwrap();
    assert_eq!(buf, [0xf0, 0xf0, 0xf1, 0xf0]);
    d.read(0, &mut buf).unwrap();
    assert_eq!(buf, [0xf0; 4]);
    d.remove(id);
    assert_eq!(byte(&d, 10), 0xf0);

    d.flip_bits(10, 0x80);
    assert_eq!(byte(&d, 10), 0x70);
    assert_eq!(d.durable().bytes(10, 1), [0x70]);
    d.scribble(100, 50, 3);
    assert!(d.durable().bytes(100, 50).iter().all(|b| *b != 0xf0));
    assert_eq!(d.durable().bytes(150, 1), [0xf0]);
}

#[test]
fn slow_calls_take_their_time_together() {
    let d = device();
    d.set_flush_delay(Duration::from_millis(60));
    let start = Instant::now();
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| d.flush().unwrap());
        }
    });
    assert!(start.elapsed() >= Duration::from_millis(60));
    assert!(d.stats().most_flushes_at_once > 1);
    assert_eq!(d.stats().flushes, 4);
    d.set_flush_delay(Duration::ZERO);
    d.set_write_delay(Duration::from_millis(30));
    let start = Instant::now();
    let data = [1; 512];
    let ops: Vec<_> = (0..8).map(|i| WriteOp { offset: i * 512, data: &data }).collect();
    d.write_batch(&ops).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(30));
    d.inject(Fault::delay(OpClass::Read, Duration::from_millis(20)).once());
    let start = Instant::now();
    byte(&d, 0);
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_held_write_is_not_covered_by_a_flush_that_passes_it() {
    let d = device();
    let gate = Gate::new();
    d.inject(Fault::hold(OpClass::Write, &gate).once());
    thread::scope(|s| {
        s.spawn(|| d.write(0, &[1; 512], false).unwrap());
        assert!(gate.wait_arrived(1, Duration::from_secs(10)));
        d.write(512, &[2; 512], false).unwrap();
        d.flush().unwrap();
        gate.open();
    });
    assert_eq!(d.durable().bytes(512, 1), [2]);
    assert_eq!(d.durable().bytes(0, 1), [0]);
    assert_eq!(byte(&d, 0), 1);
}

#[test]
fn a_cut_frees_what_is_held() {
    let d = device();
    let gate = Gate::new();
    d.inject(Fault::hold(OpClass::Flush, &gate));
    thread::scope(|s| {
        let held = s.spawn(|| d.flush());
        assert!(gate.wait_arrived(1, Duration::from_secs(10)));
        d.cut_now();
        assert_eq!(errno(held.join().unwrap()), libc::EIO);
    });
}

#[test]
fn the_log_shows_the_order() {
    let d = device();
    d.record();
    d.write(0, &[1; 100], false).unwrap();
    byte(&d, 7);
    d.write(512, &[1; 4], true).unwrap();
    d.flush().unwrap();
    let rec = |op, kind, offset, len| OpRecord { op, kind, offset, len };
    let expect = [
        rec(0, OpKind::Write, 0, 100),
        rec(1, OpKind::Read, 7, 1),
        rec(1, OpKind::WriteFua, 512, 4),
        rec(2, OpKind::Flush, 0, 0),
    ];
    assert_eq!(d.take_log(), expect);
    assert!(d.take_log().is_empty());
}

fn sequence(d: &FaultDevice) -> Result<()> {
    let data = [7; 1024];
    for round in 0..4u64 {
        d.write(round * 4096, &[round as u8 + 1; 2048], false)?;
        let ops: Vec<_> =
            (0..3).map(|i| WriteOp { offset: 65536 + i * 1024 + round, data: &data }).collect();
        d.write_batch(&ops)?;
        d.write(32768 + round * 512, &[9; 512], round % 2 == 0)?;
        d.flush()?;
    }
    Ok(())
}

/// One recorded run gives the same images as a run of its own for each cut.
#[test]
fn history_gives_every_cut_of_a_run() {
    let d = device();
    d.record_history();
    sequence(&d).unwrap();
    let (total, history) = (d.ops(), d.take_history().unwrap());
    let mut cuts = 0;
    history.each_cut(|op, cache| {
        assert_eq!(op, cuts);
        let live = device();
        live.cut_at(op);
        assert_eq!(sequence(&live).is_err(), op < total);
        for cut in [Cut::LoseAll, Cut::KeepAll, Cut::Random(op), Cut::Random(op + 1000)] {
            assert_eq!(live.image(cut), cache.image(cut), "cut at {op}, {cut:?}");
        }
        cuts += 1;
    });
    assert_eq!(cuts, total + 1);
}

#[test]
fn thousands_of_cuts_of_a_big_image_are_cheap() {
    let mut image = Image::new(64 << 20);
    let block = [3; 16384];
    (0..4096).for_each(|i| image.write(i * 16384, &block));
    let d = FaultDevice::from_image(image, 1);
    let start = Instant::now();
    let mut states = Vec::new();
    for i in 0..2000u64 {
        d.write((i % 512) * 4096, &[i as u8; 4096], false).unwrap();
        if i % 8 == 0 {
            d.flush().unwrap();
        }
        states.push(d.power_cut_image(i));
    }
    assert!(start.elapsed() < Duration::from_secs(20), "took {:?}", start.elapsed());
}

/// How long four durable writes take together.
fn four_at_once(d: &FaultDevice) -> Duration {
    let start = Instant::now();
    thread::scope(|scope| {
        for i in 0..4 {
            scope.spawn(move || d.write(i * 4096, &[1; 4096], true).expect("writes"));
        }
    });
    start.elapsed()
}

#[test]
fn flushes_side_by_side_or_one_by_one() {
    let d = FaultDevice::new(1 << 20, 1);
    d.set_flush_delay(Duration::from_millis(100));
    let together = four_at_once(&d);
    d.set_serial_flushes(true);
    let apart = four_at_once(&d);
    assert!(apart >= Duration::from_millis(400), "{apart:?}");
    assert!(together < Duration::from_millis(350), "{together:?}");
}

/// A disk and a record area behind one order of operations.
fn disk_and_area() -> (Arc<FaultDevice>, Part, Part) {
    let whole = Arc::new(FaultDevice::new(SIZE, 1).with_bytes_from(SIZE / 2));
    let disk = Part::new(whole.clone(), 0..SIZE / 2);
    let area = Part::new(whole.clone(), SIZE / 2..SIZE);
    (whole, disk, area)
}

#[test]
fn parts_say_which_medium_they_are() {
    let (whole, disk, area) = disk_and_area();
    assert_eq!((whole.medium(), disk.medium()), (Medium::Block, Medium::Block));
    assert_eq!(area.medium(), Medium::Bytes);
    assert_eq!(FaultDevice::new(SIZE, 1).with_bytes_from(0).medium(), Medium::Bytes);
    let all_disk = Part::new(Arc::new(device()), SIZE / 2..SIZE);
    assert_eq!(all_disk.medium(), Medium::Block);
}

#[test]
fn disk_and_area_become_durable_apart() {
    let (whole, disk, area) = disk_and_area();
    let lost = || {
        let image = whole.image(Cut::LoseAll);
        [image.bytes(512, 1)[0], image.bytes(SIZE / 2 + 64, 1)[0], image.bytes(SIZE / 2, 1)[0]]
    };
    disk.write(512, &[1; 512], false).unwrap();
    area.write(64, &[2; 64], false).unwrap();
    area.write(0, &[3; 60], true).unwrap();
    assert_eq!(lost(), [0, 0, 3], "durable by itself");
    area.flush().unwrap();
    assert_eq!(lost(), [0, 2, 3]);
    area.write(64, &[4; 64], false).unwrap();
    disk.flush().unwrap();
    assert_eq!(lost(), [1, 2, 3]);
    assert_eq!(whole.pending().len(), 1);
}

/// One history covers both, at words from the area's beginning on.
#[test]
fn a_history_remembers_where_bytes_begin() {
    let (whole, disk, area) = disk_and_area();
    whole.record_history();
    disk.write(0, &[1; 512], true).unwrap();
    area.write(0, &[2; 24], false).unwrap();
    area.write(4, &[3; 4], true).unwrap();
    let mut seen = Vec::new();
    whole.take_history().unwrap().each_cut(|op, cache| {
        let last = cache.image_with(|_| Fate::Prefix(1)).bytes(SIZE / 2, 16);
        seen.push((op, last[0], last[4], last[8]));
        assert_eq!(cache.medium_at(SIZE / 2), Medium::Bytes);
    });
    assert_eq!(seen, [(0, 0, 0, 0), (1, 2, 2, 0), (2, 2, 3, 0), (3, 2, 3, 0)]);
}

#[test]
fn a_torn_write_of_the_area_is_torn_at_words() {
    let (whole, _, area) = disk_and_area();
    whole.inject(Fault::fail_torn(libc::EIO).once());
    assert_eq!(errno(area.write(0, &[5; 512], true)), libc::EIO);
    let left = whole.image(Cut::KeepAll).bytes(SIZE / 2, 512);
    assert!(left.contains(&0) && left.contains(&5));
    assert!(left.chunks(8).all(|word| word.iter().all(|b| *b == word[0])));
}

#[test]
fn a_device_gives_space_back_only_if_it_can() {
    let d = device();
    assert_eq!(d.discards(), None);
    assert_eq!(errno(d.discard(0, 4096)), libc::EOPNOTSUPP);
    d.enable_discard();
    assert_eq!(d.discards().map(|d| d.unit), Some(4096));
    d.discard(0, 4096).unwrap();
    assert_eq!(errno(d.discard(SIZE - 4096, 8192)), libc::EINVAL);
    assert_eq!((d.stats().discards, d.stats().writes), (1, 0));
    assert_eq!(
        Part::new(Arc::new(d), 512..8192).discards(),
        None,
        "its units are not the device's"
    );
}

/// Zeros or garbage, and until a flush a power cut may bring back what was there.
#[test]
fn what_was_discarded_is_undefined_until_it_is_written_again() {
    let (mut zeros, mut garbage) = (false, false);
    for seed in 0..40 {
        let d = FaultDevice::new(SIZE, seed);
        d.enable_discard();
        d.write(0, &[7; 8192], false).unwrap();
        d.flush().unwrap();
        d.discard(0, 4096).unwrap();
        assert_eq!(byte(&d, 4096), 7, "beside it");
        (zeros, garbage) = (zeros | (byte(&d, 0) == 0), garbage | (byte(&d, 0) != 0));
        assert_eq!(d.image(Cut::LoseAll).bytes(0, 1), [7]);
        d.write(0, &[9; 4096], false).unwrap();
        assert_eq!(d.image(Cut::LoseAll).bytes(0, 1), [7]);
        d.flush().unwrap();
        assert_eq!(d.image(Cut::LoseAll).bytes(0, 4096), vec![9; 4096]);
    }
    assert!(zeros && garbage);
}

#[test]
fn a_discard_in_flight_at_the_cut_may_have_done_anything() {
    let d = device();
    d.enable_discard();
    d.write(0, &[7; 8192], true).unwrap();
    d.cut_at(d.ops());
    assert_eq!(errno(d.discard(0, 8192)), libc::EIO);
    assert_eq!(d.image(Cut::LoseAll).bytes(0, 8192), vec![7; 8192]);
    assert_ne!(d.image(Cut::KeepAll).bytes(0, 8192), vec![7; 8192]);
}
