//! Rules about space: R5, R10, R11, R22.

use super::{bytes, every_recovery};
use siftfs_base::{Error, Timestamp};
use siftfs_crash::{Back, Bench, Layout, VolumeKind};
use siftfs_device::{Cut, Fault, FaultId, OpClass, OpKind, OpRecord};
use siftfs_model::Control;
use siftfs_proto::{Allocate, Reply, Request, SetAttr, SetTime};

pub(super) fn free_bytes(b: &Bench) -> u64 {
    match b.call(Request::StatFs) {
        Ok(Reply::Statfs(s)) => s.free * u64::from(s.block_size),
        other => panic!("statfs: {other:?}"),
    }
}

/// The disk is full; `rm big` unsynced; the freed space is written to and the fsync acknowledged:
/// after the crash both the durable past and the acknowledged present fit.
#[test]
fn r05_free_means_durably_free() {
    let b = Bench::new(VolumeKind::SMALL);
    let big = free_bytes(&b) * 3 / 4;
    b.write_large("big", &bytes(1, big));
    b.settle();
    b.unlink("big");
    b.create("a");
    let piece = 100_000;
    let mut synced = 0;
    while synced < big * 3 / 4 {
        b.write("a", synced, &siftfs_model::pattern(2, synced, piece));
        b.fsync("a");
        synced += piece;
        if synced.is_multiple_of(20 * piece) {
            let back = Back::from(&b.device.image(Cut::LoseAll));
            assert!(back.bytes("a") == siftfs_model::pattern(2, 0, synced));
        }
    }
    every_recovery(b, |back| assert!(back.bytes("a") == bytes(2, synced)));
}

/// The same while the freed space is taken: at every write of the commit that unlinks one file and
/// gives its room to another, the durable file is whole or gone.
///
/// Seen to fail when the allocator ignores the quarantine.
#[test]
fn r05_freed_blocks_are_not_overwritten() {
    let b = Bench::new(VolumeKind::SMALL);
    let big = free_bytes(&b) * 3 / 4;
    b.write_large("big", &bytes(1, big));
    b.settle();
    b.device.record_history();
    b.unlink("big");
    b.write_large("a", &bytes(2, big));
    b.commit(true);
    let history = b.device.take_history().expect("recorded");
    b.stop();
    history.each_cut(|cut, cache| {
        let back = Back::from(&cache.image(Cut::Random(cut)));
        assert!(!back.has("big") || back.bytes("big") == bytes(1, big), "cut {cut}");
    });
}

/// A freed block is given back to the storage before it is anybody's again: a discard that comes
/// late destroys what its next owner wrote.
///
/// Seen to fail when the quarantine ends at the reclamation (`State::reclaim_blocks` releases at
/// once).
#[test]
fn r05_a_block_waits_for_its_discard() {
    let b = Bench::new(VolumeKind::SMALL);
    let most = free_bytes(&b);
    let mut discarded = 0;
    for round in 0..6 {
        // Of half of what is free the next file fits beside it; of more it needs its blocks.
        let len = most * [2, 3, 4][round % 3] / 5;
        b.write_large("old", &bytes(1, len));
        b.commit(true);
        b.driver.volume.checkpoint().expect("checkpoint");
        b.unlink("old");
        b.commit(true);
        b.driver.volume.checkpoint().expect("reclaimed, and nothing discarded yet");
        b.write_large("new", &bytes(2 + round as u64, len));
        b.commit(true);
        b.driver.volume.checkpoint().expect("checkpoint");
        // Were a block of the new file still on a list, it would be given back now.
        b.driver.volume.discard().expect("discard");
        b.driver.clock.advance(2_000_000_000);
        for cut in [Cut::LoseAll, Cut::KeepAll, Cut::Random(round as u64)] {
            let back = Back::from(&b.device.image(cut));
            assert!(back.bytes("new") == bytes(2 + round as u64, len), "round {round}, {cut:?}");
        }
        discarded += b.status().discard.blocks;
        b.unlink("new");
        b.settle();
    }
    assert!(discarded > 0, "no round discards anything");
}

