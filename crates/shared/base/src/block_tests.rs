use super::*;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// Memory whose bytes are one more at every read, and a note of its end.
struct Changing(Arc<(AtomicU8, AtomicU8)>);

impl LentBlock for Changing {
    fn read(&self, into: &mut [u8; BLOCK_SIZE]) {
        *into = [self.0.0.fetch_add(1, SeqCst); BLOCK_SIZE];
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.1.fetch_add(1, SeqCst);
    }
}

fn changing() -> (SharedBlock, Arc<(AtomicU8, AtomicU8)>) {
    let state = Arc::default();
    (SharedBlock::lent(Changing(Arc::clone(&state))), state)
}

#[test]
fn every_look_at_a_lent_block_sees_the_same_bytes() {
    let (block, state) = changing();
    let other = block.clone();
    let mut copied = [9; BLOCK_SIZE];
    block.copy_to(&mut copied);
    assert_eq!(copied[0], 0, "copied from where it lies");
    assert_eq!((block[0], other[BLOCK_SIZE - 1], block[0]), (1, 1, 1));
    block.copy_to(&mut copied);
    assert_eq!(copied, [1; BLOCK_SIZE], "copied what was looked at");
    assert_eq!(state.0.load(SeqCst), 2, "read for a look, and once before");
}

#[test]
fn a_lent_block_is_given_back_with_its_last_reference() {
    let (block, state) = changing();
    let mut other = block.clone();
    drop(block);
    assert_eq!(state.1.load(SeqCst), 0);
    other.copy_to(&mut [0; BLOCK_SIZE]);
    other.make_mut()[0] = 7;
    assert_eq!(state.1.load(SeqCst), 1, "a private copy needs it no more");
    assert_eq!(other[..2], [7, 1], "the rest of it is what was lent");
}

#[test]
fn a_change_is_seen_by_nobody_who_shares_the_block() {
    let mut block = SharedBlock::zeroed();
    let before = std::ptr::from_ref(&*block);
    assert!(std::ptr::eq(block.make_mut(), before), "copied although nobody else had it");
    let snapshot = block.clone();
    block.make_mut()[5] = 1;
    assert_eq!((snapshot[5], block[5]), (0, 1));
    assert_ne!(snapshot, block);
}

#[test]
fn a_changed_block_is_another() {
    let mut block = SharedBlock::zeroed();
    let before = block.clone();
    assert!(block.is_same(&before));
    block.make_mut()[7] = 1;
    assert!(!block.is_same(&before) && before[7] == 0);
    assert!(!before.is_same(&SharedBlock::zeroed()), "the same bytes elsewhere");
    let (lent, _) = changing();
    assert!(lent.is_same(&lent.clone()) && !lent.is_same(&changing().0) && !lent.is_same(&block));
}
