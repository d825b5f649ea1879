//! The second step: which blocks that records change in part have to be read first, and the cache
//! of what the index says of them.

use crate::counters::{Counters, Step};
use crate::{Index, Locate};
use ahash::{HashMap, HashSet};
use siftfs_base::BLOCK_BYTES;
use siftfs_lease::{Fetched, Held, Record};

/// Blocks of a line of the index cache.
pub const LINE_BLOCKS: u32 = 32;
/// Lines that a session's cache has at most. Then it begins anew.
const MOST_LINES: usize = 4096;
/// Most blocks of a question.
pub(crate) const ASK_BLOCKS: u32 = 64;

/// What the index said of the blocks of leased files, by lease and line.
#[derive(Default)]
pub(crate) struct IndexCache {
    /// A bit for each block of a line: it is cold.
    lines: HashMap<(Held, u64), u64>,
}

/// The records of a batch, and the blocks that they change in part and that were cold before.
pub(crate) struct Located {
    pub records: Vec<Record>,
    pub until: u64,
    pub cold: HashSet<(Held, u64)>,
}

impl IndexCache {
    /// The lease has ended.
    pub fn forget(&mut self, held: Held) {
        if !self.lines.is_empty() {
            self.lines.retain(|(of, _), _| *of != held);
        }
    }

    /// The index has said this of a line.
    fn keep(&mut self, line: (Held, u64), bits: u64) {
        if self.lines.len() >= MOST_LINES {
            self.lines.clear();
        }
        self.lines.insert(line, bits);
    }

    /// Blocks `[first, end)` are in memory when later records are patched.
    fn warm(&mut self, held: Held, (first, end): (u64, u64), blocks: u32) {
        let blocks = u64::from(blocks);
        for line in first / blocks..end.div_ceil(blocks) {
            if let Some(bits) = self.lines.get_mut(&(held, line)) {
                let begin = line * blocks;
                let (from, to) = (first.max(begin) - begin, end.min(begin + blocks) - begin);
                *bits &= !mask(from, to);
            }
        }
    }
}

/// Bits `[from, to)`, of 64.
fn mask(from: u64, to: u64) -> u64 {
    let below = |end: u64| if end >= 64 { u64::MAX } else { (1 << end) - 1 };
    below(to) & !below(from)
}

/// What the step works with.
pub(crate) struct Locator<'a> {
    pub cache: &'a mut IndexCache,
    pub index: &'a dyn Index,
    pub counters: &'a Counters,
    pub how: Locate,
}

impl Locator<'_> {
    pub fn step(&mut self, fetched: Fetched) -> Located {
        let _timed = self.counters.time(Step::Locate);
        let Fetched { records, until } = fetched;
        let mut cold = HashSet::default();
        if self.how != Locate::Off {
            records.iter().for_each(|record| self.locate(record, &mut cold));
        }
        Located { records, until, cold }
    }

    fn locate(&mut self, record: &Record, cold: &mut HashSet<(Held, u64)>) {
        let (held, end) = (record.held, record.offset + u64::from(record.len));
        for block in edges(record.offset, end) {
            if !cold.contains(&(held, block)) && self.is_cold(held, block) {
                cold.insert((held, block));
            }
        }
        if let Locate::Lines(blocks) = self.how {
            let touched = (record.offset / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
            self.cache.warm(held, touched, blocks);
        }
    }

    fn is_cold(&mut self, held: Held, block: u64) -> bool {
        match self.how {
            Locate::Off => false,
            Locate::Uncached => {
                self.counters.looked_up(false);
                self.index.cold(held, (block, 1), 0).is_ok_and(|bits| bits & 1 != 0)
            }
            Locate::Lines(blocks) => {
                let (line, at) = (block / u64::from(blocks), block % u64::from(blocks));
                self.line((held, line), blocks).is_some_and(|bits| bits & (1 << at) != 0)
            }
        }
    }
}

impl Locator<'_> {
    /// The line's bits, which are asked for if they are not here. None, if nothing is known.
    fn line(&mut self, (held, line): (Held, u64), blocks: u32) -> Option<u64> {
        let known = self.cache.lines.get(&(held, line)).copied();
        self.counters.looked_up(known.is_some());
        if known.is_some() {
            return known;
        }
        let first = line * u64::from(blocks);
        let bits = self.index.cold(held, (first, blocks), 0).ok()?;
        self.cache.keep((held, line), bits);
        Some(bits)
    }
}

/// The blocks that a write of these bytes changes in part.
pub(crate) fn edges(start: u64, end: u64) -> impl Iterator<Item = u64> {
    let part = |at: u64| (!at.is_multiple_of(BLOCK_BYTES)).then_some(at / BLOCK_BYTES);
    let first = part(start);
    first.into_iter().chain(part(end).filter(move |last| Some(*last) != first))
}

#[cfg(test)]
#[path = "locate_tests.rs"]
mod tests;
