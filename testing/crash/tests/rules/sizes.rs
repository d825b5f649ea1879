//! Clause L1: a file that was never synced comes back with a size that it had; and truncations.

use super::{bytes, every_recovery};
use siftfs_crash::{Back, Bench, Layout, VolumeKind};
use siftfs_device::{Cut, Fault, Gate, OpClass};
use siftfs_proto::{Allocate, MAX_FILE_SIZE, Request};
use std::thread;
use std::time::Duration;

/// Pushes what `write` leaves unsynced in a durable file of 512 bytes, with power cut at every
/// write of the push and of the commit; every size found must be in `sizes`, and no byte may be
/// another one.
fn pushed(sizes: &[u64], write: impl Fn(&Bench)) {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 512));
    b.settle();
    write(&b);
    let whole = b.read("f");
    b.device.record_history();
    b.commit(true);
    let history = b.device.take_history().expect("recorded");
    b.stop();
    let mut cuts = 0;
    history.each_cut(|cut, cache| {
        for image in [cache.image(Cut::Random(cut)), cache.image(Cut::KeepAll)] {
            let found = Back::from(&image).bytes("f");
            let size = found.len();
            assert!(sizes.contains(&(size as u64)), "cut {cut}: {size} bytes, of {sizes:?}");
            assert!(found == whole[..size], "cut {cut}: other bytes in {size}");
        }
        cuts += 1;
    });
    assert!(cuts >= 4, "{cuts} cuts");
}

/// One write over the end of the last block and into the next: the first part of it has a home
/// already and goes through a lane, the second could go straight to the area. They come back
/// together.
///
/// Seen to fail when a pushed record gives the file the end of what it carries as its size.
#[test]
fn l1_a_size_that_the_file_had() {
    pushed(&[512, 8192], |b| b.write("f", 512, &bytes(2, 7680)));
}

/// The end first and the middle later: where the middle ends is no size that the file ever had.
#[test]
fn l1_nor_the_end_of_a_later_write() {
    pushed(&[512, 8192], |b| {
        b.write("f", 6000, &bytes(2, 2192));
        b.write("f", 512, &bytes(3, 2956));
    });
}

/// Many sizes on the way: any of them, and a prefix of what was appended.
#[test]
fn l1_any_size_on_the_way() {
    let sizes: Vec<u64> = (0..=9).map(|i| 512 + i * 700).collect();
    pushed(&sizes, |b| {
        for i in 0..9 {
            b.append("f", &bytes(2 + i, 700));
        }
    });
}

/// Sizes beyond a truncation are not on the way to the present one.
#[test]
fn l1_no_size_from_before_a_truncation() {
    pushed(&[512, 3000, 5000], |b| {
        b.write("f", 512, &bytes(2, 7680));
        b.truncate("f", 3000);
        b.append("f", &bytes(3, 2000));
    });
}

/// The kernel sends one write(2) that begins inside a page that it has not read as two requests,
/// the first up to the page's end: where that ends is no size on the way.
///
/// Seen to fail when every request's end counts as a size that the file had.
#[test]
fn l1_one_write_in_two_requests() {
    pushed(&[512, 6000], |b| {
        b.write("f", 512, &bytes(2, 3584));
        b.write("f", 4096, &bytes(3, 1904));
    });
}

/// A log's lines: some end with a page, some go over its end in two requests.
#[test]
fn l1_lines_in_two_requests() {
    const LINE: u64 = 1024 + 256;
    let sizes: Vec<u64> = (0..=16).map(|i| 512 + i * LINE).collect();
    pushed(&sizes, |b| {
        for (i, from) in (0..).zip(sizes.iter().take(16)) {
            let (end, page) = (from + LINE, from.next_multiple_of(4096));
            if *from < page && page < end {
                b.write("f", *from, &bytes(2 + i, page - from));
                b.write("f", page, &bytes(32 + i, end - page));
            } else {
                b.write("f", *from, &bytes(2 + i, LINE));
            }
        }
    });
}

