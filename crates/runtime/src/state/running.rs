//! What the running transaction takes along, and what recovery's transactions say.

use siftfs_base::{BlockRun, InodeNr, Lsn, Timestamp};

/// Whose unsynced data a transaction pushes besides what it must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// Data older than the commit interval.
    Aged,
    /// This inode's data too.
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
    /// In the order of their hand-over.
    pub runs: Vec<BlockRun>,
    /// Their bytes.
    pub bytes: usize,
}

/// What transactions cut by recovery say, instead of the live numbers.
#[derive(Clone, Debug)]
pub struct RecoveryCut {
    /// Operations up to here were in the base before recovery began.
    pub ops_cut: Lsn,
    /// Staged transactions up to here are applied.
    pub staged_cut: Lsn,
    /// Lane positions up to which records are applied.
    pub lane_upto: Vec<u64>,
}

/// A file that a name operation made, and what its directory was like before.
pub struct Made {
    /// The operation.
    pub op: Lsn,
    /// When.
    pub at: Timestamp,
    /// Directory, name and inode.
    pub bound: (InodeNr, Vec<u8>, InodeNr),
    /// The directory's mtime and ctime before.
    pub times: (Timestamp, Timestamp),
}
