use super::*;

#[test]
fn a_write_changes_blocks_in_part_at_its_ends_alone() {
    let of = |start, end| edges(start, end).collect::<Vec<_>>();
    assert_eq!(of(0, 4096), []);
    assert_eq!(of(10, 20), [0]);
    assert_eq!(of(10, 4096), [0]);
    assert_eq!(of(4096, 4097), [1]);
    assert_eq!(of(10, 8193), [0, 2]);
}

#[test]
fn lines_are_cleared_where_a_record_touches_them() {
    let mut cache = IndexCache::default();
    let held = Held { slot: 0, number: 1 };
    let other = Held { slot: 0, number: 2 };
    for line in 0..3 {
        cache.keep((held, line), 0xf);
        cache.keep((other, line), 0xf);
    }
    cache.warm(held, (3, 9), 4);
    let bits = |of: Held| (0..3).map(|line| cache.lines[&(of, line)]).collect::<Vec<_>>();
    assert_eq!(bits(held), [0b0111, 0, 0b1110]);
    assert_eq!(bits(other), [0xf; 3]);
    cache.forget(held);
    assert_eq!(cache.lines.len(), 3);
}

#[test]
fn a_line_may_have_64_blocks() {
    assert_eq!(mask(0, 64), u64::MAX);
    assert_eq!(mask(63, 64), 1 << 63);
    assert_eq!(mask(3, 3), 0);
}

#[test]
fn the_cache_is_bounded() {
    let mut cache = IndexCache::default();
    let held = Held { slot: 0, number: 1 };
    (0..3 * MOST_LINES as u64).for_each(|line| cache.keep((held, line), 0));
    assert!(cache.lines.len() <= MOST_LINES);
}