/// A full disk says ENOSPC at the write, and every byte that was accepted can be made durable.
///
/// Seen to fail when reserved space counts as free.
#[test]
fn r05_what_was_accepted_fits() {
    let b = Bench::new(VolumeKind::SMALL);
    b.create("f");
    let mut written = 0;
    let error = loop {
        let data = siftfs_model::pattern(1, written, 50_000);
        match b.try_write("f", written, &data) {
            Ok(()) => written += 50_000,
            Err(e) => break e,
        }
        assert!(written < 1 << 30, "the disk never fills");
    };
    assert_eq!(error, Error::Posix(libc::ENOSPC));
    b.fsync("f");
    let want = b.read("f");
    assert!(want.len() as u64 >= written);
    every_recovery(b, |back| {
        assert!(back.bytes("f")[..written as usize] == want[..written as usize]);
    });
}

/// A freed inode number comes back only under another generation.
///
/// Seen to fail when every inode gets the same generation.
#[test]
fn r05_a_number_is_reused_under_a_new_generation() {
    let b = Bench::new(VolumeKind::SMALL);
    let mut seen = std::collections::HashSet::new();
    let mut numbers = std::collections::HashSet::new();
    for _ in 0..60 {
        b.durable("f", b"x");
        let attr = b.attr("f");
        numbers.insert(attr.ino);
        assert!(seen.insert((attr.ino, attr.generation)), "{attr:?} came back");
        b.unlink("f");
        b.settle();
    }
    assert!(numbers.len() < 60, "numbers are reused");
}

/// Without any background, a lane that is far smaller than what is fsynced never blocks or
/// refuses: the fsync that finds no room makes it.
///
/// Seen to fail when an fsync that finds its lane full gives up.
#[test]
fn r10_reserve_before_you_lock() {
    let b = Bench::new(VolumeKind::SMALL);
    let lane = Layout::of(VolumeKind::SMALL).staging;
    let lane_bytes = lane.end - lane.start;
    b.create("f");
    let rounds = lane_bytes * 3 / 4096;
    for i in 0..rounds {
        b.write("f", (i % 64) * 4096, &bytes(i, 4096));
        b.fsync("f");
    }
    let want = b.read("f");
    every_recovery(b, |back| assert!(back.bytes("f") == want));
}

/// More dirty metadata than the journal holds: the running transaction closes in time.
///
/// Seen to fail when operations do not check the size of the running transaction.
#[test]
fn r10_metadata_never_outgrows_the_journal() {
    let b = Bench::new(VolumeKind::ROOMY);
    let journal = Layout::of(VolumeKind::ROOMY).journal;
    let dirs = (journal.end - journal.start) / 4096 + 200;
    for i in 0..dirs {
        b.mkdir(&format!("d{i}"));
    }
    b.durable("d7/f", &bytes(1, 100));
    b.commit(true);
    every_recovery(b, |back| {
        assert!((0..dirs).all(|i| back.has(&format!("d{i}"))));
        assert_eq!(back.bytes("d7/f"), bytes(1, 100));
    });
}

