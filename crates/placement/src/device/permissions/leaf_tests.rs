//! Tests of entries, and of leaves that become alike and unlike.

use super::*;
use std::iter::once;

fn owner(id: u32) -> Owner {
    Owner::of(id).expect("an id")
}

#[test]
fn an_entry_has_an_owner_and_a_bit() {
    let most = owner((1 << 31) - 1);
    let entry = Entry::new(most, true);
    assert!(entry.is_of(most) && entry.is_written() && !entry.is_of(owner(1)));
    assert!(!Entry::new(most, false).is_written());
    assert_eq!(Entry::from_bytes(entry.to_bytes()), entry);
    assert_eq!((Owner::of(0), Owner::of(1 << 31)), (None, None));
    assert!(!Entry::FREE.is_of(owner(1)));
    assert_eq!(size_of::<Entry>(), 4);
}

#[test]
fn a_leaf_costs_a_few_bytes_while_its_blocks_are_alike() {
    assert_eq!(size_of::<Leaf>(), 16);
}

#[test]
fn a_leaf_is_mixed_only_while_its_blocks_are_unlike() {
    let (a, b) = (Entry::new(owner(1), true), Entry::new(owner(2), true));
    let leaf = Content::Same(Entry::FREE).edited(once(0..512), 512, |_| a);
    assert_eq!(leaf, Content::Same(a));
    let leaf = leaf.edited([1..2, 511..512].into_iter(), 512, |_| b);
    assert!(leaf.is_mixed());
    let at = [0, 1, 2, 510, 511].map(|at| leaf.entry(at));
    assert_eq!(at, [a, b, a, a, b]);
    let leaf = leaf.edited(once(0..100), 512, |_| b);
    assert!(leaf.is_mixed());
    assert_eq!(leaf.edited(once(50..512), 512, |_| b), Content::Same(b));
}

/// The last leaf of an area is alike when its blocks of the area are.
#[test]
fn blocks_beyond_the_area_do_not_count() {
    let a = Entry::new(owner(1), false);
    let leaf = Content::Same(Entry::FREE).edited(once(0..99), 100, |_| a);
    assert!(leaf.is_mixed());
    assert_eq!(leaf.edited(once(99..100), 100, |_| a), Content::Same(a));
}

#[test]
fn a_change_that_changes_nothing_takes_no_leaf() {
    let leaf = Content::Same(Entry::FREE).edited(once(3..4), 512, |_| Entry::FREE);
    assert_eq!(leaf, Content::Same(Entry::FREE));
}

#[test]
fn parts_are_clipped() {
    assert_eq!(part_of(2, &(1024..1536)), 0..512);
    assert_eq!(part_of(2, &(1030..1031)), 6..7);
    assert_eq!(part_of(2, &(0..u64::MAX)), 0..512);
    assert_eq!(part_of(2, &(0..1024)), 0..0);
    assert_eq!(part_of(2, &(2000..3000)), 512..512);
}

#[test]
fn what_was_not_written_is_found_in_ranges() {
    let (me, other) = (owner(1), owner(2));
    let [w, u] = [true, false].map(|written| Entry::new(me, written));
    let mut finding = Finding::of(me, false);
    assert!(finding.each(&[w, u, u, w, u], 100));
    assert!(finding.same(u, 105..200));
    assert_eq!(finding.unwritten, [101..103, 104..200]);
    assert!(!finding.each(&[w, Entry::new(other, true)], 200));
    assert!(!finding.each(&[Entry::FREE], 200) && !finding.same(Entry::FREE, 200..201));
}
