//! Rules about what an fsync owes: R6, R7, R12, R13, R19, R20.

use super::{bytes, every_recovery, fsync_on_thread};
use siftfs_crash::{Back, Bench, Layout, VolumeKind};
use siftfs_device::{Cut, Fault, Gate, OpClass};
use siftfs_proto::{Allocate, Credentials, Request};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

/// 1 MiB durable; truncate to 0; write 100 bytes at 500 KiB; fsync: no old byte comes back.
///
/// Seen to fail when records leave out the smallest size reached.
#[test]
fn r06_truncation_is_remembered() {
    for datasync in [false, true] {
        let b = Bench::new(VolumeKind::ROOMY);
        b.durable("f", &bytes(1, 1 << 20));
        b.settle();
        b.truncate("f", 0);
        b.write("f", 500 << 10, &bytes(2, 100));
        if datasync {
            b.fdatasync("f")
        } else {
            b.fsync("f")
        }
        every_recovery(b, |back| {
            let found = back.bytes("f");
            assert_eq!(found.len(), (500 << 10) + 100);
            assert!(found[..500 << 10].iter().all(|b| *b == 0), "old bytes came back");
            assert_eq!(found[500 << 10..], bytes(2, 100));
        });
    }
}

/// The same for ranges: punched, zeroed, cut off and extended again.
///
/// Seen to fail when records leave out zeroed ranges.
#[test]
fn r06_holes_are_remembered() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("f", &bytes(1, 100_000));
    b.settle();
    b.allocate("f", Allocate::PunchHole, 5000, 20_000);
    b.allocate("f", Allocate::ZeroRange, 40_000, 10_001);
    b.truncate("f", 70_001);
    b.truncate("f", 90_000);
    b.fdatasync("f");
    let want = b.read("f");
    every_recovery(b, |back| assert!(back.bytes("f") == want));
}

/// A staged record covers a range; newer data of that range, written in place by the background,
/// must not be overwritten when the record is applied.
///
/// Seen to fail when mapped blocks, and those that a record names, are written in place.
#[test]
fn r07_no_older_record_over_newer_data() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 4096));
    b.settle();
    b.write("f", 0, &bytes(2, 4096));
    b.fsync("f");
    b.write("f", 0, &bytes(3, 4096));
    b.commit(true);
    let now = super::images(&b);
    b.checkpoint();
    let later = super::images(&b);
    b.stop();
    for image in now.iter().chain(&later) {
        assert!(Back::from(image).bytes("f") == bytes(3, 4096));
    }
}

/// Waits until `n` threads stand at the gate, or as long as those that never will may need.
fn settle(gate: &Gate, n: u64) {
    gate.wait_arrived(n, Duration::from_millis(300));
}

/// A's fsync has captured the pages and its write is under way; B's fsync of the same file finds
/// nothing dirty. B must not return before A's write is durable.
///
/// Seen to fail when an fsync that finds nothing new returns at once.
#[test]
fn r12_fsync_waits_for_whoever_took_it() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 4096));
    b.settle();
    b.write("f", 0, &bytes(2, 4096));
    let gate = Gate::new();
    b.device.inject(Fault::hold(OpClass::Write, &gate).once());
    let first = fsync_on_thread(&b, "f");
    settle(&gate, 1);
    assert_eq!(gate.arrived(), 1, "the first fsync writes");
    let second = fsync_on_thread(&b, "f");
    thread::sleep(Duration::from_millis(200));
    let early = second.is_finished();
    let image = b.device.image(Cut::LoseAll);
    gate.open();
    assert!(first.join().expect("no panic") && second.join().expect("no panic"));
    b.stop();
    let kept = Back::from(&image).bytes("f") == bytes(2, 4096);
    assert!(!early || kept, "the second fsync returned over a write in flight");
}

