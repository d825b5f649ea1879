//! The whole measurement: every job on every system, in turns, several rounds.

use crate::area::{Inputs, Measured, Probe};
use crate::cell::{Amount, clear, measure, measure_floor};
use crate::counts::{Backend, Counts, Disk};
use crate::embedded::Embedded;
use crate::library::device_bytes::Bed;
use crate::library::postgres::{self, Postgres};
use crate::peers::PEERS;
use crate::programs::{self, Script};
use crate::row::{Metric, Row};
use crate::rows::{Job, Kind};
use crate::stats::Summary;
use crate::system::{BLOCK, Floor, Mounted, Named, System, disk_of};
use crate::tree::Archive;
use siftfs_rig::place::{Place, Result, bar, step};
use siftfs_rig::volume::Volume;
use std::time::{Duration, Instant};

/// Size of each of SiftFS's volumes.
const VOLUME_SIZE: &str = "3G";
/// Bytes of the image of each other file system.
const IMAGE_BYTES: u64 = 2 << 30;
/// Of the operations from which the floor's size is taken.
const CALIBRATION: Duration = Duration::from_millis(100);

/// The systems' names, as in the table and in JSON; SiftFS's mounts have those of their
/// configurations.
pub const EXT4: &str = "ext4";
/// SiftFS by the embedded handle.
pub const EMBEDDED: &str = "embedded";
/// Synchronous direct writes.
pub const FLOOR: &str = "floor";

/// SiftFS mounted with certain options.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Config {
    /// The configuration's name.
    pub name: String,
    /// Mount options, with commas between; none is the default.
    pub options: String,
}

/// How to measure.
pub struct Plan {
    /// Rounds.
    pub rounds: usize,
    /// How much of each cell.
    pub amount: Amount,
    /// Which jobs.
    pub jobs: Vec<&'static Job>,
    /// Mounts of SiftFS; the first is the one that is compared with the targets.
    pub configs: Vec<Config>,
    /// Systems that are not to be measured.
    pub without: Vec<String>,
    /// In one round of this many those systems are measured that no target is about: other file
    /// systems, and direct writes.
    pub others_every: usize,
    /// Parts of the tree.
    pub tree_parts: usize,
    /// No round begins that would end after this time.
    pub limit: Duration,
}

/// A row on a system.
#[derive(Default)]
pub struct Column {
    /// The system's name.
    pub system: String,
    /// Latencies in microseconds, of all rounds; or one rate per round (per second, or MiB/s).
    pub samples: Vec<f64>,
    /// A round's number, and its median or rate.
    pub rounds: Vec<(usize, f64)>,
    /// Operations of all rounds (MiB for streams).
    pub operations: u64,
    /// What they cost.
    pub counts: Counts,
}

impl Column {
    /// Round by round, for what disturbs one round disturbs both. Rounds that only one has do not
    /// count.
    pub fn ratio_to(&self, to: &Self) -> Option<Summary> {
        let base = |round: usize| {
            let found = to.rounds.iter().find(|(r, value)| *r == round && *value > 0.0);
            found.map(|(_, value)| *value)
        };
        let ratios = self.rounds.iter().filter_map(|(round, value)| Some(value / base(*round)?));
        Some(Summary::of(ratios)).filter(|s| s.samples > 0)
    }
}

/// A row's results.
pub struct Outcome {
    /// The row.
    pub row: &'static Row,
    /// The row's floor: writes per operation, and their bytes together.
    pub floor: Option<(u64, usize)>,
    /// The row's results, one column per system on which it exists.
    pub columns: Vec<Column>,
}

