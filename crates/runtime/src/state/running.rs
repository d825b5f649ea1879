//! What the running transaction takes along.

use crate::state::generations::Generations;
use siftfs_base::{BlockRun, InodeNr, Lsn};
use std::collections::BTreeSet;

/// Whose unsynced data a transaction pushes besides what it must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// Data older than the commit interval.
    Aged,
    /// Data older than the commit interval, and this inode's data.
    Inode(InodeNr),
    /// Everything.
    All,
}

impl Push {
    /// Does a caller wait for this inode's data?
    pub fn asks_for(&self, ino: InodeNr) -> bool {
        match self {
            Self::Aged => false,
            Self::Inode(asked) => *asked == ino,
            Self::All => true,
        }
    }
}

/// Runs written ahead for the running transaction, which will list them.
#[derive(Default)]
pub struct Pushed {
    /// The runs, in the order in which they were handed over.
    pub runs: Vec<BlockRun>,
    /// Bytes of the runs.
    pub bytes: usize,
}

/// What the running transaction owes: changes that no transaction has journaled.
pub struct Running {
    /// Inodes with a permission change that is not durable (R17).
    pub perms: Generations<BTreeSet<InodeNr>>,
    /// The newest record that carries a permission change.
    pub perms_staged: Lsn,
    /// Inodes whose attributes the running transaction must write.
    pub inode_dirty: BTreeSet<InodeNr>,
    /// Inodes with overlay ranges that no transaction has journaled.
    pub overlay_dirty: BTreeSet<InodeNr>,
    /// Overlay entries made since the last cut: an upper bound of its tags.
    pub overlay_added: usize,
    /// Extent tree blocks that homes for them may change, an upper bound.
    pub overlay_blocks: usize,
    /// Staged bytes in them, an upper bound: what covers others counts as well as they.
    pub overlay_bytes: u64,
    /// Inodes with dirty bytes.
    pub data_dirty: BTreeSet<InodeNr>,
    /// Inodes with changes in `delta` (for the hand-over at a cut).
    pub delta_dirty: BTreeSet<InodeNr>,
    /// Renames over other files since the last cut, whose data that cut must take along.
    pub replacing: usize,
    /// Bytes of the pages that hold a dirty byte.
    pub dirty_bytes: u64,
    /// Blocks reserved for delayed allocation.
    pub reserved: u64,
    /// Inode numbers freed by the running transaction.
    pub freed_inodes: Vec<InodeNr>,
    /// When the oldest unjournaled change was made (monotonic nanoseconds).
    pub unjournaled_since: Option<u64>,
    /// What went to the area ahead of the running transaction.
    pub pushed: Pushed,
    /// The running transaction is being assembled: it will be cut.
    pub assembling: bool,
    /// Inodes with something in the transaction in flight.
    pub in_flight: Vec<InodeNr>,
    /// A commit and a checkpoint were made for this operation: a shortage is final now.
    pub space_tried: bool,
}
