//! Fills of the page cache: what is to be read, and what is being read.

use crate::state::tree::overlay::Part;
use siftfs_base::InodeNr;
use std::ops::Range;

/// Pages to be read.
pub struct FillPlan {
    pub ino: InodeNr,
    pub first: u64,
    pub count: u64,
    pub map_version: u64,
    /// (byte in the area, byte in the pages, length)
    pub reads: Vec<(u64, usize, usize)>,
    /// What is newer than the area's.
    pub staged: Vec<Part>,
}

/// Fills under way: no two of them read the same page.
#[derive(Default)]
pub struct Fills {
    /// Number, inode and pages of each.
    under_way: Vec<(u64, InodeNr, Range<u64>)>,
    /// Number of the last one.
    last: u64,
}

impl Fills {
    /// Begins a fill: from here on other threads wait for it instead of reading the same pages.
    /// Returns its number, with which [`Fills::end`] ends it; `None` if one of its pages is being
    /// read already.
    pub fn begin(&mut self, ino: InodeNr, pages: Range<u64>) -> Option<u64> {
        if self.meets(ino, &pages) {
            return None;
        }
        self.last += 1;
        self.under_way.push((self.last, ino, pages));
        Some(self.last)
    }

    /// The fill has ended, well or not.
    pub fn end(&mut self, id: u64) {
        self.under_way.retain(|(fill, _, _)| *fill != id);
    }

    /// Is one of these pages being read?
    pub fn meets(&self, ino: InodeNr, pages: &Range<u64>) -> bool {
        let meets = |fill: &Range<u64>| fill.start < pages.end && pages.start < fill.end;
        self.under_way.iter().any(|(_, i, fill)| *i == ino && meets(fill))
    }
}
