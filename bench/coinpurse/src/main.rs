//! CoinPurse's figures and tables, measured here and printed beside the paper's: what programs
//! write (figure 1), operations of 512 bytes (figure 5), programs (figure 6), the disk (table I),
//! the dispatcher (table II), and what a record area must not cost. `siftfs bench coinpurse-...`
//! runs it.

mod cpu;
mod disk;
mod limits;
mod macros;
mod mariadb;
mod micro;
mod mounts;
mod output;
mod programs;
mod report;
mod side;

use clap::{Args, Parser, Subcommand};
use macros::Plan;
use micro::Through;
use mounts::Site;
use output::Output;
use siftfs_rig::place::{Failed, Place, Result};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Bytes that must be free on the disk.
const NEEDED: u64 = 11 << 30;

/// Measures CoinPurse's figures and tables with a record area, without one, and on ext4
#[derive(Parser)]
#[command(name = "siftfs-coinpurse-bench", version)]
struct Cli {
    #[command(subcommand)]
    figure: Figure,
}

#[derive(Subcommand)]
enum Figure {
    /// What programs' fsyncs write: pages by their dirty bytes
    Fig1(Common),
    /// 512 bytes and an fsync: random write, sequential write, append, create, delete
    Fig5 {
        #[command(flatten)]
        common: Common,
        /// How volumes are reached
        #[arg(long, value_enum, default_value = "fuse")]
        through: Through,
    },
    /// Varmail, sysbench on MariaDB, RocksDB, SQLite
    Fig6(Common),
    /// What the disk takes for reads and writes
    Table1(Common),
    /// What the dispatcher did with programs' fsyncs
    Table2(Common),
    /// Processor time of small overwrites, by thread: with tags in the journal, and with physical
    /// ranges
    Cpu(Common),
    /// What a record area must not cost: beside bulk, when it is full, at recovery
    Limits(Common),
}

#[derive(Args)]
struct Common {
    /// Directory on the disk to measure [default: $TMPDIR, or /var/tmp]
    dir: Option<PathBuf>,
    /// Directory in memory for the record areas
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Milliseconds of each operation, or program, on each system in a round
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    time: u64,
    /// More options of the mounts with a record area, such as `record_share=100`
    #[arg(long, default_value = "")]
    options: String,
    /// Only programs whose names contain one of these words, with commas between
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

impl Figure {
    fn common(&self) -> &Common {
        match self {
            Self::Fig1(common)
            | Self::Fig5 { common, .. }
            | Self::Fig6(common)
            | Self::Table1(common)
            | Self::Table2(common)
            | Self::Cpu(common)
            | Self::Limits(common) => common,
        }
    }
}

fn run(figure: &Figure) -> Result<Output> {
    let Common { dir, memory, rounds, time, options, only, .. } = figure.common();
    let (rounds, time) = (*rounds, Duration::from_millis(*time));
    let place = &Place::new("siftfs-coinpurse", NEEDED, dir.as_deref())?;
    let own = tempfile::Builder::new().prefix("siftfs-coinpurse-").tempdir_in(memory);
    let own = own.map_err(|e| Failed(format!("{}: {e}", memory.display())))?;
    let memory = own.path();
    let site = Site { place, memory, options };
    let plan = Plan { site: &site, rounds, time, only };
    let told = |e: siftfs_base::Error| Failed(e.to_string());
    match figure {
        Figure::Fig1(_) => macros::figure_1(&plan),
        Figure::Fig5 { through, .. } => {
            micro::figure_5(*through, &site, rounds, time).map_err(told)
        }
        Figure::Fig6(_) => macros::figure_6(&plan),
        Figure::Table1(_) => disk::measure(place, time),
        Figure::Table2(_) => macros::table(&plan),
        Figure::Cpu(_) => cpu::measure(&place.path(""), memory, rounds, time).map_err(told),
        Figure::Limits(_) => {
            let json = limits::measure(&place.path(""), memory, rounds, time).map_err(told)?;
            Ok(Output { text: format!("{json:#}\n"), json })
        }
    }
}

fn main() -> ExitCode {
    let figure = Cli::parse().figure;
    match run(&figure) {
        Ok(output) if figure.common().json => println!("{:#}", output.json),
        Ok(output) => print!("{}", output.text),
        Err(Failed(message)) => {
            eprintln!("siftfs-coinpurse-bench: {message}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
