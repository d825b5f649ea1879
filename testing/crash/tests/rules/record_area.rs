//! Rules R14, R16, R43 and R44 for the record area: what goes there stands alone, what stands on
//! more goes to block storage, and an area that is not the volume's own of this time is refused.

use super::{bytes, every_recovery, fsync_on_thread};
use siftfs_crash::{
    Back, Bench, RECORD_AREA, Split, VolumeKind, deterministic, devices, mem_media,
};
use siftfs_device::{Cut, Fate, Fault, Gate, Image, OpClass, OpKind};
use siftfs_fsck::Severity;
use siftfs_log::{HOST_SLOTS, HostRecord, HostState};
use siftfs_placement::{Compact, recover_on};
use siftfs_status::Dispatch;
use siftfs_volume::read_media;
use std::ops::Range;
use std::thread::JoinHandle;
use std::time::Duration;

pub(super) const KIND: VolumeKind = VolumeKind::ROOMY_TWO_LANES.with_area();
const SOON: Duration = Duration::from_secs(5);

/// Where the area lies in an image.
fn area() -> Range<u64> {
    KIND.size - RECORD_AREA..KIND.size
}

/// A volume with files of 8 KiB, all of them in place.
pub(super) fn prepared() -> Bench {
    filled(Bench::new(KIND))
}

pub(super) fn filled(b: Bench) -> Bench {
    for (id, name) in (1..).zip(["f", "g", "h"]) {
        b.durable(name, &bytes(id, 8192));
    }
    b.durable("big", &bytes(4, 512 << 10));
    b.settle();
    b
}

pub(super) fn dispatch(b: &Bench) -> Dispatch {
    b.status().runtime.dispatch
}

/// Records that went to the area, and those that did not for this reason, while `what` ran.
fn went(b: &Bench, reason: &str, what: impl FnOnce()) -> (u64, u64) {
    let count =
        |d: &Dispatch| (d.record_area.records, d.elsewhere.get(reason).copied().unwrap_or(0));
    let before = count(&dispatch(b));
    what();
    let after = count(&dispatch(b));
    (after.0 - before.0, after.1 - before.1)
}

/// Writes `id` over 512 bytes of a file at 100.
pub(super) fn change(b: &Bench, name: &str, id: u64) {
    b.write(name, 100, &bytes(id, 512));
}

pub(super) fn changed(mut old: Vec<u8>, id: u64) -> Vec<u8> {
    old[100..612].copy_from_slice(&bytes(id, 512));
    old
}

/// Holds every write of the disk's log until the gate opens; starts an fsync of bulk behind it.
fn bulk_under_way(b: &Bench, name: &str, id: u64) -> (Gate, JoinHandle<bool>) {
    b.write(name, 0, &bytes(id, 512 << 10));
    let gate = Gate::new();
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(0..area().start));
    let bulk = fsync_on_thread(b, name);
    assert!(gate.wait_arrived(1, SOON), "the bulk record is on its way");
    (gate, bulk)
}

/// Bytes at both ends of a page are two ranges of a small record, not a page: it goes to the area
/// and takes no more than they do, and recovery leaves what lies between as it was.
///
/// Seen to fail when a record carries one range for each page.
#[test]
fn ranges_of_a_page_that_lie_apart_stay_apart() {
    let b = prepared();
    let before = dispatch(&b);
    let mut content = bytes(1, 8192);
    for at in [10, 2000, 4000, 4200, 8100] {
        b.write("f", at as u64, &bytes(11, 60));
        content[at..at + 60].copy_from_slice(&bytes(11, 60));
    }
    b.fsync("f");
    let after = dispatch(&b);
    assert_eq!(after.record_area.records, before.record_area.records + 1, "{after:?}");
    assert!(after.record_bytes - before.record_bytes <= 1024, "{after:?}");
    assert_eq!(after.record_area.dirty_bytes - before.record_area.dirty_bytes, 300);
    every_recovery(b, |back| assert!(back.bytes("f") == content));
}

