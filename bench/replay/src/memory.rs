//! The resident memory of a checkpoint, as the kernel counts it, in a process of its own.

use crate::backlog::{Backlog, Kind};
use crate::volume::{Volume, checkpoint, device, resume};
use serde_json::{Value, json};
use siftfs_base::{Error, Result};
use siftfs_device::{Device, FileOptions, open_exclusive};
use siftfs_service::ReplayMode;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const MODES: [ReplayMode; 3] = [ReplayMode::Ordered, ReplayMode::Coalesce, ReplayMode::Auto];
const MIB: u64 = 1 << 20;

fn refused(what: &str, e: impl std::fmt::Display) -> Error {
    Error::Refused(format!("{what}: {e}"))
}

/// For each budget in MiB, and each mode: a hoard is left in a file of `dir`, and another process
/// checkpoints it.
pub fn run(dir: &Path, budgets: &[u64], scale: u64) -> Result<Value> {
    let path = dir.join(format!("siftfs-replay-bench-{}", std::process::id()));
    let done = rows(&path, budgets, scale);
    // The file is ours alone, whether it was made or not.
    let _ = std::fs::remove_file(&path);
    done
}

fn rows(path: &Path, budgets: &[u64], scale: u64) -> Result<Value> {
    let backlog = Backlog::new(Kind::Hoard, scale);
    let file: Arc<dyn Device> = device(path, backlog.sizes().total())?;
    drop(file);
    let mut rows = serde_json::Map::new();
    for budget in budgets {
        let mut row = serde_json::Map::new();
        for mode in MODES {
            build(path, &backlog)?;
            row.insert(mode.to_string(), elsewhere(path, *budget, mode)?);
        }
        rows.insert(format!("{budget}M"), Value::Object(row));
    }
    Ok(Value::Object(rows))
}

fn build(path: &Path, backlog: &Backlog) -> Result<()> {
    let device: Arc<dyn Device> = Arc::new(open_exclusive(path, true, FileOptions::default())?);
    let (sizes, tables) = (backlog.sizes(), backlog.inode_tables());
    let mut volume = Volume::new(Arc::clone(&device), &sizes, ReplayMode::Auto, tables)?;
    backlog.build(&mut volume)?;
    device.flush()
}

/// Runs [`one`] in a process of its own.
fn elsewhere(path: &Path, budget: u64, mode: ReplayMode) -> Result<Value> {
    let program = std::env::current_exe().map_err(|e| refused("this program's path", e))?;
    let mut command = Command::new(program);
    command.arg("checkpoint").arg(path).arg(budget.to_string()).arg(mode.to_string());
    let out = command.output().map_err(|e| refused("cannot start a process", e))?;
    if !out.status.success() {
        return Err(refused("the process that checkpoints", String::from_utf8_lossy(&out.stderr)));
    }
    serde_json::from_slice(&out.stdout).map_err(|e| refused("what it printed", e))
}

/// Checkpoints what lies in the file at `path` within `budget` MiB, and says what memory that took
/// beyond what the process had before.
pub fn one(path: &Path, budget: u64, mode: &str) -> Result<Value> {
    let device = open_exclusive(path, true, FileOptions::default())?;
    let mut service = resume(Arc::new(device), mode.parse()?, budget * MIB)?;
    // From here on the kernel notes a new peak.
    std::fs::write("/proc/self/clear_refs", "5").map_err(|e| refused("clear_refs", e))?;
    let before = status("VmRSS:")?;
    let (_, report) = checkpoint(&mut service)?;
    let peak = status("VmHWM:")?;
    Ok(json!({
        "before_mib": before as f64 / MIB as f64,
        "checkpoint_mib": peak.saturating_sub(before) as f64 / MIB as f64,
        "report": report,
    }))
}

/// Bytes, by the line of `/proc/self/status` of this name.
fn status(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status");
    let status = status.map_err(|e| refused("/proc/self/status", e))?;
    let line = status.lines().find_map(|l| l.strip_prefix(name));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| refused("/proc/self/status", "has no such line"))
}
