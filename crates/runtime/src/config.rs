//! Settings of a Runtime.

use crate::state::discards::DiscardConfig;
use std::time::Duration;

/// Settings of a Runtime.
#[derive(Clone, Debug)]
pub struct Config {
    /// Age after which unsynced state is journaled.
    pub commit_age: Duration,
    /// Page cache bound in bytes.
    pub page_cache: u64,
    /// Clean metadata cache bound in bytes.
    pub meta_cache: u64,
    /// Inodes kept in memory beyond those with something that the area does not have. References
    /// that a kernel holds keep none: its number is all that is needed to read an inode again.
    pub max_nodes: usize,
    /// Bound of the adaptive group-commit wait.
    pub group_wait: Duration,
    /// How the records of callers that sync at the same time are made durable.
    pub group: crate::staging::ways::Group,
    /// How long an operation that finds no space waits until references to removed files have been
    /// given back. The kernel sends RELEASE after close(2) has returned, and FORGET after unlink(2)
    /// has, beside the requests that follow.
    pub late_forgets: Duration,
    /// How long a write lease lasts without a use, and once it is recalled.
    pub lease_term: Duration,
    /// Extents of a file that one transaction frees at most. A truncation of more waits for the
    /// next one, as it does for room in the journal.
    pub most_freed: usize,
    /// Free share of staging or journal in percent below which a checkpoint starts.
    pub low_watermark: u64,
    /// Whether freed blocks go back to the storage.
    pub discard: DiscardConfig,
    /// What the record area takes, where there is one.
    pub record_area: Compact,
    /// Where files that private logs were taken in for get new blocks from.
    pub pools: Pools,
    /// Key of this epoch's records.
    pub key: siftfs_log::EpochKey,
    /// Keep no access times.
    pub noatime: bool,
    /// Refuse changes.
    pub read_only: bool,
}

/// Where files that private logs were taken in for get new blocks from. All other files get theirs
/// by a search of the block bitmaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pools {
    /// As all other files.
    #[default]
    None,
    /// From one pool of free blocks for all sessions.
    Shared,
    /// From a pool of free blocks for each session, disjoint from those of others.
    PerSession,
}

/// Which fsyncs go to the record area (CoinPurse, "Write Dispatch Policy").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compact {
    /// Bytes of file data at most; 0: nothing goes there.
    pub most: u64,
    /// ... and this share of the pages that they lie in, in percent.
    pub percent: u8,
    /// Ranges whose blocks are mapped name them, and need no tag (rule R42).
    pub physical: bool,
}

impl Default for Compact {
    /// The paper's size, and no limit of the share (`docs/design/record-area.md`).
    fn default() -> Self {
        Self { most: 12 << 10, percent: 100, physical: true }
    }
}
