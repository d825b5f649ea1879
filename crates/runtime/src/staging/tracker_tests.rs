use super::*;

fn set(ranges: &[(u64, u64)]) -> RangeSet<Bytes> {
    let mut set = RangeSet::new();
    ranges.iter().for_each(|(start, end)| set.insert(*start, *end));
    set
}

fn counted(ranges: &RangeSet<Bytes>) -> (Pages, Kept) {
    let (mut pages, mut sums) = (Pages::default(), Kept::default());
    count(ranges, &mut pages, &mut sums);
    (pages, sums)
}

#[test]
fn a_gap_stays_where_it_is_longer_than_a_range_costs() {
    let (short, long) = (100 + RANGE_COST, 101 + RANGE_COST);
    assert_eq!(merged_by_cost(&set(&[(0, 100), (short, 300)])), set(&[(0, 300)]));
    let apart = set(&[(0, 100), (long, 300)]);
    assert_eq!(merged_by_cost(&apart), apart);
}

#[test]
fn nothing_is_merged_over_the_end_of_a_page() {
    let two = set(&[(4000, 4090), (4100, 4200)]);
    assert_eq!(merged_by_cost(&two), two);
}

#[test]
fn pages_are_counted_by_what_is_dirty_in_them() {
    let (pages, _) = counted(&set(&[(0, 64), (4096, 4097), (4200, 4263), (8192, 16384 + 65)]));
    assert_eq!(pages.up_to, [2, 1, 0, 0, 0, 0, 0, 2]);
}

/// What merging gives is what its cost says, and no limit gives less.
#[test]
fn no_limit_takes_less_than_as_many_as_pay() {
    let all = set(&[(0, 10), (20, 30), (700, 710), (900, 1000), (4000, 4200), (4230, 4300)]);
    let (_, sums) = counted(&all);
    let merged = merged_by_cost(&all);
    // A range that goes over the end of a page has a cost in each.
    assert_eq!(sums.by_cost, merged.total() + (merged.ranges() as u64 + 1) * RANGE_COST);
    assert!([sums.one, sums.three, sums.all].iter().all(|other| *other >= sums.by_cost));
    assert_eq!(sums.one, 4096 + 204 + 2 * RANGE_COST);
    assert_eq!(sums.all, all.total() + 7 * RANGE_COST);
    // The two longest gaps of the first page are left out: 3000 and 670 bytes.
    assert_eq!(sums.three, 4096 - 3000 - 670 + 174 + (3 + 2) * RANGE_COST);
}