/// R43: one durable write of less than 1 KiB to the area, and nothing to the disk.
///
/// Seen to fail when nothing goes to the area, and when its records are whole blocks.
#[test]
fn r43_a_small_fsync_is_one_small_persist_of_the_area() {
    let b = prepared();
    for overwrite in [true, false] {
        let ops = b.log(|b| {
            if overwrite {
                change(b, "f", 11);
            } else {
                b.append("f", &bytes(12, 512));
            }
            b.fsync("f");
        });
        assert_eq!(ops.len(), 1, "{ops:?}");
        let op = &ops[0];
        assert!(
            area().contains(&op.offset) && op.kind == OpKind::WriteFua && op.len <= 1024,
            "{op:?}"
        );
        assert!(op.offset.is_multiple_of(64) && op.len.is_multiple_of(64), "{op:?}");
    }
    let mut wanted = changed(bytes(1, 8192), 11);
    wanted.extend(bytes(12, 512));
    every_recovery(b, |back| assert!(back.bytes("f") == wanted));
}

/// R44: it does not wait for bulk on the disk, recovery keeps it although the disk lost that and
/// kept what came behind, and so for the next one of the same file.
///
/// Seen to fail when recovery drops it with what the disk lost, and when it waits for the
/// watermark.
#[test]
fn r44_a_small_fsync_neither_waits_for_bulk_nor_falls_with_it() {
    let b = prepared();
    let (gate, bulk) = bulk_under_way(&b, "big", 20);
    let small = |id| {
        change(&b, "f", id);
        let first = [fsync_on_thread(&b, "f"), fsync_on_thread(&b, "f")];
        let returned = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            first.iter().all(JoinHandle::is_finished)
        });
        assert!(returned, "it waits for the bulk");
        assert!(first.into_iter().all(|thread| thread.join().expect("no panic")));
    };
    small(21);
    assert_ne!(b.ino("h") % 2, b.ino("big") % 2, "in another lane");
    b.write("h", 0, &bytes(23, 16 << 10));
    let behind = fsync_on_thread(&b, "h");
    assert!(gate.wait_arrived(2, SOON), "another record of the disk");
    small(22);
    assert!(!bulk.is_finished() && !behind.is_finished(), "they are held");
    let mut images = vec![b.device.image(Cut::LoseAll)];
    images.push(b.device.image_with(|w| if w.len < 512 << 10 { Fate::Keep } else { Fate::Lose }));
    gate.open();
    assert!(bulk.join().expect("no panic") && behind.join().expect("no panic"));
    for image in &images {
        let back = Back::from(image);
        assert!(back.bytes("f") == changed(bytes(1, 8192), 22), "acknowledged");
        assert!(back.bytes("h") == bytes(3, 8192) && back.bytes("big") == bytes(4, 512 << 10));
        no_errors(image);
    }
    every_recovery(b, |back| {
        assert!(
            back.bytes("big") == bytes(20, 512 << 10) && back.bytes("h") == bytes(23, 16 << 10)
        );
        assert!(back.bytes("f") == changed(bytes(1, 8192), 22));
    });
}

/// R44: a record whose inode's newest one is on its way to the disk goes there, too, and is not
/// acknowledged before it.
///
/// Seen to fail when what a record needs is not looked at.
#[test]
fn r44_what_needs_the_disk_goes_to_the_disk() {
    let b = prepared();
    let (gate, bulk) = bulk_under_way(&b, "big", 20);
    let small = {
        change(&b, "big", 21);
        fsync_on_thread(&b, "big")
    };
    assert!(gate.wait_arrived(2, SOON), "it is written behind the bulk");
    std::thread::sleep(Duration::from_millis(50));
    assert!(!small.is_finished() && !bulk.is_finished(), "acknowledged over a hole");
    assert_eq!(dispatch(&b).elsewhere.get("order"), Some(&1));
    let lost = b.device.image(Cut::LoseAll);
    gate.open();
    assert!(bulk.join().expect("no panic") && small.join().expect("no panic"));
    assert!(Back::from(&lost).bytes("big") == bytes(4, 512 << 10));
    every_recovery(b, |back| assert!(back.bytes("big") == changed(bytes(20, 512 << 10), 21)));
}

