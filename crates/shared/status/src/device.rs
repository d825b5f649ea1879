//! What a volume lies on.

use serde::{Deserialize, Serialize};

/// What a device is, and how it makes one write durable: for reports and logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceInfo {
    /// Path by which the device was opened; empty for one in memory.
    pub path: String,
    /// `block device`, `file on ext4`, `memory` and so on, for people.
    pub kind: String,
    /// Has the disk a volatile cache, so that durability needs flushes? `None`: not known.
    pub volatile_cache: Option<bool>,
    /// Does the disk take single writes past its cache? `None`: not known.
    pub fua: Option<bool>,
    /// Data passes the kernel's page cache by.
    pub direct: bool,
    /// Batches go through io_uring.
    pub uring: bool,
    /// Was it proved that what is durable survives a power cut? False: it does not. `None`: it was
    /// not proved, the disk's word is taken.
    pub persistent: Option<bool>,
    /// How one write is made durable.
    pub durable_write: String,
    /// Why so.
    pub why: String,
    /// What a record area was asked for since it was opened; none for a disk.
    pub persists: Option<Persists>,
    /// The cluster that replicates it; none for a device of one machine.
    pub cluster: Option<Box<ClusterInfo>>,
}

/// A spare log, and how often it was needed. Counts are since the volume was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpareInfo {
    /// Path of its device.
    pub path: String,
    /// Where new records go: `first`, to the log's device; `spare`, to the spare log, because the
    /// first stalls or lacks something; `alone`, to the spare log, which is the log, because the
    /// log's device has failed; `off`, to the log's device, which is not watched.
    pub state: String,
    /// How often the log's device was left.
    pub stalls: u64,
    /// The longest time in milliseconds from a call that was given up until the log's device had
    /// everything, that under way included.
    pub longest_ms: u64,
    /// Batches written to the spare log.
    pub batches: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Bytes that the log's device may lack now.
    pub lacking_bytes: u64,
    /// Bytes of the spare log in use.
    pub used_bytes: u64,
    /// Bytes of the spare log for records of stalls.
    pub total_bytes: u64,
    /// Whether there is room for an image of the log, so that it outlives its device.
    pub may_stand_alone: bool,
}

/// A cluster that has a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterInfo {
    /// The cluster's UUID.
    pub fsid: String,
    /// The pool of the image.
    pub pool: String,
    /// Bytes of one of the image's objects.
    pub object_bytes: u64,
    /// What the cluster says of itself (`HEALTH_OK`, `HEALTH_WARN`, `HEALTH_ERR`), or that it does
    /// not answer.
    pub health: String,
    /// Calls of the image that have not returned.
    pub waiting: u64,
    /// Milliseconds for which the oldest of them has waited.
    pub longest_ms: u64,
}

/// What a record area was asked to make durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Persists {
    /// Durable writes, and flushes.
    pub persists: u64,
    /// Store fences.
    pub fences: u64,
    /// Bytes written, durably or not.
    pub bytes: u64,
    /// Bytes whose lines were written back for another process, which may have died in between.
    pub inherited: u64,
}
