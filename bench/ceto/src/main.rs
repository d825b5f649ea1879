//! CetoFS's figures, measured on this data plane and printed beside the paper's:
//! `siftfs bench ceto-...` runs it. What the figures work on is a target with modelled storage, a
//! host, and programs that are threads of this process ([`stage`], [`roles`]).
//!
//! One file has one figure. A figure is a function of [`Plan`] that answers an [`Output`].

mod costs;
mod delay;
mod fairness;
mod fig11;
mod fig15a;
mod fig15b;
mod open;
mod roles;
mod span;
mod stage;
mod storage;
mod virtual_time;
mod wait;

use clap::{Args, Parser, Subcommand};
use roles::{HostArgs, TargetArgs};
use siftfs_rig::figure::Output;
use siftfs_rig::place::{Failed, Result, failed};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Measures figures of CetoFS with this direct data plane. The storage is a model in memory, and
/// the network's time is injected
#[derive(Parser)]
#[command(name = "siftfs-ceto-bench", version)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Single-threaded overwrites, appends and reads of 4 to 128 KiB: direct, to by the host, with
    /// the host's processor time
    Fig11(Common),
    /// Checks of the permission table by what share of it is in memory, and the group decision
    Fig15a(Common),
    /// Many writers of one file (DWOM): request groups by merging, basic, lock, and none
    Fig15b(Common),
    /// An open with a queue to one without, and requests beside 65,536 open queues
    Open(Common),
    /// The fsync of an unrelated file beside a saturated queue
    Fairness(Common),
    /// A target, which a figure has started
    #[command(hide = true)]
    Target(TargetArgs),
    /// A host, which a figure has started
    #[command(hide = true)]
    Host(HostArgs),
}

#[derive(Args)]
struct Common {
    /// How often each job is done on each side, in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Time of each job in a round
    #[arg(long, default_value = "300ms", value_parser = span::parse)]
    time: Duration,
    /// What each access to the modelled storage takes; any number of them pass beside each other
    #[arg(long, default_value = "7us", value_parser = span::parse)]
    storage: Duration,
    /// What each message between a program and the target, or the host, takes each way. It is
    /// injected: both ways are waited for where the request is received. Between host and target
    /// nothing is injected
    #[arg(long, default_value = "7us", value_parser = span::parse)]
    net_delay: Duration,
    /// How long each receiver spins before it sleeps
    #[arg(long, default_value = "0us", value_parser = span::parse)]
    spin: Duration,
    /// One round with little work, to see that all of it runs
    #[arg(long)]
    quick: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// What a figure is measured with.
struct Plan<'a> {
    /// This program, of which figures start processes.
    program: &'a Path,
    /// A folder that goes away with the figure.
    dir: &'a Path,
    rounds: u32,
    time: Duration,
    storage: Duration,
    net_delay: Duration,
    spin: Duration,
    quick: bool,
}

impl Plan<'_> {
    /// The rounds, each of which is said when it begins.
    fn rounds(&self) -> impl Iterator<Item = usize> + use<> {
        let rounds = self.rounds;
        (0..rounds as usize).inspect(move |round| eprintln!("round {} of {rounds}", round + 1))
    }

    /// What is to be said below each figure.
    fn below(&self, more: &str) -> String {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        format!(
            "Medians of the rounds, with quartiles. Storage: a model in memory, {} us for each access. Network: {} us \
             each way of a message between a program and the target or the host, injected where the request is \
             received. Receivers spin for {} us. Nothing is pinned. {more}",
            micros(self.storage),
            micros(self.net_delay),
            micros(self.spin),
        )
    }
}

fn figure(common: &Common, measure: fn(&Plan<'_>) -> Result<Output>) -> Result<()> {
    let program = std::env::current_exe().map_err(failed("own path"))?;
    let dir = tempfile::Builder::new().prefix("siftfs-ceto-").tempdir();
    let dir = dir.map_err(failed(std::env::temp_dir().display()))?;
    let Common { rounds, time, storage, net_delay, spin, quick, json } = *common;
    let (rounds, time) = if quick { (1, Duration::from_millis(20)) } else { (rounds, time) };
    let (program, dir) = (&*program, dir.path());
    let output = measure(&Plan { program, dir, rounds, time, storage, net_delay, spin, quick })?;
    match json {
        true => println!("{:#}", output.json),
        false => print!("{}", output.text),
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = match Cli::parse().what {
        What::Fig11(common) => figure(&common, fig11::measure),
        What::Fig15a(common) => figure(&common, fig15a::measure),
        What::Fig15b(common) => figure(&common, fig15b::measure),
        What::Open(common) => figure(&common, open::measure),
        What::Fairness(common) => figure(&common, fairness::measure),
        What::Target(args) => roles::target(&args),
        What::Host(args) => roles::host(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(message)) => {
            eprintln!("siftfs-ceto-bench: {message}");
            ExitCode::FAILURE
        }
    }
}
