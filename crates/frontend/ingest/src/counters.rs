//! What is told of the back end.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The steps, as they are counted.
const STEPS: usize = 5;

/// A step, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Fetch,
    Locate,
    Merge,
    Copy,
    Patch,
    /// An ingestion, from its begin to its end.
    All,
}

/// Numbers for the status document, since the mount was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that were fetched.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Writes that became of them.
    pub pieces: u64,
    /// Bytes of these.
    pub patched: u64,
    /// Blocks of which the index cache knew.
    pub hits: u64,
    /// Blocks for which the index was asked.
    pub misses: u64,
    /// Blocks that were read in before a write needed them.
    pub brought: u64,
    /// Batches.
    pub batches: u64,
    /// Ingestions that had more than one thread.
    pub pipelined: u64,
    /// Nanoseconds of fetch, locate, merge, copy and patch.
    pub steps_ns: [u64; STEPS],
    /// Nanoseconds of whole ingestions. The steps of one may go on beside each other.
    pub all_ns: u64,
}

/// The same, being counted.
#[derive(Debug, Default)]
pub struct Counters {
    records: AtomicU64,
    bytes: AtomicU64,
    pieces: AtomicU64,
    patched: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    brought: AtomicU64,
    batches: AtomicU64,
    pipelined: AtomicU64,
    steps_ns: [AtomicU64; STEPS],
    all_ns: AtomicU64,
}

/// A step that goes on. What it took is counted when this is dropped.
pub(crate) struct Timed<'a>(&'a AtomicU64, Instant);

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let ns = u64::try_from(self.1.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(ns, Relaxed);
    }
}

impl Counters {
    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        Counts {
            records: of(&self.records),
            bytes: of(&self.bytes),
            pieces: of(&self.pieces),
            patched: of(&self.patched),
            hits: of(&self.hits),
            misses: of(&self.misses),
            brought: of(&self.brought),
            batches: of(&self.batches),
            pipelined: of(&self.pipelined),
            steps_ns: self.steps_ns.each_ref().map(of),
            all_ns: of(&self.all_ns),
        }
    }

    pub(crate) fn time(&self, step: Step) -> Timed<'_> {
        let [fetch, locate, merge, copy, patch] = &self.steps_ns;
        let counter = match step {
            Step::Fetch => fetch,
            Step::Locate => locate,
            Step::Merge => merge,
            Step::Copy => copy,
            Step::Patch => patch,
            Step::All => &self.all_ns,
        };
        Timed(counter, Instant::now())
    }

    pub(crate) fn fetched(&self, records: u64, bytes: u64) {
        self.batches.fetch_add(1, Relaxed);
        self.records.fetch_add(records, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn looked_up(&self, hit: bool) {
        let counter = if hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn brought(&self, blocks: u64) {
        self.brought.fetch_add(blocks, Relaxed);
    }

    pub(crate) fn patched(&self, bytes: u64) {
        self.pieces.fetch_add(1, Relaxed);
        self.patched.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn pipelined(&self) {
        self.pipelined.fetch_add(1, Relaxed);
    }
}
