//! Tests of owners and of their ids.

use super::*;

fn set(ranges: &[(u64, u64)]) -> RangeSet<Leaves> {
    let mut set = RangeSet::new();
    ranges.iter().for_each(|(start, end)| set.insert(*start, *end));
    set
}

#[test]
fn an_id_is_drawn_again_when_all_others_were() {
    let mut owners = Owners { last: (1 << 31) - 3, ..Owners::default() };
    let first = Owners::default().add().unwrap();
    owners.leaves.insert(first.id(), RangeSet::new());
    let ids = [(); 4].map(|()| owners.add().unwrap().id());
    // 1 has an owner.
    assert_eq!(ids, [(1 << 31) - 2, (1 << 31) - 1, 2, 3]);
    owners.remove(Owner::of(2).unwrap()).unwrap();
    assert_eq!(owners.add().unwrap().id(), 4);
}

#[test]
fn owners_are_bounded() {
    let mut owners = Owners::default();
    let first = owners.add().unwrap();
    assert!((1..MOST_OWNERS).all(|_| owners.add().is_ok()));
    assert!(matches!(owners.add(), Err(Error::Refused(_))));
    owners.remove(first).unwrap();
    assert_eq!(owners.find(first), Err(unknown()));
    assert!(owners.remove(first).is_err());
    let last = owners.add().unwrap();
    assert_ne!(last, first);
    assert_eq!((owners.len(), owners.find(last)), (MOST_OWNERS, Ok(())));
}

#[test]
fn runs_of_leaves_are_counted() {
    let mut owners = Owners::default();
    let owner = owners.add().unwrap();
    let empty = owners.bytes();
    owners.touch(owner, &set(&[(1, 2), (4, 9)]));
    owners.touch(owner, &set(&[(2, 4), (20, 21)]));
    assert_eq!(owners.bytes() - empty, 2 * RUN_BYTES);
    let leaves = owners.remove(owner).unwrap();
    assert_eq!(leaves, set(&[(1, 9), (20, 21)]));
    assert_eq!(numbers(&leaves).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 20]);
    assert_eq!(owners.bytes(), 0);
}

#[test]
fn blocks_lie_in_leaves() {
    let mut blocks = RangeSet::new();
    blocks.insert(0, 1);
    blocks.insert(511, 513);
    blocks.insert(2048, 2560);
    assert_eq!(leaves_of(&blocks), set(&[(0, 2), (4, 5)]));
}