/// fallocate(2) where the free blocks are single ones, up to and beyond what there is: what does
/// not fit is refused before anything changes, and the volume serves on. So is zeroing what is
/// mapped already.
///
/// Seen to fail when the space is checked again between two pieces.
#[test]
fn r10_preallocation_is_refused_before_it_begins() {
    let b = Bench::new(VolumeKind::SMALL);
    let blocks = free_bytes(&b) / 4096 - 90;
    b.write_large("big", &bytes(1, blocks * 4096));
    b.settle();
    // Little is left in one piece, and no more than the slack that no operation may have.
    let rest = free_bytes(&b) - 40 * 4096;
    b.create("rest");
    b.allocate("rest", Allocate::Grow, 0, rest);
    for block in (1..160).step_by(2) {
        b.allocate("big", Allocate::PunchHole, block * 4096, 4096);
    }
    b.settle();
    b.settle();
    let space = |result: Result<Reply, Error>| match result {
        Ok(_) => true,
        Err(e) => {
            assert_eq!(e, Error::Posix(libc::ENOSPC), "the volume stops");
            false
        }
    };
    let (mut fit, mut refused) = (0, 0);
    let free = free_bytes(&b) / 4096;
    assert!(free < 128, "{free} blocks: so many are checked with one to spare for the extents");
    for blocks in free.saturating_sub(60)..free + 4 {
        let ino = b.create("a");
        for mode in [Allocate::Grow, Allocate::ZeroRange] {
            let request = Request::Allocate {
                file: ino.into(),
                mode,
                offset: 100,
                len: blocks * 4096,
                times: true,
            };
            let before = b.attr("a").blocks;
            match space(b.call(request)) {
                true => fit += 1,
                false => {
                    refused += 1;
                    assert_eq!(b.attr("a").blocks, before, "{blocks} blocks, {mode:?}: half-way");
                }
            }
        }
        // What it had is in quarantine: the next one makes progress first, and then has one try.
        b.unlink("a");
    }
    assert!(fit > 5 && refused > 5, "{fit} fit, {refused} were refused");
    every_recovery(b, |back| assert!(back.bytes("big")[..4096] == bytes(1, 4096)));
}

/// Reads dirty inodes, because they move access times: all of them, and the running
/// transaction closes in time all the same.
///
/// Seen to fail when a read moves the access time whatever the running transaction holds.
#[test]
fn r10_reads_never_outgrow_the_journal() {
    let kind = VolumeKind { size: 48 << 20, log: 3 << 20, ..VolumeKind::SMALL };
    let journal = Layout::of(kind).journal;
    let b = Bench::new(kind);
    let files = 2400;
    for i in 0..files {
        let path = format!("f{i}");
        b.create(&path);
        b.write(&path, 0, &bytes(i, 1));
        let long_ago = SetTime::At(Timestamp { sec: 1, nsec: 0 });
        b.set(&path, SetAttr { atime: Some(long_ago), ..SetAttr::default() });
    }
    b.settle();
    let ops = b.log(|b| {
        for i in 0..files {
            assert_eq!(b.read(&format!("f{i}")), bytes(i, 1));
        }
        b.commit(true);
    });
    let written = |o: &&OpRecord| o.kind == OpKind::Write && journal.contains(&o.offset);
    let longest = ops.iter().filter(written).map(|o| o.len as u64).max().expect("a transaction");
    assert!(longest > 4 << 12, "access times move: {longest}");
    assert!(longest <= (journal.end - journal.start) / 4, "{longest} of {journal:?}");
    every_recovery(b, |back| assert_eq!(back.bytes("f7"), bytes(7, 1)));
}

/// A journal that repeats staged data, and lanes that hold far more than one of its transactions:
/// what is staged finds room in the next one, however much an fsync carries, and no caller waits
/// for ever.
///
/// Seen to fail when staged bytes are not counted as blocks of the running transaction.
#[test]
fn r10_what_the_journal_repeats_never_outgrows_it() {
    let kind = VolumeKind { size: 32 << 20, log: 8 << 20, ..VolumeKind::SMALL }.copies();
    let journal = Layout::of(kind).journal;
    let b = Bench::new(kind);
    b.durable("f", &bytes(1, 2 << 20));
    b.settle();
    let sizes = [100, 1536, 60, 100, 129, 200, 250, 300, 700];
    let ops = b.log(|b| {
        for (i, size) in (2..).zip(sizes.iter().flat_map(|kib| [*kib; 3])) {
            let data = bytes(i, size << 10);
            b.write("f", 0, &data);
            b.fsync("f");
            assert!(b.read("f").starts_with(&data), "{size} KiB");
        }
        b.commit(true);
    });
    let written = |o: &&OpRecord| o.kind == OpKind::Write && journal.contains(&o.offset);
    let longest = ops.iter().filter(written).map(|o| o.len as u64).max().expect("a transaction");
    assert!(longest > 200 << 10, "staged data is repeated: {longest}");
    assert!(longest <= (journal.end - journal.start) / 4, "{longest}");
    let last = b.read("f");
    every_recovery(b, |back| assert!(back.bytes("f") == last));
}

