//! By every switch the files become what they are when each record is written for itself, one after
//! the other.

mod support;

use proptest::prelude::*;
use siftfs_ingest::{How, Locate};
use siftfs_lease::Publish;
use std::collections::HashMap;
use support::{File, SLOTS, Sides, Store, lock};

/// What a program does.
#[derive(Clone, Debug)]
enum Op {
    Write { slot: u32, offset: u64, len: usize, time: i64 },
    Ingest,
    End { slot: u32 },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let place =
        prop_oneof![0u64..300, 4000u64..4200, 0u64..40_000, (0u64..6).prop_map(|b| b * 4096)];
    let len = prop_oneof![1usize..40, 1usize..1000, Just(4096usize), 1usize..9000];
    let write = (0..SLOTS, place, len, -5i64..100);
    let write = write.prop_map(|(slot, offset, len, time)| Op::Write { slot, offset, len, time });
    let op = prop_oneof![
        30 => write,
        1 => Just(Op::Ingest),
        1 => (0..SLOTS).prop_map(|slot| Op::End { slot }),
    ];
    proptest::collection::vec(op, 1..120)
}

/// Few records of one file that lie over each other: the first is superseded, and how long the file
/// becomes is decided by any of them.
fn few_at_one_place() -> impl Strategy<Value = Vec<Op>> {
    let len = prop_oneof![1usize..40, Just(600usize), Just(4096usize)];
    let write = (0u64..600, len, -5i64..100);
    let write = write.prop_map(|(offset, len, time)| Op::Write { slot: 0, offset, len, time });
    proptest::collection::vec(write, 1..6)
}

/// All that can be switched.
fn every() -> Vec<How> {
    let threads = [(1, true), (2, true), (3, true), (4, true), (4, false)];
    let locates = [Locate::Off, Locate::Uncached, Locate::Lines(4), Locate::Lines(64)];
    let mut all = Vec::new();
    for (threads, fold_fetch) in threads {
        for locate in locates {
            for merge in [false, true] {
                let batch = (5, 6000);
                all.push(How { threads, fold_fetch, merge, locate, batch });
            }
        }
    }
    all.push(How::default());
    all
}

/// Carries the operations out, and what the files should be afterwards, as far as it is known: a
/// byte that a record brought which could not be written is not.
fn run(ops: &[Op], how: How, store: &Store) -> (HashMap<u32, File>, HashMap<u32, Vec<bool>>) {
    let mut sides = Sides::new(how);
    let mut wanted: HashMap<u32, File> = HashMap::new();
    let mut unknown: HashMap<u32, Vec<bool>> = HashMap::new();
    let mut counter = 0u8;
    for op in ops {
        match *op {
            Op::Ingest => sides.ingest(store).unwrap(),
            Op::End { slot } => sides.end(store, slot).unwrap(),
            Op::Write { slot, offset, len, time } => {
                counter = counter.wrapping_mul(31).wrapping_add(7);
                // No part of it looks like another one.
                let byte = |i: usize| (i.wrapping_mul(0x9e37_79b1) >> 11) as u8;
                let bytes: Vec<u8> = (0..len).map(|i| counter.wrapping_add(byte(i))).collect();
                if sides.publish(slot, offset, &bytes, time) == Publish::Full {
                    sides.ingest(store).unwrap();
                    let again = sides.publish(slot, offset, &bytes, time);
                    assert!(matches!(again, Publish::Published(_)), "{again:?}");
                }
                let file = wanted.entry(slot).or_default();
                if store.is_bad(slot, offset, len as u64) {
                    file.error.get_or_insert(libc::EIO);
                    let unknown = unknown.entry(slot).or_default();
                    unknown.resize(unknown.len().max(offset as usize + len), false);
                    unknown[offset as usize..offset as usize + len].fill(true);
                } else {
                    file.write(offset, &bytes, time);
                }
            }
        }
    }
    sides.ingest(store).unwrap();
    assert_eq!(sides.reader.waiting(), 0);
    (wanted, unknown)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bytes_and_times_are_those_of_one_record_after_the_other(
        ops in ops(), cold in proptest::collection::vec(0u64..12, 0..6),
    ) {
        for how in every() {
            let store = Store { cold: cold.clone(), ..Store::default() };
            let (wanted, _) = run(&ops, how, &store);
            prop_assert_eq!(&*lock(&store.files), &wanted, "{:?}", how);
        }
    }

    #[test]
    fn errors_are_their_files_own_and_no_other_record_is_lost(
        (ops, slot) in prop_oneof![(ops(), 0..SLOTS), (few_at_one_place(), Just(0))],
        from in prop_oneof![0u64..900, 0u64..9000], len in 1u64..600,
    ) {
        for how in every() {
            let bad = [(slot, from..from + len)].into();
            let store = Store { bad, ..Store::default() };
            let (wanted, unknown) = run(&ops, how, &store);
            let files = lock(&store.files);
            for (slot, wanted) in &wanted {
                let found = files.get(slot).cloned().unwrap_or_default();
                prop_assert_eq!(found.error, wanted.error, "{:?}", how);
                let unknown = unknown.get(slot).map_or(&[][..], Vec::as_slice);
                for (at, byte) in wanted.bytes.iter().enumerate() {
                    let known = !unknown.get(at).is_some_and(|unknown| *unknown);
                    prop_assert!(!known || found.bytes.get(at) == Some(byte), "{at}, {how:?}");
                }
            }
        }
    }
}
