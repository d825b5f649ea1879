//! Arguments of ioctls that any program may send: made at random, then changed. `make fuzz` does
//! the same for longer.

#![allow(unsafe_code)] // to count what is allocated

#[path = "../fuzz/ioctl.rs"]
mod ioctl;

use ioctl::{LONGEST, any_argument};
use siftfs_base::Rng;
use siftfs_proto::compound::{Access, BytesArg, Checksum, Codec, NewAttributes, NumberArg, StepNr};
use siftfs_proto::ioctl::compound::{Compound, File, Step};
use siftfs_proto::ioctl::{Entry, Publish, Source};
use siftfs_proto::{Level, SetTime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: the system's allocator, with a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|n| n.set(n.get() + layout.size()));
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller says.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Bytes that `f` allocates, freed ones included.
fn allocated(f: impl FnOnce()) -> usize {
    let before = ALLOCATED.get();
    f();
    ALLOCATED.get() - before
}

fn some_bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
    (0..rng.below(most + 1)).map(|_| rng.below(256) as u8).collect()
}

fn publish(rng: &mut Rng) -> Publish {
    let level = *rng.pick(&[Level::Visible, Level::Atomic, Level::Durable]).expect("three");
    let entry = |rng: &mut Rng| {
        let source = match rng.below(3) {
            0 => Source::Descriptor(rng.below(1 << 32) as u32),
            _ => Source::Path(some_bytes(rng, 40)),
        };
        Entry { source, to: some_bytes(rng, 40), replace: rng.chance(50) }
    };
    Publish { entries: (0..rng.below(9)).map(|_| entry(rng)).collect(), level }
}

fn compound(rng: &mut Rng) -> Compound {
    let level = *rng.pick(&[Level::Visible, Level::Atomic, Level::Durable]).expect("three");
    let steps = (0..rng.below(9)).map(|_| (step(rng), rng.chance(50))).collect();
    Compound { steps, level }
}

fn step(rng: &mut Rng) -> Step {
    let nr = |rng: &mut Rng| StepNr(rng.below(9) as u32);
    let file = match rng.chance(50) {
        true => File::Descriptor(rng.below(1 << 32) as u32),
        false => File::Step(nr(rng)),
    };
    let offset = match rng.chance(70) {
        true => NumberArg::Given(rng.below(u64::MAX)),
        false => NumberArg::Step(nr(rng)),
    };
    let data = match rng.below(3) {
        0 => BytesArg::Given(some_bytes(rng, 60)),
        1 => BytesArg::Step(nr(rng)),
        _ => BytesArg::Part { step: nr(rng), start: rng.below(99) as u32, len: 7 },
    };
    let path = some_bytes(rng, 20);
    match rng.below(10) {
        0 => Step::Lookup { path },
        1 => Step::Open { path, access: Access::Both, truncate: rng.chance(50) },
        2 => Step::Create { path, perm: rng.below(1 << 16) as u16 },
        3 => Step::Read { file, offset, len: rng.below(1 << 32) as u32 },
        4 => Step::Write { file, offset, data },
        5 => Step::Checksum { kind: Checksum::MaskedCrc32c, data },
        6 => Step::Decompress { codec: Codec::Zstd, data, most: rng.below(1 << 32) as u32 },
        8 => Step::Join { first: data, second: BytesArg::Step(nr(rng)) },
        7 => Step::Rename { from: some_bytes(rng, 20), to: path, replace: rng.chance(50) },
        _ => {
            let atime = rng.chance(50).then_some(SetTime::Now);
            let perm = rng.chance(50).then_some(0o640);
            let set = NewAttributes { atime, perm, ..NewAttributes::default() };
            Step::SetAttributes { file, set }
        }
    }
}

/// A right argument, or one of which some bytes, a length, its end or its rest are others.
fn argument(rng: &mut Rng) -> Vec<u8> {
    if rng.chance(10) {
        return some_bytes(rng, 200);
    }
    let mut bytes = match rng.chance(50) {
        true => publish(rng).encode().expect("it is short").1,
        false => compound(rng).encode(rng.below(100) as usize).expect("it is short").1,
    };
    for _ in 0..rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.extend(some_bytes(rng, 20)),
            2 => bytes[..at.min(4)].fill(0xFF),
            _ => bytes.get_mut(at).into_iter().for_each(|byte| *byte = rng.below(256) as u8),
        }
    }
    bytes
}

#[test]
fn what_is_written_is_read() {
    let mut rng = Rng::new(1);
    for _ in 0..20_000 {
        let publish = publish(&mut rng);
        let (_, bytes) = publish.encode().expect("it is short");
        assert_eq!(Publish::decode(&bytes).as_ref(), Ok(&publish));
        let compound = compound(&mut rng);
        let (_, bytes) = compound.encode(rng.below(100) as usize).expect("it is short");
        assert_eq!(Compound::decode(&bytes).as_ref(), Ok(&compound));
    }
}

/// No argument brings a decoder down, and none makes it take more memory than a multiple of the
/// argument.
#[test]
fn any_argument_is_read_or_refused() {
    let mut rng = Rng::new(2);
    for round in 0..200_000 {
        let bytes = argument(&mut rng);
        let taken = allocated(|| any_argument(&bytes));
        assert!(taken <= 100 * bytes.len() + 1000, "round {round}: {taken} bytes for {bytes:?}");
    }
}

/// A number of entries that the argument does not have costs nothing.
#[test]
fn a_number_costs_no_memory() {
    for count in [1, 1 << 16, u32::MAX] {
        let short = [count.to_le_bytes(), [0; 4]].concat();
        assert!(allocated(|| any_argument(&short)) < 1000);
        let mut longest = vec![0; LONGEST];
        longest[..4].copy_from_slice(&count.to_le_bytes());
        assert!(allocated(|| any_argument(&longest)) < 100 * LONGEST);
    }
}
