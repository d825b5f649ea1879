//! The B+tree below the map: descent, splits, merges.

use crate::arena::Arena;
use crate::node::{Inner, Leaf, NONE};
use crate::{Interval, Source};

/// Deepest tree; each level has at least two children per pair of nodes, and memory ends first.
const DEPTH: usize = 24;

/// The inner nodes from the root down, each with the child taken.
pub(crate) struct Path {
    steps: [(u32, u32); DEPTH],
    depth: usize,
}

/// Where a descent ended.
pub(crate) struct Place {
    pub path: Path,
    pub leaf: u32,
    /// Every start in the leaves behind this one is at least this.
    pub upper: u64,
}

pub(crate) struct Tree<const B: usize> {
    pub leaves: Arena<Leaf<B>>,
    inners: Arena<Inner<B>>,
    root: u32,
    /// Inner levels above the leaves.
    height: usize,
    pub first: u32,
}

impl<const B: usize> Tree<B> {
    /// Two nodes whose children or intervals are together no more than this become one. So any
    /// two neighbours below one parent are three eighths full on average.
    const MERGE: usize = B * 3 / 4;

    pub fn new() -> Self {
        assert!(B >= 4, "a node must be divisible");
        let mut leaves = Arena::new();
        let root = leaves.alloc(Leaf::new());
        Self { leaves, inners: Arena::new(), root, height: 0, first: root }
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.leaves.clear();
        self.inners.clear();
        self.root = self.leaves.alloc(Leaf::new());
        (self.height, self.first) = (0, self.root);
    }

    pub fn memory(&self) -> usize {
        self.leaves.memory() + self.inners.memory()
    }

    /// The leaf that an interval starting at `at` belongs to.
    #[inline]
    pub fn descend(&self, at: u64) -> Place {
        assert!(self.height <= DEPTH);
        let mut path = Path { steps: [(NONE, 0); DEPTH], depth: self.height };
        let (mut node, mut upper) = (self.root, u64::MAX);
        for step in &mut path.steps[..self.height] {
            let inner = &self.inners[node];
            let i = inner.child_of(at);
            if i + 1 < inner.len() {
                upper = inner.key(i + 1);
            }
            *step = (node, i as u32);
            node = inner.child(i);
        }
        self.leaves[node].touch();
        Place { path, leaf: node, upper }
    }

    /// Makes room in a full leaf; `appending` is the usual end of ascending insertions, whose
    /// leaves stay well filled.
    pub fn split(&mut self, place: &Place, appending: bool) {
        let left = place.leaf;
        let len = self.leaves[left].len();
        let mid = if appending { len - len / 8 - 1 } else { len / 2 };
        assert!(mid > 0 && mid < len, "both halves hold something");
        let mut right = self.leaves[left].split_off(mid);
        let (key, next) = (right.start(0), self.leaves[left].next());
        right.set_prev(left);
        right.set_next(next);
        let right = self.leaves.alloc(right);
        self.leaves[left].set_next(right);
        if next != NONE {
            self.leaves[next].set_prev(right);
        }
        self.insert_child(&place.path, place.path.depth, key, right);
    }

    /// Hangs `child` behind the child taken by `path` at the level above `depth`.
    fn insert_child(&mut self, path: &Path, depth: usize, key: u64, child: u32) {
        let Some(level) = depth.checked_sub(1) else {
            let mut root = Inner::new();
            root.insert(0, 0, self.root);
            root.insert(1, key, child);
            self.root = self.inners.alloc(root);
            self.height += 1;
            return;
        };
        let (node, at) = path.steps[level];
        let at = at as usize + 1;
        if self.inners[node].len() < B {
            return self.inners[node].insert(at, key, child);
        }
        let mut right = self.inners[node].split_off(B / 2);
        let right_key = right.key(0);
        if at > B / 2 {
            right.insert(at - B / 2, key, child);
        } else {
            self.inners[node].insert(at, key, child);
        }
        let right = self.inners.alloc(right);
        self.insert_child(path, level, right_key, right);
    }

    /// Repairs the tree after intervals were removed from the leaf at `place`.
    pub fn shrunk(&mut self, place: &Place) {
        let len = self.leaves[place.leaf].len();
        let Some(level) = place.path.depth.checked_sub(1) else { return };
        let (parent, at) = place.path.steps[level];
        let at = at as usize;
        if len == 0 {
            self.unlink(place.leaf);
            self.remove_child(&place.path, level, at);
        } else if len <= B / 2 {
            let right = self.merge_leaves(parent, at);
            let left = if right { None } else { at.checked_sub(1) };
            if right {
                self.remove_child(&place.path, level, at + 1);
            } else if left.is_some_and(|l| self.merge_leaves(parent, l)) {
                self.remove_child(&place.path, level, at);
            }
        }
    }

    /// Takes a leaf out of the chain and frees it.
    fn unlink(&mut self, leaf: u32) {
        let (prev, next) = (self.leaves[leaf].prev(), self.leaves[leaf].next());
        match prev {
            NONE => self.first = next,
            p => self.leaves[p].set_next(next),
        }
        if next != NONE {
            self.leaves[next].set_prev(prev);
        }
        self.leaves.release(leaf);
    }

