use super::*;

fn page(byte: u8) -> SharedBlock {
    SharedBlock::from([byte; BLOCK_SIZE])
}

#[test]
fn pages_are_found_replaced_and_forgotten() {
    let mut cache = PageCache::new(0);
    for index in [0, 15, 16, 40, u64::MAX] {
        assert_eq!(cache.insert(7, index, page(1)), None);
    }
    assert_eq!(cache.insert(7, 16, page(2)), Some(page(1)));
    assert_eq!((cache.len(), cache.contains(7, 17), cache.contains(8, 16)), (5, false, false));
    assert_eq!(cache.get(7, 16).unwrap().data, page(2));
    cache.remove_range(7, 15, 40);
    assert_eq!(cache.len(), 3);
    assert!(cache.contains(7, 0) && !cache.contains(7, 15) && cache.contains(7, 40));
    cache.remove_range(7, 0, u64::MAX);
    assert_eq!((cache.len(), cache.chunks.len()), (1, 1), "the end is not part of a range");
    assert!(cache.contains(7, u64::MAX));
}

#[test]
fn a_shared_page_is_copied_before_it_changes() {
    let mut cache = PageCache::new(0);
    let mine = page(3);
    cache.insert(1, 5, mine.clone());
    cache.get_mut(1, 5).unwrap()[0] = 9;
    assert_eq!(mine, page(3));
    assert_eq!(cache.peek(1, 5).unwrap().data[..2], [9, 3]);
}

#[test]
fn the_bound_holds_for_all_but_busy_pages() {
    let mut cache = PageCache::new(0);
    for index in 0..3000 {
        cache.insert(1, index, page(0));
    }
    for _ in 0..100 {
        cache.shrink(|_, index| index % 100 == 0);
    }
    assert_eq!(cache.len(), cache.limit());
    assert!((0..30).all(|i| cache.contains(1, i * 100)));
    let used: usize = cache.chunks.values().map(|c| c.used).sum();
    assert_eq!(used, cache.len());
}