/// A 512-byte append goes to a block that another file's bytes are still in: none of them shows,
/// neither in the file nor in the rest of its block.
///
/// Seen to fail when the rest of a new block gets no zero ranges.
#[test]
fn r13_byte_exact_maps() {
    let b = Bench::new(VolumeKind::SMALL);
    let secret = vec![0x5a; 9 << 20];
    b.write_large("secret", &secret);
    b.settle();
    b.unlink("secret");
    b.settle();
    for i in 0..20 {
        let name = format!("f{i}");
        b.create(&name);
        b.append(&name, &bytes(i, 512));
        b.fsync(&name);
    }
    let staged = b.device.image(Cut::LoseAll);
    b.settle();
    let settled = b.device.image(Cut::LoseAll);
    b.stop();
    for image in [staged, settled] {
        let back = Back::from(&image);
        for i in 0..20 {
            assert_eq!(back.bytes(&format!("f{i}")), bytes(i, 512));
            let block = find_block(&back.image, &bytes(i, 512)).expect("somewhere in the area");
            assert!(block[512..].iter().all(|b| *b == 0), "the rest of the block shows old bytes");
        }
    }
}

/// The 4 KiB block of the image that begins with `head`.
fn find_block(image: &siftfs_device::Image, head: &[u8]) -> Option<Vec<u8>> {
    (0..image.size() / 4096)
        .map(|nr| image.bytes(nr * 4096, 4096))
        .find(|block| block.starts_with(head))
}

/// The checksum of a record covers memory that is not changed while it is written: a writer
/// hammering the file during its fsyncs never leaves a record that recovery calls corrupt, or that
/// it takes for a torn one. What is found is at least as new as what was there at the fsync.
///
/// Seen to fail when a record's data is copied from the cache again after its checksums were made.
#[test]
fn r19_stable_buffers() {
    const LEN: u64 = 64 << 10;
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &[1; LEN as usize]);
    let stop = AtomicBool::new(false);
    let written = AtomicU8::new(1);
    let mut images = Vec::new();
    let ino = b.ino("f");
    thread::scope(|scope| {
        let (service, stop, written) = (b.service.clone(), &stop, &written);
        scope.spawn(move || {
            for round in 2..=u8::MAX {
                let data = vec![round; LEN as usize];
                let req = Request::write(ino, 0, data);
                service.call(&Credentials::default(), req).expect("write");
                written.store(round, Ordering::SeqCst);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(Duration::from_micros(100));
            }
        });
        for _ in 0..40 {
            let before = images.last().map_or(0, |(owed, _)| *owed);
            let owed = newer_than(written, before);
            b.fsync("f");
            images.push((owed, b.device.image(Cut::LoseAll)));
        }
        stop.store(true, Ordering::Relaxed);
    });
    b.stop();
    let news = images.windows(2).filter(|w| w[0].0 != w[1].0).count();
    assert!(news > 4, "the writer came between {news} fsyncs only");
    for (owed, image) in images.iter().step_by(2) {
        let found = Back::from(image).bytes("f");
        assert_eq!(found.len() as u64, LEN);
        let oldest = found.iter().min().expect("not empty");
        assert!(oldest >= owed, "round {oldest} found, round {owed} was fsynced");
    }
}

/// A bulk record is encoded while other threads write: what they change meanwhile is in it, or is
/// owed still.
///
/// Seen to fail when what was encoded is published without a check of the pages.
#[test]
fn r19_writes_while_a_bulk_record_is_encoded() {
    const BLOCKS: u64 = 128;
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("f", &bytes(1, BLOCKS * 4096));
    for round in 2..12 {
        let mut expected = bytes(round, BLOCKS * 4096);
        b.write("f", 0, &expected);
        let synced = fsync_on_thread(&b, "f");
        while !synced.is_finished() {
            for i in 0..BLOCKS {
                // In an order of its own, so that the last writes are anywhere.
                let at = (i * 37 + round) % BLOCKS * 4096;
                let data = bytes(round << 32 | i, 4096);
                b.write("f", at, &data);
                expected[at as usize..at as usize + 4096].copy_from_slice(&data);
                if synced.is_finished() {
                    break;
                }
            }
        }
        assert!(synced.join().expect("no panic"));
        b.fsync("f");
        let found = Back::from(&b.device.image(Cut::LoseAll)).bytes("f");
        assert!(found == expected, "round {round}: what was fsynced is not there");
    }
    b.stop();
}