/// Small overwrites of a file with many extents change no block of its tree, so they close the
/// running transaction by their tags alone, and what they write into holes, which does change the
/// tree, finds the room that it needs beside them.
///
/// Seen to fail when each range of such a file counts a block of the tree.
#[test]
fn r10_overwrites_count_their_tags_alone() {
    let b = Bench::new(VolumeKind::ROOMY);
    let blocks = 1200;
    b.create("f");
    // Every other block, so that none joins its neighbour.
    for block in (0..blocks).step_by(2) {
        b.write("f", block * 4096, &bytes(block, 4096));
        b.commit(true);
    }
    b.settle();
    let overwrite = |b: &Bench, seed: u64| {
        for i in 0..blocks / 2 {
            let block = (i * 7 + seed) % (blocks / 2) * 2;
            b.write("f", block * 4096 + 100 * seed, &bytes(i, 100));
            b.fsync("f");
        }
    };
    let transactions = |b: &Bench| b.status().runtime.transactions;
    let before = transactions(&b);
    overwrite(&b, 1);
    assert_eq!(transactions(&b), before, "600 small overwrites close no transaction");
    for i in 0..100 {
        b.write("f", (i * 11 % 600 * 2 + 1) * 4096, &bytes(i, 50));
        b.fsync("f");
        if i == 50 {
            overwrite(&b, 2);
        }
    }
    let want = b.read("f");
    every_recovery(b, |back| assert!(back.bytes("f") == want));
}

/// An fsync larger than the whole lane.
///
/// Seen to fail when a record that is too long is refused instead of a full commit.
#[test]
fn r10_an_fsync_larger_than_the_lane() {
    let b = Bench::new(VolumeKind::SMALL);
    let lane = Layout::of(VolumeKind::SMALL).staging;
    let len = (lane.end - lane.start) * 3 / 2;
    b.create("f");
    b.write("f", 0, &bytes(1, len));
    b.fsync("f");
    every_recovery(b, |back| assert!(back.bytes("f") == bytes(1, len)));
}

/// Area writes, area flush, tail record, its flush: in this order.
///
/// Seen to fail when a checkpoint does not flush the area.
#[test]
fn r11_reclaim_in_order() {
    let layout = Layout::of(VolumeKind::SMALL);
    let b = Bench::new(VolumeKind::SMALL);
    for i in 0..20 {
        b.durable(&format!("f{i}"), &bytes(i, 6000));
    }
    b.commit(true);
    let ops = b.log(Bench::checkpoint);
    let last_area = ops
        .iter()
        .rposition(|o| o.kind != OpKind::Flush && layout.area.contains(&o.offset))
        .expect("the area is written");
    let first_tail = ops.iter().position(|o| o.kind != OpKind::Flush && layout.in_header(o));
    let first_tail = first_tail.expect("the tail is written");
    assert!(last_area < first_tail, "tail before area: {ops:?}");
    let flushed = ops[last_area..first_tail].iter().any(|o| o.kind == OpKind::Flush);
    assert!(flushed, "no flush between area and tail: {ops:?}");
    let durable = |o: &siftfs_device::OpRecord| o.kind != OpKind::Write;
    assert!(ops[first_tail..].iter().any(durable), "the tail is not flushed: {ops:?}");
    b.stop();
}

