//! What is counted of workers, for reports.

use siftfs_wire::WorkerStatistics;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start, of all workers.
#[derive(Default)]
pub(super) struct Counts {
    begun: AtomicU64,
    helped: AtomicU64,
    waited: AtomicU64,
    broken: AtomicU64,
}

impl Counts {
    /// A worker has begun an access.
    pub fn began(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// A helper was given a request.
    pub fn helped(&self) {
        self.helped.fetch_add(1, Ordering::Relaxed);
    }

    /// A request waits for its connection's turn, or for a free helper.
    pub fn waits(&self) {
        self.waited.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection has broken.
    pub fn broke(&self) {
        self.broken.fetch_add(1, Ordering::Relaxed);
    }

    /// As a host shows it; what there is now is for the caller to say.
    pub fn statistics(&self) -> WorkerStatistics {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        WorkerStatistics {
            begun: of(&self.begun),
            helped: of(&self.helped),
            waited: of(&self.waited),
            broken: of(&self.broken),
            ..WorkerStatistics::default()
        }
    }
}
