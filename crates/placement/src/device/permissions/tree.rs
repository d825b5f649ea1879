//! The radix tree: from a leaf's number to the leaf.

use super::leaf::{Hot, Leaf};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

/// Leaves of a node, and nodes of a branch.
const FANOUT: u64 = 512;

/// Bytes of the leaves of a node, with what the allocator adds.
pub(super) const NODE_BYTES: usize = size_of::<Leaf>() * FANOUT as usize + 48;

/// Bytes of a branch, which has the locks of its nodes.
pub(super) const BRANCH_BYTES: usize = size_of::<Node>() * FANOUT as usize + 16;

type Branch = OnceLock<Box<[Node]>>;

pub(super) struct Tree {
    /// Each of them covers 512 nodes. One is made when something of it is granted, and stays.
    branches: Box<[Branch]>,
    /// How many branches have been made.
    made: AtomicUsize,
    /// How many nodes have leaves.
    filled: AtomicUsize,
}

/// The lock of 512 leaves.
#[derive(Default)]
struct Node {
    /// Nothing, if nobody has any of their blocks.
    leaves: RwLock<Option<Box<Leaves>>>,
    /// Leaves of the node that were looked at in memory. It lies beside the lock, which those that
    /// look write anyway.
    hits: AtomicU64,
}

impl Node {
    fn with<R>(&self, number: u64, look: impl FnOnce(&Leaf) -> R) -> R {
        let leaves = self.leaves.read().unwrap_or_else(PoisonError::into_inner);
        let leaf = leaves.as_ref().and_then(|leaves| leaves.all.get(place(number)));
        look(leaf.unwrap_or(&Leaf::FREE))
    }
}

struct Leaves {
    all: Box<[Leaf]>,
    /// How many of them are not free.
    used: usize,
}

/// The place of a leaf in its node, or of a node in its branch.
fn place(number: u64) -> usize {
    usize::try_from(number % FANOUT).expect("below the fanout")
}

impl Tree {
    /// Of an area that has this many leaves; nobody has anything.
    pub fn new(leaves: u64) -> Self {
        let branches = leaves.div_ceil(FANOUT * FANOUT);
        let branches = (0..branches).map(|_| Branch::new()).collect();
        Self { branches, made: AtomicUsize::new(0), filled: AtomicUsize::new(0) }
    }

    fn branch(&self, number: u64) -> &Branch {
        let at = usize::try_from(number / FANOUT / FANOUT).unwrap_or(usize::MAX);
        self.branches.get(at).expect("a leaf of the area")
    }

    fn node(&self, number: u64) -> Option<&Node> {
        self.branch(number).get()?.get(place(number / FANOUT))
    }

    /// Looks at a leaf for a check. It does not change meanwhile.
    pub fn look<R>(&self, number: u64, look: impl FnOnce(&Leaf) -> R) -> R {
        let Some(node) = self.node(number) else { return look(&Leaf::FREE) };
        node.with(number, |leaf| {
            if !matches!(leaf, Leaf::Spilled(_)) {
                node.hits.fetch_add(1, Ordering::Relaxed);
            }
            look(leaf)
        })
    }

    /// Looks at a leaf for a change, which is not counted. It does not change meanwhile.
    pub fn peek<R>(&self, number: u64, look: impl FnOnce(&Leaf) -> R) -> R {
        match self.node(number) {
            Some(node) => node.with(number, look),
            None => look(&Leaf::FREE),
        }
    }

    /// Changes a leaf that is in memory. False: it is not, and nothing was changed.
    pub fn change(&self, number: u64, change: impl FnOnce(&mut Hot)) -> bool {
        let Some(node) = self.node(number) else { return false };
        let mut leaves = node.leaves.write().unwrap_or_else(PoisonError::into_inner);
        match leaves.as_mut().and_then(|leaves| leaves.all.get_mut(place(number))) {
            Some(Leaf::Hot(hot)) => {
                change(hot);
                true
            }
            _ => false,
        }
    }

    /// Puts a leaf in the place of another one, which is returned.
    pub fn replace(&self, number: u64, leaf: Leaf) -> Leaf {
        let nodes = self.branch(number).get_or_init(|| {
            self.made.fetch_add(1, Ordering::Relaxed);
            (0..FANOUT).map(|_| Node::default()).collect()
        });
        let node = nodes.get(place(number / FANOUT)).expect("a branch is full");
        let mut leaves = node.leaves.write().unwrap_or_else(PoisonError::into_inner);
        if leaves.is_none() && leaf.is_free() {
            return leaf;
        }
        let in_node = leaves.get_or_insert_with(|| {
            self.filled.fetch_add(1, Ordering::Relaxed);
            Box::new(Leaves { all: (0..FANOUT).map(|_| Leaf::FREE).collect(), used: 0 })
        });
        in_node.used += usize::from(!leaf.is_free());
        let old = in_node.all.get_mut(place(number)).expect("a node is full");
        let old = std::mem::replace(old, leaf);
        in_node.used -= usize::from(!old.is_free());
        if in_node.used == 0 {
            *leaves = None;
            self.filled.fetch_sub(1, Ordering::Relaxed);
        }
        old
    }

    /// Bytes that are to be allocated before each of these leaves can have something.
    pub fn missing(&self, leaves: Range<u64>) -> usize {
        let nodes = leaves.start / FANOUT..leaves.end.div_ceil(FANOUT);
        let has_leaves =
            |node: &Node| node.leaves.read().unwrap_or_else(PoisonError::into_inner).is_some();
        let node_bytes = |node: u64| match self.node(node * FANOUT) {
            Some(node) if has_leaves(node) => 0,
            Some(_) => NODE_BYTES,
            None => NODE_BYTES + BRANCH_BYTES / FANOUT as usize,
        };
        nodes.map(node_bytes).sum::<usize>() + BRANCH_BYTES
    }

    /// Bytes of the tree, without leaves that are in memory as a whole.
    pub fn bytes(&self) -> usize {
        let (made, filled) = (&self.made, &self.filled);
        self.branches.len() * size_of::<Branch>()
            + made.load(Ordering::Relaxed) * BRANCH_BYTES
            + filled.load(Ordering::Relaxed) * NODE_BYTES
    }

    /// Leaves that were looked at in memory.
    pub fn hits(&self) -> u64 {
        let made = self.branches.iter().filter_map(|branch| branch.get());
        made.flatten().map(|node| node.hits.load(Ordering::Relaxed)).sum()
    }
}