    /// Moves the leaf behind child `at` of `parent` into that child if both are small; its entry
    /// in `parent` is still there then.
    fn merge_leaves(&mut self, parent: u32, at: usize) -> bool {
        let p = &self.inners[parent];
        if at + 1 >= p.len() {
            return false;
        }
        let (a, b) = (p.child(at), p.child(at + 1));
        if self.leaves[a].len() + self.leaves[b].len() > Self::MERGE {
            return false;
        }
        let right = self.leaves[b].clone();
        self.leaves[a].append_from(&right, 0);
        self.unlink(b);
        true
    }

    /// Merges two inner nodes, as leaves are merged.
    fn merge_inners(&mut self, parent: u32, at: usize) -> bool {
        let p = &self.inners[parent];
        if at + 1 >= p.len() {
            return false;
        }
        let (a, b, key) = (p.child(at), p.child(at + 1), p.key(at + 1));
        if self.inners[a].len() + self.inners[b].len() > Self::MERGE {
            return false;
        }
        let right = self.inners[b].clone();
        self.inners[a].append(&right, key);
        self.inners.release(b);
        true
    }

    /// Removes entry `at` of the inner node at `level` of `path` and what becomes needless by it.
    fn remove_child(&mut self, path: &Path, level: usize, at: usize) {
        let node = path.steps[level].0;
        self.inners[node].remove(at);
        let len = self.inners[node].len();
        if level == 0 {
            return self.lower_root();
        }
        let (parent, i) = path.steps[level - 1];
        let i = i as usize;
        if len == 0 {
            self.inners.release(node);
            self.remove_child(path, level - 1, i);
        } else if len <= B / 2 {
            if self.merge_inners(parent, i) {
                self.remove_child(path, level - 1, i + 1);
            } else if i > 0 && self.merge_inners(parent, i - 1) {
                self.remove_child(path, level - 1, i);
            }
        }
    }

    /// A root with one child is no root; one without any is an empty tree.
    fn lower_root(&mut self) {
        while self.height > 0 && self.inners[self.root].len() == 1 {
            let child = self.inners[self.root].child(0);
            self.inners.release(self.root);
            self.root = child;
            self.height -= 1;
        }
        if self.height > 0 && self.inners[self.root].len() == 0 {
            self.inners.release(self.root);
            self.root = self.leaves.alloc(Leaf::new());
            (self.height, self.first) = (0, self.root);
        }
    }

    /// The interval before the place `(leaf, i)`.
    pub fn before<S: Source>(&self, leaf: u32, i: usize) -> Option<(u32, usize, Interval<S>)> {
        let (leaf, i) = match i {
            0 => {
                let prev = self.leaves[leaf].prev();
                if prev == NONE {
                    return None;
                }
                (prev, self.leaves[prev].len() - 1)
            }
            i => (leaf, i - 1),
        };
        Some((leaf, i, self.leaves[leaf].get(i)))
    }

    /// The interval at the place `(leaf, i)`, or the first of the next leaf if there is none.
    pub fn at_or_after<S: Source>(&self, leaf: u32, i: usize) -> Option<Interval<S>> {
        if i < self.leaves[leaf].len() {
            return Some(self.leaves[leaf].get(i));
        }
        let next = self.leaves[leaf].next();
        (next != NONE).then(|| self.leaves[next].get(0))
    }

    /// Checks every structural promise; returns the number of intervals.
    #[cfg(any(test, feature = "check"))]
    pub fn check(&self) -> usize {
        let mut leaves = Vec::new();
        self.check_node(self.root, self.height, 0, u64::MAX, &mut leaves);
        let (mut at, mut prev, mut count) = (self.first, NONE, 0);
        for leaf in leaves {
            assert_eq!(leaf, at, "the chain follows the tree");
            assert_eq!(self.leaves[at].prev(), prev);
            count += self.leaves[at].len();
            (prev, at) = (at, self.leaves[at].next());
        }
        assert_eq!(at, NONE, "the chain ends with the tree");
        count
    }

    #[cfg(any(test, feature = "check"))]
    fn check_node(&self, node: u32, height: usize, from: u64, to: u64, leaves: &mut Vec<u32>) {
        let Some(below) = height.checked_sub(1) else {
            let leaf = &self.leaves[node];
            assert!(leaf.is_sound(from, to), "starts in order and in their place");
            assert!(leaf.len() > 0 || self.height == 0, "only the root may be empty");
            return leaves.push(node);
        };
        let inner = &self.inners[node];
        assert!(inner.ends_clean(), "unused keys are the largest number");
        assert!(inner.len() > usize::from(height == self.height), "a root has two children");
        for i in 0..inner.len() {
            let low = if i == 0 { from } else { inner.key(i) };
            let high = if i + 1 < inner.len() { inner.key(i + 1) } else { to };
            assert!(low >= from && high <= to && low <= high);
            self.check_node(inner.child(i), below, low, high, leaves);
        }
    }
}
