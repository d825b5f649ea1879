//! I/O as it is counted at the storage backend, by region and origin.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

/// Number of I/Os and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoCounts {
    /// Reads issued.
    pub reads: u64,
    /// Bytes asked for by them.
    pub read_bytes: u64,
    /// Writes issued.
    pub writes: u64,
    /// Bytes handed over by them.
    pub write_bytes: u64,
    /// Flushes issued, writes with `fua` included.
    pub flushes: u64,
    /// Discards issued.
    pub discards: u64,
    /// Bytes given back by them.
    pub discard_bytes: u64,
    /// Calls that failed.
    pub errors: u64,
}

/// The document may come from another process: a sum ends at the largest number.
impl Add for IoCounts {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self {
            reads: self.reads.saturating_add(o.reads),
            read_bytes: self.read_bytes.saturating_add(o.read_bytes),
            writes: self.writes.saturating_add(o.writes),
            write_bytes: self.write_bytes.saturating_add(o.write_bytes),
            flushes: self.flushes.saturating_add(o.flushes),
            discards: self.discards.saturating_add(o.discards),
            discard_bytes: self.discard_bytes.saturating_add(o.discard_bytes),
            errors: self.errors.saturating_add(o.errors),
        }
    }
}

/// What was added since `o`, earlier counts of the same counters.
impl Sub for IoCounts {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        Self {
            reads: self.reads - o.reads,
            read_bytes: self.read_bytes - o.read_bytes,
            writes: self.writes - o.writes,
            write_bytes: self.write_bytes - o.write_bytes,
            flushes: self.flushes - o.flushes,
            discards: self.discards - o.discards,
            discard_bytes: self.discard_bytes - o.discard_bytes,
            errors: self.errors - o.errors,
        }
    }
}

/// I/O of one region, by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginCounts {
    /// A caller waited.
    pub foreground: IoCounts,
    /// Journaling, checkpointing, reclamation.
    pub background: IoCounts,
    /// Recovery, mkfs, mount, unmount, takeover.
    pub admin: IoCounts,
}

impl OriginCounts {
    /// The origins by name, in the order of their names.
    pub fn by_name(&self) -> [(&'static str, &IoCounts); 3] {
        [("admin", &self.admin), ("background", &self.background), ("foreground", &self.foreground)]
    }
}

/// I/O of a process on one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionCounts {
    /// The file-system area.
    pub area: OriginCounts,
    /// All staging lanes.
    pub staging: OriginCounts,
    /// The journal.
    pub journal: OriginCounts,
    /// The header copies.
    pub header: OriginCounts,
}

impl RegionCounts {
    /// The regions by name, in the order of their names.
    pub fn by_name(&self) -> [(&'static str, &OriginCounts); 4] {
        [
            ("area", &self.area),
            ("header", &self.header),
            ("journal", &self.journal),
            ("staging", &self.staging),
        ]
    }

    /// The sum over all regions of what `of` takes of each.
    pub fn sum(&self, of: impl Fn(&OriginCounts) -> IoCounts) -> IoCounts {
        self.by_name().into_iter().fold(IoCounts::default(), |sum, (_, region)| sum + of(region))
    }

    /// The sum over everything.
    pub fn total(&self) -> IoCounts {
        self.sum(|o| o.foreground + o.background + o.admin)
    }

    /// What was added since `earlier`, counts of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        let diff = |new: &OriginCounts, old: &OriginCounts| OriginCounts {
            foreground: new.foreground - old.foreground,
            background: new.background - old.background,
            admin: new.admin - old.admin,
        };
        Self {
            area: diff(&self.area, &earlier.area),
            staging: diff(&self.staging, &earlier.staging),
            journal: diff(&self.journal, &earlier.journal),
            header: diff(&self.header, &earlier.header),
        }
    }
}
