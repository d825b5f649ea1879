//! Tests of the account of unsynced data.

use super::*;

#[test]
fn pages_are_counted_and_inodes_listed_until_clean() {
    let mut data = Unsynced::default();
    data.dirtied(13, 2);
    data.dirtied(12, 1);
    data.dirtied(13, 0);
    assert_eq!((data.bytes(), data.inodes().collect::<Vec<_>>()), (3 * BLOCK_BYTES, vec![12, 13]));
    data.cleaned(13, 1, false);
    assert_eq!((data.bytes(), data.inodes().collect::<Vec<_>>()), (2 * BLOCK_BYTES, vec![12, 13]));
    data.cleaned(13, 1, true);
    data.cleaned(12, 1, true);
    assert!(data.bytes() == 0 && data.is_empty());
}

#[test]
fn reservations_are_given_back() {
    let mut data = Unsynced::default();
    data.reserve(5);
    data.reserve(2);
    data.unreserve(4);
    assert_eq!(data.reserved(), 3);
    // They are of blocks, dirty or not.
    assert!(data.is_empty() && data.bytes() == 0);
}

/// What is held stays reserved until the transaction of its removal is durable, and no longer.
#[test]
fn held_blocks_wait_for_their_transaction() {
    let mut data = Unsynced::default();
    data.reserve(9);
    data.hold(5);
    data.cut();
    data.hold(1);
    assert_eq!(data.reserved(), 9);
    data.journaled();
    assert_eq!(data.reserved(), 4);
    data.journaled();
    assert_eq!(data.reserved(), 4);
    data.cut();
    data.journaled();
    assert_eq!(data.reserved(), 3);
}