/// Data deleted before its checkpoint never reaches the area: not a single of its bytes does.
///
/// Seen to fail when the data of removed files waits for its home.
#[test]
fn r22_deleted_data_is_dropped() {
    let layout = Layout::of(VolumeKind::ROOMY);
    let b = Bench::new(VolumeKind::ROOMY);
    b.settle();
    let data = bytes(1, 400_000);
    b.durable("f", &data);
    b.unlink("f");
    b.device.record_history();
    let ops = b.log(|b| b.settle());
    let area: usize = ops.iter().filter(|o| layout.area.contains(&o.offset)).map(|o| o.len).sum();
    assert!(area < 200_000, "{area} bytes written for a deleted file");
    let image = b.device.image(Cut::KeepAll);
    let at = find_block(&image, layout.area.end, &data[..4096]);
    assert_eq!(at, None, "a deleted file's data is in the area");
    every_recovery(b, |back| assert!(!back.has("f")));
}

/// The block of the area that begins with `head`.
fn find_block(image: &siftfs_device::Image, area: u64, head: &[u8]) -> Option<u64> {
    (0..area / 4096).find(|nr| image.bytes(nr * 4096, head.len()) == head)
}

/// A transaction lists the area ranges that it frees, every block of them: what replay in any mode
/// may leave out.
///
/// Seen to fail when a transaction is made without its freed runs.
#[test]
fn r22_freed_ranges_are_listed() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("f", &bytes(1, 400_000));
    b.settle();
    let listed = |b: &Bench| {
        let status = b.status();
        (status.service.drops, status.runtime.dropped_blocks)
    };
    let (runs, blocks) = listed(&b);
    b.unlink("f");
    b.commit(true);
    let (runs_after, blocks_after) = listed(&b);
    assert!(runs_after > runs, "{runs}, then {runs_after} runs");
    assert_eq!(blocks_after - blocks, 400_000u64.div_ceil(4096), "blocks listed");
    every_recovery(b, |back| assert!(!back.has("f")));
}

/// Without a Runtime the Service finishes only what was committed: a recovery that is cut as soon
/// as it has replayed the journal leaves the volume marked, and what is staged waits.
///
/// Seen to fail when recovery clears the marker once the journal is replayed.
#[test]
fn r22_replay_alone_keeps_the_marker() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("committed", &bytes(1, 5000));
    b.commit(true);
    b.durable("staged", &bytes(2, 5000));
    let image = b.crash(Cut::LoseAll);
    let device = std::sync::Arc::new(siftfs_device::FaultDevice::from_image(image, 1));
    device.record_history();
    let recovered = siftfs_placement::recover_on(device.clone(), &siftfs_crash::deterministic());
    let report = recovered.expect("recovers");
    assert!(report.replayed_transactions > 0 && report.staged_applied > 0, "{report:?}");
    let mut replayed = 0;
    device.take_history().expect("recorded").each_cut(|_, cache| {
        let image = cache.image(Cut::LoseAll);
        let found = siftfs_fsck::check(&siftfs_device::MemDevice::from_image(image.clone()));
        let marked = image.bytes(1024 + 0x60 + 3, 1)[0] & 0x20 != 0;
        let plain = !marked && found.iter().all(|f| f.code != "super.torn");
        let back = Back::from(&image);
        assert_eq!(back.bytes("committed"), bytes(1, 5000));
        assert_eq!(back.bytes("staged"), bytes(2, 5000), "marked: {marked}");
        if plain {
            let mounted = siftfs_crash::e2fsck_image(&image);
            assert_eq!(mounted, Ok(()), "the marker went before the volume was plain ext4");
        } else {
            replayed += 1;
        }
    });
    assert!(replayed > 3, "{replayed} cuts before the end");
}

