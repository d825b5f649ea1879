//! Counts of the Runtime that claims rest on, for the status report.

use crate::state::names::Unstageable;
use crate::state::step::Need;
use siftfs_log::Transaction;
use siftfs_log::{Item, RecordLayout};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counters kept under the state lock.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct RuntimeStats {
    /// Staged transactions.
    pub staged_transactions: u64,
    /// Bytes of staged transactions, headers and padding included.
    pub staged_bytes: u64,
    /// Data bytes of staged transactions.
    pub staged_data_bytes: u64,
    /// Items of staged transactions.
    pub staged_items: u64,
    /// Full commits forced by fsync, by reason.
    pub full_commits: BTreeMap<String, u64>,
    /// Waits for background progress, by reason.
    pub stalls: BTreeMap<&'static str, u64>,
    /// Background journal transactions cut.
    pub transactions: u64,
    /// Copy tags in them.
    pub copy_tags: u64,
    /// Zero tags in them.
    pub zero_tags: u64,
    /// Metadata images in them.
    pub images: u64,
    /// Bytes sent straight to the area.
    pub direct_bytes: u64,
    /// Blocks freed.
    pub dropped_blocks: u64,
}

impl RuntimeStats {
    pub(crate) fn staged(&mut self, layout: &RecordLayout, items: &[Item]) {
        self.staged_transactions += 1;
        self.staged_bytes += u64::from(layout.len);
        self.staged_data_bytes += u64::from(layout.data_len);
        self.staged_items += items.len() as u64;
    }

    pub(crate) fn full_commit(&mut self, reason: Unstageable) {
        *self.full_commits.entry(format!("{reason:?}")).or_default() += 1;
    }

    pub(crate) fn stalled(&mut self, need: Need) {
        *self.stalls.entry(need.text()).or_default() += 1;
    }

    pub(crate) fn cut(&mut self, txn: &Transaction, direct_bytes: u64) {
        self.transactions += 1;
        self.copy_tags += txn.copies.len() as u64;
        self.zero_tags += txn.zeros.len() as u64;
        self.images += txn.images.len() as u64;
        self.direct_bytes += direct_bytes;
        self.dropped_blocks += txn.drops.iter().map(|r| r.len).sum::<u64>();
    }
}

/// Latency histograms, in nanoseconds.
#[derive(Default)]
pub struct Latencies {
    /// fsync and fdatasync, from call to answer.
    pub(crate) fsync: Latency,
    /// Background journal transactions, from the beginning of assembly to durable commit.
    pub(crate) commit: Latency,
    /// How long one step of assembly, or the cut, held the state lock.
    pub(crate) hold: Latency,
    /// Emergency checkpoints whose end a thread waited for.
    pub(crate) checkpoint: Latency,
    /// Small fsyncs' waits until the log, or the running transaction, had room again.
    pub(crate) credit_wait: Latency,
    /// Bulk fsyncs' waits for that room; they leave the last of a lane to the small ones.
    pub(crate) bulk_wait: Latency,
}

/// A histogram of latencies.
pub struct Latency(Mutex<Samples>);

struct Samples {
    histogram: hdrhistogram::Histogram<u64>,
    sum_ns: u64,
}

/// Upper bounds of the buckets that a status report counts, in units of each decade from a
/// microsecond to a second; ten seconds are the last.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];

fn bounds() -> impl Iterator<Item = u64> {
    let decades = (2..9).map(|e| 10u64.pow(e));
    decades.flat_map(|d| STEPS.map(|s| s * d)).chain([10_000_000_000])
}

impl Default for Latency {
    fn default() -> Self {
        let minutes = 600_000_000_000;
        let new = hdrhistogram::Histogram::new_with_bounds(1, minutes, 3);
        let histogram = new.expect("these bounds are valid");
        Self(Mutex::new(Samples { histogram, sum_ns: 0 }))
    }
}

/// A latency distribution in nanoseconds.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Distribution {
    /// Samples.
    pub count: u64,
    /// Sum of the samples.
    pub sum_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.99th percentile.
    pub p9999_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// Upper bound in nanoseconds, and how many samples do not exceed it. The bounds are always the
    /// same.
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    fn lock(&self) -> MutexGuard<'_, Samples> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one sample of `ns` nanoseconds.
    pub(crate) fn record(&self, ns: u64) {
        let mut samples = self.lock();
        samples.histogram.saturating_record(ns);
        samples.sum_ns = samples.sum_ns.saturating_add(ns);
    }

    /// The distribution so far.
    pub fn distribution(&self) -> Distribution {
        let samples = self.lock();
        let h = &samples.histogram;
        let (mut below, mut count) = (0, 0);
        let buckets = bounds().map(|bound| {
            count += h.count_between(below, bound);
            below = h.next_non_equivalent(bound);
            (bound, count)
        });
        Distribution {
            buckets: buckets.collect(),
            count: h.len(),
            sum_ns: samples.sum_ns,
            p50_ns: h.value_at_quantile(0.5),
            p99_ns: h.value_at_quantile(0.99),
            p9999_ns: h.value_at_quantile(0.9999),
            max_ns: h.max(),
        }
    }
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
