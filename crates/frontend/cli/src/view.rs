//! The status document as the commands that show it read it. Fields that a daemon of another
//! version does not send are zero.

use serde::Deserialize;
use std::collections::BTreeMap;

/// All of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    pub pid: u64,
    pub version: String,
    pub volume: String,
    pub log: Option<String>,
    pub dir: String,
    pub options: String,
    pub uptime_s: f64,
    /// When the daemon answered, in seconds since 1970.
    pub time_s: f64,
    /// Requests of the kernel by name.
    pub requests: BTreeMap<String, u64>,
    pub request_loop: RequestLoop,
    pub runtime: Runtime,
}

/// How the kernel's requests come.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RequestLoop {
    pub kind: String,
    pub why: String,
    pub queues: u64,
    pub threads: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Runtime {
    pub failed: Option<String>,
    pub lsn: u64,
    pub durable_lsn: u64,
    pub transaction: u64,
    pub reclaimed_transaction: u64,
    pub unreclaimed_transactions: u64,
    pub runtime: RuntimeCounts,
    pub service: ServiceCounts,
    pub link: Link,
    pub storage: BTreeMap<String, BTreeMap<String, Io>>,
    pub fsync_latency: Latency,
    pub commit_latency: Latency,
    pub assembly_lock_hold: Latency,
    pub emergency_checkpoint_latency: Latency,
    pub credit_wait: Latency,
    pub bulk_wait: Latency,
    pub devices: Vec<Storage>,
    pub group: Group,
    pub queues: Queues,
    pub credits: Credits,
    pub log: Log,
    pub cache: Cache,
    /// Bytes by structure; empty from a daemon that does not say.
    #[serde(default)]
    pub memory: std::collections::BTreeMap<String, u64>,
    pub pending: Pending,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RuntimeCounts {
    pub staged_transactions: u64,
    pub staged_bytes: u64,
    pub staged_data_bytes: u64,
    pub full_commits: BTreeMap<String, u64>,
    pub stalls: BTreeMap<String, u64>,
    pub transactions: u64,
    pub direct_bytes: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceCounts {
    pub journaled_transactions: u64,
    pub journaled_bytes: u64,
    pub checkpoints_background: u64,
    pub checkpoints_emergency: u64,
    pub checkpoint_last_s: f64,
    pub checkpoint_total: Checkpoint,
    pub checkpoint_last: Checkpoint,
    pub device: Option<Device>,
}

/// Of one checkpoint, or summed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Checkpoint {
    pub trigger: Option<String>,
    pub batch: u64,
    pub coalesced_batches: u64,
    pub light_batches: u64,
    pub raw_tags: u64,
    pub surviving_tags: u64,
    pub raw_blocks: u64,
    pub surviving_blocks: u64,
    pub raw_images: u64,
    pub surviving_images: u64,
    pub raw_inodes: u64,
    pub surviving_inodes: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub flushes: u64,
    pub windows: u64,
    pub journal_credits: u64,
    pub staging_credits: u64,
    pub index_nanos: u64,
    pub read_nanos: u64,
    pub write_nanos: u64,
    pub flush_nanos: u64,
    pub nanos: u64,
}

impl Checkpoint {
    /// How the checkpoint replayed: `ordered` builds no batches, `auto` chooses for each of them.
    pub fn mode(&self) -> &'static str {
        match (self.coalesced_batches > 0, self.light_batches > 0) {
            (false, false) => "ordered",
            (true, false) => "coalesce",
            (false, true) => "light",
            (true, true) => "coalesce and light",
        }
    }
}

/// The process that does the background work, if it is another one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Device {
    pub pid: u64,
    pub cpu_us: u64,
    pub messages: u64,
    pub refusals: u64,
    pub hosts: u64,
    pub hints: u64,
    /// Regions, in each the origins.
    pub io: BTreeMap<String, BTreeMap<String, Io>>,
}

