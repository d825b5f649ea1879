//! Seeded kills: a host and its device process as real processes, a load through the mount, and
//! SIGKILL at any moment, again and again on the same volume.
//!
//! Every decision is drawn from a seed ([`plan`]): the volume, which process does the background
//! work and how, what becomes of the device process while the load goes on, how the round ends, how
//! often its recovery is killed. Threads of the load ([`worker`]) carry out generated operations by
//! system calls; each has a model of its own, whose oracle notes what was acknowledged. After a
//! death of the host the oracle judges what recovery brought back (clauses O1 to O9 of
//! `siftfs_model`); after an unmount, the tree is the model's, for the kernel's ext4 too, and
//! `e2fsck -fn` is content. A death of the device process alone must not be noticed by any call.
//!
//! In some rounds the volume is a server's, and the workers work through a mount of it. A death of
//! the server must not be noticed by any call either, but for those that nobody can repeat
//! ([`worker`]). When the mount's daemon alone dies, all that was answered is at the server.
//!
//! A kill takes away a process and what it had in memory. What the kernel has of its writes stays;
//! power cuts are `testing/crash`'s.

pub mod asynchronous;
mod beside;
pub mod calls;
pub mod damage;
mod keys;
pub mod ledger;
pub mod plan;
mod posix;
pub mod process;
pub mod programs;
pub mod round;
pub mod signals;
pub mod stage;
pub mod summary;
pub mod tree;
pub mod unnamed;
pub mod ways;
pub mod worker;

use plan::{ERA, Geometry, Only, Plan};
use round::Run;
use siftfs_rig::place::{Failed, Place, Result, failed, run};
use stage::{Stage, logs_in};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use summary::Summary;

/// Space needed in the temporary directory, in bytes.
const NEEDED: u64 = 2 << 30;

/// How long it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// A run of this many rounds.
    Rounds(u64),
    /// A run whose last round begins within this time.
    Time(Duration),
}

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What all decisions are drawn from.
    pub seed: u64,
    /// The first round; the rounds before it on the same volume are run, too.
    pub from: u64,
    /// How long it goes on.
    pub length: Length,
    /// What may be drawn.
    pub only: Only,
    /// The command under test.
    pub siftfs: PathBuf,
    /// Where volumes are made; default: `$TMPDIR`, or `/var/tmp`.
    pub dir: Option<PathBuf>,
    /// Where a failing round's volume is kept; default: beside it.
    pub keep: Option<PathBuf>,
    /// Show every round's plan.
    pub verbose: bool,
}

/// Runs rounds until the end, a failure, or SIGINT. `show` gets a line now and then.
///
/// # Errors
/// What went wrong, in which round, how to run it again, and where everything was kept.
pub fn kills(options: &Options, show: &dyn Fn(&str)) -> Result<Summary> {
    let place = Place::new("siftfs-kills", NEEDED, options.dir.as_deref())?;
    let mut run = Run::new(Stage::new(&place, &options.siftfs)?)?;
    let (start, mut told) = (Instant::now(), Instant::now());
    let first = options.from - options.from % ERA;
    run.stage.summary.seed = options.seed;
    for round in first.. {
        let plan = Plan::new(options.seed, round, &options.only);
        let last = match options.length {
            Length::Rounds(n) => round + 1 >= options.from + n,
            Length::Time(t) => start.elapsed() >= t && round >= options.from,
        };
        if options.verbose {
            show(&plan.to_string());
        }
        one(&mut run, options, &plan, last).map_err(|e| kept(&mut run, options, &plan, e))?;
        let summary = &mut run.stage.summary;
        summary.seconds = start.elapsed().as_secs_f64();
        if told.elapsed() > Duration::from_secs(10) || last {
            show(&line(summary));
            told = Instant::now();
        }
        if last {
            break;
        }
    }
    Ok(run.stage.summary.clone())
}