/// A transaction's snapshot is what it was at the cut, though the transaction has to wait for a
/// staged record in flight before it is journaled: what is done meanwhile belongs to the next one.
///
/// Seen to fail when the metadata cache changes a block in place that a snapshot refers to.
#[test]
fn r19_a_snapshot_stays_as_it_was_cut() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("a", &bytes(1, 3000));
    b.settle();
    b.create("cut");
    b.write("a", 0, &bytes(2, 3000));
    let gate = Gate::new();
    let staging = Layout::of(VolumeKind::SMALL).staging;
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(staging).once());
    let synced = fsync_on_thread(&b, "a");
    assert!(gate.wait_arrived(1, Duration::from_secs(5)), "the record is written");
    let before = b.status().transaction;
    thread::scope(|scope| {
        let commit = scope.spawn(|| b.commit(false));
        for _ in 0..1000 {
            if b.status().transaction > before {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(b.status().transaction, before + 1, "the cut is made");
        b.create("later");
        b.rename("cut", "renamed");
        assert!(!commit.is_finished(), "the transaction waits for the record");
        gate.open();
        commit.join().expect("commits");
    });
    assert!(synced.join().expect("no panic"));
    every_recovery(b, |back| {
        assert_eq!(back.bytes("a"), bytes(2, 3000));
        assert!(back.has("cut") && !back.has("renamed") && !back.has("later"), "beyond the cut");
    });
}

/// The writer's round, newer than `before` unless it takes its time.
fn newer_than(written: &AtomicU8, before: u8) -> u8 {
    for _ in 0..100 {
        let now = written.load(Ordering::SeqCst);
        if now > before {
            return now;
        }
        thread::sleep(Duration::from_micros(100));
    }
    before
}

/// A rename over a file never exposes the new name without the data written before it, even without
/// an fsync.
///
/// Seen to fail when a replacing rename does not mark its file to be pushed.
#[test]
fn r20_a_replacing_rename_comes_with_its_data() {
    for push in [false, true] {
        let b = Bench::new(VolumeKind::SMALL);
        b.durable("f", &bytes(1, 6000));
        b.settle();
        b.create("t");
        b.write("t", 0, &bytes(2, 7000));
        b.rename("t", "f");
        b.commit(push);
        every_recovery(b, |back| assert!(back.bytes("f") == bytes(2, 7000)));
    }
}

/// A file that was cut to nothing and written again is never journaled without the new data, even
/// without an fsync: it has the old bytes or the new ones.
///
/// Seen to fail when a truncation to nothing does not mark its file to be pushed.
#[test]
fn r20_a_rewritten_file_comes_with_its_data() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 6000));
    b.settle();
    b.truncate("f", 0);
    b.write("f", 0, &bytes(2, 7000));
    b.commit(false);
    every_recovery(b, |back| assert!(back.bytes("f") == bytes(2, 7000)));
}

/// The same when the rename becomes durable through another file's fsync.
///
/// Seen to fail when the closure leaves out the data of files renamed over others.
#[test]
fn r20_a_rename_in_a_closure_comes_with_its_data() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 6000));
    b.settle();
    b.create("t");
    b.write("t", 0, &bytes(2, 7000));
    b.rename("t", "f");
    b.rename("f", "g");
    b.durable("f", b"third");
    every_recovery(b, |back| {
        assert_eq!(back.bytes("f"), b"third");
        assert!(back.bytes("g") == bytes(2, 7000));
    });
}

