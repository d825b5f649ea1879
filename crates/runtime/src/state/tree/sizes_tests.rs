//! Tests of the sizes on the way.

use super::*;

fn ranges(list: &[(u64, u64)]) -> RangeSet<Bytes> {
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
        sizes.grew(size - 1, size, 512);
    }
    assert_eq!(sizes.known, [600, 4096, 20_000]);
    assert_eq!(sizes.from(513, 21_000), 600);
    assert_eq!(sizes.from(601, 21_000), 4096);
    assert_eq!(sizes.from(4097, 21_000), 20_000);
    assert_eq!(sizes.from(20_001, 21_000), 21_000);
}

#[test]
fn what_is_durable_or_cut_off_is_forgotten() {
    let mut sizes = Sizes::default();
    for size in [600, 5000, 9000, 13_000] {
        sizes.grew(size - 1, size, 512);
    }
    sizes.shrank(9000);
    assert_eq!(sizes.known, [600, 5000]);
    sizes.grew(9000, 10_000, 5000);
    assert_eq!(sizes.known, [10_000]);
}

#[test]
fn ranges_are_cut_at_every_size() {
    let mut sizes = Sizes::default();
    for size in [3000, 5000, 9000] {
        sizes.grew(size - 1, size, 512);
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

#[test]
fn the_end_of_a_first_part_counts_as_long_as_nothing_follows() {
    let mut sizes = Sizes::default();
    sizes.grew(512, 4096, 512);
    assert_eq!(sizes.from(600, 4096), 4096);
    sizes.grew(4096, 6000, 512);
    assert_eq!(sizes.known, [6000]);
    assert_eq!(sizes.from(600, 6000), 6000);
    // Journaled meanwhile, or cut off, or not where the next one begins.
    sizes.grew(6000, 8192, 512);
    sizes.grew(8192, 9000, 8192);
    assert_eq!(sizes.known, [9000]);
    sizes.grew(9000, 12_288, 512);
    sizes.shrank(12_289);
    sizes.grew(12_288, 13_000, 512);
    assert_eq!(sizes.known, [9000, 12_288]);
    sizes.grew(13_000, 16_384, 512);
    sizes.grew(20_000, 20_500, 512);
    assert_eq!(sizes.known, [9000, 12_288, 16_384, 20_500]);
}

#[test]
fn whole_blocks_are_no_parts() {
    let mut sizes = Sizes::default();
    sizes.grew(512, 4096, 512);
    for block in 1..5 {
        sizes.grew(block * 4096, (block + 1) * 4096, 512);
    }
    assert_eq!(sizes.known, [8192, 12_288, 16_384, 20_480]);
}
