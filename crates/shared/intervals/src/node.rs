//! Packed nodes.

use crate::{Interval, Source};

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// Intervals in ascending order, in three arrays so that a search touches the starts alone. Unused
/// starts are the largest number.
#[derive(Clone)]
pub(crate) struct Leaf<S, const B: usize> {
    pub starts: [u64; B],
    lens: [u32; B],
    sources: [S; B],
    pub len: usize,
    pub prev: u32,
    pub next: u32,
}

impl<S: Source, const B: usize> Leaf<S, B> {
    pub fn new(any: S) -> Self {
        Self {
            starts: [u64::MAX; B],
            lens: [0; B],
            sources: [any; B],
            len: 0,
            prev: NONE,
            next: NONE,
        }
    }

    #[inline]
    pub fn get(&self, i: usize) -> Interval<S> {
        Interval { start: self.starts[i], len: self.lens[i], source: self.sources[i] }
    }

    pub fn set(&mut self, i: usize, v: Interval<S>) {
        self.starts[i] = v.start;
        self.lens[i] = v.len;
        self.sources[i] = v.source;
    }

    pub fn set_len(&mut self, i: usize, len: u32) {
        self.lens[i] = len;
    }

    /// Index of the first interval that starts at `at` or later. Counts instead of halving:
    /// the loads of a node that is in no cache then go out together.
    #[inline]
    pub fn lower(&self, at: u64) -> usize {
        self.starts.iter().map(|s| usize::from(*s < at)).sum()
    }

    /// Puts `new` in the place of the intervals `[from, to)`.
    pub fn splice(&mut self, from: usize, to: usize, new: &[Interval<S>]) {
        let n = self.len;
        let at = from + new.len();
        if to != at {
            self.starts.copy_within(to..n, at);
            self.lens.copy_within(to..n, at);
            self.sources.copy_within(to..n, at);
        }
        for (i, v) in new.iter().enumerate() {
            self.set(from + i, *v);
        }
        self.shrink(n - (to - from) + new.len());
    }

    /// Sets the number of intervals and forgets what lies behind.
    fn shrink(&mut self, len: usize) {
        if len < self.len {
            self.starts[len..self.len].fill(u64::MAX);
        }
        self.len = len;
    }

    /// Moves the intervals from `mid` on into an empty leaf.
    pub fn split_off(&mut self, mid: usize) -> Self {
        let mut right = Self::new(self.sources[0]);
        right.append_from(self, mid);
        self.shrink(mid);
        right
    }

    /// Appends the intervals of `other` from `mid` on.
    pub fn append_from(&mut self, other: &Self, mid: usize) {
        let (n, more) = (self.len, other.len - mid);
        self.starts[n..n + more].copy_from_slice(&other.starts[mid..other.len]);
        self.lens[n..n + more].copy_from_slice(&other.lens[mid..other.len]);
        self.sources[n..n + more].copy_from_slice(&other.sources[mid..other.len]);
        self.len = n + more;
    }
}

/// Children in ascending order. Every start below child `i` is at least `keys[i]` and below
/// `keys[i + 1]`; the first key bounds nothing.
#[derive(Clone)]
pub(crate) struct Inner<const B: usize> {
    pub keys: [u64; B],
    pub children: [u32; B],
    pub len: usize,
}

impl<const B: usize> Inner<B> {
    pub fn new() -> Self {
        Self { keys: [0; B], children: [NONE; B], len: 0 }
    }

    /// Which child `at` belongs to.
    #[inline]
    pub fn child_of(&self, at: u64) -> usize {
        let keys = &self.keys[1..self.len];
        keys.iter().map(|k| usize::from(*k <= at)).sum()
    }

    pub fn insert(&mut self, i: usize, key: u64, child: u32) {
        let n = self.len;
        self.keys.copy_within(i..n, i + 1);
        self.children.copy_within(i..n, i + 1);
        (self.keys[i], self.children[i]) = (key, child);
        self.len = n + 1;
    }

    pub fn remove(&mut self, i: usize) {
        let n = self.len;
        self.keys.copy_within(i + 1..n, i);
        self.children.copy_within(i + 1..n, i);
        self.len = n - 1;
    }

    pub fn split_off(&mut self, mid: usize) -> Self {
        let mut right = Self::new();
        right.append_from(self, mid);
        self.len = mid;
        right
    }

    pub fn append_from(&mut self, other: &Self, mid: usize) {
        let (n, more) = (self.len, other.len - mid);
        self.keys[n..n + more].copy_from_slice(&other.keys[mid..other.len]);
        self.children[n..n + more].copy_from_slice(&other.children[mid..other.len]);
        self.len = n + more;
    }
}
