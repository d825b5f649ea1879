//! Rules about several lanes: R3, R14 and R24. Each lane ends by itself; the order of all of them,
//! kept by the number that every record gives of the one before it, says what is a prefix.

use super::{bytes, every_recovery, fsync_on_thread};
use siftfs_base::Error;
use siftfs_crash::{Back, Bench, Layout, VolumeKind, deterministic, open};
use siftfs_device::{Cut, Fate, FaultDevice, Gate, Image, MemDevice, OpClass, OpKind, OpRecord};
use siftfs_fsck::Severity;
use siftfs_placement::recover_on;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const FILES: [&str; 4] = ["a", "b", "c", "d"];

/// Where each of the two lanes lies.
fn lanes() -> [Range<u64>; 2] {
    let staging = Layout::of(VolumeKind::TWO_LANES).staging;
    let middle = staging.start + (staging.end - staging.start) / 2;
    [staging.start..middle, middle..staging.end]
}

/// The lane that a write at `offset` goes to.
fn lane_of(offset: u64) -> usize {
    lanes().iter().position(|l| l.contains(&offset)).expect("a write into a lane")
}

/// A volume with [`FILES`], all durable and in the area, whose records alternate between the lanes.
fn four_files() -> Bench {
    let b = Bench::new(VolumeKind::TWO_LANES);
    for (id, name) in (1..).zip(FILES) {
        let ino = b.durable(name, &bytes(id, 2000));
        assert_eq!(u64::from(ino) % 2, (u64::from(b.ino("a")) + id - 1) % 2, "lanes alternate");
    }
    b.settle();
    b
}

/// Every file has its old bytes, or, up to the `new`th, its new ones.
fn is_prefix(back: &Back, new: usize, what: &str) {
    for (nr, (id, name)) in (1..).zip(FILES).enumerate() {
        let id = if nr < new { 10 + id } else { id };
        assert!(back.bytes(name) == bytes(id, 2000), "{what}: {name} is not of the prefix {new}");
    }
}

/// Four fsyncs, each in the other lane than the one before, all of whose writes are held: whichever
/// of them the cut keeps, recovery brings back exactly those before the first that it lost. None
/// of the later ones was acknowledged.
///
/// Seen to fail when recovery does not end at a gap (`cut_at_gap`).
#[test]
fn r24_recovery_ends_at_a_gap_between_lanes() {
    let b = four_files();
    for (id, name) in (11..).zip(FILES) {
        b.write(name, 0, &bytes(id, 2000));
    }
    let gate = Gate::new();
    let staging = Layout::of(VolumeKind::TWO_LANES).staging;
    b.device.inject(siftfs_device::Fault::hold(OpClass::Write, &gate).within(staging));
    let mut threads = Vec::new();
    for (nr, name) in (1..).zip(FILES) {
        threads.push(fsync_on_thread(&b, name));
        assert!(gate.wait_arrived(nr, Duration::from_secs(5)), "{name} writes its record");
    }
    let writes: Vec<u64> = b.device.pending().iter().map(|w| w.offset).collect();
    assert_eq!(writes.len(), 4, "one write per fsync");
    assert!(writes.windows(2).all(|w| lane_of(w[0]) != lane_of(w[1])), "lanes alternate");
    for kept in 0..16u32 {
        let is_kept = |offset: u64| {
            let nr = writes.iter().position(|w| *w == offset).expect("one of the four");
            kept & 1 << nr != 0
        };
        let image =
            b.device.image_with(|w| if is_kept(w.offset) { Fate::Keep } else { Fate::Lose });
        let prefix = kept.trailing_ones() as usize;
        is_prefix(&Back::from(&image), prefix, &format!("kept {kept:04b}"));
        no_errors(&image);
    }
    assert!(threads.iter().all(|t| !t.is_finished()), "acknowledged over a hole");
    b.device.cut_now();
    threads.into_iter().for_each(|t| assert!(!t.join().expect("no panic"), "acknowledged"));
    b.stop();
}

/// The record behind the gap is written whole, but its fsync has not returned: it waits for the one
/// in the other lane. It also builds on it: applied without it, it would not fit the file system.
///
/// Seen to fail when recovery does not end at a gap (`cut_at_gap`).
#[test]
fn r24_a_record_behind_a_gap_is_not_applied() {
    let b = four_files();
    b.write("a", 0, &bytes(11, 2000));
    b.rename("a", "moved");
    let gate = Gate::new();
    let [first, second] = [lane_of_inode(&b, "moved"), 1 - lane_of_inode(&b, "moved")];
    let held = siftfs_device::Fault::hold(OpClass::Write, &gate).within(lanes()[first].clone());
    b.device.inject(held.once());
    let moved = fsync_on_thread(&b, "moved");
    assert!(gate.wait_arrived(1, Duration::from_secs(5)));
    // The old name is free only because of the rename, which the held record carries.
    let mut new = b.create("a");
    while new as usize % 2 != second {
        b.rename("a", &format!("filler{new}"));
        new = b.create("a");
    }
    b.device.record();
    let later = fsync_on_thread(&b, "a");
    let written = wait_for(|| {
        b.device.take_log().iter().any(|o| writes(o) && lanes()[second].contains(&o.offset))
    });
    assert!(written, "the later record is written");
    std::thread::sleep(Duration::from_millis(100));
    assert!(!later.is_finished(), "acknowledged over a hole");
    let image = b
        .device
        .image_with(|w| if lanes()[first].contains(&w.offset) { Fate::Lose } else { Fate::Keep });
    gate.open();
    assert!(moved.join().expect("no panic") && later.join().expect("no panic"));
    let whole = b.device.image(Cut::LoseAll);
    b.stop();
    let back = Back::from(&image);
    is_prefix(&back, 0, "the record in the other lane was lost");
    assert!(!back.has("moved"));
    no_errors(&image);
    let back = Back::from(&whole);
    assert!(back.bytes("moved") == bytes(11, 2000) && back.has("a") && back.bytes("a").is_empty());
}

