//! What was given to the host, and how much of it an fsync has covered.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what was given, and what of that was made durable. A mark that is taken when an fsync
/// begins would not do: a second sync that comes before the first has ended would find none, and be
/// answered before anything is durable.
#[derive(Default)]
pub(crate) struct Given {
    noted: AtomicU64,
    synced: AtomicU64,
}

impl Given {
    /// Something was given, and nobody was told so yet.
    pub fn note(&self) {
        self.noted.fetch_add(1, Ordering::AcqRel);
    }

    /// What an fsync covers that begins behind this.
    pub fn now(&self) -> u64 {
        self.noted.load(Ordering::Acquire)
    }

    /// An fsync has ended that covers so much.
    pub fn synced(&self, given: u64) {
        self.synced.fetch_max(given, Ordering::AcqRel);
    }

    /// Is all of it durable?
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire) >= self.now()
    }
}

#[cfg(test)]
#[path = "given_tests.rs"]
mod tests;
