//! Writes, flushes and bytes: at SiftFS's storage backend, and at the disk.

use serde::Serialize;
use serde_json::Value;
use siftfs_rig::place::{Failed, Result};
use std::path::PathBuf;

/// Counters at SiftFS's storage backend, over all regions.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Backend {
    /// Writes that a caller waited for.
    pub writes: u64,
    /// Flushes that a caller waited for.
    pub flushes: u64,
    /// Bytes of these writes.
    pub write_bytes: u64,
    /// Writes of the background.
    pub background_writes: u64,
    /// Flushes of the background.
    pub background_flushes: u64,
    /// Bytes of the background's writes.
    pub background_write_bytes: u64,
}

const REGIONS: [&str; 4] = ["area", "staging", "journal", "header"];

impl Backend {
    /// From the Runtime's part of the status document.
    pub fn from_status(runtime: &Value) -> Result<Self> {
        let sum = |origin: &str, what: &str| {
            REGIONS
                .iter()
                .map(|region| {
                    let path = format!("/storage/{region}/{origin}/{what}");
                    let n = runtime.pointer(&path).and_then(Value::as_u64);
                    n.ok_or_else(|| Failed(format!("status has no number at {path}")))
                })
                .sum::<Result<u64>>()
        };
        Ok(Self {
            writes: sum("foreground", "writes")?,
            flushes: sum("foreground", "flushes")?,
            write_bytes: sum("foreground", "write_bytes")?,
            background_writes: sum("background", "writes")?,
            background_flushes: sum("background", "flushes")?,
            background_write_bytes: sum("background", "write_bytes")?,
        })
    }

    /// What was added since `before`.
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    /// The sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            writes: f(self.writes, other.writes),
            flushes: f(self.flushes, other.flushes),
            write_bytes: f(self.write_bytes, other.write_bytes),
            background_writes: f(self.background_writes, other.background_writes),
            background_flushes: f(self.background_flushes, other.background_flushes),
            background_write_bytes: f(self.background_write_bytes, other.background_write_bytes),
        }
    }
}

/// Counters of a whole disk, whoever uses it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DiskIo {
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes completed.
    pub flushes: u64,
}

impl DiskIo {
    /// What was added since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            writes: self.writes.saturating_sub(before.writes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
            flushes: self.flushes.saturating_sub(before.flushes),
        }
    }

    /// The sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            writes: self.writes + other.writes,
            write_bytes: self.write_bytes + other.write_bytes,
            flushes: self.flushes + other.flushes,
        }
    }
}

/// A disk's counters in sysfs.
pub struct Disk {
    stat: PathBuf,
    /// The disk's name, such as `vda`; empty where the kernel does not tell.
    pub name: String,
}

impl Disk {
    /// The disk with this device number; a partition's whole disk, for only that counts flushes.
    pub fn new(major: u32, minor: u32) -> Self {
        let mut path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        if path.join("partition").exists()
            && let Ok(real) = path.canonicalize()
            && let Some(parent) = real.parent()
        {
            path = parent.to_path_buf();
        }
        let real = path.canonicalize().unwrap_or_default();
        let name = real.file_name().map(|n| n.to_string_lossy().into_owned());
        Self { stat: path.join("stat"), name: name.unwrap_or_default() }
    }

    /// The counters; none for a file system without a disk of its own, such as btrfs.
    pub fn read(&self) -> Option<DiskIo> {
        parse(&std::fs::read_to_string(&self.stat).ok()?)
    }
}

/// The fields of `/sys/block/*/stat` that count here; kernels before 5.5 have no flushes.
fn parse(text: &str) -> Option<DiskIo> {
    let fields: Vec<u64> = text.split_whitespace().map_while(|f| f.parse().ok()).collect();
    Some(DiskIo {
        writes: *fields.get(4)?,
        write_bytes: fields.get(6)?.saturating_mul(512),
        flushes: *fields.get(15)?,
    })
}

#[cfg(test)]
#[path = "counts_tests.rs"]
mod tests;
