//! Tests of the table against a plain list, and of its bounds and its bytes.

use super::super::leaf::Content;
use super::*;
use siftfs_base::{RangeSet, Rng};
use std::collections::BTreeSet;

/// Not a whole number of leaves.
const BLOCKS: u64 = 5 * LEAF_SPAN + 100;

const AMPLE: usize = 64 << 20;

pub(super) fn table(blocks: u64, leaves: usize) -> Permissions {
    let memory = Memory { leaves: leaves * HOT_BYTES, index: AMPLE };
    Permissions::new(blocks, memory, &std::env::temp_dir()).expect("a table")
}

pub(super) fn run(start: u64, len: u64) -> BlockRun {
    BlockRun { start, len }
}

/// A check that finds one range of blocks that were not written.
pub(super) fn unwritten(start: u64, end: u64) -> Checked {
    Checked::Unwritten(Vec::from_iter(std::iter::once(start..end)))
}

/// What the table is to say of each block.
type Model = Vec<Option<(Owner, bool)>>;

fn at(block: u64) -> usize {
    usize::try_from(block).unwrap()
}

fn in_model(model: &Model, owner: Owner, blocks: Range<u64>) -> Checked {
    let Some(part) = model.get(at(blocks.start)..at(blocks.end)).filter(|p| !p.is_empty()) else {
        return Checked::Refused;
    };
    if part.iter().any(|entry| entry.is_none_or(|(of, _)| of != owner)) {
        return Checked::Refused;
    }
    let mut unwritten = RangeSet::<siftfs_base::Blocks>::new();
    for block in blocks.filter(|block| model[at(*block)] == Some((owner, false))) {
        unwritten.insert(block, block + 1);
    }
    match unwritten.is_empty() {
        true => Checked::Written,
        false => Checked::Unwritten(unwritten.iter().map(|(start, end)| start..end).collect()),
    }
}

fn give_model(model: &mut Model, owner: Owner, runs: &[BlockRun], written: bool) -> bool {
    let inside = |r: &BlockRun| r.len > 0 && r.end() <= model.len() as u64;
    let all = runs.iter().all(inside);
    let blocks: Vec<_> = runs.iter().flat_map(|r| r.start..r.end()).map(at).collect();
    let free = |block: &usize| model[*block].is_none_or(|(of, _)| of == owner);
    if !all || !blocks.iter().all(free) {
        return false;
    }
    for block in blocks {
        model[block] = Some((owner, written || model[block] == Some((owner, true))));
    }
    true
}

fn range(rng: &mut Rng) -> Range<u64> {
    let len = match rng.below(8) {
        0 => rng.below(3 * LEAF_SPAN),
        1 => LEAF_SPAN,
        2 => 0,
        _ => rng.below(20),
    };
    let start = match rng.below(3) {
        0 => rng.below(6) * LEAF_SPAN,
        _ => rng.below(BLOCKS),
    };
    start..start + len
}

/// The tree, the clock and the slots agree, and each block's entry is the model's.
pub(super) fn audit(table: &Permissions, model: &Model) {
    let (mut hot, mut slots) = (0, BTreeSet::new());
    for number in 0..table.store.blocks.div_ceil(LEAF_SPAN) {
        let content = table.store.content(number).unwrap();
        let len = table.store.len_of(number);
        let first = model.iter().skip(at(number * LEAF_SPAN)).take(len);
        for (place, wanted) in first.clone().enumerate() {
            let wanted = wanted.map_or(Entry::FREE, |(owner, written)| Entry::new(owner, written));
            assert_eq!(content.entry(place), wanted, "block {place} of leaf {number}");
        }
        let alike = (1..len).all(|place| content.entry(place) == content.entry(0));
        assert_eq!(alike, matches!(content, Content::Same(_)), "leaf {number}");
        let slot = table.store.tree.peek(number, |leaf| match leaf {
            Leaf::Same(_) => None,
            Leaf::Hot(leaf) => {
                hot += 1;
                Some(leaf.slot)
            }
            Leaf::Spilled(saved) => Some(saved.slot),
        });
        assert!(slot.is_none_or(|slot| slots.insert(slot)), "a slot of two leaves");
    }
    let counts = table.counts();
    assert_eq!((counts.hot, counts.spilled), (hot, slots.len() - hot));
    assert!(hot <= table.store.used.frames());
    assert!(counts.bytes <= table.memory.leaves + table.memory.index, "{counts:?}");
}

