//! What is told of the sessions.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers for the status document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that there are.
    pub sessions: u64,
    /// Sessions with a log of their own: programs make durable themselves what they wrote.
    pub file_logs: u64,
    /// Leases that last.
    pub leases: u64,
    /// What was taken in, and how.
    pub ingested: siftfs_ingest::Counts,
    /// Leases that last, of files of which blocks were granted, to be read and written at the
    /// target.
    pub direct: u64,
    /// Grants of blocks that there were.
    pub grants: u64,
    /// Connections, tokens and leases that were refused.
    pub refused: u64,
    /// Sessions that were ended because they broke a rule.
    pub ended: u64,
    /// Leases that ended before all that was published of their files was taken in.
    pub lost: u64,
}

/// A session, for the status document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program's process.
    pub process: u32,
    /// What makes durable what it wrote: `daemon`, or what its log lies in.
    pub medium: &'static str,
    /// How that is done, and whether it outlives a power cut, for people.
    pub promise: String,
    /// Leases that it has.
    pub leases: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub file_logs: AtomicU64,
    pub leases: AtomicU64,
    pub ingested: siftfs_ingest::Counters,
    pub direct: AtomicU64,
    pub grants: AtomicU64,
    pub refused: AtomicU64,
    pub ended: AtomicU64,
    pub lost: AtomicU64,
}

impl Counters {
    pub fn counts(&self, sessions: usize) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            sessions: sessions as u64,
            file_logs: of(&self.file_logs),
            leases: of(&self.leases),
            ingested: self.ingested.counts(),
            direct: of(&self.direct),
            grants: of(&self.grants),
            refused: of(&self.refused),
            ended: of(&self.ended),
            lost: of(&self.lost),
        }
    }

    pub fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}