fn line(s: &Summary) -> String {
    format!(
        "{:.0} s, {} rounds: {} hosts, {} servers and {} device processes killed, \
         {} recoveries too; {} calls, {} acknowledged; {} e2fsck",
        s.seconds,
        s.rounds,
        s.host_kills,
        s.server_kills,
        s.device_kills,
        s.recoveries_killed,
        s.calls,
        s.acknowledged,
        s.e2fsck_runs
    )
}

fn one(run: &mut Run<'_>, options: &Options, plan: &Plan, last: bool) -> Result<()> {
    let geometry = Geometry::of(options.seed, plan.round);
    let next = Plan::new(options.seed, plan.round + 1, &options.only);
    let next = (!plan.ends_era() && !last).then_some(&next.mount);
    run.stage.watch.alive();
    let ended = run.round(plan, &geometry, next);
    match (run.stage.watch.report(), ended) {
        (None, ended) => ended,
        // A round that died for the want of progress may look like one that was killed as planned.
        (Some(stuck), Ok(())) => Err(Failed(stuck)),
        (Some(stuck), Err(Failed(e))) => Err(Failed(format!("{e}\n{stuck}"))),
    }
}

/// Keeps what a failing round left, and says how to run it again.
fn kept(run: &mut Run<'_>, options: &Options, plan: &Plan, Failed(why): Failed) -> Failed {
    run.stage.end_all();
    if run.stage.place.go_on().is_err() {
        return Failed(why);
    }
    let name = format!("siftfs-kills-failed-{}-{}", options.seed, plan.round);
    let parent = options.keep.clone().or_else(|| options.dir.clone());
    let temporary = || std::env::var_os("TMPDIR").map_or("/var/tmp".into(), PathBuf::from);
    let dir = parent.unwrap_or_else(temporary).join(name);
    let done = keep(run, &dir, &format!("{plan}\n{why}\n"));
    let place = match done {
        Ok(()) => format!("kept in {}: volume, logs, what each worker did", dir.display()),
        Err(Failed(e)) => format!("nothing kept: {e}"),
    };
    let (seed, round) = (options.seed, plan.round);
    Failed(format!(
        "{why}\n{plan}\nagain: siftfs-kills --seed {seed} --from {round} --rounds 1{}\n{place}",
        options.only
    ))
}

fn keep(run: &mut Run<'_>, dir: &Path, what: &str) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(failed(dir.display()))?;
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(failed(path.display()))
    };
    write("failure.txt", what)?;
    for worker in &run.workers {
        let name = format!("worker-{}.txt", worker.place.worker);
        write(&name, &(worker.story().join("\n") + "\n"))?;
    }
    for program in &run.programs {
        write(&format!("{}.txt", program.name()), &(program.story().join("\n") + "\n"))?;
    }
    run.stage.copy(&dir.join("volume"))?;
    let place = run.stage.place;
    let mut files = logs_in(&place.path("logs"));
    files.extend(["before-recovery", "before-recovery.log"].map(|name| place.path(name)));
    for file in files.iter().filter(|f| f.exists()) {
        let paths = [siftfs_rig::place::arg(file)?, siftfs_rig::place::arg(dir)?];
        self::run("cp", &["--sparse=always", paths[0], paths[1]])?;
    }
    Ok(())
}

/// This process's umask.
///
/// # Errors
/// `/proc/self/status` could not be read, or does not say.
pub fn umask() -> std::result::Result<u16, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|l| l.strip_prefix("Umask:"));
    let text = line.ok_or("/proc/self/status has no umask")?;
    u16::from_str_radix(text.trim(), 8).map_err(|e| format!("umask {text}: {e}"))
}

/// A time such as `90s`, `10m`, `1h`; a bare number means seconds.
///
/// # Errors
/// The form that a time has.
pub fn duration(text: &str) -> std::result::Result<Duration, String> {
    let (digits, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(digits) => (digits, &text[digits.len()..]),
        None => (text, "s"),
    };
    let factor = match unit {
        "m" => 60,
        "h" => 3600,
        _ => 1,
    };
    let seconds = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    let wrong = || format!("{text}: not a time such as 90s, 10m or 1h");
    seconds.filter(|s| *s > 0).map(Duration::from_secs).ok_or_else(wrong)
}
