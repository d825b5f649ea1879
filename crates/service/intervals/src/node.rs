//! Packed nodes.

use crate::{Interval, Source};
use std::hint::black_box;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// 64-bit numbers of a cache line.
const LINE: usize = 8;
const MAX: U64 = U64::new(u64::MAX);

/// How many of the ascending numbers, which `is_before` holds for up to some point, come before
/// that point. Reads the last number of each line, then one line; counts instead of halving, so
/// that the loads of a node that is in no cache go out together and no jump is guessed.
#[inline(always)]
fn count(numbers: &[U64], is_before: impl Fn(u64) -> bool) -> usize {
    let (lines, rest) = numbers.as_chunks::<LINE>();
    let full: usize = lines.iter().map(|l| usize::from(is_before(l[LINE - 1].get()))).sum();
    let line = lines.get(full).map_or(rest, |l| l);
    full * LINE + line.iter().map(|n| usize::from(is_before(n.get()))).sum::<usize>()
}

/// Intervals in ascending order, in three arrays so that a search touches the starts alone. Unused
/// starts are the largest number. Of the usual 64 intervals, it is a whole number of cache lines.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Leaf<const B: usize> {
    starts: [U64; B],
    lens: [U32; B],
    sources: [U64; B],
    len: U32,
    prev: U32,
    next: U32,
    _line: [u8; 52],
}
const _: () = assert!(size_of::<Leaf<64>>().is_multiple_of(8 * LINE));

impl<const B: usize> Leaf<B> {
    pub fn new() -> Self {
        let mut leaf = Self::new_zeroed();
        leaf.starts.fill(MAX);
        (leaf.prev, leaf.next) = (NONE.into(), NONE.into());
        leaf
    }

    /// Number of intervals.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.get() as usize
    }

    /// The leaf before, or [`NONE`].
    pub fn prev(&self) -> u32 {
        self.prev.get()
    }

    /// The leaf after, or [`NONE`].
    pub fn next(&self) -> u32 {
        self.next.get()
    }

    pub fn set_prev(&mut self, leaf: u32) {
        self.prev = leaf.into();
    }

    pub fn set_next(&mut self, leaf: u32) {
        self.next = leaf.into();
    }

    #[inline]
    pub fn start(&self, i: usize) -> u64 {
        self.starts[i].get()
    }

    #[inline]
    pub fn get<S: Source>(&self, i: usize) -> Interval<S> {
        let source = S::from_bits(self.sources[i].get());
        Interval { start: self.start(i), len: self.lens[i].get(), source }
    }

    pub fn set<S: Source>(&mut self, i: usize, v: Interval<S>) {
        self.starts[i] = v.start.into();
        self.lens[i] = v.len.into();
        self.sources[i] = v.source.to_bits().into();
    }

    pub fn set_len(&mut self, i: usize, len: u32) {
        self.lens[i] = len.into();
    }

    /// Index of the first interval that starts at `at` or later.
    #[inline]
    pub fn lower(&self, at: u64) -> usize {
        count(&self.starts, |start| start < at)
    }

    /// Loads a word of each cache line behind the starts, so that memory brings them together with
    /// these, and not when the search among the starts has ended.
    #[inline]
    pub fn touch(&self) {
        (0..B).step_by(2 * LINE).for_each(|i| _ = black_box(self.lens[i]));
        (0..B).step_by(LINE).for_each(|i| _ = black_box(self.sources[i]));
        black_box(self.len);
    }

    /// Puts `new` in the place of the intervals `[from, to)`.
    pub fn splice<S: Source>(&mut self, from: usize, to: usize, new: &[Interval<S>]) {
        let n = self.len();
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
        let before = self.len();
        if len < before {
            self.starts[len..before].fill(MAX);
        }
        self.len = (len as u32).into();
    }

    /// Moves the intervals from `mid` on into an empty leaf.
    pub fn split_off(&mut self, mid: usize) -> Self {
        let mut right = Self::new();
        right.append_from(self, mid);
        self.shrink(mid);
        right
    }

    /// Are the starts in order, within `[from, to)`, and those behind the last unused ones?
    #[cfg(any(test, feature = "check"))]
    pub fn is_sound(&self, from: u64, to: u64) -> bool {
        let (starts, unused) = self.starts.split_at(self.len());
        let inside = |s: &U64| s.get() >= from && s.get() < to;
        starts.is_sorted_by_key(|s| s.get())
            && starts.iter().all(inside)
            && unused.iter().all(|s| *s == MAX)
    }

    /// Appends the intervals of `other` from `mid` on.
    pub fn append_from(&mut self, other: &Self, mid: usize) {
        let (n, end) = (self.len(), other.len());
        let sum = n + end - mid;
        self.starts[n..sum].copy_from_slice(&other.starts[mid..end]);
        self.lens[n..sum].copy_from_slice(&other.lens[mid..end]);
        self.sources[n..sum].copy_from_slice(&other.sources[mid..end]);
        self.len = (sum as u32).into();
    }
}

