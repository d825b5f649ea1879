//! What compounds, sections and tickets cost beside what they stand for, without a mount: each pair
//! in turn, in one run. Prints one JSON document: for each, the ratio of the medians of a round,
//! over the rounds.

mod floor;

use clap::Parser;
use floor::Floor;
use serde_json::{Value, json};
use siftfs::{File, Result, Volume};
use siftfs_base::{Error, Rng};
use siftfs_placement::{MkfsOptions, mkfs};
use siftfs_rig::fresh::fresh;
use std::path::PathBuf;
use std::time::Instant;

/// Bytes of a block.
const BLOCK: usize = 4096;
/// Blocks of the file that sections and tickets change.
const BLOCKS: u64 = 4096;
/// Bytes of the volume.
const VOLUME: u64 = 1 << 30;
/// Pages that one section changes.
const PAGES: usize = 8;
/// Tickets in flight.
const IN_FLIGHT: u64 = 64;
/// A directory that is deep enough for paths to be walked.
const DIR: &str = "/some/where";

/// Measures compounds, sections and tickets beside the single calls that they stand for
#[derive(Parser)]
#[command(name = "siftfs-operations-bench", version)]
struct Args {
    /// Directory for the file that is the volume
    dir: PathBuf,
    #[arg(long, default_value_t = 7)]
    rounds: u64,
    /// Operations of each side in a round
    #[arg(long, default_value_t = 2000)]
    operations: u64,
    /// Only this pair
    #[arg(long, value_parser = PAIRS.iter().map(|pair| pair.name).collect::<Vec<_>>())]
    only: Option<String>,
}

struct Bench {
    volume: Volume,
    floor: Floor,
    /// Where the next operations write.
    rng: Rng,
    /// A file that was opened before the time counts.
    file: Option<File>,
}

/// One operation of a pair's side: 0 is the new one, 1 what it stands for.
type Side = fn(&mut Bench, u64) -> Result<()>;

/// A pair, and the ratio that is designed for.
struct Pair {
    name: &'static str,
    /// What comes before each of their operations, and does not count.
    before: Side,
    sides: [Side; 2],
    /// Operations are divided by this: those that sync take longer.
    fewer: u64,
    target: f64,
}

const PAIRS: &[Pair] = &[
    Pair {
        name: "open-read",
        before: nothing,
        sides: [open_read, single_read],
        fewer: 1,
        target: 0.7,
    },
    Pair {
        name: "open-write",
        before: nothing,
        sides: [open_write, single_write],
        fewer: 1,
        target: 0.7,
    },
    Pair {
        name: "write-close",
        before: opened,
        sides: [write_close, single_close],
        fewer: 1,
        target: 0.7,
    },
    Pair {
        name: "section of 8 pages",
        before: nothing,
        sides: [section, direct],
        fewer: 4,
        target: 1.25,
    },
    Pair { name: "64 tickets", before: nothing, sides: [tickets, fsyncs], fewer: 64, target: 0.25 },
];

fn path(i: u64) -> String {
    format!("{DIR}/file-{}", i % 64)
}

fn open_read(b: &mut Bench, i: u64) -> Result<()> {
    b.volume.open_read(&path(i), 0, BLOCK as u32).map(drop)
}

fn single_read(b: &mut Bench, i: u64) -> Result<()> {
    b.volume.open_file(&path(i))?.read_at(0, BLOCK).map(drop)
}

fn open_write(b: &mut Bench, i: u64) -> Result<()> {
    b.volume.open_write(&path(i), 0, &fresh::<BLOCK>()).map(drop)
}

fn single_write(b: &mut Bench, i: u64) -> Result<()> {
    b.volume.open_file(&path(i))?.write_at(0, &fresh::<BLOCK>())
}

fn nothing(_: &mut Bench, _: u64) -> Result<()> {
    Ok(())
}

fn opened(b: &mut Bench, i: u64) -> Result<()> {
    b.file = Some(b.volume.open_file(&path(i))?);
    Ok(())
}

fn write_close(b: &mut Bench, _: u64) -> Result<()> {
    b.file.take().map_or(Ok(()), |file| b.volume.write_close(file, 0, &fresh::<BLOCK>()))
}

fn single_close(b: &mut Bench, _: u64) -> Result<()> {
    b.file.take().map_or(Ok(()), |file| file.write_at(0, &fresh::<BLOCK>()))
}