/// The journaled size never runs ahead of the data.
///
/// Seen to fail when inodes are always journaled with their present size.
#[test]
fn r20_size_follows_data() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 1000));
    b.settle();
    b.append("f", &bytes(2, 50_000));
    b.commit(false);
    every_recovery(b, |back| {
        let found = back.bytes("f");
        assert!(found.len() == 1000 || found.len() == 51_000, "{} bytes", found.len());
        assert!(found[1000..] == bytes(2, 50_000)[..found.len() - 1000]);
    });
}

/// Unsynced data that was pushed is captured again by an fsync until its commit is durable: the
/// commit's journal write is held, the fsync returns, and the cut loses the commit.
///
/// Seen to fail when pushed data counts as durable at once.
#[test]
fn r20_fsync_during_a_push_is_still_an_fsync() {
    let b = Bench::new(VolumeKind::SMALL);
    b.create("f");
    b.write("f", 0, &bytes(1, 30_000));
    let gate = Gate::new();
    let journal = Layout::of(VolumeKind::SMALL).journal;
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(journal).once());
    let image = thread::scope(|scope| {
        let commit = scope.spawn(|| b.commit(true));
        assert!(gate.wait_arrived(1, Duration::from_secs(5)), "the commit is journaled");
        b.append("f", &bytes(2, 10));
        let synced = fsync_on_thread(&b, "f");
        let until = std::time::Instant::now() + Duration::from_secs(5);
        while !synced.is_finished() && std::time::Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        // An fsync that waits for the commit would be right too.
        let returned = synced.is_finished();
        let image = b.device.image(Cut::LoseAll);
        gate.open();
        commit.join().expect("commits");
        assert!(synced.join().expect("no panic"));
        assert!(returned, "the fsync waits for the background");
        image
    });
    let want = [bytes(1, 30_000), bytes(2, 10)].concat();
    assert!(Back::from(&image).bytes("f") == want, "pushed and not durable");
    every_recovery(b, |back| assert!(back.bytes("f") == want));
}

/// A page whose record is on its way to the lane is the only place that has its bytes: it stays in
/// the cache, however full that is.
///
/// Seen to fail when only dirty and pushed pages stay.
#[test]
fn r11_a_page_stays_until_its_record_is_written() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("f", &bytes(1, 20_000));
    b.durable("other", &vec![7; 8 << 20]);
    b.settle();
    b.write("f", 0, &bytes(2, 20_000));
    let gate = Gate::new();
    let staging = Layout::of(VolumeKind::ROOMY).staging;
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(staging).once());
    let fsync = fsync_on_thread(&b, "f");
    assert!(gate.wait_arrived(1, Duration::from_secs(20)), "the record is being written");
    // Twice the cache.
    for _ in 0..2 {
        assert_eq!(b.read("other").len(), 8 << 20);
    }
    let seen = b.read("f");
    gate.open();
    assert!(fsync.join().expect("no panic"), "the fsync is done");
    assert!(seen == bytes(2, 20_000), "other bytes were read");
}

/// An fsync of what has nothing new owes the permission changes above it (R17), also where the
/// record of another caller's fsync has them and is not written yet.
///
/// Seen to fail when only records of the file itself are waited for.
#[test]
fn r12_who_has_nothing_new_waits_for_permissions_on_their_way() {
    let b = Bench::new(VolumeKind::SMALL);
    b.mkdir("dir");
    b.durable("dir/old", &bytes(1, 1000));
    b.durable("dir/new", &bytes(1, 1000));
    b.settle();
    b.chmod("dir", 0o700);
    b.append("dir/new", &bytes(2, 10));
    let gate = Gate::new();
    let staging = Layout::of(VolumeKind::SMALL).staging;
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(staging).once());
    let first = fsync_on_thread(&b, "dir/new");
    assert!(gate.wait_arrived(1, Duration::from_secs(20)), "the record is being written");
    let second = fsync_on_thread(&b, "dir/old");
    let until = std::time::Instant::now() + Duration::from_millis(500);
    while !second.is_finished() && std::time::Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let early = second.is_finished();
    gate.open();
    assert!(first.join().expect("no panic") && second.join().expect("no panic"));
    assert!(!early, "acknowledged before the change of the directory was durable");
}
