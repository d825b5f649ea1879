//! Kills: a process with two mounts of a volume, and with a program that embeds it and holds write
//! leases, is killed by SIGKILL while writers work through all of that, again and again on the same
//! volume.
//!
//! This process draws everything from a seed ([`plan`]), works through the mounts, and asks the one
//! that is killed ([`serve`]) for what its program does. So the [`book`] of what returned, and of
//! what is durable, outlives the kill. Beside them each mount has a thread of `siftfs-kills` with
//! a model of its own, and its ledger of sections. Afterwards the volume is opened again and
//! judged: what was durable is there, by whichever door it came and by whichever it was synced;
//! what is there was written, and is whole; all front ends see the same. A volume that is closed is
//! plain ext4.

pub mod book;
mod doors;
mod host;
mod judge;
pub mod plan;
pub mod record;
mod round;
pub mod serve;
mod writer;

use plan::{ERA, Plan};
use round::Run;
use siftfs_fuse::Requests;
use siftfs_rig::place::{Failed, Place, Result, arg, failed, run};
use std::path::{Path, PathBuf};

/// Space needed in the temporary directory, in bytes.
const NEEDED: u64 = 2 << 30;

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Rounds.
    pub rounds: u64,
    /// Processes that were killed under load, or while they closed the volume.
    pub kills: u64,
    /// Recoveries that were killed.
    pub recoveries: u64,
    /// Calls that returned.
    pub calls: u64,
    /// Those of them that promised durability.
    pub acknowledged: u64,
    /// Writes that were kept under a lease.
    pub kept: u64,
    /// Changes that had returned, were not durable, and are lost.
    pub lost: u64,
    /// Runs of `e2fsck -fn`.
    pub checks: u64,
}

/// Runs `rounds` rounds.
///
/// # Errors
/// What went wrong, in which round, and where what it left is kept.
pub fn kills(seed: u64, rounds: u64, requests: Requests) -> Result<Summary> {
    let place = Place::new("siftfs-fronts", NEEDED, None)?;
    let mut campaign = Run::new(&place, seed, requests)?;
    for round in 0..rounds {
        let plan = Plan::new(seed, round);
        let last = round + 1 == rounds || (round + 1).is_multiple_of(ERA);
        let ended = campaign.round(&plan, last);
        // A round that died for the want of progress may look like one that was killed as planned.
        let stuck = campaign.report();
        let why = match (ended, stuck) {
            (Ok(()), None) => continue,
            (Ok(()), Some(stuck)) => stuck,
            (Err(Failed(why)), stuck) => [why, stuck.unwrap_or_default()].join("\n"),
        };
        campaign.end_all();
        let why_and_how = format!("{why}\n{plan:?}\n\n{}\n", campaign.story.join("\n"));
        let dir = keep(&place, seed, round, &why_and_how);
        return Err(Failed(format!("round {round} of seed {seed}: {why}\n{plan:?}\n{dir}")));
    }
    let did = campaign.summary;
    if did.kills == 0 || did.acknowledged == 0 || did.kept == 0 {
        return Err(Failed(format!("the campaign did not do what it is for: {did:?}")));
    }
    Ok(did)
}

/// Keeps what a failing round left, and says where.
fn keep(place: &Place, seed: u64, round: u64, why: &str) -> String {
    let parent = std::env::var_os("TMPDIR").map_or("/var/tmp".into(), PathBuf::from);
    let dir = parent.join(format!("siftfs-fronts-failed-{seed}-{round}"));
    match copy_all(place, &dir, why) {
        Ok(()) => format!("kept in {}", dir.display()),
        Err(Failed(e)) => format!("nothing kept: {e}"),
    }
}

fn copy_all(place: &Place, dir: &Path, why: &str) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(failed(dir.display()))?;
    let told = dir.join("failure.txt");
    std::fs::write(&told, why).map_err(failed(told.display()))?;
    for name in ["volume", "before-recovery", "log"] {
        let from = place.path(name);
        if from.exists() {
            run("cp", &["--sparse=always", arg(&from)?, arg(dir)?])?;
        }
    }
    Ok(())
}
