//! A set of `u64` values kept as disjoint half-open ranges.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// The unit of ranges of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {}

/// The unit of ranges of blocks, or of pages, which are as large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {}

/// Disjoint, non-adjacent half-open ranges `[start, end)`, in order. Sets of different units are
/// different types: no range of one becomes a range of the other by mistake.
#[derive(Clone, PartialEq, Eq)]
pub struct RangeSet<U> {
    map: BTreeMap<u64, u64>,
    unit: PhantomData<U>,
}

impl<U> Default for RangeSet<U> {
    fn default() -> Self {
        Self { map: BTreeMap::new(), unit: PhantomData }
    }
}

impl<U> fmt::Debug for RangeSet<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<U> RangeSet<U> {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }
    /// No range at all?
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
    /// Removes everything.
    pub fn clear(&mut self) {
        self.map.clear();
    }
    /// Number of ranges.
    pub fn ranges(&self) -> usize {
        self.map.len()
    }
    /// Number of values.
    pub fn total(&self) -> u64 {
        self.map.iter().map(|(s, e)| e - s).sum()
    }
    /// All ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.map.iter().map(|(s, e)| (*s, *e))
    }
    /// One past the largest value, or `None` when empty.
    pub fn max_end(&self) -> Option<u64> {
        self.map.last_key_value().map(|(_, e)| *e)
    }

    /// Adds `[start, end)`.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut s, mut e) = (start, end);
        if let Some((&ps, &pe)) = self.map.range(..=start).next_back()
            && pe >= start
        {
            s = ps;
            e = e.max(pe);
        }
        while let Some((&ns, &ne)) = self.map.range(s..=e).next() {
            e = e.max(ne);
            self.map.remove(&ns);
        }
        self.map.insert(s, e);
    }

    /// Removes `[start, end)`.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if let Some((&ps, &pe)) = self.map.range(..start).next_back()
            && pe > start
        {
            self.map.insert(ps, start);
            if pe > end {
                self.map.insert(end, pe);
            }
        }
        while let Some((&ns, &ne)) = self.map.range(start..end).next() {
            self.map.remove(&ns);
            if ne > end {
                self.map.insert(end, ne);
            }
        }
    }

    /// Is `value` in the set?
    pub fn contains(&self, value: u64) -> bool {
        self.map.range(..=value).next_back().is_some_and(|(_, e)| *e > value)
    }

    /// Is any value of `[start, end)` in the set?
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.overlapping(start, end).next().is_some()
    }

    /// The parts of the set inside `[start, end)`, clipped to it.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self
            .map
            .range(..start)
            .next_back()
            .filter(|(_, e)| **e > start)
            .map(|(s, _)| *s)
            .unwrap_or(start);
        self.map
            .range(first..end.max(first))
            .map(move |(s, e)| ((*s).max(start), (*e).min(end)))
            .filter(|(s, e)| s < e)
    }

    /// The parts of `[start, end)` that are not in the set.
    pub fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        let mut at = start;
        for (s, e) in self.overlapping(start, end) {
            if s > at {
                out.push((at, s));
            }
            at = e;
        }
        if at < end {
            out.push((at, end));
        }
        out
    }

    /// What both sets have.
    pub fn intersection(&self, other: &Self) -> Self {
        let both = self.iter().flat_map(|(s, e)| other.overlapping(s, e));
        Self { map: both.collect(), unit: PhantomData }
    }

    /// Adds every range of `other`.
    pub fn union(&mut self, other: &Self) {
        for (s, e) in other.iter() {
            self.insert(s, e);
        }
    }
}

#[cfg(test)]
#[path = "rangeset_tests.rs"]
mod tests;