fn history(seed: u64, leaves: usize) -> Counts {
    let (mut rng, table) = (Rng::new(seed), table(BLOCKS, leaves));
    let mut model: Model = vec![None; at(BLOCKS)];
    let mut owners: Vec<Owner> = (0..6).map(|_| table.owner().unwrap()).collect();
    let mut gone = Vec::new();
    for step in 0..400 {
        let which = at(rng.below(owners.len() as u64));
        let owner = owners[which];
        match rng.below(10) {
            0..4 => {
                let runs: Vec<_> = (0..rng.between(1, 5)).map(|_| range(&mut rng)).collect();
                let runs: Vec<_> = runs.iter().map(|r| run(r.start, r.end - r.start)).collect();
                let written = rng.chance(50);
                let given = table.give(owner, &runs, written);
                let in_model = give_model(&mut model, owner, &runs, written);
                assert_eq!(given.is_ok(), in_model, "{seed} {step}: {runs:?} {given:?}");
            }
            4 => {
                table.take_all(owner).unwrap();
                gone.push(owner);
                let left = |entry: Option<(Owner, bool)>| entry.filter(|(of, _)| *of != owner);
                model.iter_mut().for_each(|entry| *entry = left(*entry));
                owners[which] = table.owner().unwrap();
            }
            5 => {
                let blocks = range(&mut rng);
                let own = in_model(&model, owner, blocks.clone()) != Checked::Refused;
                assert_eq!(table.set_written(owner, blocks.clone()).is_ok(), own);
                let set = blocks.filter(|_| own).map(at);
                set.for_each(|block| model[block] = Some((owner, true)));
            }
            _ => {
                let old = gone.last().filter(|_| rng.chance(20)).copied();
                let (owner, blocks) = (old.unwrap_or(owner), range(&mut rng));
                let wanted = in_model(&model, owner, blocks.clone());
                assert_eq!(table.check(owner, blocks.clone()), Ok(wanted), "{seed}: {blocks:?}");
            }
        }
        if step % 20 == 0 {
            audit(&table, &model);
        }
    }
    audit(&table, &model);
    owners.iter().for_each(|owner| table.take_all(*owner).unwrap());
    audit(&table, &vec![None; at(BLOCKS)]);
    let counts = table.counts();
    assert_eq!((counts.owners, counts.hot, counts.spilled, counts.lost), (0, 0, 0, 0));
    counts
}

#[test]
fn histories_are_those_of_a_plain_list() {
    let spilled = (0..40).map(|seed| history(seed, 1).misses).sum::<u64>();
    assert!(spilled > 1000, "the scratch file was read: {spilled} times");
    let in_memory = (40..50).map(|seed| history(seed, 6)).map(|c| (c.misses, c.spill_bytes));
    assert!(in_memory.into_iter().all(|counts| counts == (0, 0)));
}

#[test]
fn bounds_are_kept() {
    let table = table(BLOCKS, 2);
    let owner = table.owner().unwrap();
    let wrong = [run(u64::MAX, 1), run(1, u64::MAX), run(0, u64::MAX), run(BLOCKS, 1)];
    let wrong = wrong.into_iter().chain([run(BLOCKS - 1, 2), run(3, 0), run(u64::MAX, 0)]);
    for wrong in wrong {
        let given = table.give(owner, &[run(10, 1), wrong], true);
        assert!(matches!(given, Err(Error::Refused(_))), "{wrong:?}");
        assert_eq!(table.check(owner, 10..11), Ok(Checked::Refused));
    }
    table.give(owner, &[], true).unwrap();
    table.give(owner, &[run(0, BLOCKS)], true).unwrap();
    assert_eq!(table.check(owner, 0..BLOCKS), Ok(Checked::Written));
    #[expect(clippy::reversed_empty_ranges, reason = "a program may send one")]
    let none = [0..0, 7..3, BLOCKS..BLOCKS, u64::MAX..u64::MAX, u64::MAX..0];
    let beyond = [BLOCKS - 1..BLOCKS + 1, BLOCKS..u64::MAX, 0..u64::MAX];
    for blocks in none.into_iter().chain(beyond) {
        assert_eq!(table.check(owner, blocks.clone()), Ok(Checked::Refused), "{blocks:?}");
        assert!(table.set_written(owner, blocks.clone()).is_err(), "{blocks:?}");
    }
}

#[test]
fn runs_that_meet_are_one() {
    let table = table(BLOCKS, 2);
    let [a, b] = [(); 2].map(|()| table.owner().unwrap());
    table.give(a, &[run(20, 10), run(0, 10), run(10, 10), run(5, 20)], true).unwrap();
    assert_eq!(table.check(a, 0..30), Ok(Checked::Written));
    assert!(table.give(b, &[run(30, 5), run(29, 1)], true).is_err());
    assert_eq!(table.check(b, 30..31), Ok(Checked::Refused));
    table.give(b, &[run(30, 5)], true).unwrap();
    assert_eq!(table.check(a, 29..31), Ok(Checked::Refused));
    // What was written stays so.
    table.give(a, &[run(25, 5), run(35, 2)], false).unwrap();
    assert_eq!(table.check(a, 25..30), Ok(Checked::Written));
    assert_eq!(table.check(a, 35..37), Ok(unwritten(35, 37)));
}