/// R44, S5: what was staged for a ticket survives if anything does that was staged later, in
/// whichever lane.
///
/// Seen to fail when a ticket's record does not count in the order of all.
#[test]
fn r44_nothing_passes_a_ticket() {
    let b = prepared();
    change(&b, "g", 31);
    b.stage("g");
    change(&b, "f", 32);
    assert_eq!(went(&b, "order", || b.fsync("f")), (0, 1));
    change(&b, "f", 33);
    assert_eq!(went(&b, "order", || b.fsync("f")), (1, 0), "the ticket is durable by now");
    every_recovery(b, |back| {
        assert!(back.bytes("g") == changed(bytes(2, 8192), 31));
        assert!(back.bytes("f") == changed(bytes(1, 8192), 33));
    });
}

/// R44: a record of the disk falls with the record of the area that was published before it.
///
/// Seen to fail when recovery does not look at `prev_compact`.
#[test]
fn r44_the_disk_follows_the_area() {
    let b = prepared();
    b.rename("f", "moved");
    let gate = Gate::new();
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(area()).once());
    let moved = fsync_on_thread(&b, "moved");
    assert!(gate.wait_arrived(1, SOON), "the rename is on its way to the area");
    // The old name is free only because of the rename.
    b.write_large("f", &bytes(41, 100_000));
    b.device.record();
    let later = fsync_on_thread(&b, "f");
    let written = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        b.device.take_log().iter().any(|op| op.kind == OpKind::WriteFua && op.len > 100_000)
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(written && !later.is_finished(), "written, and not acknowledged over a hole");
    let image =
        b.device.image_with(|w| if area().contains(&w.offset) { Fate::Lose } else { Fate::Keep });
    gate.open();
    assert!(moved.join().expect("no panic") && later.join().expect("no panic"));
    let back = Back::from(&image);
    assert!(back.bytes("f") == bytes(1, 8192) && !back.has("moved"));
    no_errors(&image);
    every_recovery(b, |back| {
        assert!(back.bytes("f") == bytes(41, 100_000) && back.bytes("moved") == bytes(1, 8192));
    });
}

/// Names, permissions and a new file's bytes go to the area; too much, and too large a share of the
/// pages, do not.
#[test]
fn r44_the_dispatcher_keeps_its_thresholds() {
    let half = Compact { percent: 50, ..Compact::default() };
    let b = filled(Bench::with_record_area(KIND, half));
    let fsync = |name: &str| b.fsync(name);
    b.create("new");
    b.write("new", 0, &bytes(50, 512));
    assert_eq!(went(&b, "size", || fsync("new")), (1, 0));
    b.chmod("new", 0o600);
    assert_eq!(went(&b, "size", || fsync("new")), (1, 0));
    b.write("g", 0, &bytes(51, 4096));
    assert_eq!(went(&b, "share", || fsync("g")), (0, 1));
    b.write("g", 0, &bytes(52, 2048));
    assert_eq!(went(&b, "share", || fsync("g")), (1, 0));
    b.write("g", 0, &bytes(53, 2049));
    assert_eq!(went(&b, "share", || fsync("g")), (0, 1));
    let sparse = |bytes: u64| {
        (0..8).for_each(|page| b.write("big", page << 12, &super::bytes(page + 60, bytes)))
    };
    sparse(1536);
    assert_eq!(went(&b, "size", || fsync("big")), (1, 0));
    sparse(1537);
    assert_eq!(went(&b, "size", || fsync("big")), (0, 1));
}

/// A full area costs no fsync anything: what has no room goes to the disk.
///
/// Seen to fail when a full area is waited for.
#[test]
fn r44_a_full_area_falls_back() {
    let b = prepared();
    let mut n = 0;
    while !dispatch(&b).elsewhere.contains_key("full") {
        n += 1;
        change(&b, "f", 100 + n);
        b.fsync("f");
        assert!(n < 2000, "an area of 256 KiB takes no more");
    }
    assert!(n > 200, "{n} records of at most 1 KiB");
    assert!(b.status().runtime.stalls.is_empty(), "{:?}", b.status().runtime.stalls);
    every_recovery(b, |back| assert!(back.bytes("f") == changed(bytes(1, 8192), 100 + n)));
}

