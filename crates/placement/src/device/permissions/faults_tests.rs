//! Tests of the table whose scratch file fails.

use super::super::leaf::Content;
use super::super::spill::SLOT_BYTES;
use super::tests::{run, table, unwritten};
use super::*;
use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Leaves of the area; one has room in memory.
const LEAVES: u64 = 6;

/// A table whose scratch file is one that can be sealed.
fn sealable(leaves: usize) -> Permissions {
    let mut table = table(LEAVES * LEAF_SPAN, leaves);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    table.store.spill.file = rustix::fs::memfd_create("scratch", flags).unwrap().into();
    table
}

/// The blocks in each leaf, in another place of each, that lie this far from its begin.
fn spread(from: u64) -> impl Iterator<Item = u64> {
    (0..LEAVES).map(move |leaf| leaf * LEAF_SPAN + leaf + from)
}

/// Two owners, which have one run in each leaf.
fn filled() -> (Permissions, Owner, Owner) {
    let table = sealable(1);
    let [a, b] = [(); 2].map(|()| table.owner().unwrap());
    let runs = |from| Vec::from_iter(spread(from).map(|block| run(block, 10)));
    table.give(a, &runs(0), true).unwrap();
    table.give(b, &runs(100), false).unwrap();
    assert_eq!((table.counts().hot, table.counts().spilled), (1, 5));
    (table, a, b)
}

fn file(table: &Permissions) -> &File {
    &table.store.spill.file
}

fn seal(table: &Permissions, seal: SealFlags) {
    rustix::fs::fcntl_add_seals(file(table), seal).unwrap();
}

fn contents(table: &Permissions) -> Vec<Result<Content>> {
    (0..LEAVES).map(|number| table.store.content(number)).collect()
}

/// What checks of one block in each leaf answer: granted, refused, failed.
fn each(table: &Permissions, owner: Owner, from: u64) -> [usize; 3] {
    let mut found = [0; 3];
    for block in spread(from) {
        let at = match table.check(owner, block..block + 1) {
            Ok(Checked::Written | Checked::Unwritten(_)) => 0,
            Ok(Checked::Refused) => 1,
            Err(_) => 2,
        };
        found[at] += 1;
    }
    found
}

fn failures(results: impl Iterator<Item = Result<()>>) -> usize {
    results.filter(Result::is_err).count()
}

/// The five leaves that are not in memory fail, and grant nothing; an owner's end is not held up.
fn fails_closed(table: &Permissions, a: Owner, b: Owner) {
    assert_eq!([each(table, a, 0), each(table, b, 100)], [[1, 0, 5]; 2]);
    assert_eq!([each(table, a, 50), each(table, b, 0)], [[0, 1, 5]; 2]);
    assert_eq!(failures(spread(60).map(|block| table.give(a, &[run(block, 1)], true))), 5);
    assert_eq!(failures(spread(100).map(|block| table.set_written(b, block..block + 1))), 5);
    assert_eq!(table.counts().lost, 0);
    table.take_all(a).unwrap();
    assert_eq!(table.counts().lost, 5);
    assert_eq!([each(table, b, 100), each(table, a, 0)], [[1, 5, 0], [0, 6, 0]]);
    let next = table.owner().unwrap();
    table.give(next, &Vec::from_iter(spread(0).map(|block| run(block, 1))), true).unwrap();
    assert_eq!(each(table, next, 1), [0, 6, 0]);
    table.take_all(b).unwrap();
    assert_eq!([each(table, b, 100), each(table, a, 0)], [[0, 6, 0]; 2]);
}

#[test]
fn a_file_that_became_short_grants_nothing() {
    let (table, a, b) = filled();
    file(&table).set_len(0).unwrap();
    fails_closed(&table, a, b);
}

#[test]
fn a_flipped_bit_grants_nothing() {
    let (table, a, b) = filled();
    for slot in 0..LEAVES {
        let place = slot * SLOT_BYTES as u64 + 1021;
        let mut byte = [0];
        file(&table).read_exact_at(&mut byte, place).unwrap();
        file(&table).write_all_at(&[byte[0] ^ 1], place).unwrap();
    }
    fails_closed(&table, a, b);
}

