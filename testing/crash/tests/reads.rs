//! Pages that were fsynced, are in no checkpoint yet and not in the cache any more: they are read
//! from the lane (rule R11), without the state lock.

use siftfs_crash::{Bench, Layout, VolumeKind};
use siftfs_device::{Fault, Gate, OpClass};
use siftfs_model::pattern;
use siftfs_proto::{Credentials, Request};
use std::ops::Range;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// 2 MiB: the area is read in several pieces.
const PAGES: u64 = 512;
const KIND: VolumeKind = VolumeKind::ROOMY;

/// A volume with a durable file `f`, and another as large as the cache and half of it again.
fn prepared() -> Bench {
    let b = Bench::new(KIND);
    b.durable("large", &pattern(9, 0, 6 << 20));
    b.durable("f", &pattern(1, 0, PAGES * PAGE));
    b.settle();
    b
}

/// An fsync for each page: a record each.
fn stage(b: &Bench, seed: u64) {
    for i in 0..PAGES {
        b.write("f", i * PAGE, &pattern(seed, i * PAGE, PAGE));
        b.fsync("f");
    }
}

/// Nothing else stays in the cache.
fn evict(b: &Bench) {
    for _ in 0..3 {
        assert!(b.read("large") == pattern(9, 0, 6 << 20));
    }
}

fn read_on_thread(b: &Bench) -> JoinHandle<Vec<u8>> {
    let (service, ino) = (b.service.clone(), b.ino("f"));
    thread::spawn(move || {
        let len = u32::try_from(PAGES * PAGE).unwrap();
        let req = Request::Read { file: ino.into(), offset: 0, len };
        let reply = service.call(&Credentials::default(), req).expect("read");
        reply.data().expect("data")
    })
}

/// A reader of `f` that waits before its second read in `region`.
fn held(b: &Bench, region: Range<u64>) -> (Gate, JoinHandle<Vec<u8>>) {
    let gate = Gate::new();
    b.device.inject(Fault::hold(OpClass::Read, &gate).within(region).after(1).once());
    let reader = read_on_thread(b);
    assert!(gate.wait_arrived(1, Duration::from_secs(20)), "nothing was read there");
    (gate, reader)
}

/// Records behind each other are read together, and no other caller waits for that read.
///
/// Seen to fail when each part is read by itself, with the lock held.
#[test]
fn staged_pages_are_read_together_and_nobody_waits() {
    let b = prepared();
    stage(&b, 2);
    evict(&b);
    let before = b.counters().staging.foreground.reads;
    let (gate, reader) = held(&b, Layout::of(KIND).staging);
    let until = Instant::now() + Duration::from_secs(20);
    let other = thread::scope(|scope| {
        let other = scope.spawn(|| {
            b.write("large", 0, b"meanwhile");
            b.fsync("large");
        });
        while !other.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let finished = other.is_finished();
        gate.open();
        finished
    });
    assert!(reader.join().expect("no panic") == pattern(2, 0, PAGES * PAGE));
    assert!(other, "an fsync waited for the read");
    let reads = b.counters().staging.foreground.reads - before;
    // Records of 8 KiB, 256 KiB at a time.
    assert!(reads <= PAGES / 32 + 1, "{reads} reads of {PAGES} records");
    b.stop();
}

/// A read beside a write may see either, but what was older stays in no cache: neither if the newer
/// bytes are in the lane by then, nor if a checkpoint has brought them to the area.
///
/// Seen to fail when a fill puts its pages in without a check of what is the newest by now, the
/// second half without the mapping's version.
#[test]
fn what_was_staged_during_a_read_is_not_hidden_by_it() {
    let Layout { area, staging, .. } = Layout::of(KIND);
    for (region, seed, settled) in [(&staging, 2, false), (&area, 1, false), (&area, 1, true)] {
        let b = prepared();
        if seed == 2 {
            stage(&b, seed);
        }
        evict(&b);
        let (gate, reader) = held(&b, region.clone());
        b.write("f", 0, &pattern(3, 0, PAGE));
        b.fsync("f");
        if settled {
            b.settle();
        }
        evict(&b);
        gate.open();
        let seen = reader.join().expect("no panic");
        let newer = [pattern(3, 0, PAGE), pattern(seed, PAGE, (PAGES - 1) * PAGE)].concat();
        assert!(seen == newer || seen == pattern(seed, 0, PAGES * PAGE), "neither");
        assert!(b.read("f") == newer, "older bytes came back");
        b.stop();
    }
}

/// The lane's bytes may be others by the time they are read: credits came back meanwhile.
///
/// Seen to fail when neither the mapping's version nor the parts are checked again.
#[test]
fn a_read_that_a_checkpoint_overtakes_is_done_again() {
    let b = prepared();
    stage(&b, 2);
    evict(&b);
    let (gate, reader) = held(&b, Layout::of(KIND).staging);
    b.settle();
    // More than the lane holds.
    for round in 0..12 {
        b.write("large", 0, &pattern(round, 0, 2 << 20));
        b.fsync("large");
        b.settle();
    }
    gate.open();
    assert!(reader.join().expect("no panic") == pattern(2, 0, PAGES * PAGE));
    assert!(b.read("f") == pattern(2, 0, PAGES * PAGE));
    b.stop();
}
