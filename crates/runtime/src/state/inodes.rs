//! Which inodes are in memory, and why.

use crate::state::nodes::Nodes;
use ahash::HashMap;
use siftfs_base::{InodeNr, Lsn};
use std::collections::{BTreeSet, VecDeque};

/// An open file or directory.
#[derive(Clone, Copy)]
pub struct OpenFile {
    /// Inode.
    pub ino: InodeNr,
}

/// The inodes in memory, the references to them, and the inodes that are about to be freed.
pub struct Inodes {
    /// Inodes in memory.
    pub nodes: Nodes,
    /// Last number given to a node's `map_version`.
    pub versions: u64,
    /// References that the Frontend's lookups hold, by inode.
    pub lookups: HashMap<InodeNr, u64>,
    /// Open handles.
    pub handles: HashMap<u64, OpenFile>,
    /// Next handle number.
    pub next_handle: u64,
    /// Unlinked inodes not freed yet: those on the on-disk orphan list.
    pub orphans: BTreeSet<InodeNr>,
    /// Unlinked, unreferenced inodes whose blocks are still to be freed.
    pub evict_queue: VecDeque<InodeNr>,
    /// Inodes whose extent tree has blocks and was changed: packed again at unmount, so that e2fsck
    /// has nothing to optimise.
    pub untidy: BTreeSet<InodeNr>,
    /// Newest staged transaction of any inode evicted from memory.
    pub evicted_staged: Lsn,
}
