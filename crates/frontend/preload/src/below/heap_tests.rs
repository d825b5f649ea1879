//! Blocks are apart, aligned, as long as they should be, and used again.

use super::*;
use std::collections::BTreeMap;

#[test]
fn blocks_are_apart_and_aligned() {
    let heap = Heap::new();
    let mut all: BTreeMap<usize, Layout> = BTreeMap::new();
    for turn in 0..4000_usize {
        let size = [1, 16, 17, 100, 4096, 5000, 70_000, 3 << 20][turn % 8] + turn % 5;
        let layout = Layout::from_size_align(size, 1 << (turn % 13)).unwrap();
        // SAFETY: the layout's size is not zero.
        let block = unsafe { heap.alloc(layout) };
        assert!(!block.is_null() && block.addr() % layout.align() == 0, "{layout:?}");
        // SAFETY: the block is as long as that, or the next assertions fail.
        unsafe { block.write_bytes(turn as u8, size) };
        let before = all.range(..=block.addr()).next_back();
        assert!(before.is_none_or(|(at, l)| at + l.size() <= block.addr()), "{layout:?}");
        let behind = all.range(block.addr() + 1..).next();
        assert!(behind.is_none_or(|(at, _)| block.addr() + size <= *at), "{layout:?}");
        all.insert(block.addr(), layout);
        if turn % 3 == 0 {
            let (at, layout) = all.pop_first().unwrap();
            // SAFETY: it was given out with this layout.
            unsafe { heap.dealloc(ptr::with_exposed_provenance_mut(at), layout) };
        }
    }
}

#[test]
fn what_is_free_is_used_again_and_a_longer_one_has_the_same_bytes() {
    let heap = Heap::new();
    let layout = Layout::from_size_align(100, 8).unwrap();
    // SAFETY: blocks are used with the layouts that they were given out with.
    unsafe {
        let first = heap.alloc(layout);
        heap.dealloc(first, layout);
        let block = heap.alloc(layout);
        assert_eq!(block, first);
        block.write_bytes(7, 100);
        assert_eq!(heap.realloc(block, layout, 128), block);
        let long = heap.realloc(block, Layout::from_size_align(128, 8).unwrap(), 100_000);
        assert_eq!(std::slice::from_raw_parts(long, 100), [7; 100]);
    }
}
