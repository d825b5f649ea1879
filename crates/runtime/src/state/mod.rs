//! Everything under the Runtime's state lock, and the bookkeeping all operations share.

pub mod buffers;
pub mod caches;
pub mod changes;
pub mod costs;
pub mod discards;
pub mod fills;
pub mod heap;
pub mod leases;
pub mod log;
pub mod memory;
pub mod metadata;
pub mod report;
pub mod room;
pub mod sections;
pub mod shadow;
pub mod sharing;
pub mod stats;
pub mod step;
pub mod tree;
pub mod unsynced;

pub use self::log::{Ledger, Log, Recovery, Running, Staging, Time, TxnInfo};
pub use self::metadata::Metadata;
pub use self::tree::{Inodes, Tree};
use crate::state::caches::page_cache::PageCache;
use crate::state::discards::Discards;
use crate::state::sections::Sections;
use crate::state::tree::node::Node;
use siftfs_base::Lsn;
use siftfs_device::{AreaReader, JournalReader, StagingReader};

/// Where the Runtime reads outside its caches.
pub struct Readers {
    /// The file-system area.
    pub area: AreaReader,
    /// The journal ring.
    pub journal: JournalReader,
    /// The lanes.
    pub lanes: Vec<StagingReader>,
}

/// Everything under the Runtime's state lock. A method belongs to the narrowest part that it needs,
/// so that the receiver says what may change: [`Tree`], [`Log`], [`Metadata`], or all of this.
pub struct State {
    /// Names, attributes and mappings.
    pub metadata: Metadata,
    /// Data pages.
    pub pages: PageCache,
    /// Fills of the page cache under way.
    pub fills: fills::Fills,
    /// Counters the status report shows.
    pub stats: crate::state::stats::RuntimeStats,
    /// Freed blocks whose space goes back to the storage.
    pub discards: Discards,
    /// The sessions that cache.
    pub sharing: sharing::Sharing,
    /// The files that a session holds alone.
    pub leases: leases::Leases,
    /// Atomic sections, with the bytes that are no file's yet.
    pub sections: Sections,
}

impl State {
    /// Keeps caches within their bounds. Staged transactions from `unwritten` on cannot be read
    /// from their lanes yet.
    pub fn shrink_caches(&mut self, unwritten: Lsn) {
        let nodes = &self.metadata.tree.inodes;
        self.pages.shrink(|ino, index| {
            let busy = |n: &Node| n.page_busy(index) || n.page_on_its_way(index, unwritten);
            nodes.get(&ino).is_some_and(busy)
        });
        self.metadata.tree.meta.shrink();
        let Self { metadata: Metadata { tree, log }, pages, .. } = self;
        let busy = |ino| log.running.owes_inode(ino);
        tree.inodes.shrink(log.config.max_nodes, busy, |ino| pages.remove_range(ino, 0, u64::MAX));
    }
}
