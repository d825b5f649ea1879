//! What the Runtime says of itself.

use crate::{DeviceInfo, Distribution, Link, Persists, RegionCounts, ServiceStatistics};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The Runtime's part of the document: all of it for a volume without a daemon. Counts are since
/// the volume was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeStatus {
    /// The latched failure: from then on changes and fsyncs get EIO.
    pub failed: Option<String>,
    /// When that came, in seconds since 1970.
    pub failed_s: Option<f64>,
    /// What to do about it, for people.
    pub remedy: Option<String>,
    /// The storage below is full, and background work waits for room; it goes on by itself.
    pub no_room: Option<NoRoom>,
    /// Newest LSN drawn, by name operations and staged transactions.
    pub lsn: u64,
    /// Every staged transaction up to this LSN is durable.
    pub durable_lsn: u64,
    /// Number of the newest background journal transaction cut.
    pub transaction: u64,
    /// Number of the newest one whose effects are in the area, durably.
    pub reclaimed_transaction: u64,
    /// Number of transactions between the two.
    pub unreclaimed_transactions: u64,
    /// The Runtime's counters.
    pub runtime: RuntimeCounts,
    /// The Service's counters.
    pub service: ServiceStatistics,
    /// The way to the Service.
    pub link: Link,
    /// I/O of the mount's process.
    pub storage: RegionCounts,
    /// One sample per fsync and fdatasync, failed ones too.
    pub fsync_latency: Distribution,
    /// One sample per background journal transaction, from the beginning of its assembly to its
    /// durable commit.
    pub commit_latency: Distribution,
    /// One sample per step of assembly: how long it held the state lock.
    pub assembly_lock_hold: Distribution,
    /// One sample per checkpoint whose end a caller waited for.
    pub emergency_checkpoint_latency: Distribution,
    /// One sample per small fsync that waited for room in the log or in the running transaction.
    pub credit_wait: Distribution,
    /// The same for fsyncs whose record is longer than 64 KiB.
    pub bulk_wait: Distribution,
    /// What the volume lies on: the area's device, then those of a log elsewhere and of a
    /// record area.
    pub devices: Vec<DeviceInfo>,
    /// How fsyncs that come together are made durable.
    pub group: Group,
    /// Records and callers under way.
    pub queues: Queues,
    /// Free space of the log.
    pub credits: Credits,
    /// Where new blocks came from.
    pub allocation: Allocation,
    /// Freed space that goes back to the storage.
    pub discard: Discard,
    /// The log's size and fill.
    pub log: LogSpace,
    /// What the caches hold.
    pub cache: Cache,
    /// Where the process's memory is.
    pub memory: Memory,
    /// What the next background transaction has to do.
    pub pending: Pending,
    /// What programs have begun and not ended.
    pub operations: Operations,
}

impl RuntimeStatus {
    /// Bytes used and bytes of all lanes.
    pub fn staging(&self) -> (u64, u64) {
        let sum = |of: fn(&Lane) -> u64| self.log.lanes.iter().map(of).fold(0, u64::saturating_add);
        (sum(|l| l.used), sum(|l| l.bytes))
    }
}

/// A wait for room below.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NoRoom {
    /// What was tried, and what the storage answered.
    pub why: String,
    /// Seconds since the wait began.
    pub for_s: f64,
    /// Number of tries since then.
    pub tries: u64,
}

/// The Runtime's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeCounts {
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
    /// Where fsyncs' records went, on a volume with a record area.
    pub dispatch: Dispatch,
    /// Waits for background progress, by reason.
    pub stalls: BTreeMap<String, u64>,
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

/// Where fsyncs' records went: to the record area, or to block storage (CoinPurse, table II).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dispatch {
    /// All that were considered.
    pub all: Dispatched,
    /// Those that went to the record area.
    pub record_area: Dispatched,
    /// Bytes of the records there, headers and padding included.
    pub record_bytes: u64,
    /// Ranges in them that name their place in the file system, for which the journal has no tag.
    pub physical: u64,
    /// Those that went to block storage, by reason.
    pub elsewhere: BTreeMap<String, u64>,
    /// Their pages by dirty bytes (figure 1).
    pub pages: Pages,
    /// Bytes that the records would carry of them, with other limits of ranges for each page.
    pub kept: Kept,
}

/// Pages by their dirty bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pages {
    /// Pages with at most 64, 128, 256, 512, 1024, 2048 and 4095 bytes dirty, and those with all,
    /// each in the first class that has it.
    pub up_to: [u64; 8],
}

