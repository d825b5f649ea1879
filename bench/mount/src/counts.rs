//! What operations cost: writes, flushes and bytes at SiftFS's storage backend and at the disk,
//! FUSE requests, processor time and context switches.

use crate::system::System;
use crate::usage::Usage;
use serde::Serialize;
use siftfs_rig::place::Failed;
use siftfs_status::{RegionCounts, Status};
use std::collections::BTreeMap;
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

impl Backend {
    /// The sums over all regions.
    pub fn of(storage: &RegionCounts) -> Self {
        let (waited, background) = (storage.sum(|o| o.foreground), storage.sum(|o| o.background));
        Self {
            writes: waited.writes,
            flushes: waited.flushes,
            write_bytes: waited.write_bytes,
            background_writes: background.writes,
            background_flushes: background.flushes,
            background_write_bytes: background.write_bytes,
        }
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

/// Counters of a whole disk, whichever program uses it.
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

/// FUSE requests by opcode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Requests(pub BTreeMap<String, u64>);

impl Requests {
    /// From the status document of a mount; none where there is no mount.
    pub fn of(status: &Status) -> Option<Self> {
        daemon(status).map(|_| Self(status.requests.clone()))
    }

    /// What was added since `before`; opcodes of which nothing came are left out.
    pub fn since(&self, before: &Self) -> Self {
        let old = |name: &str| before.0.get(name).copied().unwrap_or(0);
        let new = self.0.iter().map(|(k, n)| (k.clone(), n.saturating_sub(old(k))));
        Self(new.filter(|(_, n)| *n > 0).collect())
    }

    /// The sum of both.
    pub fn plus(mut self, other: &Self) -> Self {
        for (name, n) in &other.0 {
            *self.0.entry(name.clone()).or_default() += n;
        }
        self
    }
}

/// Everything that is counted. A system that lacks a counter has `None`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// At SiftFS's storage backend.
    pub backend: Option<Backend>,
    /// At the disk, whichever program used it meanwhile.
    pub disk: Option<DiskIo>,
    /// FUSE requests.
    pub requests: Option<Requests>,
    /// Of the program that was measured, in this process or in those that it started.
    pub client: Usage,
    /// Of SiftFS's daemon.
    pub daemon: Option<Usage>,
}

/// The counters at one moment.
struct Moment {
    status: Option<Status>,
    disk: Option<DiskIo>,
    client: Usage,
    daemon: Option<Usage>,
}

impl Counts {
    /// Runs `work` between two readings of all counters. The status is read outside of the others,
    /// for it costs processor time.
    pub fn around<T, E>(
        system: &dyn System,
        disk: &Disk,
        work: impl FnOnce() -> std::result::Result<T, E>,
        failed: impl Fn(Failed) -> E,
    ) -> std::result::Result<(T, Self), E> {
        let status = system.status().map_err(&failed)?;
        let pid = status.as_ref().and_then(daemon);
        let usage = || pid.and_then(Usage::of_process);
        let before = Moment { status, disk: disk.read(), daemon: usage(), client: Usage::own() };
        let done = work()?;
        let (client, daemon, disk) = (Usage::own(), usage(), disk.read());
        let after = Moment { status: system.status().map_err(failed)?, disk, client, daemon };
        Ok((done, after.since(&before)))
    }

    /// The sum of both.
    pub fn plus(self, other: &Self) -> Self {
        Self {
            backend: sum(self.backend, other.backend, |a, b| a.plus(&b)),
            disk: sum(self.disk, other.disk, |a, b| a.plus(&b)),
            requests: sum(self.requests, other.requests.clone(), |a, b| a.plus(&b)),
            client: self.client.plus(&other.client),
            daemon: sum(self.daemon, other.daemon, |a, b| a.plus(&b)),
        }
    }
}

/// None is nothing.
fn sum<T>(a: Option<T>, b: Option<T>, plus: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(plus(a, b)),
        (a, b) => a.or(b),
    }
}

/// The daemon's process, where there is one.
fn daemon(status: &Status) -> Option<u32> {
    (status.pid != 0).then_some(status.pid)
}

impl Moment {
    fn since(&self, before: &Self) -> Counts {
        let backend = |m: &Self| m.status.as_ref().map(|s| Backend::of(&s.runtime.storage));
        let requests = |m: &Self| m.status.as_ref().and_then(Requests::of);
        Counts {
            backend: backend(self).zip(backend(before)).map(|(a, b)| a.since(&b)),
            disk: self.disk.zip(before.disk).map(|(after, before)| after.since(&before)),
            requests: requests(self).zip(requests(before)).map(|(a, b)| a.since(&b)),
            client: self.client.since(&before.client),
            daemon: self.daemon.zip(before.daemon).map(|(a, b)| a.since(&b)),
        }
    }
}

#[cfg(test)]
#[path = "counts_tests.rs"]
mod tests;
