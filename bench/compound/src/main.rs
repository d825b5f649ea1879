//! CompoundFS's figures, measured here and printed beside the paper's, and what the paper left
//! out: compression, open and close, many clients, and fairness. `siftfs bench compound-...` runs
//! it.
//!
//! One file has one figure. A figure is a function of [`Plan`] that answers an [`Output`]; its
//! measurements are jobs of worker processes ([`job`]) on the systems of a [`stage`].

mod clients;
mod fair;
mod fig1;
mod fig3;
mod job;
mod processing;
mod stage;
mod table;

use clap::{Args, Parser, Subcommand};
use job::Job;
use siftfs_rig::figure::Output;
use siftfs_rig::place::{Failed, Place, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Bytes that must be free.
const NEEDED: u64 = 3 << 30;

/// Measures compounds of a served volume beside the calls that they stand for, and ext4
#[derive(Parser)]
#[command(name = "siftfs-compound-bench", version)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// What a key-value store's log costs: rates, and whose processor time it is
    Fig1(Common),
    /// Read-modify-write, and append with a checksum: compound, single calls, ext4
    Fig3(Common),
    /// Compression, and calls that open or close
    Processing(Common),
    /// 1 to 64 clients of one server
    Clients(Common),
    /// Single reads beside a client that compresses without a pause
    Fair(Common),
    /// One job, which a figure has started
    #[command(hide = true)]
    Work(Job),
}

#[derive(Args)]
struct Common {
    /// Directory for the volume and for ext4; default: $TMPDIR, or /var/tmp
    #[arg(long)]
    dir: Option<PathBuf>,
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Milliseconds of each job in a round
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    time: u64,
    /// Processors of the server and of its clients, which then spin; "none" pins nothing
    #[arg(long, default_value = "0,1")]
    pin: Pin,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// A processor for each end, or none.
#[derive(Clone, Copy, Debug)]
pub struct Pin(Option<(u32, u32)>);

impl std::str::FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let both = || {
            let (server, client) = text.split_once(',')?;
            Some((server.parse().ok()?, client.parse().ok()?))
        };
        match (text, both()) {
            ("none", _) => Ok(Self(None)),
            (_, Some((server, client))) if server != client => Ok(Self(Some((server, client)))),
            _ => Err("neither two processors such as 0,1, nor none".into()),
        }
    }
}

impl Pin {
    /// For people.
    pub fn label(self) -> String {
        match self.0 {
            Some((server, client)) => {
                format!(
                    "pinned apart: server on processor {server}, clients on {client}, both spin"
                )
            }
            None => "nothing is pinned, nobody spins".into(),
        }
    }
}

/// What a figure is measured with.
pub struct Plan<'a> {
    /// On a disk.
    pub place: &'a Place,
    /// How often each job is done on each system, in turn.
    pub rounds: u32,
    /// How long one takes, in milliseconds.
    pub time: u64,
    /// Where the ends run.
    pub pin: Pin,
}

fn figure(common: &Common, measure: fn(&Plan<'_>) -> Result<Output>) -> Result<()> {
    let place = Place::new("siftfs-compound", NEEDED, common.dir.as_deref())?;
    let Common { rounds, time, pin, .. } = *common;
    let output = measure(&Plan { place: &place, rounds, time, pin })?;
    match common.json {
        true => println!("{:#}", output.json),
        false => print!("{}", output.text),
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = match Cli::parse().what {
        What::Fig1(common) => figure(&common, fig1::measure),
        What::Fig3(common) => figure(&common, fig3::measure),
        What::Processing(common) => figure(&common, processing::measure),
        What::Clients(common) => figure(&common, clients::measure),
        What::Fair(common) => figure(&common, fair::measure),
        What::Work(job) => job.work(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(message)) => {
            eprintln!("siftfs-compound-bench: {message}");
            ExitCode::FAILURE
        }
    }
}
