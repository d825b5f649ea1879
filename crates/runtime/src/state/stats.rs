//! Counts of the Runtime that claims rest on, for the status report.

use crate::state::log::names::Unstageable;
use crate::state::log::staging::Elsewhere;
use crate::state::step::Need;
use siftfs_log::Transaction;
use siftfs_log::{Item, RecordLayout};
use siftfs_status::{Dispatch, Distribution, Kept, Pages, RuntimeCounts};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counters kept under the state lock.
#[derive(Clone, Debug, Default)]
pub struct RuntimeStats(RuntimeCounts);

impl RuntimeStats {
    /// The counts so far.
    pub(crate) fn counts(&self) -> RuntimeCounts {
        self.0.clone()
    }

    pub(crate) fn staged(&mut self, layout: &RecordLayout, items: &[Item]) {
        self.0.staged_transactions += 1;
        self.0.staged_bytes += u64::from(layout.len);
        self.0.staged_data_bytes += u64::from(layout.data_len);
        self.0.staged_items += items.len() as u64;
    }

    /// An fsync's record that may go to the record area: its bytes, and those of their pages.
    pub(crate) fn considered(&mut self, bytes: u64, pages: u64) {
        self.0.dispatch.all.add(bytes, pages);
    }

    /// What is dirty in it, which the caller counts.
    pub(crate) fn tracked(&mut self, count: impl FnOnce(&mut Pages, &mut Kept)) {
        let Dispatch { pages, kept, .. } = &mut self.0.dispatch;
        count(pages, kept);
    }

    /// It goes there, with this many bytes in all, and with this many physical ranges.
    pub(crate) fn compact(&mut self, bytes: u64, pages: u64, record: u32, physical: usize) {
        self.0.dispatch.physical += physical as u64;
        self.0.dispatch.record_area.add(bytes, pages);
        self.0.dispatch.record_bytes += u64::from(record);
    }

    /// It goes to block storage.
    pub(crate) fn elsewhere(&mut self, reason: Elsewhere) {
        *self.0.dispatch.elsewhere.entry(reason.text().into()).or_default() += 1;
    }

    pub(crate) fn full_commit(&mut self, reason: Unstageable) {
        *self.0.full_commits.entry(format!("{reason:?}")).or_default() += 1;
    }

    pub(crate) fn stalled(&mut self, need: Need) {
        *self.0.stalls.entry(need.text().into()).or_default() += 1;
    }

    pub(crate) fn cut(&mut self, txn: &Transaction, direct_bytes: u64) {
        self.0.transactions += 1;
        self.0.copy_tags += txn.copies.len() as u64;
        self.0.zero_tags += txn.zeros.len() as u64;
        self.0.images += txn.images.len() as u64;
        self.0.direct_bytes += direct_bytes;
        self.0.dropped_blocks += txn.drops.iter().map(|r| r.len).sum::<u64>();
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
