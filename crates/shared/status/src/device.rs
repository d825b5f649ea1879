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
}
