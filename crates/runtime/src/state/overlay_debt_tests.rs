//! Tests of the bound of what overlays add to a transaction.

use super::*;

/// The first range of an inode counts its whole path, a further one another leaf at most.
#[test]
fn ranges_count_the_blocks_that_they_may_change() {
    let mut debt = OverlayDebt::default();
    debt.note(12, 1, 100);
    debt.note(12, 1, 100);
    assert_eq!(debt.blocks(0), 2);
    debt.note(13, 3, 0);
    debt.note(13, 3, 50);
    assert_eq!(debt.blocks(0), 2 + 4 + 1);
    assert_eq!((debt.ranges(), debt.bytes()), (4, 250));
    assert_eq!(debt.inodes().collect::<Vec<_>>(), [12, 13]);
}

/// Every range may allocate, but there are no more bitmaps and descriptors than groups have.
#[test]
fn bitmaps_are_bounded_by_ranges_and_by_groups() {
    let mut debt = OverlayDebt::default();
    for _ in 0..48 {
        debt.note(12, 1, 0);
    }
    assert_eq!(debt.blocks(1000), 2 + 2 * 48 + 2);
    assert_eq!(debt.blocks(3), 2 + 2 * 3 + 2);
}

/// What is forgotten or tagged is owed no more, but the bound falls at the cut alone.
#[test]
fn the_bound_stays_until_the_cut() {
    let mut debt = OverlayDebt::default();
    debt.note(12, 1, 100);
    debt.note(13, 1, 100);
    let bound = debt.blocks(9);
    debt.forget(12);
    assert_eq!(debt.inodes().collect::<Vec<_>>(), [13]);
    debt.tagged();
    assert!(debt.is_empty());
    assert_eq!((debt.blocks(9), debt.bytes()), (bound, 200));
    debt.cut();
    assert_eq!((debt.blocks(9), debt.bytes(), debt.ranges()), (0, 0, 0));
}
