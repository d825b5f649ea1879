//! Tests of the sizes on the way.

use super::*;

fn ranges(list: &[(u64, u64)]) -> RangeSet {
    let mut set = RangeSet::new();
    for (start, end) in list {
        set.insert(*start, *end);
    }
    set
}

#[test]
fn the_smallest_of_each_block_is_kept() {
    let mut sizes = Sizes::default();
    for size in [600, 700, 4096, 5000, 20_000] {
        sizes.grew(size, 512);
    }
    assert_eq!(sizes.0, [600, 4096, 20_000]);
    assert_eq!(sizes.from(513, 21_000), 600);
    assert_eq!(sizes.from(601, 21_000), 4096);
    assert_eq!(sizes.from(4097, 21_000), 20_000);
    assert_eq!(sizes.from(20_001, 21_000), 21_000);
}

#[test]
fn what_is_durable_or_cut_off_is_forgotten() {
    let mut sizes = Sizes::default();
    for size in [600, 5000, 9000, 13_000] {
        sizes.grew(size, 512);
    }
    sizes.shrank(9000);
    assert_eq!(sizes.0, [600, 5000]);
    sizes.grew(10_000, 5000);
    assert_eq!(sizes.0, [10_000]);
}

#[test]
fn ranges_are_cut_at_every_size() {
    let mut sizes = Sizes::default();
    for size in [3000, 5000, 9000] {
        sizes.grew(size, 512);
    }
    let parts = sizes.split(&ranges(&[(100, 700), (2000, 8000)]), 512);
    let wanted = [
        ranges(&[(100, 512)]),
        ranges(&[(512, 700), (2000, 3000)]),
        ranges(&[(3000, 5000)]),
        ranges(&[(5000, 8000)]),
    ];
    assert_eq!(parts.len(), wanted.len());
    for (part, wanted) in parts.iter().zip(&wanted) {
        assert_eq!(part.iter().collect::<Vec<_>>(), wanted.iter().collect::<Vec<_>>());
    }
}
