//! Clause L1: a file that was never synced comes back with a size that it had.

use super::bytes;
use siftfs_crash::{Back, Bench, VolumeKind};
use siftfs_device::Cut;
use siftfs_proto::Request;

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
