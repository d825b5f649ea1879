//! Where the memory of a Runtime is: bytes per structure, as far as they can be counted, for the status
//! report; and giving memory back that nobody uses any more.

use crate::heap;
use crate::runtime::{Runtime, relock};
use crate::state::State;
use siftfs_base::BLOCK_BYTES;
use std::collections::BTreeSet;

/// Time between two looks at the heap, in nanoseconds.
const PACE: u64 = 2_000_000_000;

/// Free bytes of the heap that it keeps for the next burst.
const KEPT: u64 = 16 << 20;

/// What an entry of a tree or of a hash table costs beside its own bytes, about.
const ENTRY: u64 = 24;

/// Most rounds of eviction in one tick.
const ROUNDS: usize = 64;

/// When the heap was looked at last.
#[derive(Default)]
pub struct Trimmed {
    /// By the monotonic clock, in nanoseconds.
    at: u64,
    /// Free bytes when it was trimmed last, or the fewest since.
    free: u64,
}

impl Runtime {
    /// Brings the caches back within their bounds where no operation comes by any more, and gives freed
    /// memory back to the kernel. Part of the background work.
    pub(crate) fn give_back_memory(&self) {
        for _ in 0..ROUNDS {
            let mut st = self.lock();
            let before = (st.nodes.len(), st.pages.len(), st.meta.len());
            st.shrink_caches(self.seq.oldest_unwritten());
            if before == (st.nodes.len(), st.pages.len(), st.meta.len()) {
                break;
            }
        }
        let now = self.clock.mono_ns();
        let mut last = relock(self.trimmed.lock());
        if now.saturating_sub(last.at) < PACE {
            return;
        }
        let (used, free) = heap::usage();
        // What was given back still counts as free: only more of it is worth another walk.
        let wanted = free > KEPT.max(used / 4) && free > last.free + KEPT / 4;
        if wanted {
            heap::trim();
        }
        *last = Trimmed { at: now, free: if wanted { free } else { free.min(last.free) } };
    }

    /// Bytes by structure.
    pub(crate) fn memory_report(&self, st: &State) -> serde_json::Value {
        let (heap_used, heap_free) = heap::usage();
        serde_json::json!({
            "resident": resident(),
            "heap_used": heap_used,
            "heap_free": heap_free,
            "pages": st.pages.bytes(),
            "metadata": st.meta.bytes(),
            "inodes": st.nodes.bytes(),
            "lookups": (st.lookups.capacity() * size_of::<(u32, u64)>()) as u64,
            "handles": (st.handles.capacity() * size_of::<(u64, u64)>()) as u64,
            "names": st.names.bytes(),
            "unsynced": st.unsynced_bytes(),
            "quarantine": st.quarantine_bytes(),
            "buffers": self.record_buffers.bytes() + self.fill_buffers.bytes(),
        })
    }
}

impl State {
    /// What inodes keep of ranges that are not in the area: dirty, staged, journaled.
    fn unsynced_bytes(&self) -> u64 {
        let mut inodes: BTreeSet<_> = self.data_dirty.iter().chain(&self.overlay_dirty).collect();
        inodes.extend(self.txns.values().flat_map(|info| &info.overlays));
        let entries = inodes.into_iter().filter_map(|ino| self.nodes.get(ino)).map(|node| {
            let ranges = node.dirty.ranges() + node.pushing.ranges() + node.sent.ranges();
            node.overlay.bytes() + ranges as u64 * (ENTRY + 16) + node.sizes.bytes()
        });
        entries.sum()
    }

    /// What was freed and must wait, and what transactions that are not reclaimed remember.
    fn quarantine_bytes(&self) -> u64 {
        let held = self.fs.quarantined_blocks().ranges() as u64 * (ENTRY + 16);
        let remembered = self.txns.values().map(|info| {
            (info.images.capacity() * 8 + info.overlays.capacity() * 4) as u64
                + (info.freed.capacity() * 16 + info.freed_inodes.capacity() * 4) as u64
        });
        held + remembered.sum::<u64>()
    }
}

/// Resident bytes of the process; 0 where the kernel does not say.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * BLOCK_BYTES
}