#[test]
fn sizes_are_refused() {
    let new = |blocks, leaves, index| {
        let memory = Memory { leaves, index };
        Permissions::new(blocks, memory, &std::env::temp_dir()).map(drop)
    };
    assert!(new(MOST_BLOCKS + 1, 1 << 20, AMPLE).is_err());
    assert!(new(u64::MAX, 1 << 20, AMPLE).is_err());
    assert!(new(100, HOT_BYTES - 1, AMPLE).is_err());
    assert!(new(MOST_BLOCKS, HOT_BYTES, AMPLE).is_ok());
    let large = table(MOST_BLOCKS, 1);
    let owner = large.owner().unwrap();
    large.give(owner, &[run(0, MOST_CHECKED + 1), run(MOST_BLOCKS - 1, 1)], true).unwrap();
    assert!(matches!(large.check(owner, 0..MOST_CHECKED + 1), Err(Error::Refused(_))));
    assert_eq!(large.check(owner, 1..MOST_CHECKED + 1), Ok(Checked::Written));
    assert_eq!(large.check(owner, MOST_BLOCKS - 1..MOST_BLOCKS), Ok(Checked::Written));
    let empty = table(0, 1);
    let owner = empty.owner().unwrap();
    assert_eq!(empty.check(owner, 0..1), Ok(Checked::Refused));
}

/// Blocks of 1 TiB.
const TIB: u64 = 1 << 28;

#[test]
fn what_is_alike_costs_next_to_nothing() {
    let table = table(TIB, 16);
    let empty = table.counts().bytes;
    assert!(empty < 1024, "{empty} bytes");
    let owner = table.owner().unwrap();
    table.give(owner, &[run(1 << 20, 1 << 20)], false).unwrap();
    let counts = table.counts();
    assert_eq!((counts.hot, counts.spilled), (0, 0));
    // Four nodes of 512 leaves.
    assert!(counts.bytes - empty < 64 << 10, "{} bytes", counts.bytes);
    table.set_written(owner, 1 << 20..(1 << 20) + MOST_CHECKED).unwrap();
    assert_eq!((table.counts().hot, table.counts().bytes), (0, counts.bytes));
    table.take_all(owner).unwrap();
    assert!(table.counts().bytes < 32 << 10, "{:?}", table.counts());
}

/// The most owners that there may be have a block each, in leaves of their own.
#[test]
fn many_owners_have_bounded_memory() {
    let memory = Memory { leaves: 4 << 20, index: 64 << 20 };
    let table = Permissions::new(TIB, memory, &std::env::temp_dir()).unwrap();
    let spread = TIB / 65_536;
    let owners: Vec<_> = (0..65_536).map(|_| table.owner().unwrap()).collect();
    for (block, owner) in (0..).step_by(at(spread)).zip(&owners) {
        table.give(*owner, &[run(block, 1)], true).unwrap();
    }
    assert!(table.owner().is_err());
    let counts = table.counts();
    assert_eq!((counts.hot + counts.spilled, counts.hot), (65_536, (4 << 20) / HOT_BYTES));
    assert!(counts.bytes < 36 << 20, "{counts:?}");
    assert_eq!(counts.spill_bytes, 65_536 * 2048);
    for (block, owner) in (0..).step_by(at(spread)).zip(&owners) {
        assert_eq!(table.check(*owner, block..block + 1), Ok(Checked::Written));
        table.take_all(*owner).unwrap();
        assert_eq!(table.check(*owner, block..block + 1), Ok(Checked::Refused));
    }
    assert_eq!((table.counts().hot, table.counts().spilled), (0, 0));
}

#[test]
fn alternate_blocks_take_a_leaf_of_2_kib_each() {
    let table = table(TIB, 8);
    let [a, b] = [(); 2].map(|()| table.owner().unwrap());
    let every = |from| (from..64 * LEAF_SPAN).step_by(2).map(|block| run(block, 1));
    table.give(a, &Vec::from_iter(every(0)), true).unwrap();
    table.give(b, &Vec::from_iter(every(1)), true).unwrap();
    let counts = table.counts();
    assert_eq!((counts.hot, counts.spilled), (8, 56));
    assert!(counts.bytes < (8 * 2200) + (48 << 10), "{counts:?}");
    table.take_all(a).unwrap();
    table.give(b, &Vec::from_iter(every(0)), true).unwrap();
    assert_eq!(table.check(b, 0..64 * LEAF_SPAN), Ok(Checked::Written));
    assert_eq!((table.counts().hot, table.counts().spilled), (0, 0));
}

#[test]
fn an_index_that_is_full_refuses() {
    let memory = Memory { leaves: 1 << 20, index: 100 << 10 };
    let table = Permissions::new(TIB, memory, &std::env::temp_dir()).unwrap();
    let owner = table.owner().unwrap();
    let gives = (0..).map(|node| table.give(owner, &[run(node << 18, 1)], true));
    let given = gives.take_while(Result::is_ok).count() as u64;
    assert!((4..12).contains(&given), "{given} nodes");
    assert_eq!(table.check(owner, given << 18..(given << 18) + 1), Ok(Checked::Refused));
    assert!(table.counts().bytes - table.counts().hot * 2200 <= 110 << 10, "{:?}", table.counts());
    assert!(table.give(owner, &[run(0, TIB)], true).is_err());
    let more = (0..1000).take_while(|_| table.owner().is_ok()).count();
    assert!(more < 1000, "owners are of the index, too");
    table.take_all(owner).unwrap();
    let next = table.owner().unwrap();
    table.give(next, &[run(given << 18, 1)], true).unwrap();
}
