//! How often threads went to sleep: each hand-over from one to another costs one of them, so this
//! is a measure that a busy machine leaves as it is.

use siftfs_rig::place::{Result, failed};
use std::fs;

/// How often the threads of a process, those that there are now, went to sleep by themselves.
pub fn of(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&path).map_err(failed(&path))?;
    let count = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        voluntary(&status)
    };
    // One that has just ended is missing.
    Ok(tasks.flatten().filter_map(count).sum())
}

/// From `/proc/PID/task/TID/status`.
fn voluntary(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
}

#[cfg(test)]
#[path = "sleeps_tests.rs"]
mod tests;
