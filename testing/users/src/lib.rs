//! Users against each other on one mount.
//!
//! A round mounts a volume with drawn options and lets *scenes* run beside each other: ordinary
//! users, whose every call must come back soon and whose files must stay as they left them, and
//! users who try to stop them, to keep a privilege that a write should have taken, or to change
//! what a view of the mount, a limit or another user's rights keep from them. What a scene may not
//! do, and could, is a *finding*, and so is a call of an ordinary user that does not come back.
//! After the round the volume is unmounted, and both `siftfs fsck` and `e2fsck -fn` are content.
//!
//! All users are threads of one process (`siftfs_rig::hostile` changes the user of a thread alone).
//! Everything stays on the mount that the round made itself, and is bounded in number and time.

pub mod plan;
pub mod round;
pub mod scenes;
pub mod watch;

use plan::Plan;
use round::Grounds;
use scenes::Scene;
use serde::Serialize;
use siftfs_kills::Length;
use siftfs_rig::place::{Failed, Place, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Space needed in the temporary directory, in bytes.
const NEEDED: u64 = 1 << 30;

/// A campaign.
#[derive(Clone, Debug)]
pub struct Options {
    /// What all decisions are drawn from.
    pub seed: u64,
    /// The first round.
    pub from: u64,
    /// How long it goes on.
    pub length: Length,
    /// How long each round lasts.
    pub round: Duration,
    /// Calls of ordinary users come back within this time.
    pub patience: Duration,
    /// Hostile scenes that may be drawn; empty: all.
    pub only: Vec<Scene>,
    /// Mount options that come behind the drawn ones.
    pub mount: String,
    /// Threads of the scenes that make many calls at once.
    pub crowd: usize,
    /// The command under test.
    pub siftfs: PathBuf,
    /// Where volumes are made; default: `$TMPDIR`, or `/var/tmp`.
    pub dir: Option<PathBuf>,
    /// Show every round's plan.
    pub verbose: bool,
}

/// What a campaign did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// Rounds that ended well.
    pub rounds: u64,
    /// How long it took.
    pub seconds: f64,
    /// Calls of ordinary users.
    pub calls: u64,
    /// The longest of them, in milliseconds.
    pub longest_ms: u64,
    /// What each hostile scene tried, by its name.
    pub tried: BTreeMap<String, u64>,
}

/// Runs rounds until the end, a finding, or SIGINT. `show` gets a line now and then.
///
/// # Errors
/// The findings, in which round, and how to run it again.
pub fn campaign(options: &Options, show: &dyn Fn(&str)) -> Result<Summary> {
    let place = Place::new("siftfs-users", NEEDED, options.dir.as_deref())?;
    siftfs_rig::connection::prepare()?;
    let grounds = Grounds::new(&place, options)?;
    let mut summary = Summary { seed: options.seed, ..Summary::default() };
    let (start, mut told) = (Instant::now(), Instant::now());
    for round in options.from.. {
        let last = match options.length {
            Length::Rounds(n) => round + 1 >= options.from + n,
            Length::Time(t) => start.elapsed() >= t,
        };
        let plan = Plan::new(options.seed, round, &options.only);
        if options.verbose {
            show(&plan.to_string());
        }
        let ended = place.go_on().and_then(|()| grounds.round(options, &plan, &mut summary));
        ended.map_err(|Failed(why)| {
            Failed(format!(
                "{why}\n{plan}\nagain: siftfs-users --seed {} --from {round} --rounds 1{}",
                options.seed,
                Scene::as_option(&options.only)
            ))
        })?;
        summary.rounds += 1;
        summary.seconds = start.elapsed().as_secs_f64();
        if told.elapsed() > Duration::from_secs(10) || last {
            show(&format!(
                "{:.0} s, {} rounds: {} calls, the longest {} ms; tried: {:?}",
                summary.seconds, summary.rounds, summary.calls, summary.longest_ms, summary.tried
            ));
            told = Instant::now();
        }
        if last {
            break;
        }
    }
    Ok(summary)
}
