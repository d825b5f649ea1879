//! The whole measurement: every row on every system, in turns, several rounds.

use crate::cell::{Amount, Measured, Probe, clear, measure, measure_floor};
use crate::counts::{Backend, Disk, DiskIo};
use crate::embedded::Embedded;
use crate::rows::{Metric, Row};
use crate::system::{BLOCK, Floor, Mounted, System, disk_of};
use crate::tree::Archive;
use siftfs_rig::place::{Place, Result, bar};
use siftfs_rig::volume::Volume;
use std::time::Duration;

/// Size of each of the two volumes.
const VOLUME_SIZE: &str = "3G";
/// Bytes of an ext4 image, where the disk has another file system.
const EXT4_BYTES: u64 = 2 << 30;
/// Of the operations from which the floor's size is taken.
const CALIBRATION: Duration = Duration::from_millis(100);

/// The systems' names, as in the table and in JSON.
pub const EXT4: &str = "ext4";
/// SiftFS, mounted.
pub const FUSE: &str = "fuse";
/// SiftFS by the embedded handle.
pub const EMBEDDED: &str = "embedded";
/// Synchronous direct writes.
pub const FLOOR: &str = "floor";

/// How to measure.
pub struct Plan<'r> {
    /// Rounds.
    pub rounds: usize,
    /// How much of each cell.
    pub amount: Amount,
    /// Which rows.
    pub rows: Vec<&'r Row>,
}

/// A row on a system.
#[derive(Default)]
pub struct Column {
    /// The system's name.
    pub system: &'static str,
    /// Latencies in microseconds, of all rounds; or one rate per round (per second, or MiB/s).
    pub samples: Vec<f64>,
    /// Each round's median or rate.
    pub rounds: Vec<f64>,
    /// Operations of all rounds (MiB for streams).
    pub operations: u64,
    /// At SiftFS's storage backend.
    pub backend: Option<Backend>,
    /// At the disk, whoever used it.
    pub disk: Option<DiskIo>,
}

/// A row's results.
pub struct Outcome<'r> {
    /// The row.
    pub row: &'r Row,
    /// Its floor: writes per operation, and their bytes together.
    pub floor: Option<(u64, usize)>,
    /// One per system on which the row exists.
    pub columns: Vec<Column>,
}

/// What was compared.
pub struct Comparison<'r> {
    /// Which ext4.
    pub ext4: &'static str,
    /// The disk's name.
    pub disk: String,
    /// Results, in the table's order.
    pub rows: Vec<Outcome<'r>>,
}

struct Systems {
    named: Vec<(&'static str, Box<dyn System>)>,
    floor: Floor,
    disk: Disk,
}

/// Makes the systems in `place` and measures.
pub fn compare<'r>(place: &Place, plan: &Plan<'r>) -> Result<Comparison<'r>> {
    let archive = Archive::generate(place)?;
    let (ext4_dir, ext4) = siftfs_rig::ext4::directory(place, EXT4_BYTES)?;
    let mounted = Volume::make(place, "mounted", VOLUME_SIZE)?;
    let embedded = Volume::make(place, "embedded", VOLUME_SIZE)?;
    let floor = Floor::new(&place.path("floor"))?;
    let disk = disk_of(&mounted.image)?;
    let named: Vec<(_, Box<dyn System>)> = vec![
        (EXT4, Box::new(Mounted::ext4(ext4_dir)?)),
        (FUSE, Box::new(Mounted::fuse(mounted)?)),
        (EMBEDDED, Box::new(Embedded::open(&embedded.image)?)),
    ];
    let mut systems = Systems { named, floor, disk };
    let mut rows = Vec::new();
    for row in &plan.rows {
        let floor = if row.has_floor() { Some(systems.calibrate(row, &archive)?) } else { None };
        rows.push(Outcome { row, floor, columns: Vec::new() });
    }
    let cells = plan.rounds * rows.len();
    let progress = bar(cells as u64, "measuring");
    for round in 0..plan.rounds {
        for outcome in &mut rows {
            progress.set_message(outcome.row.name);
            systems.round(place, plan, &archive, outcome, round)?;
            progress.inc(1);
        }
        progress.suspend(|| println!("  round {} of {}", round + 1, plan.rounds));
    }
    progress.finish_and_clear();
    Ok(Comparison { ext4, disk: systems.disk.name.clone(), rows })
}

impl Systems {
    /// One operation's writes and their size on SiftFS, in whole blocks.
    fn calibrate(&self, row: &Row, archive: &Archive) -> Result<(u64, usize)> {
        let amount = Amount { time: CALIBRATION, stream_bytes: 0 };
        let fuse = self.named.iter().find(|(name, _)| *name == FUSE);
        let Some((_, system)) = fuse else { return Ok((1, BLOCK)) };
        let probe = Probe { system: system.as_ref(), disk: &self.disk };
        let measured = measure(row, &probe, &amount, archive)?.unwrap_or_default();
        clear(probe.system)?;
        Ok(floor_shape(&measured.backend.unwrap_or_default(), measured.operations))
    }

    /// Each system once, beginning with another one in each round.
    fn round(
        &mut self,
        place: &Place,
        plan: &Plan,
        archive: &Archive,
        outcome: &mut Outcome,
        round: usize,
    ) -> Result<()> {
        let turns = self.named.len() + 1;
        for turn in 0..turns {
            place.go_on()?;
            let Some((name, system)) = self.named.get((turn + round) % turns) else {
                if let Some(shape) = outcome.floor {
                    let (floor, time) = (&mut self.floor, plan.amount.time);
                    outcome.add(FLOOR, measure_floor(floor, shape, &self.disk, time)?);
                }
                continue;
            };
            let probe = Probe { system: system.as_ref(), disk: &self.disk };
            probe.system.settle()?;
            if let Some(measured) = measure(outcome.row, &probe, &plan.amount, archive)? {
                clear(probe.system)?;
                outcome.add(name, measured);
            }
        }
        Ok(())
    }
}

/// Writes of one operation, and their bytes together in whole blocks.
fn floor_shape(io: &Backend, operations: u64) -> (u64, usize) {
    let each = |n: u64| (n + operations / 2) / operations.max(1);
    let bytes = usize::try_from(each(io.write_bytes)).unwrap_or(BLOCK);
    // To the nearest: SiftFS stages whole blocks, and a write of the background is no operation's.
    let blocks = (bytes + BLOCK / 2) / BLOCK;
    (each(io.writes).max(1), blocks.max(1) * BLOCK)
}

impl Outcome<'_> {
    /// The column of a system.
    pub fn column(&self, system: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.system == system)
    }

    fn add(&mut self, system: &'static str, measured: Measured) {
        let at = self.columns.iter().position(|c| c.system == system).unwrap_or_else(|| {
            self.columns.push(Column { system, ..Column::default() });
            self.columns.len() - 1
        });
        let column = &mut self.columns[at];
        let samples: Vec<f64> = match self.row.metric {
            Metric::Latency => measured.nanos.iter().map(|n| *n as f64 / 1e3).collect(),
            Metric::Operations | Metric::Bytes => vec![measured.rate],
        };
        column.rounds.push(crate::stats::Summary::of(samples.iter().copied()).median);
        column.samples.extend(samples);
        column.operations += measured.operations;
        column.backend = measured.backend.map(|b| b.plus(&column.backend.unwrap_or_default()));
        column.disk = measured.disk.map(|d| d.plus(&column.disk.unwrap_or_default()));
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