impl Pages {
    /// The classes' largest dirty bytes.
    pub const CLASSES: [u64; 8] = [64, 128, 256, 512, 1024, 2048, 4095, 4096];

    /// Adds a page.
    pub fn add(&mut self, dirty: u64) {
        let class = Self::CLASSES.iter().take_while(|most| **most < dirty).count();
        self.up_to[class.min(7)] += 1;
    }
}

/// Bytes of file data in records, with what each range costs in them and in the journal, if a
/// page's dirty bytes were tracked by this many ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// One range for a page.
    pub one: u64,
    /// At most three.
    pub three: u64,
    /// All of them.
    pub all: u64,
    /// Ranges that cost less than they save: what the record area's records carry.
    pub by_cost: u64,
}

/// Records of fsyncs, and what was dirty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dispatched {
    /// Records.
    pub records: u64,
    /// Bytes of file data in them.
    pub dirty_bytes: u64,
    /// Bytes of the pages that these lie in.
    pub page_bytes: u64,
}

impl Dispatched {
    /// Adds a record.
    pub fn add(&mut self, dirty: u64, pages: u64) {
        self.records += 1;
        self.dirty_bytes += dirty;
        self.page_bytes += pages;
    }
}

/// How fsyncs that come together are made durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// `measurement`, or `option` where a mount option sets the way.
    pub by: String,
    /// The way of the window under way: `shared` or `parallel`.
    pub way: String,
    /// What was measured, by the number of callers.
    pub measured: Vec<Crowd>,
}

/// What was measured with this many callers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Crowd {
    /// The number of callers, for people.
    pub callers: String,
    /// The better way for this number.
    pub way: String,
    /// Nanoseconds from publication to acknowledgement, smoothed, when a flush is shared.
    pub shared_ns: Option<u64>,
    /// Nanoseconds from publication to acknowledgement, smoothed, with durable writes in parallel.
    pub parallel_ns: Option<u64>,
}

/// Records and callers under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Queues {
    /// Records published whose write is not completed.
    pub records_in_flight: u64,
    /// Callers that wait for a staged transaction to become durable, background commits among them.
    pub fsyncs_waiting: u64,
    /// Milliseconds for which the oldest call of the storage has not returned; 0: none is under
    /// way.
    pub oldest_call_ms: u64,
}

/// Free space of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Credits {
    /// Bytes free in the journal.
    pub journal_bytes: u64,
    /// Bytes free in all lanes together.
    pub staging_bytes: u64,
    /// Blocks freed, not to be allocated before their transaction is reclaimed.
    pub quarantined_blocks: u64,
}

/// Where new blocks came from, since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allocation {
    /// Runs of blocks that were allocated.
    pub runs: u64,
    /// Those of them that came from a pool of free blocks.
    pub pooled_runs: u64,
    /// Bitmaps that were searched for free blocks.
    pub searches: u64,
    /// Pools that have blocks now.
    pub pools: u64,
    /// Blocks in them, which are free.
    pub pooled_blocks: u64,
}

/// Freed space that goes back to the storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Discard {
    /// Freed blocks are given back by themselves.
    pub online: bool,
    /// Bytes that the storage gives back at least; 0: it cannot, or its space is reserved.
    pub unit_bytes: u64,
    /// Blocks freed and reclaimed that wait for their discard.
    pub waiting_blocks: u64,
    /// Blocks whose discard the Service was asked for.
    pub asked_blocks: u64,
    /// Requests answered.
    pub requests: u64,
    /// Blocks given back.
    pub blocks: u64,
    /// Blocks that were freed and not given back: in runs too short for it, more than can wait, or
    /// when space was short. A trim gives them back.
    pub passed_over_blocks: u64,
    /// Runs whose discard failed.
    pub failed: u64,
}

/// What a trim did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trimmed {
    /// Bytes of free blocks that were given back.
    pub bytes: u64,
    /// Runs of free blocks whose discard failed.
    pub failed: u64,
    /// The trim ended early, because space was short and its blocks were wanted.
    pub incomplete: bool,
}

/// The log's size and fill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogSpace {
    /// Bytes of the journal's ring.
    pub journal_bytes: u64,
    /// Bytes that unreclaimed transactions take; twice their size while not yet journaled.
    pub journal_used: u64,
    /// What the journal holds of staged data: `ref` or `copy`.
    pub journal_data: String,
    /// The staging lanes, in the order of their numbers, that of a record area last.
    pub lanes: Vec<Lane>,
    /// The record area, where the volume has one.
    pub record_area: Option<RecordArea>,
}

