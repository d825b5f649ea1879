//! Rule R42: records that name the blocks that they overwrite reach those blocks with their own
//! transaction, under all else that it says of them, and nothing else of the blocks' lives.

use super::record_area::{KIND, change, changed, dispatch, filled, prepared};
use super::space::free_bytes;
use super::{bytes, every_recovery};
use siftfs_crash::{Back, Bench, Layout, VolumeKind};
use siftfs_device::{Cut, Fault, Gate, OpClass};
use siftfs_placement::Compact;
use siftfs_proto::Allocate;
use std::thread;
use std::time::Duration;

/// Physical ranges staged while `what` ran.
fn physical(b: &Bench, what: impl FnOnce(&Bench)) -> u64 {
    let before = dispatch(b).physical;
    what(b);
    dispatch(b).physical - before
}

/// What is done to a file, and checked, with nothing journaled yet, journaled, and in the area.
fn at_each_stage(what: impl Fn(&Bench), check: impl Fn(&Back)) {
    for stage in 0..3 {
        let b = prepared();
        what(&b);
        if stage > 0 {
            b.commit(false);
        }
        if stage > 1 {
            b.checkpoint();
        }
        every_recovery(b, &check);
    }
}

/// An overwrite has no tag, and none of its bytes is lost at any stage.
///
/// Seen to fail when the Service does not digest, and when it digests one record too few.
#[test]
fn r42_an_overwrite_needs_no_tag() {
    let overwrite = |b: &Bench| {
        for (id, name) in (11..).zip(["f", "g", "f", "h"]) {
            assert_eq!(physical(b, |b| change(b, name, id)), 0, "written, and not staged");
            assert_eq!(physical(b, |b| b.fsync(name)), 1);
        }
    };
    at_each_stage(overwrite, |back| {
        assert!(back.bytes("f") == changed(bytes(1, 8192), 13));
        assert!(back.bytes("g") == changed(bytes(2, 8192), 12));
        assert!(back.bytes("h") == changed(bytes(3, 8192), 14));
    });
    let b = prepared();
    overwrite(&b);
    let before = b.status().runtime;
    b.commit(false);
    let after = b.status().runtime;
    assert_eq!((after.transactions, after.copy_tags), (before.transactions + 1, before.copy_tags));
    b.checkpoint();
    assert!(b.read("g") == changed(bytes(2, 8192), 12));
}

/// Only mapped and written blocks, one behind the other, that the running transaction does not map
/// are named; and none with the option off.
#[test]
fn r42_what_is_not_mapped_has_a_tag() {
    let b = prepared();
    let appended = |b: &Bench| {
        b.append("f", &bytes(12, 512));
        b.fsync("f");
    };
    assert_eq!(physical(&b, appended), 0, "no home yet");
    let preallocated = |b: &Bench| {
        b.allocate("g", Allocate::Grow, 8192, 8192);
        b.write("g", 9000, &bytes(13, 100));
        b.fsync("g");
    };
    assert_eq!(physical(&b, preallocated), 0, "not written");
    let changing = |b: &Bench| {
        b.allocate("h", Allocate::Grow, 8192, 8192);
        change(b, "h", 14);
        b.fsync("h");
    };
    assert_eq!(physical(&b, changing), 0, "the mapping changes in this transaction");
    b.commit(false);
    change(&b, "h", 15);
    assert_eq!(physical(&b, |b| b.fsync("h")), 1, "it changed in the one before");
    every_recovery(b, |back| assert!(back.bytes("h")[100..612] == bytes(15, 512)));
    let off = Compact { physical: false, ..Compact::default() };
    let b = filled(Bench::with_record_area(KIND, off));
    change(&b, "f", 11);
    assert_eq!(physical(&b, |b| b.fsync("f")), 0);
}

