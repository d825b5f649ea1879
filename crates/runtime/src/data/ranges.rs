//! Byte ranges and the pages they touch.

use siftfs_base::{BLOCK_BYTES, Blocks, Bytes, RangeSet};

/// First block not below byte `offset`.
pub fn block_up(offset: u64) -> u64 {
    offset.div_ceil(BLOCK_BYTES)
}

/// Ranges rounded out to whole pages, for walking the cache.
pub fn pages_of(ranges: &RangeSet<Bytes>) -> RangeSet<Blocks> {
    let mut pages = RangeSet::new();
    for (s, e) in ranges.iter() {
        pages.insert(s / BLOCK_BYTES, block_up(e));
    }
    pages
}

/// At most one range per page: what lies between two dirty ranges of a page is in the cache and
/// current, and carrying it costs less than describing the gaps.
pub fn one_per_page(mut ranges: RangeSet<Bytes>) -> RangeSet<Bytes> {
    let between =
        ranges.iter().zip(ranges.iter().skip(1)).map(|((_, end), (start, _))| (end, start));
    let same_page = |(end, start): &(u64, u64)| (end - 1) / BLOCK_BYTES == start / BLOCK_BYTES;
    let joins: Vec<(u64, u64)> = between.filter(same_page).collect();
    for (end, start) in joins {
        ranges.insert(end, start);
    }
    ranges
}