/// The kernel's cache sends pages back, run by run: where a run ends before a hole is no size on
/// the way.
///
/// Seen to fail when each of these requests' end counts as a size that the file had.
#[test]
fn l1_pages_written_back_run_by_run() {
    pushed(&[512, 20_000], |b| {
        let mut first = b.read("f");
        first.resize(4096, 0);
        for (offset, data) in [(0, first), (16_384, bytes(2, 3616))] {
            let ino = b.ino("f");
            let request =
                Request::WriteBack { file: ino.into(), offset, data: data.into(), times: false };
            b.call(request).expect("written back");
        }
    });
}

/// A file of many extents, and others of which this many were changed since the last commit.
fn almost_full(changed: usize) -> Bench {
    let b = Bench::new(VolumeKind::SMALL);
    b.create("f");
    for block in (0..24).step_by(2) {
        b.write("f", block * 4096, &bytes(1, 4096));
        b.commit(true);
    }
    for i in 0..400 {
        b.create(&format!("g{i}"));
    }
    b.settle();
    for i in 0..changed {
        b.chmod(&format!("g{i}"), 0o600);
    }
    b
}

/// A truncation that needs a transaction's end in the middle, and what another caller does to the
/// file before it goes on: what was cut off never shows, nor does it when the file grows later.
///
/// Seen to fail when the other caller does not finish the truncation first, when only the
/// transaction in which it began says so, and when recovery passes over one to the size it finds.
#[test]
fn l1_in_the_middle_of_a_truncation() {
    const WHOLE: u64 = 24 * 4096;
    let b = almost_full(0);
    let transactions = |b: &Bench| b.status().runtime.transactions;
    let before = transactions(&b);
    let most = (0..400).take_while(|i| {
        b.chmod(&format!("g{i}"), 0o600);
        transactions(&b) == before
    });
    let most = most.count();
    b.stop();
    let written = [vec![0; 9 * 4096], bytes(2, 100)].concat();
    let zero = vec![0; WHOLE as usize];
    type Way<'a> = (fn(&Bench), &'a [u8]);
    let ways: [Way<'_>; 4] = [
        (|b| b.write("f", 9 * 4096, &bytes(2, 100)), &written),
        (|b| b.truncate("f", WHOLE), &zero),
        (|b| assert!(b.try_write("f", MAX_FILE_SIZE, b"refused").is_err()), &[]),
        (|b| b.allocate("f", Allocate::Grow, 5000, WHOLE - 5000), &zero),
    ];
    let mut halves = 0;
    for changed in most.saturating_sub(6)..most {
        for (other, done) in ways {
            let b = almost_full(changed);
            let (half, between) = meanwhile(&b, other);
            halves += u32::from(half);
            assert!(between.iter().take(9 * 4096).all(|byte| *byte == 0), "what was cut off shows");
            let mut found = b.read("f");
            assert!(found.is_empty() || found == *done, "{} bytes", found.len());
            b.truncate("f", WHOLE);
            found.resize(WHOLE as usize, 0);
            assert!(b.read("f") == found, "what was cut off is back");
            b.fsync("f");
            every_recovery(b, |back| assert!(back.bytes("f") == found, "it is back after a cut"));
        }
    }
    assert!(halves > 0, "no truncation stopped in the middle");
}

/// Empties "f" while journal writes wait, and begins `other`. Did the truncation stop in the
/// middle? And what did the file show then?
fn meanwhile(b: &Bench, other: fn(&Bench)) -> (bool, Vec<u8>) {
    let journal = Layout::of(VolumeKind::SMALL).journal;
    let gate = Gate::new();
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(journal).once());
    thread::scope(|scope| {
        let cut = scope.spawn(|| b.truncate("f", 0));
        while !cut.is_finished() && !gate.wait_arrived(1, Duration::from_millis(1)) {}
        let half = !cut.is_finished() && b.attr("f").size == 0;
        scope.spawn(|| other(b));
        // It waits for the transaction, or is done at once; either is right.
        thread::sleep(Duration::from_millis(20));
        let between = if half { b.read("f") } else { Vec::new() };
        gate.open();
        (half, between)
    })
}
