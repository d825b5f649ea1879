//! Every I/O, counted at the storage backend by region and origin.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::{Origin, RegionKind};

/// Atomic counts of one region kind and origin.
#[derive(Default)]
struct Cell {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    flushes: AtomicU64,
    errors: AtomicU64,
}

/// Counts of all I/O done through the regions of one [`crate::Storage`].
///
/// An I/O is counted when it is issued, whether it succeeds or not. Each buffer of a batch is
/// one read or one write; a write with `fua` is one write and one flush.
#[derive(Default)]
pub struct Counters {
    cells: [[Cell; 3]; 4],
}

impl Counters {
    fn cell(&self, kind: RegionKind, origin: Origin) -> &Cell {
        &self.cells[kind as usize][origin as usize]
    }

    pub(crate) fn read(&self, kind: RegionKind, origin: Origin, ops: u64, bytes: u64) {
        let cell = self.cell(kind, origin);
        cell.reads.fetch_add(ops, Ordering::Relaxed);
        cell.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn write(&self, kind: RegionKind, origin: Origin, ops: u64, bytes: u64) {
        let cell = self.cell(kind, origin);
        cell.writes.fetch_add(ops, Ordering::Relaxed);
        cell.write_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn flush(&self, kind: RegionKind, origin: Origin) {
        self.cell(kind, origin).flushes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn error(&self, kind: RegionKind, origin: Origin) {
        self.cell(kind, origin).errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts of one region kind and origin.
    pub fn get(&self, kind: RegionKind, origin: Origin) -> IoCounts {
        let cell = self.cell(kind, origin);
        IoCounts {
            reads: cell.reads.load(Ordering::Relaxed),
            read_bytes: cell.read_bytes.load(Ordering::Relaxed),
            writes: cell.writes.load(Ordering::Relaxed),
            write_bytes: cell.write_bytes.load(Ordering::Relaxed),
            flushes: cell.flushes.load(Ordering::Relaxed),
            errors: cell.errors.load(Ordering::Relaxed),
        }
    }

    /// All counts. Taken one by one: exact when no I/O is in flight.
    pub fn snapshot(&self) -> CountersSnapshot {
        let origins = |kind| OriginCounts {
            foreground: self.get(kind, Origin::Foreground),
            background: self.get(kind, Origin::Background),
            admin: self.get(kind, Origin::Admin),
        };
        CountersSnapshot {
            area: origins(RegionKind::Area),
            staging: origins(RegionKind::Staging),
            journal: origins(RegionKind::Journal),
            header: origins(RegionKind::Header),
        }
    }
}

/// Number of I/Os and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Calls that failed.
    pub errors: u64,
}

impl std::ops::Add for IoCounts {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self {
            reads: self.reads + o.reads,
            read_bytes: self.read_bytes + o.read_bytes,
            writes: self.writes + o.writes,
            write_bytes: self.write_bytes + o.write_bytes,
            flushes: self.flushes + o.flushes,
            errors: self.errors + o.errors,
        }
    }
}

impl std::ops::Sub for IoCounts {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        Self {
            reads: self.reads - o.reads,
            read_bytes: self.read_bytes - o.read_bytes,
            writes: self.writes - o.writes,
            write_bytes: self.write_bytes - o.write_bytes,
            flushes: self.flushes - o.flushes,
            errors: self.errors - o.errors,
        }
    }
}

/// Counts by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginCounts {
    /// A caller waited.
    pub foreground: IoCounts,
    /// Journaling, checkpointing, reclamation.
    pub background: IoCounts,
    /// Recovery, mkfs, mount, unmount.
    pub admin: IoCounts,
}

impl OriginCounts {
    /// The counts of one origin.
    pub fn of(&self, origin: Origin) -> IoCounts {
        match origin {
            Origin::Foreground => self.foreground,
            Origin::Background => self.background,
            Origin::Admin => self.admin,
        }
    }
}

/// All counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountersSnapshot {
    /// The file-system area.
    pub area: OriginCounts,
    /// All staging lanes.
    pub staging: OriginCounts,
    /// The journal.
    pub journal: OriginCounts,
    /// The header copies.
    pub header: OriginCounts,
}

impl CountersSnapshot {
    fn regions(&self) -> [&OriginCounts; 4] {
        [&self.area, &self.staging, &self.journal, &self.header]
    }

    /// Sum over all regions for one origin.
    pub fn origin(&self, origin: Origin) -> IoCounts {
        self.regions().iter().fold(IoCounts::default(), |sum, r| sum + r.of(origin))
    }

    /// Sum over everything.
    pub fn total(&self) -> IoCounts {
        self.origin(Origin::Foreground)
            + self.origin(Origin::Background)
            + self.origin(Origin::Admin)
    }

    /// What was added since `earlier`, a snapshot of the same counters.
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