/// What the same transaction does to the block behind the record lies over it: bytes that are cut
/// off, zeroed, punched out, or overwritten by way of the disk.
///
/// Seen to fail when the Service digests after a transaction's tags.
#[test]
fn r42_later_changes_lie_over_it() {
    let old = || changed(bytes(1, 8192), 11);
    let base = |b: &Bench| {
        change(b, "f", 11);
        assert_eq!(physical(b, |b| b.fsync("f")), 1);
    };
    let zeroed = |from: usize, to: usize| {
        let mut wanted = old();
        wanted[from..to].fill(0);
        wanted
    };
    type Way = (fn(&Bench), Vec<u8>);
    let ways: [Way; 5] = [
        (
            |b| {
                b.truncate("f", 300);
                b.truncate("f", 8192);
            },
            zeroed(300, 8192),
        ),
        (|b| b.allocate("f", Allocate::PunchHole, 200, 200), zeroed(200, 400)),
        (|b| b.allocate("f", Allocate::PunchHole, 0, 4096), zeroed(0, 4096)),
        (|b| b.allocate("f", Allocate::ZeroRange, 50, 400), zeroed(50, 450)),
        (|b| b.write("f", 0, &bytes(31, 8192)), bytes(31, 8192)),
    ];
    for (i, (change, wanted)) in ways.into_iter().enumerate() {
        // As part of the next record, and as the background does it.
        for synced in [true, false] {
            let what = |b: &Bench| {
                base(b);
                change(b);
                if synced {
                    // More than goes to the area, so that the disk has it.
                    b.write("f", 8192, &bytes(32, 20_000));
                    b.fsync("f");
                    assert_eq!(b.read("f")[..8192], wanted, "way {i}");
                } else {
                    b.commit(true);
                }
            };
            at_each_stage(what, |back| assert!(back.bytes("f")[..8192] == wanted, "way {i}"));
        }
    }
}

/// R42's scenario: the block is freed, and given to another file, whose bytes never get the
/// record's. The file is whole or gone at every write.
///
/// Seen to fail when freed blocks are allocated again before their transaction is reclaimed.
#[test]
fn r42_a_freed_block_is_not_written_late() {
    let b = Bench::new(VolumeKind::SMALL.with_area());
    let big = free_bytes(&b) * 3 / 4;
    b.write_large("big", &bytes(1, big));
    b.settle();
    for i in 0..20 {
        b.write("big", i * 300_000, &bytes(2, 512));
        assert_eq!(physical(&b, |b| b.fsync("big")), 1);
    }
    b.device.record_history();
    b.unlink("big");
    b.write_large("a", &bytes(3, big));
    b.commit(true);
    b.checkpoint();
    let history = b.device.take_history().expect("recorded");
    b.stop();
    let (mut old, new) = (bytes(1, big), bytes(3, big));
    (0..20).for_each(|i| old[i * 300_000..][..512].copy_from_slice(&bytes(2, 512)));
    history.each_cut(|cut, cache| {
        let back = Back::from(&cache.image(Cut::Random(cut)));
        assert!(!back.has("big") || back.bytes("big") == old, "cut {cut}");
        let found = if back.has("a") { back.bytes("a") } else { Vec::new() };
        assert!(new.starts_with(&found), "cut {cut}: another file's bytes");
    });
}

/// A block that the transaction under way maps has its data sent ahead, which lies over what the
/// transaction digests: a record that overwrites it before the cut is no physical one.
///
/// Seen to fail when a mapping of the transaction under way counts.
#[test]
fn r42_the_transaction_under_way_maps_nothing_yet() {
    let b = prepared();
    b.write("f", 8192, &bytes(21, 4096));
    let gate = Gate::new();
    let area = Layout::of(VolumeKind::ROOMY_TWO_LANES).area;
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(area).once());
    thread::scope(|scope| {
        let commit = scope.spawn(|| b.commit(true));
        assert!(gate.wait_arrived(1, Duration::from_secs(20)), "data is written ahead of the cut");
        b.write("f", 8192 + 100, &bytes(22, 512));
        b.fsync("f");
        gate.open();
        commit.join().expect("no panic");
    });
    let mut wanted = bytes(1, 8192);
    wanted.extend(changed(bytes(21, 4096), 22));
    assert!(b.read("f") == wanted);
    b.checkpoint();
    every_recovery(b, |back| assert!(back.bytes("f") == wanted));
}
