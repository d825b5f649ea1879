//! How many transactions a second SQLite commits: on ext4, on a mount, and there by a log of its
//! own.

use crate::shell::{self, Shell};
use siftfs_rig::place::{Failed, Place, Result, failed, step};
use siftfs_rig::volume::Volume;
use siftfs_status::PrivateLogs;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(500);
/// Commits before the first round: SQLite's first checkpoint is behind them, and leases are there.
pub const FIRST: u64 = 1200;
/// For how long these are waited for, on a slow disk.
const FIRST_LIMIT: Duration = Duration::from_secs(4);
/// Bytes that were not there before and that no coder shortens.
const PAYLOAD: &str = "hex(randomblob(200))";

/// Commits a second, each the median of its rounds.
#[derive(Clone, Copy, Default)]
pub struct Rates {
    /// On ext4.
    pub ext4: f64,
    /// On the mount.
    pub plain: f64,
    /// On the mount, under `siftfs accel`.
    pub accelerated: f64,
}

/// What the daemon says of programs' logs.
pub fn private_logs(volume: &Volume) -> Result<PrivateLogs> {
    let mount = volume.status()?.mounts.into_iter().next();
    let logs = mount.and_then(|mount| mount.private_logs);
    logs.ok_or_else(|| Failed("status has no private logs".into()))
}

/// Measures in turns. `ext4` is a directory to be made on the kernel's ext4.
pub fn compare(place: &Place, volume: &Volume, ext4: &Path) -> Result<Rates> {
    fs::create_dir(ext4).map_err(failed(ext4.display()))?;
    let ways = [
        ("on-ext4", ext4.join("database.sqlite"), None),
        ("plain", volume.dir.join("plain.sqlite"), None),
        ("by-accel", volume.dir.join("accelerated.sqlite"), Some(&*volume.program)),
    ];
    let script = place.path("commits.sql");
    shell::script(&script, |_| PAYLOAD.into())?;
    let before = private_logs(volume)?.records;
    let mut shells = Vec::new();
    step(&format!("SQLite on ext4, on the mount and accelerated, {FIRST} commits each"), || {
        for (name, database, siftfs) in &ways {
            shell::create(database)?;
            shells.push(begin(place, Shell::start(place, name, *siftfs, (database, &script))?)?);
        }
        Ok(())
    })?;
    let mut rounds: [Vec<f64>; 3] = Default::default();
    step("measuring: SQLite's commits, in turns", || {
        for _ in 0..ROUNDS {
            for (shell, rates) in shells.iter_mut().zip(&mut rounds) {
                place.go_on()?;
                rates.push(round(shell)?);
            }
        }
        Ok(())
    })?;
    for shell in &mut shells {
        shell.kill()?;
    }
    let mut told = 0;
    for (shell, (_, database, _)) in shells.into_iter().zip(&ways) {
        told = count(shell, database)?;
    }
    let records = private_logs(volume)?.records - before;
    // The last one is the accelerated one.
    if records < told {
        return Err(Failed(format!(
            "SQLite was not accelerated: {told} commits, and {records} records of its log"
        )));
    }
    fs::remove_dir_all(ext4).map_err(failed(ext4.display()))?;
    let [ext4, plain, accelerated] = rounds.map(median);
    Ok(Rates { ext4, plain, accelerated })
}

/// How many transactions a killed shell was told are committed; they are all there.
fn count(shell: Shell, database: &Path) -> Result<u64> {
    let told = shell.end()?;
    let rows = shell::ask(database, "SELECT count(*) FROM log;")?;
    match rows.parse::<u64>() {
        Ok(rows) if rows >= told => Ok(told),
        _ => Err(Failed(format!("{}: {told} commits, {rows} rows", database.display()))),
    }
}

/// Lets it come to its first round, where it waits.
fn begin(place: &Place, mut shell: Shell) -> Result<Shell> {
    let start = Instant::now();
    while shell.newest()? < FIRST && start.elapsed() < FIRST_LIMIT {
        place.go_on()?;
        shell.goes_on()?;
        std::thread::sleep(Duration::from_millis(10));
    }
    shell.pause(true)?;
    Ok(shell)
}

/// Lets it work for a moment; commits a second.
fn round(shell: &mut Shell) -> Result<f64> {
    let (before, start) = (shell.newest()?, Instant::now());
    shell.pause(false)?;
    std::thread::sleep(ROUND);
    shell.pause(true)?;
    let time = start.elapsed();
    shell.goes_on()?;
    Ok((shell.newest()? - before) as f64 / time.as_secs_f64())
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or(0.0)
}
