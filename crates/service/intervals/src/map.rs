//! The map: insertion and removal of ranges.

use crate::node::NONE;
use crate::tree::{Place, Tree};
use crate::{Interval, Source};
use std::marker::PhantomData;

/// Disjoint ranges with sources, in ascending order, joined wherever [`Source::join`] allows.
///
/// `B` is the number of entries of a node.
pub struct IntervalMap<S, const B: usize = 64> {
    tree: Tree<B>,
    len: usize,
    sources: PhantomData<S>,
}

/// What an insertion into one leaf does: puts `new` in the place of `[from, to)`, having cut the
/// interval before to `cut` bytes.
struct Change<S> {
    from: usize,
    to: usize,
    cut: Option<u32>,
    new: Interval<S>,
    rest: Option<Interval<S>>,
}

impl<S: Source, const B: usize> Default for IntervalMap<S, B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Source, const B: usize> IntervalMap<S, B> {
    /// An empty map.
    pub fn new() -> Self {
        Self { tree: Tree::new(), len: 0, sources: PhantomData }
    }

    /// Number of intervals.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No interval at all?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory taken, those kept for growth included.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.tree.memory()
    }

    /// Forgets all intervals, keeps the memory.
    pub fn clear(&mut self) {
        self.tree.clear();
        self.len = 0;
    }

    /// Puts `[start, start + len)` with its source over whatever was there. An empty range
    /// changes nothing.
    ///
    /// # Panics
    /// If the range ends beyond 2^64 - 2.
    pub fn insert(&mut self, start: u64, len: u32, source: S) {
        let end = start.checked_add(u64::from(len)).expect("a range ends inside the space");
        assert!(end < u64::MAX, "a range ends inside the space");
        if len == 0 {
            return;
        }
        let new = Interval { start, len, source };
        loop {
            let place = self.tree.descend(start);
            let Some(change) = self.plan(&place, &new) else {
                return self.insert_wide(new);
            };
            let leaf = &self.tree.leaves[place.leaf];
            let added = 1 + usize::from(change.rest.is_some());
            if leaf.len() - (change.to - change.from) + added > B {
                let appending = change.from >= leaf.len() && leaf.next() == NONE;
                self.tree.split(&place, appending);
                continue;
            }
            return self.apply(&place, &change);
        }
    }

    /// The usual insertion: everything it changes lies in one leaf. `None` if not.
    #[inline]
    fn plan(&self, place: &Place, new: &Interval<S>) -> Option<Change<S>> {
        let leaf = &self.tree.leaves[place.leaf];
        let (n, end) = (leaf.len(), new.end());
        let from = leaf.lower(new.start);
        let mut to = from;
        while to < n && leaf.start(to) < end {
            to += 1;
        }
        if (from == 0 && self.left_is_touched(place.leaf, new))
            || (to == n && end >= place.upper && self.right_is_touched(place.leaf, new))
        {
            return None;
        }
        let mut c = Change { from, to, cut: None, new: *new, rest: None };
        let last = to.checked_sub(1).map(|i| leaf.get::<S>(i));
        if let Some(last) = last.filter(|l| l.end() > end) {
            if end >= place.upper {
                return None;
            }
            c.rest = Some(last.tail(end));
        }
        if let Some(i) = from.checked_sub(1) {
            let mut before = leaf.get::<S>(i);
            if before.end() > new.start {
                // Shorter than before, so it fits.
                before.len = (new.start - before.start) as u32;
                c.cut = Some(before.len);
            }
            if let Some(both) = before.joined(&c.new) {
                (c.new, c.from, c.cut) = (both, i, None);
            }
        }
        match c.rest {
            Some(rest) => {
                if let Some(both) = c.new.joined(&rest) {
                    (c.new, c.rest) = (both, None);
                }
            }
            None if to < n => {
                if let Some(both) = c.new.joined(&leaf.get(to)) {
                    (c.new, c.to) = (both, to + 1);
                }
            }
            None => {}
        }
        Some(c)
    }

    /// Does `new`, which nothing in `leaf` comes before, overlap or go on what lies in the leaf
    /// before?
    fn left_is_touched(&self, leaf: u32, new: &Interval<S>) -> bool {
        let before = self.tree.before::<S>(leaf, 0).map(|(_, _, before)| before);
        before.is_some_and(|b| b.end() > new.start || b.joined(new).is_some())
    }

    /// Does `new`, which nothing in `leaf` comes after, overlap what lies in the leaf after, or
    /// does that go on?
    fn right_is_touched(&self, leaf: u32, new: &Interval<S>) -> bool {
        let after = self.tree.at_or_after::<S>(leaf, self.tree.leaves[leaf].len());
        after.is_some_and(|a| a.start < new.end() || new.joined(&a).is_some())
    }

    fn apply(&mut self, place: &Place, c: &Change<S>) {
        let leaf = &mut self.tree.leaves[place.leaf];
        if let Some(len) = c.cut {
            leaf.set_len(c.from - 1, len);
        }
        let before = leaf.len();
        match c.rest {
            None if c.to == c.from + 1 => leaf.set(c.from, c.new),
            None => leaf.splice(c.from, c.to, &[c.new]),
            Some(rest) => leaf.splice(c.from, c.to, &[c.new, rest]),
        }
        let after = leaf.len();
        self.len = self.len + after - before;
        if after < before {
            self.tree.shrunk(place);
        }
    }

    /// An insertion over leaf boundaries: makes room, then joins with the neighbours.
    fn insert_wide(&mut self, new: Interval<S>) {
        let mut new = new;
        self.remove(new.start, new.end());
        let place = self.tree.descend(new.start);
        let i = self.tree.leaves[place.leaf].lower(new.start);
        let after = self.tree.at_or_after::<S>(place.leaf, i);
        let before = self.tree.before::<S>(place.leaf, i).map(|(_, _, b)| b);
        if let Some((after, both)) = after.and_then(|a| new.joined(&a).map(|both| (a, both))) {
            self.take(after.start);
            new = both;
        }
        if let Some((before, both)) = before.and_then(|b| b.joined(&new).map(|both| (b, both))) {
            self.take(before.start);
            new = both;
        }
        self.put(new);
    }

    /// Inserts what neither overlaps nor joins anything.
    fn put(&mut self, new: Interval<S>) {
        loop {
            let place = self.tree.descend(new.start);
            let leaf = &mut self.tree.leaves[place.leaf];
            let i = leaf.lower(new.start);
            if leaf.len() < B {
                leaf.splice(i, i, &[new]);
                self.len += 1;
                return;
            }
            self.tree.split(&place, false);
        }
    }

    /// Removes the interval that starts at `start`.
    fn take(&mut self, start: u64) {
        let place = self.tree.descend(start);
        let i = self.tree.leaves[place.leaf].lower(start);
        self.drop_run(&place, i, i + 1);
    }

    /// Removes the intervals `[from, to)` of a leaf.
    fn drop_run(&mut self, place: &Place, from: usize, to: usize) {
        self.tree.leaves[place.leaf].splice::<S>(from, to, &[]);
        self.len -= to - from;
        self.tree.shrunk(place);
    }

    /// Removes every byte in `[start, end)`; what only partly lies there is trimmed.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end || self.trim_before(start, end) {
            return;
        }
        loop {
            let mut place = self.tree.descend(start);
            let mut from = self.tree.leaves[place.leaf].lower(start);
            if from == self.tree.leaves[place.leaf].len() {
                let Some(next) = self.tree.at_or_after::<S>(place.leaf, from) else { return };
                if next.start >= end {
                    return;
                }
                place = self.tree.descend(next.start);
                from = 0;
            }
            let leaf = &self.tree.leaves[place.leaf];
            let to = leaf.lower(end);
            if to == from {
                return;
            }
            let (last, more) = (leaf.get::<S>(to - 1), to == leaf.len() && leaf.next() != NONE);
            self.drop_run(&place, from, to);
            if last.end() > end {
                return self.put(last.tail(end));
            }
            if !more {
                return;
            }
        }
    }

    /// Trims the interval that reaches from before `start` into the range; `true` if nothing
    /// else lies in the range.
    fn trim_before(&mut self, start: u64, end: u64) -> bool {
        let place = self.tree.descend(start);
        let i = self.tree.leaves[place.leaf].lower(start);
        let Some((leaf, i, before)) = self.tree.before::<S>(place.leaf, i) else { return false };
        if before.end() <= start {
            return false;
        }
        // Shorter than before, so it fits.
        self.tree.leaves[leaf].set_len(i, (start - before.start) as u32);
        if before.end() > end {
            self.put(before.tail(end));
        }
        before.end() >= end
    }

    /// The interval that `at` lies in.
    pub fn get(&self, at: u64) -> Option<Interval<S>> {
        // The last one that starts at or before `at`.
        let next = at.checked_add(1)?;
        let place = self.tree.descend(next);
        let i = self.tree.leaves[place.leaf].lower(next);
        let (_, _, found) = self.tree.before(place.leaf, i)?;
        (found.end() > at).then_some(found)
    }

    /// All intervals in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Interval<S>> + '_ {
        let (mut leaf, mut i) = (self.tree.first, 0);
        std::iter::from_fn(move || {
            while leaf != NONE {
                let l = &self.tree.leaves[leaf];
                if i < l.len() {
                    i += 1;
                    return Some(l.get(i - 1));
                }
                (leaf, i) = (l.next(), 0);
            }
            None
        })
    }

    /// Checks every structural promise.
    #[cfg(any(test, feature = "check"))]
    pub fn check(&self) {
        assert_eq!(self.tree.check(), self.len);
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
