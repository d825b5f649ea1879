//! A control group of our own that bounds the processor time of this process: a weak processor on a
//! machine that has a strong one.

use crate::failure::Failure;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Period over which the share holds, in microseconds: short, for a weak processor is slow and does
/// not stop for a tenth of a second. Longer where the share of it would be below what the kernel
/// takes.
const PERIOD: u64 = 10_000;
/// The kernel takes no less than this, in microseconds.
const LEAST: u64 = 1000;
const NAME: &str = "siftfs-device-";

/// Which interface the kernel offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

/// This process is in it; it is removed when this is dropped.
pub struct Quota {
    group: PathBuf,
    /// Where the process was before.
    home: PathBuf,
}

/// Bounds this process to `percent` of one processor.
///
/// # Errors
/// If there is no control group in which that can be said.
pub fn limit(percent: u64) -> Result<Quota, Failure> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut tried = Vec::new();
    for (version, top) in controllers(&table) {
        match enter(version, &top, &own, percent) {
            Ok(quota) => return Ok(quota),
            Err(e) => tried.push(format!("{}: {e}", top.display())),
        }
    }
    if tried.is_empty() {
        tried.push("no cgroup file system with processor time is mounted".into());
    }
    let why = tried.join("; ");
    Err(Failure::plain(format!("--cpu-quota needs a control group that can be made here: {why}")))
}

/// Where processor time is controlled, by what /proc/self/mountinfo says.
fn controllers(table: &str) -> Vec<(Version, PathBuf)> {
    let mut found = Vec::new();
    for line in table.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        let Some(at) = place.split(' ').nth(4).map(PathBuf::from) else { continue };
        let mut kind = kind.split(' ');
        let (fs_type, options) = (kind.next(), kind.nth(1).unwrap_or_default());
        match fs_type {
            Some("cgroup") if options.split(',').any(|o| o == "cpu") => {
                found.push((Version::One, at));
            }
            Some("cgroup2") => found.push((Version::Two, at)),
            _ => {}
        }
    }
    found
}

/// The group that a process is in, by what its /proc/PID/cgroup says.
fn home(version: Version, top: &Path, own: &str) -> PathBuf {
    let line = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (names, path) = rest.split_once(':')?;
        let ours = match version {
            Version::One => names.split(',').any(|n| n == "cpu"),
            Version::Two => names.is_empty(),
        };
        ours.then_some(path)
    });
    top.join(line.unwrap_or("/").trim_start_matches('/'))
}

/// The share of a period, and the period, in microseconds.
fn share(percent: u64) -> (u64, u64) {
    let period = PERIOD.max((LEAST * 100).div_ceil(percent));
    (percent * period / 100, period)
}

fn enter(version: Version, top: &Path, own: &str, percent: u64) -> io::Result<Quota> {
    sweep(top);
    let home = home(version, top, own);
    if version == Version::Two {
        let enabled = fs::read_to_string(top.join("cgroup.subtree_control"))?;
        if !enabled.split_whitespace().any(|c| c == "cpu") {
            fs::write(top.join("cgroup.subtree_control"), "+cpu")?;
        }
    }
    let group = top.join(format!("{NAME}{}", std::process::id()));
    fs::create_dir(&group)?;
    let quota = Quota { group, home };
    let (allowed, period) = share(percent);
    match version {
        Version::One => {
            fs::write(quota.group.join("cpu.cfs_period_us"), period.to_string())?;
            fs::write(quota.group.join("cpu.cfs_quota_us"), allowed.to_string())?;
        }
        Version::Two => fs::write(quota.group.join("cpu.max"), format!("{allowed} {period}"))?,
    }
    fs::write(quota.group.join("cgroup.procs"), std::process::id().to_string())?;
    Ok(quota)
}

/// Removes the groups that killed processes left behind; the kernel keeps those that are in use.
fn sweep(top: &Path) {
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(NAME) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let back = fs::write(self.home.join("cgroup.procs"), std::process::id().to_string());
        if let Err(error) = back.and_then(|()| fs::remove_dir(&self.group)) {
            tracing::warn!(%error, group = %self.group.display(), "the control group is left");
        }
    }
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