fn section(b: &mut Bench, _: u64) -> Result<()> {
    let file = b.volume.open_file("/blocks")?;
    let section = file.section()?;
    for _ in 0..PAGES {
        section.write_at(b.rng.below(BLOCKS) * BLOCK as u64, &fresh::<BLOCK>())?;
    }
    section.commit()
}

fn direct(b: &mut Bench, _: u64) -> Result<()> {
    b.floor.write(PAGES * BLOCK)
}

fn tickets(b: &mut Bench, i: u64) -> Result<()> {
    let file = b.volume.open_file("/blocks")?;
    let mut last = None;
    for n in 0..IN_FLIGHT {
        file.write_at((i * IN_FLIGHT + n) % BLOCKS * BLOCK as u64, &fresh::<BLOCK>())?;
        last = Some(file.stage()?);
    }
    last.map_or(Ok(()), |ticket| ticket.wait())
}

fn fsyncs(b: &mut Bench, i: u64) -> Result<()> {
    let file = b.volume.open_file("/blocks")?;
    for n in 0..IN_FLIGHT {
        file.write_at((i * IN_FLIGHT + n) % BLOCKS * BLOCK as u64, &fresh::<BLOCK>())?;
        file.sync_all()?;
    }
    Ok(())
}

impl Bench {
    fn new(dir: &std::path::Path) -> Result<Self> {
        let path = dir.join("operations.sift");
        // Written once, so that no write has the host's file system allocate or convert blocks.
        floor::fill(&path, VOLUME)?;
        mkfs(&path, &MkfsOptions::default(), &mut |_, _, _| {})?;
        let volume = Volume::open(&path)?;
        volume.create_dir("/some", 0o755)?;
        volume.create_dir(DIR, 0o755)?;
        for i in 0..64 {
            volume.create(&self::path(i), 0o644)?.write_at(0, &[1; BLOCK])?;
        }
        let blocks = volume.create("/blocks", 0o644)?;
        for i in 0..BLOCKS {
            blocks.write_at(i * BLOCK as u64, &[1; BLOCK])?;
        }
        drop(blocks);
        volume.checkpoint()?;
        let floor = Floor::new(&dir.join("operations.floor"), BLOCKS * BLOCK as u64)?;
        Ok(Self { volume, floor, rng: Rng::new(1), file: None })
    }

    /// Median time of one operation in microseconds.
    fn median(&mut self, (before, side): (Side, Side), operations: u64) -> Result<f64> {
        let mut times = Vec::new();
        for i in 0..operations {
            before(self, i)?;
            let start = Instant::now();
            side(self, i)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(middle(&mut times))
    }

    fn pair(&mut self, pair: &Pair, rounds: u64, operations: u64) -> Result<Value> {
        let operations = (operations / pair.fewer).max(20);
        let (mut ratios, mut new, mut old) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let mut medians = [0.0; 2];
            for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                medians[side] = self.median((pair.before, pair.sides[side]), operations)?;
            }
            ratios.push(medians[0] / medians[1]);
            new.push(medians[0]);
            old.push(medians[1]);
        }
        let ratio = middle(&mut ratios);
        Ok(json!({
            "name": pair.name,
            "us": middle(&mut new),
            "single_calls_us": middle(&mut old),
            "ratio": ratio,
            "least": ratios[0],
            "most": ratios[ratios.len() - 1],
            "target": pair.target,
            "met": ratio <= pair.target,
        }))
    }
}

/// The middle one; they are sorted then.
fn middle(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn run(args: &Args) -> Result<Value> {
    let dir = tempfile::tempdir_in(&args.dir)
        .map_err(|e| Error::Refused(format!("{}: {e}", args.dir.display())))?;
    let mut bench = Bench::new(dir.path())?;
    let mut rows = Vec::new();
    let wanted = |pair: &&Pair| args.only.as_ref().is_none_or(|only| only == pair.name);
    for pair in PAIRS.iter().filter(wanted) {
        rows.push(bench.pair(pair, args.rounds, args.operations)?);
    }
    let Bench { volume, .. } = bench;
    volume.close()?;
    Ok(json!({ "rounds": args.rounds, "rows": rows }))
}

fn main() -> std::process::ExitCode {
    let result = run(&Args::parse());
    match result {
        Ok(report) => {
            println!("{report:#}");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("siftfs-operations-bench: {}", Error::to_string(&error));
            std::process::ExitCode::FAILURE
        }
    }
}