/// What the volume lies on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Storage {
    pub path: String,
    pub kind: String,
    pub volatile_cache: Option<bool>,
    pub fua: Option<bool>,
    pub direct: bool,
    pub uring: bool,
    pub durable_write: String,
    pub why: String,
}

/// How fsyncs that come together are made durable.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Group {
    pub by: String,
    pub way: String,
    pub measured: Vec<Crowd>,
}

/// What was measured with so many callers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Crowd {
    pub callers: String,
    pub way: String,
    pub shared_ns: Option<u64>,
    pub parallel_ns: Option<u64>,
}

/// The way to the Service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Link {
    pub placement: String,
    pub host_cpu_us: u64,
    pub address: String,
    pub peer: String,
    pub connected: bool,
    pub fallback: bool,
    pub away_s: Option<f64>,
    pub trouble: Option<String>,
    pub greetings: u64,
    pub losses: u64,
    pub takeovers: u64,
    pub refusals: u64,
    pub objections: u64,
    pub waited_s: f64,
    pub hints: u64,
    pub messages: u64,
    pub unanswered: u64,
}

impl Link {
    /// Is the Service meant to be in another process?
    pub fn is_remote(&self) -> bool {
        self.placement == "device"
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Io {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub flushes: u64,
    pub errors: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Latency {
    pub count: u64,
    pub sum_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// Upper bound in nanoseconds, samples up to it.
    pub buckets: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Queues {
    pub records_in_flight: u64,
    pub fsyncs_waiting: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Credits {
    pub journal_bytes: u64,
    pub staging_bytes: u64,
    pub quarantined_blocks: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Log {
    pub journal_bytes: u64,
    pub journal_used: u64,
    /// `ref` or `copy`.
    pub journal_data: String,
    pub lanes: Vec<Lane>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lane {
    pub bytes: u64,
    pub used: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cache {
    pub pages: u64,
    pub page_limit: u64,
    pub metadata_blocks: u64,
    pub inodes: u64,
    pub dirty_bytes: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pending {
    pub name_operations: u64,
    pub metadata_blocks: u64,
    pub inodes: u64,
    pub reserved_blocks: u64,
    pub orphans: u64,
}

impl Runtime {
    /// Bytes used and bytes of all lanes.
    pub fn staging(&self) -> (u64, u64) {
        let sum = |of: fn(&Lane) -> u64| self.log.lanes.iter().map(of).fold(0, u64::saturating_add);
        (sum(|l| l.used), sum(|l| l.bytes))
    }

    /// I/O of one origin in all regions.
    pub fn io(&self, origin: &str) -> Io {
        let mut all = Io::default();
        for io in self.storage.values().filter_map(|origins| origins.get(origin)) {
            all.reads = all.reads.saturating_add(io.reads);
            all.read_bytes = all.read_bytes.saturating_add(io.read_bytes);
            all.writes = all.writes.saturating_add(io.writes);
            all.write_bytes = all.write_bytes.saturating_add(io.write_bytes);
            all.flushes = all.flushes.saturating_add(io.flushes);
            all.errors = all.errors.saturating_add(io.errors);
        }
        all
    }
}

impl Latency {
    /// The latency that a share `q` (0 to 1) of the samples since `before` did not exceed, in
    /// nanoseconds, as exactly as the buckets have it; `None` without samples.
    pub fn quantile_since(&self, before: &Latency, q: f64) -> Option<f64> {
        let new = self.count.saturating_sub(before.count);
        let rank = (new as f64 * q).max(1.0);
        if new == 0 {
            return None;
        }
        let (mut last_bound, mut last_count) = (0.0, 0.0);
        for (i, (bound, count)) in self.buckets.iter().enumerate() {
            let earlier = before.buckets.get(i).map_or(0, |b| b.1);
            let count = count.saturating_sub(earlier) as f64;
            if count >= rank && count > last_count {
                let part = ((rank - last_count) / (count - last_count)).clamp(0.0, 1.0);
                return Some(last_bound + (*bound as f64 - last_bound) * part);
            }
            (last_bound, last_count) = (*bound as f64, count);
        }
        Some(self.max_ns as f64)
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
