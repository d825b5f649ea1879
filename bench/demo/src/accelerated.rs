//! An unmodified program by a log of its own: SQLite's shell under `siftfs accel`, which is killed
//! together with the daemon in the middle of its work, and has lost nothing.

use crate::commits::{self, Rates};
use crate::report::Table;
use crate::shell::{self, Shell};
use siftfs_rig::place::{Failed, Place, Result, arg, step};
use siftfs_rig::volume::Volume;
use std::path::Path;
use std::time::{Duration, Instant};

const OPTIONS: [&str; 2] = ["-o", "private_logs=on"];
/// How long the program works before the kill.
const WORK: Duration = Duration::from_millis(1500);
/// How long it may take to get its log and lease.
const PATIENCE: Duration = Duration::from_secs(20);

/// Kills program and daemon, recovers and checks; then measures beside `ext4`, a directory to be
/// made on the kernel's ext4.
pub fn demonstrate(place: &Place, ext4: &Path, table: &mut Table) -> Result<()> {
    let volume = Volume::make(place, "accelerated", "256M")?;
    volume.mount_with(&OPTIONS)?;
    let database = volume.dir.join("killed.sqlite");
    shell::create(&database)?;
    let acknowledged = until_the_kill(place, &volume, &database)?;
    println!("  killed SQLite and the daemon with SIGKILL after {acknowledged} commits");
    let fsyncs = recover(&volume)?;
    volume.mount_with(&OPTIONS)?;
    let what = format!("checking {acknowledged} acknowledged transactions");
    step(&what, || check(&database, acknowledged))?;
    let Rates { ext4, plain, accelerated } = commits::compare(place, &volume, ext4)?;
    println!(
        "  SQLite WAL FULL commits: accelerated {:.2} of ext4's, plain {:.2}",
        accelerated / ext4,
        plain / ext4
    );
    volume.unmount()?;
    volume.e2fsck()?;
    table.fact("transactions of the accelerated SQLite", acknowledged.to_string());
    table.fact("its fsyncs taken in after the kill", fsyncs.to_string());
    table.commits(Rates { ext4, plain, accelerated });
    Ok(())
}

/// What a transaction inserts, in SQL.
fn payload(n: impl std::fmt::Display) -> String {
    format!("printf('%0400d',{n})")
}

/// Returns the newest transaction of which the program was told that it is committed.
fn until_the_kill(place: &Place, volume: &Volume, database: &Path) -> Result<u64> {
    let script = place.path("killed.sql");
    shell::script(&script, payload)?;
    let mut shell = Shell::start(place, "killed", Some(&volume.program), (database, &script))?;
    let start = Instant::now();
    while start.elapsed() < WORK || !is_accelerated(volume, &shell)? {
        place.go_on()?;
        shell.goes_on()?;
        if start.elapsed() > WORK + PATIENCE {
            let logs = commits::private_logs(volume)?;
            return Err(Failed(format!("SQLite was not accelerated: {logs:?}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    shell.goes_on()?;
    volume.kill_daemon_and(|| shell.kill())?;
    shell.end()
}

/// Has the program a log of its own, a lease, and commits?
fn is_accelerated(volume: &Volume, shell: &Shell) -> Result<bool> {
    let logs = commits::private_logs(volume)?;
    Ok(logs.file_logs > 0 && logs.leases > 0 && shell.newest()? > 0)
}

/// Brings the volume back by `siftfs recover`; returns how many fsyncs the program's log had that
/// the volume had not.
fn recover(volume: &Volume) -> Result<u64> {
    let start = Instant::now();
    let report = volume.siftfs(&["recover", arg(&volume.image)?, "--json"])?;
    let time = start.elapsed();
    let report: serde_json::Value =
        serde_json::from_str(&report).map_err(|e| Failed(format!("siftfs recover --json: {e}")))?;
    let of = |what: &str| {
        let value = report["private_logs"][what].as_u64();
        value.ok_or_else(|| Failed(format!("siftfs recover --json says no {what} of logs")))
    };
    let (logs, batches, records) = (of("logs")?, of("batches")?, of("records")?);
    if logs == 0 {
        return Err(Failed(format!("recovery found no log of the program: {report}")));
    }
    println!(
        "  recovered in {time:.0?}: {records} records of {batches} fsyncs taken in from the \
         program's log"
    );
    Ok(batches)
}

/// Every acknowledged transaction is there, and perhaps the one that nobody was told of.
fn check(database: &Path, acknowledged: u64) -> Result<()> {
    let whole = shell::ask(database, "PRAGMA integrity_check;")?;
    if whole != "ok" {
        return Err(Failed(format!("integrity_check says {whole}")));
    }
    let query = format!("SELECT count(*), max(id), sum(payload={}) FROM log;", payload("id"));
    let found = shell::ask(database, &query)?;
    if (acknowledged..=acknowledged + 1).any(|n| found == format!("{n}|{n}|{n}")) {
        return Ok(());
    }
    Err(Failed(format!(
        "{acknowledged} transactions were acknowledged; rows, newest and right ones are {found}"
    )))
}
