//! What the Service says of itself, in its own process or in another one.

use crate::RegionCounts;
use serde::{Deserialize, Deserializer, Serialize};

/// How urgent a checkpoint is; each kind has its own gate (SIFT §4.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Urgency {
    /// Low watermark: reclaim in the background.
    Background,
    /// A foreground reservation waits.
    Emergency,
}

impl Urgency {
    /// As the document has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Emergency => "emergency",
        }
    }
}

/// What one checkpoint did (SIFT §4.5, §5.1.4). In totals, sums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckpointReport {
    /// Which gate asked for it; none in totals, and where a daemon of another version names one
    /// that is not known.
    #[serde(deserialize_with = "known")]
    pub trigger: Option<Urgency>,
    /// Transactions checkpointed.
    pub batch: u64,
    /// Ready-prefix batches built with the interval map.
    pub coalesced_batches: u64,
    /// Ready-prefix batches built without it.
    pub light_batches: u64,
    /// Staged transactions named by the journal; each carries an inode's state.
    pub staged: u64,
    /// Tags and images read from the journal.
    pub raw_tags: u64,
    /// Tags and images replayed, or what was left of them.
    pub surviving_tags: u64,
    /// Data and metadata blocks named by raw tags.
    pub raw_blocks: u64,
    /// Blocks replayed.
    pub surviving_blocks: u64,
    /// Metadata images in the batch.
    pub raw_images: u64,
    /// Metadata images replayed.
    pub surviving_images: u64,
    /// Inode updates that the images of inode tables carry.
    pub raw_inodes: u64,
    /// Inodes updated by the images of inode tables that were replayed.
    pub surviving_inodes: u64,
    /// Reads issued.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes issued to the area.
    pub writes: u64,
    /// Bytes written to the area.
    pub write_bytes: u64,
    /// Flushes issued.
    pub flushes: u64,
    /// Read windows used.
    pub windows: u64,
    /// Journal bytes returned as credits.
    pub journal_credits: u64,
    /// Lane bytes returned as credits.
    pub staging_credits: u64,
    /// Time reading the journal and finding what survives, in nanoseconds.
    pub index_nanos: u64,
    /// Time reading and verifying staged data, in nanoseconds.
    pub read_nanos: u64,
    /// Time merging and writing to the area, in nanoseconds.
    pub write_nanos: u64,
    /// Time flushing and writing the service record, in nanoseconds.
    pub flush_nanos: u64,
    /// Time of all steps, in nanoseconds.
    pub nanos: u64,
}

impl CheckpointReport {
    /// How the checkpoint replayed: `ordered` builds no batches, `auto` chooses for each of them.
    pub fn mode(&self) -> &'static str {
        match (self.coalesced_batches > 0, self.light_batches > 0) {
            (false, false) => "ordered",
            (true, false) => "coalesce",
            (false, true) => "light",
            (true, true) => "coalesce and light",
        }
    }

    /// Adds what `r` counts; the trigger stays.
    pub fn add(&mut self, r: &CheckpointReport) {
        self.batch += r.batch;
        self.coalesced_batches += r.coalesced_batches;
        self.light_batches += r.light_batches;
        self.staged += r.staged;
        self.raw_tags += r.raw_tags;
        self.surviving_tags += r.surviving_tags;
        self.raw_blocks += r.raw_blocks;
        self.surviving_blocks += r.surviving_blocks;
        self.raw_images += r.raw_images;
        self.surviving_images += r.surviving_images;
        self.raw_inodes += r.raw_inodes;
        self.surviving_inodes += r.surviving_inodes;
        self.reads += r.reads;
        self.read_bytes += r.read_bytes;
        self.writes += r.writes;
        self.write_bytes += r.write_bytes;
        self.flushes += r.flushes;
        self.windows += r.windows;
        self.journal_credits += r.journal_credits;
        self.staging_credits += r.staging_credits;
        self.index_nanos += r.index_nanos;
        self.read_nanos += r.read_nanos;
        self.write_nanos += r.write_nanos;
        self.flush_nanos += r.flush_nanos;
        self.nanos += r.nanos;
    }
}

/// What programs do at a target by themselves, of all hosts since the start of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramStatistics {
    /// Queues that programs have attached, now: one for each grant.
    pub queues: u64,
    /// Requests that had a place in a queue.
    pub requests: u64,
    /// Groups that they began.
    pub groups: u64,
    /// Requests that waited for the group before theirs.
    pub waited: u64,
    /// Lives of queues that followed on others: a connection was lost, or a request did not come.
    pub further_lives: u64,
}

/// The workers of a target, which serve programs' connections. Counts are since the start of its
/// process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerStatistics {
    /// Threads that serve connections, now: none before the first program has come.
    pub workers: u64,
    /// Connections that they serve, now.
    pub connections: u64,
    /// Requests whose access a worker has begun by itself.
    pub begun: u64,
    /// Requests that a helper was given, because they cannot be begun without a wait.
    pub helped: u64,
    /// Requests among these that waited, because their connection had its helpers, or no helper
    /// was free.
    pub waited: u64,
    /// The most helpers that were busy at one time.
    pub most_helpers: u64,
    /// Connections that were ended because they broke, broke the protocol, or took no answers.
    pub broken: u64,
}

/// A process that runs the Service apart from the Runtime. Times and counts are since its start,
/// I/O since it took the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceStatistics {
    /// Id of the process, on its machine.
    pub pid: u32,
    /// Processor time in microseconds, of all its threads.
    pub cpu_us: u64,
    /// Messages received.
    pub messages: u64,
    /// Hosts and messages refused.
    pub refusals: u64,
    /// Hosts greeted, the present one included.
    pub hosts: u64,
    /// Hints received that small durable steps are expected.
    pub hints: u64,
    /// Programs that use the storage by themselves.
    pub programs: ProgramStatistics,
    /// The workers that serve these programs.
    pub workers: WorkerStatistics,
    /// I/O.
    pub io: RegionCounts,
}

/// Totals of the Service since it took the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceStatistics {
    /// Transactions journaled.
    pub journaled_transactions: u64,
    /// Bytes appended to the journal.
    pub journaled_bytes: u64,
    /// Tags journaled.
    pub journaled_tags: u64,
    /// Physical ranges of records that they digest, and have no tags for.
    pub digested_ranges: u64,
    /// Metadata images journaled.
    pub journaled_images: u64,
    /// Bytes written straight to the area before a commit.
    pub direct_bytes: u64,
    /// Area ranges listed as dropped.
    pub drops: u64,
    /// Checkpoints done, by urgency.
    pub checkpoints_background: u64,
    /// Checkpoints done because a foreground reservation waited.
    pub checkpoints_emergency: u64,
    /// Sum of all checkpoint reports.
    pub checkpoint_total: CheckpointReport,
    /// The last checkpoint's report.
    pub checkpoint_last: CheckpointReport,
    /// When it was done, in seconds since 1970; 0 before the first.
    pub checkpoint_last_s: i64,
    /// The Service's process, if it is another one than the Runtime's.
    pub device: Option<DeviceStatistics>,
}

/// The urgency of this name, if it is one.
fn known<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Urgency>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    let all = [Urgency::Background, Urgency::Emergency];
    Ok(all.into_iter().find(|urgency| Some(urgency.name()) == name.as_deref()))
}
