//! The steps beside each other: what they wait for, and what they do not.

mod support;

use siftfs_ingest::{How, Locate, Pipelines};
use siftfs_lease::{Own, Place, Publish};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use support::{SHAPE, Sides, Store, lock};

/// How long a test waits for what never comes.
const EVER: Duration = Duration::from_secs(60);

fn fill(sides: &Sides, slot: u32) {
    for number in 0..SHAPE.records as u64 {
        let published = sides.publish(slot, number * 100, &[number as u8; 100], 1);
        assert!(matches!(published, Publish::Published(_)));
    }
}

fn how(threads: usize, fold_fetch: bool) -> How {
    How { threads, fold_fetch, batch: (4, u64::MAX), ..How::default() }
}

/// While a batch is patched, later ones go on with the steps before, within bounds; and the ring
/// gets no room before its batch is patched.
#[test]
fn steps_go_on_beside_each_other_within_bounds() {
    // What the threads have in their hands, and between them.
    for (threads, fold, most) in [(2, true, 3), (3, true, 5), (4, true, 7), (4, false, 7)] {
        let mut sides = Sides::new(how(threads, fold));
        fill(&sides, 0);
        let (counters, writer, held) =
            (sides.counters.clone(), sides.writer.clone(), sides.leases[0]);
        let first = AtomicBool::new(true);
        let before = move || {
            if !first.swap(false, Ordering::SeqCst) {
                return;
            }
            let published = lock(&writer).publish(held, Place::At(0), &[1; 100], 1);
            assert_eq!(published, Publish::Full);
            for _ in 0..6000 {
                if counters.counts().batches >= most {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(counters.counts().batches, most, "with {threads} threads");
        };
        let store = Store { before: Some(Box::new(before)), ..Store::default() };
        sides.ingest(&store).unwrap();
        let counts = sides.counters.counts();
        assert_eq!((counts.pipelined, counts.batches), (1, 16));
        assert_eq!(lock(&store.files)[&0].bytes.len(), 6400);
    }
}

/// Without a pipeline the steps take turns; and an ingestion of one batch needs no threads.
#[test]
fn steps_take_turns_without_a_pipeline() {
    for how in [how(1, true), How { batch: (64, u64::MAX), ..how(4, true) }] {
        let mut sides = Sides::new(how);
        fill(&sides, 0);
        let (counters, patched) = (sides.counters.clone(), Arc::new(AtomicU64::new(0)));
        let done = patched.clone();
        let before = move || {
            let before = done.fetch_add(1, Ordering::SeqCst);
            assert_eq!(counters.counts().batches, before + 1);
        };
        let store = Store { before: Some(Box::new(before)), ..Store::default() };
        sides.ingest(&store).unwrap();
        assert_eq!(sides.counters.counts().pipelined, 0);
        assert!(patched.load(Ordering::SeqCst) > 0);
    }
}

/// Four ingestions have threads of their own, and a fifth goes on without.
#[test]
fn there_are_four_sets_of_threads() {
    let pipelines = Pipelines::default();
    let (go, waits) = mpsc::sync_channel::<()>(0);
    let waits = Arc::new(Mutex::new(waits));
    let begun = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (waits, begun, pipelines) = (waits.clone(), begun.clone(), &pipelines);
            scope.spawn(move || {
                let mut sides = Sides::new(how(2, true));
                fill(&sides, 0);
                let once = AtomicBool::new(true);
                let before = move || {
                    if once.swap(false, Ordering::SeqCst) {
                        begun.fetch_add(1, Ordering::SeqCst);
                        // Until the fifth is done.
                        let _ = lock(&waits).recv_timeout(EVER);
                    }
                };
                let gate = Store { before: Some(Box::new(before)), ..Store::default() };
                sides.ingest_by(&gate, pipelines).unwrap();
                assert_eq!(sides.counters.counts().pipelined, 1);
            });
        }
        while begun.load(Ordering::SeqCst) < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut sides = Sides::new(how(2, true));
        fill(&sides, 0);
        sides.ingest_by(&Store::default(), &pipelines).unwrap();
        assert_eq!(sides.counters.counts().pipelined, 0, "a fifth set");
        for _ in 0..4 {
            let _ = go.send(());
        }
    });
    let mut sides = Sides::new(how(2, true));
    fill(&sides, 0);
    sides.ingest_by(&Store::default(), &pipelines).unwrap();
    assert_eq!(sides.counters.counts().pipelined, 1, "sets are given back");
}

