//! Where the memory of a Runtime is: bytes per structure, as far as they can be counted, for the
//! status report.

use crate::state::Metadata;
use crate::state::costs::RANGE;
use crate::state::{State, heap};
use siftfs_base::{BLOCK_BYTES, RangeSet};
use siftfs_status::Memory;
use std::collections::BTreeSet;

impl State {
    /// Bytes by structure; `buffers` are the Runtime's.
    pub fn memory_report(&self, buffers: u64) -> Memory {
        let (heap_used, heap_free) = heap::usage();
        let (lookups, handles) = self.metadata.tree.inodes.references.bytes();
        Memory {
            resident: resident(),
            heap_used,
            heap_free,
            pages: self.pages.bytes(),
            metadata: self.metadata.tree.meta.bytes(),
            inodes: self.metadata.tree.inodes.node_bytes(),
            lookups,
            handles,
            names: self.metadata.log.names.bytes(),
            unsynced: self.metadata.unsynced_bytes() + self.sections.bytes(),
            quarantine: self.quarantine_bytes(),
            buffers,
        }
    }

    /// What was freed and must wait, and what transactions that are not reclaimed remember.
    fn quarantine_bytes(&self) -> u64 {
        let held = self.metadata.tree.fs.quarantined_blocks().ranges() + self.discards.ranges();
        let held = held as u64 * RANGE;
        held + self.metadata.log.ledger.bytes()
    }
}

impl Metadata {
    /// What inodes keep of ranges that are not in the area: dirty, staged, journaled.
    fn unsynced_bytes(&self) -> u64 {
        let mut inodes: BTreeSet<_> =
            self.log.running.data.inodes().chain(self.log.running.overlay.inodes()).collect();
        inodes.extend(self.log.ledger.overlays());
        let entries = inodes.iter().filter_map(|ino| self.tree.inodes.get(ino)).map(|node| {
            let ranges =
                node.data.each().map(RangeSet::ranges).iter().sum::<usize>() + node.sent.ranges();
            node.overlay.bytes() + ranges as u64 * RANGE + node.sizes.bytes()
        });
        entries.sum()
    }
}

/// Resident bytes of the process; 0 where the kernel does not say.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * BLOCK_BYTES
}
