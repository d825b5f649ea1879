//! The page update tracker: which bytes of a page a small record carries
//! (`docs/design/record-area.md`, "Dirty ranges"; CoinPurse, section III-C).

use crate::staging::capture::Capture;
use crate::staging::encode::Range;
use crate::state::State;
use siftfs_base::{BLOCK_BYTES, Bytes, InodeNr, RangeSet};
use siftfs_log::{COPY_TAG_BYTES, DATA_ITEM_BYTES, Item};
use siftfs_status::{Kept, Pages};
use std::collections::BTreeMap;

/// Bytes that one range more costs: its item in the record, and its tag in the journal.
pub const RANGE_COST: u64 = DATA_ITEM_BYTES + COPY_TAG_BYTES;

/// A page's parts of dirty ranges, in order, as first byte and end in the page.
type Parts = Vec<(u64, u64)>;

/// Calls `each` with the parts of every page that the ranges touch.
fn by_page(ranges: &RangeSet<Bytes>, mut each: impl FnMut(&Parts)) {
    let (mut page, mut parts) = (0, Parts::new());
    for (start, end) in ranges.iter() {
        let mut from = start;
        while from < end {
            let at = from / BLOCK_BYTES;
            if at != page && !parts.is_empty() {
                each(&parts);
                parts.clear();
            }
            page = at;
            let base = at * BLOCK_BYTES;
            let to = end.min(base + BLOCK_BYTES);
            parts.push((from - base, to - base));
            from = to;
        }
    }
    if !parts.is_empty() {
        each(&parts);
    }
}

/// The ranges, where two of one page become one if what lies between is not worth a range of its
/// own. It is in the cache, and current.
pub fn merged_by_cost(ranges: &RangeSet<Bytes>) -> RangeSet<Bytes> {
    let mut merged = ranges.clone();
    for ((_, end), (start, _)) in ranges.iter().zip(ranges.iter().skip(1)) {
        if (end - 1) / BLOCK_BYTES == start / BLOCK_BYTES && start - end <= RANGE_COST {
            merged.insert(end, start);
        }
    }
    merged
}

/// Bytes that a page's parts take with at most `most` ranges, the longest gaps left out, each with
/// its cost.
fn kept(parts: &Parts, most: usize) -> u64 {
    let (Some((start, _)), Some((_, end))) = (parts.first(), parts.last()) else { return 0 };
    let mut gaps: Vec<u64> = parts.windows(2).map(|two| two[1].0 - two[0].1).collect();
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    let out = gaps.len().min(most - 1);
    end - start - gaps[..out].iter().sum::<u64>() + (out as u64 + 1) * RANGE_COST
}

/// ... and with those ranges that cost less than they save.
fn kept_by_cost(parts: &Parts) -> u64 {
    let (Some((start, _)), Some((_, end))) = (parts.first(), parts.last()) else { return 0 };
    let gaps = parts.windows(2).map(|two| two[1].0 - two[0].1);
    let saved: u64 = gaps.filter_map(|gap| gap.checked_sub(RANGE_COST)).sum();
    end - start + RANGE_COST - saved
}

/// Adds what the ranges' pages come to.
fn count(ranges: &RangeSet<Bytes>, pages: &mut Pages, sums: &mut Kept) {
    by_page(ranges, |parts| {
        let dirty: u64 = parts.iter().map(|(start, end)| end - start).sum();
        pages.add(dirty);
        sums.one += kept(parts, 1);
        sums.three += kept(parts, 3);
        sums.all += kept(parts, usize::MAX);
        sums.by_cost += kept_by_cost(parts);
    });
}

impl State {
    /// What a small record carries instead of `capture`, which has one range for each page: ranges
    /// merged by cost. `None` where they are the same. What is dirty is counted.
    pub fn track(&mut self, capture: &Capture) -> Option<Capture> {
        if capture.data.is_empty() {
            return None;
        }
        let (mut tracked, mut ranges) = (BTreeMap::new(), 0);
        for ino in &capture.whole {
            let exact = self.metadata.tree.node(*ino).undurable();
            if !exact.is_empty() {
                self.stats.tracked(|pages, sums| count(&exact, pages, sums));
                let merged = merged_by_cost(&exact);
                ranges += merged.ranges();
                tracked.insert(*ino, merged);
            }
        }
        (ranges > capture.data.len()).then(|| capture.with(&tracked))
    }
}

impl Capture {
    /// The same with these ranges of its inodes' data, which lie in its own.
    fn with(&self, tracked: &BTreeMap<InodeNr, RangeSet<Bytes>>) -> Self {
        let mut out = Self {
            items: Vec::with_capacity(self.items.len()),
            ops: self.ops.clone(),
            whole: self.whole.clone(),
            perms: self.perms.clone(),
            ..Self::default()
        };
        for item in &self.items {
            let Item::Data { ino, generation, offset, len, .. } = *item else {
                out.items.push(item.clone());
                continue;
            };
            let ranges = tracked.get(&ino).expect("its inode is captured whole");
            for (start, end) in ranges.overlapping(offset, offset + u64::from(len)) {
                out.add(Range::of(ino, start, end), generation);
            }
        }
        out
    }

    /// Adds a range of a file behind the data that is there.
    pub fn add(&mut self, range: Range, generation: u32) {
        let Range { ino, start, end, .. } = range;
        let data_offset = u32::try_from(self.data_len).unwrap_or(u32::MAX);
        let len = u32::try_from(end - start).unwrap_or(u32::MAX);
        self.items.push(Item::Data {
            ino,
            generation,
            offset: start,
            len,
            data_offset,
            home: None,
        });
        self.data.push(Range { data_offset, ..range });
        self.data_len += end - start;
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