/// What was compared.
pub struct Comparison {
    /// Which ext4.
    pub ext4: &'static str,
    /// The disk's name.
    pub disk: String,
    /// Median of synchronous direct writes of 4 KiB, in microseconds, before the first round.
    pub floor_us: f64,
    /// Mounts of SiftFS; the first is the one that is compared with the targets.
    pub configs: Vec<Config>,
    /// Other file systems: name and version of the tools, or why it was left out.
    pub peers: Vec<(String, std::result::Result<String, String>)>,
    /// Rounds that were done.
    pub rounds: usize,
    /// How long all of it took.
    pub took: Duration,
    /// Rows that were left out, and why.
    pub left_out: Vec<(&'static str, String)>,
    /// Results, in the table's order.
    pub rows: Vec<Outcome>,
}

struct Systems {
    named: Vec<Named>,
    floor: Option<Floor>,
    floor_every: usize,
    disk: Disk,
    /// Where the bytes at the disk are counted.
    bed: Option<Bed>,
    inputs: Inputs,
}

/// Makes the systems in `place` and measures.
pub fn compare(place: &Place, plan: &Plan) -> Result<Comparison> {
    let start = Instant::now();
    programs::missing()?;
    let (ext4_dir, ext4) = siftfs_rig::ext4::directory(place, IMAGE_BYTES)?;
    let (mut systems, peers) = Systems::make(place, plan, ext4_dir)?;
    let left_out = systems.prepare_postgres(place, plan)?;
    let floor_us = systems.latency_floor()?;
    let mut outcomes = Vec::new();
    for job in &plan.jobs {
        let floor =
            if job.kind.has_floor() { systems.calibrate(job, &plan.configs)? } else { None };
        let rows = job.rows.iter().map(|row| Outcome { row, floor, columns: Vec::new() });
        outcomes.push(rows.collect::<Vec<_>>());
    }
    let progress = bar((plan.rounds * plan.jobs.len()) as u64, "measuring");
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    while rounds < plan.rounds && start.elapsed() + longest < plan.limit.max(longest) {
        let begin = Instant::now();
        for (job, outcomes) in plan.jobs.iter().zip(&mut outcomes) {
            progress.set_message(job.name());
            systems.round(place, plan, job, outcomes, rounds)?;
            progress.inc(1);
            progress.suspend(|| outcomes.iter().for_each(|o| o.tell(rounds, &plan.configs)));
        }
        longest = longest.max(begin.elapsed());
        rounds += 1;
        let done = start.elapsed().as_secs();
        progress.suspend(|| println!("  round {rounds} of {} done after {done} s", plan.rounds));
    }
    progress.finish_and_clear();
    Ok(Comparison {
        ext4,
        disk: systems.disk.name.clone(),
        floor_us,
        configs: plan.configs.clone(),
        peers,
        rounds,
        took: start.elapsed(),
        left_out,
        rows: outcomes.into_iter().flatten().collect(),
    })
}

type Peers = Vec<(String, std::result::Result<String, String>)>;

impl Systems {
    fn make(place: &Place, plan: &Plan, ext4_dir: std::path::PathBuf) -> Result<(Self, Peers)> {
        let wanted = |name: &str| !plan.without.iter().any(|w| w == name);
        let uses = |of: fn(&Kind) -> bool| plan.jobs.iter().any(|j| of(&j.kind));
        let disk = disk_of(ext4_dir.parent().unwrap_or(&ext4_dir))?;
        let mut named = Vec::new();
        let mut add = |name: &str, every: usize, system: Box<dyn System>| {
            named.push(Named { name: name.to_owned(), every, system });
        };
        add(EXT4, 1, Box::new(Mounted::directory(ext4_dir)?));
        for (n, config) in plan.configs.iter().enumerate() {
            let volume = Volume::make(place, &format!("mount-{n}"), VOLUME_SIZE)?;
            add(&config.name, 1, Box::new(Mounted::fuse(volume, &config.options)?));
        }
        let mut peers = Vec::new();
        for peer in PEERS.iter().filter(|p| wanted(p.name)) {
            let made = step(&format!("mkfs.{}", peer.name), || peer.mount(place, IMAGE_BYTES))?;
            let version = match made {
                Ok(mount) => {
                    add(peer.name, plan.others_every, Box::new(Mounted::on_loop(mount)));
                    Ok(peer.tools()?)
                }
                Err(why) => Err(why),
            };
            peers.push((peer.name.to_owned(), version));
        }
        if wanted(EMBEDDED) && uses(|k| k.works_embedded()) {
            let volume = Volume::make(place, EMBEDDED, VOLUME_SIZE)?;
            add(EMBEDDED, plan.others_every, Box::new(Embedded::open(&volume.image)?));
        }
        let floor = wanted(FLOOR).then(|| Floor::new(&place.path("floor"))).transpose()?;
        let inputs = step("inputs", || {
            Ok(Inputs {
                archive: Archive::generate(place, plan.tree_parts)?,
                script: Script::generate(place)?,
                postgres: None,
            })
        })?;
        let options = plan.configs.iter().map(|c| (c.name.as_str(), c.options.as_str()));
        let bed = uses(|k| k.is_counted_apart()).then(|| Bed::make(place, EXT4, options));
        let (floor_every, bed) = (plan.others_every, bed.transpose()?);
        Ok((Self { named, floor, floor_every, disk, bed, inputs }, peers))
    }

    /// The row that cannot be measured where PostgreSQL is missing, and why.
    fn prepare_postgres(
        &mut self,
        place: &Place,
        plan: &Plan,
    ) -> Result<Vec<(&'static str, String)>> {
        let Some(job) = plan.jobs.iter().find(|j| matches!(j.kind, Kind::Pgbench)) else {
            return Ok(Vec::new());
        };
        match postgres::installed() {
            Ok(programs) => {
                let made = step("initdb, pgbench -i", || Postgres::prepare(place, programs))?;
                self.inputs.postgres = Some(made);
                Ok(Vec::new())
            }
            Err(why) => {
                println!("  {} left out: {why}", job.name());
                Ok(vec![(job.name(), why)])
            }
        }
    }