/// Bytes that are good in another place are not in this one.
#[test]
fn another_leafs_bytes_grant_nothing() {
    let (table, a, b) = filled();
    let mut bytes = vec![0; usize::try_from(LEAVES).unwrap() * SLOT_BYTES];
    file(&table).read_exact_at(&mut bytes, 0).unwrap();
    bytes.rotate_left(SLOT_BYTES);
    file(&table).write_all_at(&bytes, 0).unwrap();
    fails_closed(&table, a, b);
}

#[test]
fn without_room_in_the_file_nothing_is_given() {
    let table = sealable(1);
    seal(&table, SealFlags::GROW);
    let [a, b] = [(); 2].map(|()| table.owner().unwrap());
    table.give(a, &[run(3, 1), run(LEAF_SPAN, LEAF_SPAN)], false).unwrap();
    let before = (contents(&table), table.counts().bytes);
    let part = LEAF_SPAN + 7..LEAF_SPAN + 9;
    for (owner, runs) in [
        (b, [run(2 * LEAF_SPAN, LEAF_SPAN), run(3 * LEAF_SPAN + 5, 1)]),
        (a, [run(4, 1), run(2 * LEAF_SPAN, 1)]),
    ] {
        assert!(matches!(table.give(owner, &runs, true), Err(Error::Io { .. })));
    }
    assert!(table.set_written(a, part.clone()).is_err());
    assert_eq!((contents(&table), table.counts().bytes), before);
    // What needs no slot is given.
    table.give(b, &[run(2 * LEAF_SPAN, LEAF_SPAN), run(4, 1)], true).unwrap();
    table.take_all(b).unwrap();
    table.give(a, &[run(4, LEAF_SPAN - 4), run(0, 3)], false).unwrap();
    table.set_written(a, part.clone()).unwrap();
    let all = LEAF_SPAN..2 * LEAF_SPAN;
    let rest = vec![all.start..part.start, part.end..all.end];
    assert_eq!(table.check(a, all), Ok(Checked::Unwritten(rest)));
}

/// Memory is full, and no leaf can leave it.
fn stuck() -> (Permissions, Owner, Owner) {
    let (table, a, b) = filled();
    // The first leaf comes into memory, and then has what its slot has not.
    assert_eq!(table.check(a, 0..1), Ok(Checked::Written));
    table.give(a, &[run(70, 1)], true).unwrap();
    seal(&table, SealFlags::WRITE);
    (table, a, b)
}

#[test]
fn a_give_that_fails_in_its_midst_is_undone() {
    let (table, a, b) = stuck();
    table.set_written(b, 100..102).unwrap();
    let before = contents(&table);
    let third = 2 * LEAF_SPAN + 300;
    for (owner, runs) in [(b, [run(95, 100), run(third, 1)]), (a, [run(5, 80), run(third, 1)])] {
        let given = table.give(owner, &runs, true);
        assert!(matches!(given, Err(Error::Io { op: "write", .. })), "{given:?}");
        assert_eq!(contents(&table), before);
        assert_eq!(table.check(owner, runs[0].start..runs[0].end()), Ok(Checked::Refused));
    }
    assert_eq!(table.counts().lost, 0);
    assert_eq!(table.check(b, 100..110), Ok(unwritten(102, 110)));
}

#[test]
fn a_leaf_that_cannot_leave_memory_hinders_no_check_and_no_end() {
    let (table, a, b) = stuck();
    let misses = table.counts().misses;
    assert_eq!([each(&table, a, 0), each(&table, b, 100)], [[6, 0, 0]; 2]);
    assert_eq!([each(&table, a, 100), each(&table, b, 0)], [[0, 6, 0]; 2]);
    let counts = table.counts();
    assert_eq!((counts.misses - misses, counts.hot), (20, 1));
    table.take_all(a).unwrap();
    assert_eq!(each(&table, a, 0), [0, 6, 0]);
    assert_eq!((each(&table, b, 100), table.counts().lost), ([1, 5, 0], 5));
}