/// R14: a record of the area that a later one calls durable is missed; the last one is not.
///
/// Seen to fail when the area's records say nothing of what was durable before.
#[test]
fn r14_rot_in_the_area() {
    let b = prepared();
    let ops = b.log(|b| {
        for id in 61..64 {
            change(b, "f", id);
            b.fsync("f");
        }
    });
    assert_eq!(ops.len(), 3);
    let image = b.crash(Cut::LoseAll);
    for (nr, op) in ops.iter().enumerate() {
        let mut rotten = image.clone();
        rotten.write(op.offset + 200, &[0; 8]);
        if nr == 2 {
            assert!(Back::from(&rotten).bytes("f") == changed(bytes(1, 8192), 62));
            continue;
        }
        refused(&rotten, "medium lost acknowledged data");
        assert!(errors(&rotten).contains(&"lane.rot"), "{:?}", errors(&rotten));
    }
}

/// R16: an area that is lost, another volume's, smaller, or of another time is refused, and nothing
/// is replayed. The same for a volume put back from a copy under the newer area.
///
/// Seen to fail when the area's header is not looked at.
#[test]
fn r16_an_area_of_another_volume_or_time() {
    let older = Bench::new(KIND).close();
    let b = Bench::on(older.clone());
    b.durable("f", &bytes(1, 8192));
    b.settle();
    change(&b, "f", 71);
    b.fsync("f");
    let image = b.crash(Cut::LoseAll);
    let at = Split::of(&image).bytes.expect("an area");
    let with_area = |from: &Image| {
        let mut image = image.clone();
        image.write(at, &from.bytes(at, RECORD_AREA as usize));
        image
    };
    refused(&with_area(&older), "an older copy");
    assert!(errors(&with_area(&older)).contains(&"area.epoch"));
    let mut area_newer = older.clone();
    area_newer.write(at, &image.bytes(at, RECORD_AREA as usize));
    assert!(!Back::from(&area_newer).has("f"), "a clean volume has nothing in its area");
    let other = {
        let kind = VolumeKind { lanes: 1, ..KIND };
        siftfs_crash::base_image_of(kind)
    };
    refused(&with_area(&other), "the record area is that of volume");
    assert!(errors(&with_area(&other)).contains(&"area.foreign"));
    // Without it.
    let (_, media) = mem_media(&image);
    let error = recover_on(media.with_bytes(None), &deterministic()).expect_err("refused");
    assert!(error.to_string().contains("was not found"), "{error}");
    assert!(Back::from(&image).bytes("f") == changed(bytes(1, 8192), 71));
}

/// An end of the area's records, as a recovery that was cut has recorded it, that lies before their
/// beginning, or more than the ring behind it.
#[test]
fn an_end_that_does_not_fit_the_areas_tail() {
    let b = prepared();
    change(&b, "f", 71);
    b.fsync("f");
    let image = b.crash(Cut::LoseAll);
    let (_, media) = mem_media(&image);
    let view = read_media(&*media.area, None).unwrap();
    let (lane, tail) = (KIND.lanes as usize, view.service.lane_tails[KIND.lanes as usize]);
    assert!(tail >= 64);
    let ended_at = |end| {
        let mut host = HostRecord { state: HostState::Recovering, ..view.host.clone() };
        host.seq += 1;
        host.lane_ends[lane] = end;
        let mut image = image.clone();
        for copy in view.header.header_offsets {
            image.write(copy + HOST_SLOTS[(host.seq % 2) as usize], &host.encode()[..]);
        }
        image
    };
    for end in [tail - 64, tail + RECORD_AREA] {
        refused(&ended_at(end), "do not fit the ring");
        assert!(errors(&ended_at(end)).iter().any(|code| code.starts_with("lane")));
    }
    assert!(Back::from(&ended_at(tail)).bytes("f") == bytes(1, 8192), "the control");
}

fn refused(image: &Image, why: &str) {
    let (device, media) = mem_media(image);
    let error = recover_on(media, &deterministic()).expect_err("refused");
    assert!(error.to_string().contains(why), "{error}");
    let same =
        device.snapshot().bytes(0, image.size() as usize) == image.bytes(0, image.size() as usize);
    assert!(same, "nothing is written: {why}");
}

fn errors(image: &Image) -> Vec<&'static str> {
    let (_, media) = mem_media(image);
    let found = siftfs_fsck::check_on(devices(&media));
    found.iter().filter(|f| f.severity == Severity::Error).map(|f| f.code).collect()
}

fn no_errors(image: &Image) {
    assert!(errors(image).is_empty(), "{:?}", errors(image));
}