/// Bytes that are staged and have no home yet take blocks at recovery, which may find a record that
/// carries them and nothing of what cut them off or removed them since: their space is nobody
/// else's before that is durable.
///
/// Seen to fail when a reservation for them is given back at once.
#[test]
fn r05_what_is_staged_keeps_its_space() {
    const STEP: u64 = 4 * 4096;
    let piece = 60 * 4096;
    let gone: [fn(&Bench); 4] = [
        |b| b.unlink("a"),
        |b| b.truncate("a", 0),
        |b| b.allocate("a", Allocate::PunchHole, 0, 60 * 4096),
        |b| b.rename("other", "a"),
    ];
    for (i, gone) in gone.into_iter().enumerate() {
        let b = Bench::new(VolumeKind::SMALL);
        b.create("other");
        let rest = free_bytes(&b) - 105 * 4096;
        b.write_large("fill", &bytes(1, rest));
        b.settle();
        b.create("a");
        for at in (0..piece).step_by(STEP as usize) {
            b.write("a", at, &bytes(2, STEP));
            b.fsync("a");
        }
        gone(&b);
        b.create("b");
        let mut taken = 0;
        while taken < piece && b.try_write("b", taken, &bytes(taken, STEP)).is_ok() {
            taken += STEP;
            b.fsync("b");
        }
        assert!(taken > piece / 2, "way {i}: there was room");
        let content = b.read("b")[..taken as usize].to_vec();
        every_recovery(b, |back| assert!(back.bytes("b")[..taken as usize] == content, "way {i}"));
    }
}

/// R21, beside it: a write of the background's that finds no room below is no failed flush. It is
/// tried again; small fsyncs go on, what needs the background gets ENOSPC, and nothing is latched.
///
/// Seen to fail when a region does not wait: the checkpoint fails and the volume stops.
#[test]
fn r21_no_room_below_is_waited_out() {
    for errno in [libc::ENOSPC, libc::EDQUOT] {
        let b = Bench::new(VolumeKind::SMALL);
        let area = Layout::of(VolumeKind::SMALL).area;
        let mut files: Vec<(String, u64)> = (0..6).map(|i| (format!("f{i}"), i)).collect();
        for (name, i) in &files {
            b.durable(name, &bytes(*i, 5000));
        }
        b.commit(true);
        let fault = b.device.inject(Fault::fail(OpClass::Write, errno).within(area.clone()));
        std::thread::scope(|scope| {
            let room = RoomAgain(&b, fault);
            let checkpoint = scope.spawn(|| b.driver.checkpoint());
            // The second try comes when the wait has begun.
            while b.device.fired(fault) < 2 {
                std::thread::yield_now();
            }
            assert!(b.status().no_room.is_some());
            b.durable("g", &bytes(9, 3000));
            files.push(("g".into(), 9));
            b.create("large");
            b.write("large", 0, &bytes(5, 600 << 10));
            let error = b.try_fsync("large").expect_err("more than a record takes");
            assert_eq!(error, Error::Posix(libc::ENOSPC));
            while b.status().no_room.is_none_or(|wait| wait.tries < 3) {
                std::thread::yield_now();
            }
            assert!(b.status().failed.is_none() && b.device.fired(fault) >= 3);
            drop(room);
            checkpoint.join().expect("no panic").expect("there is room again");
        });
        assert!(b.status().no_room.is_none());
        b.fsync("large");
        b.commit(true);
        b.checkpoint();
        let back = Back::from(&b.crash(Cut::LoseAll));
        for (name, i) in &files {
            let len = if name == "g" { 3000 } else { 5000 };
            assert!(back.bytes(name) == bytes(*i, len), "{name}");
        }
        assert!(back.bytes("large") == bytes(5, 600 << 10));
    }
}

/// Ends a want of space when it goes, so that a test that fails leaves no thread waiting.
struct RoomAgain<'a>(&'a Bench, FaultId);

impl Drop for RoomAgain<'_> {
    fn drop(&mut self) {
        self.0.device.remove(self.1);
    }
}

/// A flush that fails for want of space has lost what it was to make durable: it latches.
#[test]
fn r21_a_flush_without_room_latches() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 5000));
    b.create("g");
    b.write("g", 0, &bytes(2, 5000));
    b.device.inject(Fault::fail(OpClass::Flush, libc::ENOSPC).once());
    b.driver.commit(true).expect_err("its flush failed");
    b.try_fsync("g").expect_err("and is not tried again");
    let status = b.status();
    assert!(status.failed.is_some() && status.no_room.is_none(), "{:?}", status.failed);
    let back = Back::from(&b.crash(Cut::LoseAll));
    assert!(back.bytes("f") == bytes(1, 5000));
}
