//! What is counted of programs' requests, for reports.

use siftfs_wire::{Place, ProgramStatistics, UNORDERED};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start.
#[derive(Default)]
pub(crate) struct Counts {
    queues: AtomicU64,
    requests: AtomicU64,
    groups: AtomicU64,
    waited: AtomicU64,
    further_lives: AtomicU64,
}

impl Counts {
    /// A grant has its first queue.
    pub fn opened(&self) {
        self.queues.fetch_add(1, Ordering::Relaxed);
    }

    /// A grant that had a queue has ended.
    pub fn closed(&self) {
        self.queues.fetch_sub(1, Ordering::Relaxed);
    }

    /// A request has come, and has a place; perhaps it waits.
    pub fn came(&self, place: Place, waits: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let begins = place.number == place.first && place.number != UNORDERED;
        self.groups.fetch_add(u64::from(begins), Ordering::Relaxed);
        self.waited.fetch_add(u64::from(waits), Ordering::Relaxed);
    }

    /// A queue has another life than its first one.
    pub fn further_life(&self) {
        self.further_lives.fetch_add(1, Ordering::Relaxed);
    }

    /// As a host shows it.
    pub fn statistics(&self) -> ProgramStatistics {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ProgramStatistics {
            queues: of(&self.queues),
            requests: of(&self.requests),
            groups: of(&self.groups),
            waited: of(&self.waited),
            further_lives: of(&self.further_lives),
        }
    }
}