/// A record area, and what it promises.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordArea {
    /// Where it is, as it was named.
    pub place: String,
    /// How a write is made durable there.
    pub promise: String,
    /// Is it proved that a power cut takes nothing that was durable?
    pub persistent: bool,
    /// Bytes of its ring.
    pub bytes: u64,
    /// Bytes from tail to head.
    pub used: u64,
    /// What it was asked for.
    pub persists: Persists,
}

/// A staging lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lane {
    /// Bytes of the ring.
    pub bytes: u64,
    /// Bytes from tail to head.
    pub used: u64,
    /// Position in bytes of the next record; only grows.
    pub head: u64,
    /// Position in bytes of the oldest record that is needed; only grows.
    pub tail: u64,
}

/// What the caches hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cache {
    /// Pages of 4096 bytes in the page cache.
    pub pages: u64,
    /// Bound of the page cache in pages.
    pub page_limit: u64,
    /// Metadata blocks of 4096 bytes, dirty ones included.
    pub metadata_blocks: u64,
    /// Inodes in memory.
    pub inodes: u64,
    /// Bytes written and held by nothing durable; the bytes, not their pages.
    pub dirty_bytes: u64,
}

/// Where the process's memory is, in bytes, as far as it can be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Resident bytes of the process; 0 where the kernel does not say.
    pub resident: u64,
    /// Bytes that the C library's heap has allocated; 0 where the library does not say.
    pub heap_used: u64,
    /// Bytes that the heap keeps for the next allocation.
    pub heap_free: u64,
    /// Page cache, with what finds its pages.
    pub pages: u64,
    /// Metadata cache, with what finds its blocks.
    pub metadata: u64,
    /// Inodes in memory.
    pub inodes: u64,
    /// References of the kernel, without the inodes.
    pub lookups: u64,
    /// Open files.
    pub handles: u64,
    /// Name operations that are not durable.
    pub names: u64,
    /// Ranges that are dirty, staged or journaled, without their pages.
    pub unsynced: u64,
    /// What was freed and waits, and what transactions that are not reclaimed remember.
    pub quarantine: u64,
    /// Memory for records and reads that waits for its next use.
    pub buffers: u64,
}

impl Memory {
    /// The bytes of each structure by name, in the order of their names; process and heap, which
    /// hold them, are not among them.
    pub fn structures(&self) -> [(&'static str, u64); 9] {
        [
            ("buffers", self.buffers),
            ("handles", self.handles),
            ("inodes", self.inodes),
            ("lookups", self.lookups),
            ("metadata", self.metadata),
            ("names", self.names),
            ("pages", self.pages),
            ("quarantine", self.quarantine),
            ("unsynced", self.unsynced),
        ]
    }
}

/// What programs have begun and not ended. A mount is one session, and so is a program with the
/// embedded library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operations {
    /// Tickets that are not durable.
    pub tickets: u64,
    /// Atomic sections that were neither committed nor aborted.
    pub sections: u64,
    /// Those of them that cannot be committed any more.
    pub void_sections: u64,
    /// Bytes in memory that the sections hold.
    pub section_bytes: u64,
    /// Locks on files that the Runtime keeps: those of shared mounts.
    pub locks: u64,
    /// Requests that wait for such a lock.
    pub lock_waits: u64,
    /// Files that a program reads and writes alone at the storage's target.
    pub direct_writers: u64,
    /// Open handles by which programs read files there.
    pub direct_readers: u64,
    /// How often such a file was taken back for another one.
    pub direct_recalls: u64,
    /// Bytes that sections and running compounds may take by now, of all callers.
    pub bytes: u64,
    /// The most that they took at a time.
    pub bytes_peak: u64,
    /// The most that they may take.
    pub bytes_most: u64,
    /// How often there was not enough left.
    pub refused: u64,
}

/// What the next background transaction has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pending {
    /// Name operations not staged and not journaled.
    pub name_operations: u64,
    /// Metadata blocks changed since the last cut.
    pub metadata_blocks: u64,
    /// Inodes whose attributes the next cut writes.
    pub inodes: u64,
    /// Blocks reserved for data without a home.
    pub reserved_blocks: u64,
    /// Inodes unlinked and not freed.
    pub orphans: u64,
}
