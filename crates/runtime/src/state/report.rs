//! What the status document says of the state: space, caches, and what waits.

use crate::state::Log;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use siftfs_ext4::Allocations;
use siftfs_status::{Allocation, Cache, Credits, Lane, LogSpace, Pending};

impl Metadata {
    /// Free space of journal and lanes, and blocks that wait to be free.
    pub fn credits(&self) -> Credits {
        Credits {
            journal_bytes: self
                .log
                .ledger
                .journal_len()
                .saturating_sub(self.log.ledger.journal_used()),
            staging_bytes: self.log.staging.lanes().iter().map(|l| l.len - l.used()).sum(),
            quarantined_blocks: self.tree.fs.quarantined_blocks().total(),
        }
    }

    /// What the next transaction is to take.
    pub fn pending(&self) -> Pending {
        Pending {
            name_operations: self.log.names.len() as u64,
            metadata_blocks: self.tree.meta.dirty_len() as u64,
            inodes: self.log.running.inodes_owed() as u64,
            reserved_blocks: self.log.running.data.reserved(),
            orphans: self.tree.inodes.orphans() as u64,
        }
    }
}

/// Where new blocks came from.
pub fn allocation(tree: &Tree) -> Allocation {
    let Allocations { runs, pooled_runs, searches, pools, pooled_blocks } = tree.fs.allocations();
    Allocation { runs, pooled_runs, searches, pools, pooled_blocks }
}

impl Log {
    /// The log: how much there is of it, and how much is in use.
    pub fn log_space(&self) -> LogSpace {
        let lanes = self.staging.lanes().iter();
        LogSpace {
            journal_bytes: self.ledger.journal_len(),
            journal_used: self.ledger.journal_used(),
            journal_data: self.ledger.journal_data().to_string(),
            lanes: lanes
                .map(|l| Lane { bytes: l.len, used: l.used(), head: l.head, tail: l.tail })
                .collect(),
            record_area: None,
        }
    }
}

impl State {
    /// What the caches hold.
    pub fn cache(&self) -> Cache {
        Cache {
            pages: self.pages.len() as u64,
            page_limit: self.pages.limit() as u64,
            metadata_blocks: self.metadata.tree.meta.len() as u64,
            inodes: self.metadata.tree.inodes.len() as u64,
            dirty_bytes: self.metadata.log.running.data.bytes(),
        }
    }
}
