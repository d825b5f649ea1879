//! Tests of the bound of what overlays add to a transaction.

use super::*;

fn homeless(debt: &mut OverlayDebt, ino: InodeNr, tree_blocks: usize, bytes: u64) {
    debt.note(ino, bytes);
    debt.note_homeless(ino, tree_blocks, 1);
}

/// What overwrites blocks that have a home counts its tags alone; the first range of the same inode
/// that has none counts the whole path all the same.
#[test]
fn ranges_with_a_home_count_their_tags() {
    let mut debt = OverlayDebt::default();
    for _ in 0..48 {
        debt.note(12, 100);
    }
    assert_eq!((debt.blocks(1000), debt.ranges(), debt.bytes()), (2, 48, 4800));
    homeless(&mut debt, 12, 3, 100);
    assert_eq!(debt.blocks(1000), 4 + 2 + 2);
    debt.tagged();
    debt.cut();
    homeless(&mut debt, 12, 3, 100);
    assert_eq!(debt.blocks(1000), 4 + 2, "the path counts in each transaction");
}

/// The first range of an inode counts its whole path, a further one another leaf at most.
#[test]
fn ranges_count_the_blocks_that_they_may_change() {
    let mut debt = OverlayDebt::default();
    homeless(&mut debt, 12, 1, 100);
    homeless(&mut debt, 12, 1, 100);
    assert_eq!(debt.blocks(0), 2);
    homeless(&mut debt, 13, 3, 0);
    homeless(&mut debt, 13, 3, 50);
    assert_eq!(debt.blocks(0), 2 + 4 + 1);
    assert_eq!((debt.ranges(), debt.bytes()), (4, 250));
    assert_eq!(debt.inodes().collect::<Vec<_>>(), [12, 13]);
}

/// Every range may allocate, but there are no more bitmaps and descriptors than groups have.
#[test]
fn bitmaps_are_bounded_by_ranges_and_by_groups() {
    let mut debt = OverlayDebt::default();
    for _ in 0..48 {
        homeless(&mut debt, 12, 1, 0);
    }
    assert_eq!(debt.blocks(1000), 2 + 2 * 48 + 2);
    assert_eq!(debt.blocks(3), 2 + 2 * 3 + 2);
}

/// What is forgotten or tagged is owed no more, but the bound falls at the cut alone.
#[test]
fn the_bound_stays_until_the_cut() {
    let mut debt = OverlayDebt::default();
    homeless(&mut debt, 12, 1, 100);
    homeless(&mut debt, 13, 1, 100);
    let bound = debt.blocks(9);
    debt.forget(12);
    assert_eq!(debt.inodes().collect::<Vec<_>>(), [13]);
    debt.tagged();
    assert!(debt.is_empty());
    assert_eq!((debt.blocks(9), debt.bytes()), (bound, 200));
    debt.cut();
    assert_eq!((debt.blocks(9), debt.bytes(), debt.ranges()), (0, 0, 0));
}

/// Physical ranges are no work for the assembly, but count as tags.
#[test]
fn physical_ranges_are_bounded_as_tags_are() {
    let mut debt = OverlayDebt::default();
    for _ in 0..48 {
        debt.note_physical(12);
    }
    assert!(debt.is_empty());
    assert_eq!((debt.physical(), debt.ranges(), debt.blocks(9)), (48, 48, 2));
    assert_eq!(debt.physical_inodes().collect::<Vec<_>>(), [12]);
    debt.forget(12);
    assert_eq!(debt.physical_inodes().count(), 0);
    debt.cut();
    assert_eq!((debt.physical(), debt.ranges()), (0, 0));
}
