//! Every I/O, counted at the storage backend by region and origin.

use std::sync::atomic::{AtomicU64, Ordering};

use siftfs_status::{IoCounts, OriginCounts, RegionCounts};

use crate::waits::Waits;
use crate::{Origin, RegionKind, Room};

/// Atomic counts of one region kind and origin.
#[derive(Default)]
struct Cell {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    discard_bytes: AtomicU64,
    errors: AtomicU64,
}

/// Counts of all I/O done through the regions of one [`crate::Storage`].
///
/// An I/O is counted when it is issued, whether it succeeds or not. Each buffer of a batch is
/// one read or one write; a write with `fua` is one write and one flush.
#[derive(Default)]
pub struct Counters {
    cells: [[Cell; 3]; 4],
    room: Room,
    waits: Waits,
}

impl Counters {
    /// Where the background's writes through these regions wait for room below.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Calls of the storage through these regions that have not returned.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

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

    pub(crate) fn discard(&self, kind: RegionKind, origin: Origin, bytes: u64) {
        let cell = self.cell(kind, origin);
        cell.discards.fetch_add(1, Ordering::Relaxed);
        cell.discard_bytes.fetch_add(bytes, Ordering::Relaxed);
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
            discards: cell.discards.load(Ordering::Relaxed),
            discard_bytes: cell.discard_bytes.load(Ordering::Relaxed),
            errors: cell.errors.load(Ordering::Relaxed),
        }
    }

    /// All counts. Taken one by one: exact when no I/O is in flight.
    pub fn snapshot(&self) -> RegionCounts {
        let origins = |kind| OriginCounts {
            foreground: self.get(kind, Origin::Foreground),
            background: self.get(kind, Origin::Background),
            admin: self.get(kind, Origin::Admin),
        };
        RegionCounts {
            area: origins(RegionKind::Area),
            staging: origins(RegionKind::Staging),
            journal: origins(RegionKind::Journal),
            header: origins(RegionKind::Header),
        }
    }
}
