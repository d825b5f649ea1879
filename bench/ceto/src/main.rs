//! CetoFS's figures, measured on this data plane and printed beside the paper's:
//! `siftfs bench ceto-...` runs it. What the figures work on is a target with modelled storage, a
//! host, and programs that are threads of this process ([`stage`], [`roles`]).
//!
//! One file of [`figures`] has one figure, which is a function of [`Plan`] that answers an
//! [`Output`].

mod costs;
mod delay;
mod figures;
mod journals;
mod kernel;
mod latency;
mod model;
mod roles;
mod span;
mod stage;
mod storage;
mod virtual_time;
mod wait;
mod ways;
mod wire;

use clap::{Args, Parser, Subcommand};
use figures::{
    beside, fairness, fig2, fig11, fig12, fig13, fig14, fig15a, fig15b, open, table1, table2,
};
use roles::{EchoArgs, HostArgs, TargetArgs};
use siftfs_ceto_bench::table3;
use siftfs_rig::figure::Output;
use siftfs_rig::place::{Failed, Place, Result, failed};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Bytes that must be free for what works on a mount.
const NEEDED: u64 = 3 << 30;

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
    /// Latency of 4 KiB: raw here and at the target, direct files, by the host with and without the
    /// network
    Table1(Common),
    /// Where the time of a direct write of 4 KiB goes
    Table2(Common),
    /// LevelDB by db_bench's rows on a mount of a target's volume: with siftfs accel --direct and
    /// without. Needs root, /dev/fuse, a C compiler and LevelDB's library
    Table3(Mounted),
    /// Latency of 4 KiB where nothing is modelled: direct files of hosts that run already, and
    /// block devices or file systems of the kernel's
    Kernel(beside::Words),
    /// Writers of one file, with the network and without
    Fig2(Common),
    /// Single-threaded overwrites, appends and reads of 4 to 128 KiB: direct, to by the host, with
    /// the host's processor time
    Fig11(Common),
    /// FxMark's DRBL, DRBM, DRBH, DWOL, DWOM and DWAL by several threads: direct, to by the host
    Fig12(Common),
    /// Mixes as filebench's fileserver, varmail, webserver and webproxy: direct, to by the host
    Fig13(Common),
    /// Atomic writes of 4 to 128 KiB: by the redo lane, and by a program's undo and redo journals
    Fig14(Common),
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
    /// What answers at once, which a figure has started
    #[command(hide = true)]
    Echo(EchoArgs),
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

#[derive(Args)]
struct Mounted {
    /// How often each way runs, in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Operations of each row; fillsync has a twentieth. The paper's are 3 million
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(20..=3_000_000))]
    operations: u64,
    /// Directory for the volume; default: $TMPDIR, or /var/tmp
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The command siftfs; default: the one beside this program
    #[arg(long)]
    siftfs: Option<PathBuf>,
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
    say(&output, json);
    Ok(())
}

fn mounted(words: &Mounted) -> Result<()> {
    let beside = std::env::current_exe().map_err(failed("own path"))?.with_file_name("siftfs");
    let siftfs = words.siftfs.as_deref().unwrap_or(&beside);
    let (rounds, operations) =
        if words.quick { (1, 400) } else { (words.rounds, words.operations) };
    let place = &Place::new("siftfs-ceto", NEEDED, words.dir.as_deref())?;
    let output = table3::measure(&table3::Plan { place, siftfs, rounds, operations })?;
    say(&output, words.json);
    Ok(())
}

fn say(output: &Output, json: bool) {
    match json {
        true => println!("{:#}", output.json),
        false => print!("{}", output.text),
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().what {
        What::Table1(common) => figure(&common, table1::measure),
        What::Table2(common) => figure(&common, table2::measure),
        What::Table3(words) => mounted(&words),
        What::Kernel(words) => beside::measure(&words).map(|output| say(&output, words.json)),
        What::Fig2(common) => figure(&common, fig2::measure),
        What::Fig11(common) => figure(&common, fig11::measure),
        What::Fig12(common) => figure(&common, fig12::measure),
        What::Fig13(common) => figure(&common, fig13::measure),
        What::Fig14(common) => figure(&common, fig14::measure),
        What::Fig15a(common) => figure(&common, fig15a::measure),
        What::Fig15b(common) => figure(&common, fig15b::measure),
        What::Open(common) => figure(&common, open::measure),
        What::Fairness(common) => figure(&common, fairness::measure),
        What::Target(args) => roles::target(&args),
        What::Echo(args) => roles::echo(&args),
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