/// Merging: superseded bytes are not written, neighbours are written at once, and there are never
/// more writes than records.
#[test]
fn merging_writes_less() {
    let written = |merge: bool| {
        let mut sides = Sides::new(How { merge, ..How::default() });
        let store = Store::default();
        for number in 0..10 {
            sides.publish(0, 100 * number, &[1; 100], 5);
            sides.publish(1, 0, &[2; 50], 9 - number as i64);
        }
        sides.ingest(&store).unwrap();
        let counts = sides.counters.counts();
        assert_eq!((counts.records, counts.bytes), (20, 1500));
        assert_eq!(lock(&store.files)[&1].mtime, 9, "the newest, of superseded records as well");
        (counts.pieces, counts.patched, lock(&store.writes).len())
    };
    assert_eq!(written(true), (2, 1050, 2));
    assert_eq!(written(false), (20, 1500, 20));
}

/// A record whose bytes a later one supersedes is there if that one cannot be written: the file has
/// its length, and what the later one leaves of it.
#[test]
fn a_superseded_record_is_not_lost_by_the_later_ones_error() {
    let how = How { threads: 1, ..How::default() };
    let mut sides = Sides::new(how);
    for (offset, bytes) in [(180, &[7; 1][..]), (300, &[8; 50]), (1, &[9; 4096])] {
        assert!(matches!(sides.publish(0, offset, bytes, 1), Publish::Published(_)));
    }
    let store = Store { bad: [(0, 1000..1001)].into(), ..Store::default() };
    sides.ingest(&store).unwrap();
    let file = lock(&store.files).remove(&0).unwrap();
    assert_eq!(file.error, Some(libc::EIO));
    assert_eq!((file.bytes.len(), file.bytes[180]), (350, 7));
    assert_eq!(file.bytes[300..], [8; 50]);
}

/// Locate: what is changed in part is asked for once for each line, what is cold is brought once
/// for a batch, and nothing is asked for whole blocks.
#[test]
fn cold_blocks_are_brought_before_a_write_needs_them() {
    let asked = |locate: Locate| {
        let mut sides = Sides::new(How { locate, ..How::default() });
        let store = Store { cold: vec![0, 2, 3], ..Store::default() };
        for _ in 0..2 {
            // Parts of blocks 0 and 2; block 1 whole; block 3 in parts that make it whole.
            for (offset, len) in [(10, 20), (8192, 100), (4096, 4096), (12288, 96), (12384, 4000)] {
                sides.publish(0, offset, &vec![1; len], 1);
            }
            sides.ingest(&store).unwrap();
        }
        let counts = sides.counters.counts();
        let asked = lock(&store.asked).clone();
        let brought: Vec<u64> = asked.iter().copied().filter(|bring| *bring != 0).collect();
        let questions = asked.len() - brought.len();
        (questions, brought, counts.hits, counts.misses, counts.brought)
    };
    assert_eq!(asked(Locate::Off), (0, vec![], 0, 0, 0));
    // Block 3 is whole in the end. In the second round the Runtime has them all.
    assert_eq!(asked(Locate::Lines(32)), (1, vec![0b101], 6, 1, 2));
    // Without the cache each block is asked for, again and again, and taken for cold each time.
    let (questions, brought, hits, misses, blocks) = asked(Locate::Uncached);
    assert_eq!((questions, hits, misses, blocks), (6, 0, 6, 4));
    assert_eq!(brought, [0b101, 0b101]);
}

/// A program that writes anything over its records while they are taken in changes nothing of what
/// was fetched: a header is copied once, and only the copy is believed (R41).
#[test]
fn r41_a_header_that_changes_later_is_not_read_again() {
    let how = How { merge: false, threads: 1, ..How::default() };
    let mut sides = Sides::new(how);
    fill(&sides, 0);
    let holder = sides.holder.clone();
    let before = move || {
        let first = SHAPE.page + SHAPE.slots * 8;
        (first..first + SHAPE.records * 8)
            .for_each(|at| holder.store(at, u64::MAX, Ordering::SeqCst));
    };
    let store = Store { before: Some(Box::new(before)), ..Store::default() };
    sides.ingest(&store).unwrap();
    let bytes: Vec<u8> = (0..64).flat_map(|number| [number; 100]).collect();
    assert!(lock(&store.files)[&0].bytes == bytes);
}

/// What the index said of a file does not count for the next lease of it.
#[test]
fn the_index_is_asked_anew_for_another_lease() {
    let mut sides = Sides::new(How::default());
    let store = Store::default();
    for _ in 0..2 {
        sides.publish(0, 10, &[1; 20], 1);
        sides.ingest(&store).unwrap();
        sides.publish(0, 30, &[1; 20], 1);
        sides.end(&store, 0).unwrap();
    }
    let counts = sides.counters.counts();
    assert_eq!((counts.hits, counts.misses), (2, 2));
}