/// A whole record is gone from one lane, nothing lies behind it there, and a record of the other
/// lane says that it was durable: the volume is refused, not shortened.
///
/// Seen to fail when recovery does not end at a gap (`cut_at_gap`), and when a gap below what was
/// durable is taken for one above it.
#[test]
fn r14_a_lost_record_that_was_durable_is_rot() {
    let b = four_files();
    let ops = b.log(|b| {
        for (id, name) in (11..).zip(FILES) {
            b.write(name, 0, &bytes(id, 2000));
            b.fsync(name);
        }
    });
    let image = b.crash(Cut::LoseAll);
    let records: Vec<_> = ops.iter().filter(|o| writes(o)).collect();
    assert_eq!(records.len(), 4);
    is_prefix(&Back::from(&image), 4, "nothing lost");
    // The third is the last of its lane; the fourth, in the other one, knows that it was durable.
    let lost = without(&image, records[2]);
    for error in [recovery_error(&lost), opening_error(&lost)] {
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert_eq!(error.errno(), libc::EUCLEAN);
        let text = error.to_string();
        assert!(text.contains("staged transaction") && text.contains("durable"), "{text}");
    }
    let found = siftfs_fsck::check(&MemDevice::from_image(lost));
    let found: Vec<_> = found.iter().filter(|f| f.severity == Severity::Error).collect();
    assert!(found.len() == 1 && found[0].code == "lane.gap", "{found:?}");
    // The last of all may be lost: recovery cannot tell it from one that was never written.
    is_prefix(&Back::from(&without(&image, records[3])), 3, "the last one lost");
}

/// Records of two lanes build on each other: each new x needs the rename of the one before, which
/// lies in the other lane. Recovery merges them by number.
///
/// Seen to fail when recovery applies lane after lane.
#[test]
fn r24_lanes_are_merged_by_number() {
    let b = Bench::new(VolumeKind::TWO_LANES);
    let mut parities = std::collections::BTreeSet::new();
    for i in 0..40u64 {
        parities.insert(b.durable("x", &bytes(i, 1500)) % 2);
        b.write("x", 700, &bytes(100 + i, 100));
        b.fsync("x");
        b.rename("x", &format!("y{i}"));
    }
    assert_eq!(parities.len(), 2, "both lanes are used");
    b.fsync("/");
    every_recovery(b, |back| {
        for i in 0..40 {
            let mut want = bytes(i, 1500);
            want[700..800].copy_from_slice(&bytes(100 + i, 100));
            assert!(back.bytes(&format!("y{i}")) == want, "file {i}");
        }
    });
}

fn lane_of_inode(b: &Bench, path: &str) -> usize {
    b.ino(path) as usize % 2
}

fn writes(op: &OpRecord) -> bool {
    matches!(op.kind, OpKind::Write | OpKind::WriteFua)
}

/// Asks `ready` until it says yes; false after five seconds.
fn wait_for(mut ready: impl FnMut() -> bool) -> bool {
    (0..500).any(|_| {
        let now = ready();
        if !now {
            std::thread::sleep(Duration::from_millis(10));
        }
        now
    })
}

/// `image` as if the write `op` had never reached the medium.
fn without(image: &Image, op: &OpRecord) -> Image {
    let mut image = image.clone();
    image.write(op.offset, &vec![0; op.len]);
    image
}

/// `siftfs fsck` calls nothing in `image` an error: what a cut leaves is no damage.
fn no_errors(image: &Image) {
    let found = siftfs_fsck::check(&MemDevice::from_image(image.clone()));
    let errors: Vec<_> = found.iter().filter(|f| f.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

fn recovery_error(image: &Image) -> Error {
    let device = Arc::new(FaultDevice::from_image(image.clone(), 1));
    let Err(error) = recover_on(device, &deterministic()) else { panic!("recovered") };
    error
}

fn opening_error(image: &Image) -> Error {
    let Err(error) = open(Arc::new(MemDevice::from_image(image.clone()))) else { panic!("opened") };
    error
}