    /// The systems on which a job is measured, and the disk below them.
    fn of(&self, kind: Kind) -> (&[Named], &Disk) {
        match &self.bed {
            Some(bed) if kind.is_counted_apart() => (&bed.named, &bed.disk),
            _ => (&self.named, &self.disk),
        }
    }

    /// Median of synchronous direct writes of one block, in microseconds; zero where they are not
    /// wanted.
    fn latency_floor(&mut self) -> Result<f64> {
        let Some(floor) = &mut self.floor else { return Ok(0.0) };
        let measured = measure_floor(floor, (1, BLOCK), &self.disk, CALIBRATION * 3)?;
        Ok(Summary::of(measured.nanos.iter().map(|n| *n as f64 / 1e3)).median)
    }

    /// One operation's writes and their size on SiftFS, in whole blocks.
    fn calibrate(&self, job: &Job, configs: &[Config]) -> Result<Option<(u64, usize)>> {
        let Some(config) = configs.first().filter(|_| self.floor.is_some()) else {
            return Ok(None);
        };
        let Some(named) = self.named.iter().find(|n| n.name == config.name) else {
            return Ok(None);
        };
        let amount = Amount { time: CALIBRATION, stream_bytes: 0 };
        let probe = Probe { system: named.system.as_ref(), disk: &self.disk };
        let measured = measure(job, &probe, &amount, &self.inputs)?.unwrap_or_default();
        clear(probe.system)?;
        let Some(measured) = measured.first() else { return Ok(None) };
        let backend = measured.counts.backend.unwrap_or_default();
        Ok(Some(floor_shape(&backend, measured.operations)))
    }

    /// Each system once, beginning with another one in each round.
    fn round(
        &mut self,
        place: &Place,
        plan: &Plan,
        job: &Job,
        outcomes: &mut [Outcome],
        round: usize,
    ) -> Result<()> {
        let turns = self.of(job.kind).0.len() + 1;
        for turn in 0..turns {
            place.go_on()?;
            let (systems, disk) = self.of(job.kind);
            let Some(named) = systems.get((turn + round) % turns) else {
                self.floor_round(plan, outcomes, round)?;
                continue;
            };
            if !round.is_multiple_of(named.every)
                || (named.system.directory().is_none() && !job.kind.works_embedded())
            {
                continue;
            }
            let probe = Probe { system: named.system.as_ref(), disk };
            probe.system.settle()?;
            if let Some(measured) = measure(job, &probe, &plan.amount, &self.inputs)? {
                clear(probe.system)?;
                for (outcome, measured) in outcomes.iter_mut().zip(measured) {
                    outcome.add(&named.name, round, measured);
                }
            }
        }
        Ok(())
    }

    fn floor_round(&mut self, plan: &Plan, outcomes: &mut [Outcome], round: usize) -> Result<()> {
        let Some(floor) = self.floor.as_mut().filter(|_| round.is_multiple_of(self.floor_every))
        else {
            return Ok(());
        };
        for outcome in outcomes {
            if let Some(shape) = outcome.floor {
                let measured = measure_floor(floor, shape, &self.disk, plan.amount.time)?;
                outcome.add(FLOOR, round, measured);
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

impl Outcome {
    /// The column of a system.
    pub fn column(&self, system: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.system == system)
    }

    fn add(&mut self, system: &str, round: usize, measured: Measured) {
        let at = self.columns.iter().position(|c| c.system == system).unwrap_or_else(|| {
            self.columns.push(Column { system: system.to_owned(), ..Column::default() });
            self.columns.len() - 1
        });
        let column = &mut self.columns[at];
        let samples: Vec<f64> = match self.row.metric {
            Metric::Latency => measured.nanos.iter().map(|n| *n as f64 / 1e3).collect(),
            Metric::Operations | Metric::Bytes | Metric::Written => vec![measured.rate],
        };
        column.rounds.push((round, Summary::of(samples.iter().copied()).median));
        column.samples.extend(samples);
        column.operations += measured.operations;
        column.counts = std::mem::take(&mut column.counts).plus(&measured.counts);
    }

    /// One line of progress: what each system did in this round.
    fn tell(&self, round: usize, configs: &[Config]) {
        if self.columns.is_empty() {
            return;
        }
        let value = |system: &str| {
            let rounds = &self.column(system)?.rounds;
            rounds.iter().find(|(r, _)| *r == round).map(|(_, value)| *value)
        };
        let ext4 = value(EXT4);
        let mut line = format!("  {:22} ext4 {:>9.1}", self.row.name, ext4.unwrap_or(0.0));
        for config in configs {
            if let (Some(ours), Some(ext4)) = (value(&config.name), ext4) {
                line += &format!("  {} {ours:.1} = {:.2}", config.name, ours / ext4);
            }
        }
        println!("{line}");
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