/// Children in ascending order. Every start below child `i` is at least `key(i)` and below
/// `key(i + 1)`; the first key bounds nothing. Unused keys are the largest number.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Inner<const B: usize> {
    keys: [U64; B],
    children: [U32; B],
    len: U32,
    _line: [u8; 60],
}
const _: () = assert!(size_of::<Inner<64>>().is_multiple_of(8 * LINE));

impl<const B: usize> Inner<B> {
    pub fn new() -> Self {
        let mut inner = Self::new_zeroed();
        inner.keys.fill(MAX);
        inner
    }

    /// Number of children.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.get() as usize
    }

    #[inline]
    pub fn key(&self, i: usize) -> u64 {
        self.keys[i].get()
    }

    #[inline]
    pub fn child(&self, i: usize) -> u32 {
        self.children[i].get()
    }

    /// Index of the child that `at` belongs to.
    #[inline]
    pub fn child_of(&self, at: u64) -> usize {
        // The largest number itself is not below an unused key.
        count(&self.keys[1..], |key| key <= at).min(self.len() - 1)
    }

    pub fn insert(&mut self, i: usize, key: u64, child: u32) {
        let n = self.len();
        self.keys.copy_within(i..n, i + 1);
        self.children.copy_within(i..n, i + 1);
        (self.keys[i], self.children[i]) = (key.into(), child.into());
        self.len = (n as u32 + 1).into();
    }

    pub fn remove(&mut self, i: usize) {
        let n = self.len();
        self.keys.copy_within(i + 1..n, i);
        self.children.copy_within(i + 1..n, i);
        self.shrink(n - 1);
    }

    /// Sets the number of children and forgets the keys behind.
    fn shrink(&mut self, len: usize) {
        let before = self.len();
        self.keys[len..before].fill(MAX);
        self.len = (len as u32).into();
    }

    /// Moves the children from `mid` on into an empty node.
    pub fn split_off(&mut self, mid: usize) -> Self {
        let mut right = Self::new();
        right.append_from(self, mid);
        self.shrink(mid);
        right
    }

    /// Appends the children of `other` from `mid` on.
    pub fn append_from(&mut self, other: &Self, mid: usize) {
        let (n, end) = (self.len(), other.len());
        let sum = n + end - mid;
        self.keys[n..sum].copy_from_slice(&other.keys[mid..end]);
        self.children[n..sum].copy_from_slice(&other.children[mid..end]);
        self.len = (sum as u32).into();
    }

    /// Appends all children of `other`, whose first key is `key`.
    pub fn append(&mut self, other: &Self, key: u64) {
        let at = self.len();
        self.append_from(other, 0);
        self.keys[at] = key.into();
    }

    /// Are the keys behind the last child unused ones?
    #[cfg(any(test, feature = "check"))]
    pub fn ends_clean(&self) -> bool {
        self.keys[self.len()..].iter().all(|k| *k == MAX)
    }
}
