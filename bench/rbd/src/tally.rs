//! What one job took and caused, a number for each round.

use siftfs_rig::figure::Spread;
use siftfs_rig::place::Result;
use siftfs_status::RegionCounts;
use std::path::Path;

/// Counts at one moment.
#[derive(Clone)]
pub struct Moment {
    storage: RegionCounts,
    osds: Option<u64>,
}

/// A job's numbers, one for each round. All counts are by operation.
#[derive(Default)]
pub struct Tally {
    /// The median time, in microseconds.
    pub p50: Vec<f64>,
    /// The mean time, in microseconds.
    pub mean: Vec<f64>,
    /// What 99 of 100 took at most, in microseconds.
    pub p99: Vec<f64>,
    /// Writes that a caller waited for, at the volume's device.
    pub waited: Vec<f64>,
    /// How often a caller waited for durability there: by a durable write, or by a flush.
    pub durable: Vec<f64>,
    /// KiB of these writes.
    pub kib: Vec<f64>,
    /// Writes of all of the volume's parts, the checkpoint behind the job included.
    pub all: Vec<f64>,
    /// Writes that the OSDs have carried out meanwhile; empty where they are not asked.
    pub osds: Vec<f64>,
}

impl Moment {
    /// What a volume has counted, and what the OSDs have whose sockets are in `osds`.
    ///
    /// # Errors
    /// An OSD does not answer.
    pub fn of(storage: RegionCounts, osds: Option<&Path>) -> Result<Self> {
        let osds = osds.map(siftfs_rbd_tests::osd_counts::writes).transpose()?;
        Ok(Self { storage, osds })
    }
}

impl Tally {
    /// Notes the times of a round, in microseconds.
    pub fn time(&mut self, mut all: Vec<f64>) {
        all.sort_by(f64::total_cmp);
        let at = |part: usize| all.get(all.len() * part / 100).copied().unwrap_or_default();
        self.p50.push(at(50));
        self.mean.push(all.iter().sum::<f64>() / all.len().max(1) as f64);
        self.p99.push(at(99));
    }

    /// Notes what `operations` of a round have caused.
    pub fn count(&mut self, operations: u64, before: &Moment, after: &Moment) {
        let each = |number: u64| number as f64 / operations.max(1) as f64;
        let waited = after.storage.since(&before.storage).sum(|o| o.foreground);
        self.waited.push(each(waited.writes));
        self.durable.push(each(waited.flushes));
        self.kib.push(each(waited.write_bytes) / 1024.0);
        if let (Some(before), Some(after)) = (before.osds, after.osds) {
            self.osds.push(each(after.saturating_sub(before)));
        }
    }

    /// Notes what was written in all, when a checkpoint has ended.
    pub fn end(&mut self, operations: u64, before: &Moment, after: &RegionCounts) {
        let all = after.since(&before.storage).total();
        self.all.push(all.writes as f64 / operations.max(1) as f64);
    }

    /// For people: what lies beside the times.
    pub fn note(&self) -> String {
        let [mean, p99, waited, kib, all, osds] =
            [&self.mean, &self.p99, &self.waited, &self.kib, &self.all, &self.osds]
                .map(|numbers| Spread::of(numbers).median);
        let mut note = format!("mean {mean:.0} us, p99 {p99:.0} us");
        if !self.waited.is_empty() {
            note += &format!("; waited for {waited:.2} writes of {kib:.1} KiB in all");
        }
        if !self.osds.is_empty() {
            note += &format!("; at the OSDs {osds:.2}");
        }
        if !self.all.is_empty() {
            note += &format!("; with its checkpoint {all:.2} writes");
        }
        note
    }
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
