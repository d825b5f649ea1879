//! Control groups of our own: one that bounds the processor time of a device process (a weak
//! processor on a machine that has a strong one), and one for a mount's memory (`memory`).

use crate::show::failure::Failure;
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
pub enum Version {
    /// Each controller has a hierarchy of its own.
    One,
    /// All controllers have the same.
    Two,
}

/// A hierarchy of groups in which something is controlled.
#[derive(Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// What is controlled, as the kernel calls it.
    controller: &'static str,
    /// How it is controlled.
    pub version: Version,
    /// Its uppermost group that can be seen from here.
    pub top: PathBuf,
    /// The group that this process is in.
    pub home: PathBuf,
}

/// A group of our own. When this is dropped the process goes back to where it was, and the group is
/// removed.
pub struct Group {
    path: PathBuf,
    home: PathBuf,
}

/// Bounds this process to `percent` of one processor, for as long as the result lives.
///
/// # Errors
/// If there is no control group in which that can be said.
pub fn limit(percent: u64) -> Result<Group, Failure> {
    let mut tried = Vec::new();
    for hierarchy in Hierarchy::all("cpu") {
        match bounded(&hierarchy, percent) {
            Ok(group) => return Ok(group),
            Err(e) => tried.push(format!("{}: {e}", hierarchy.top.display())),
        }
    }
    if tried.is_empty() {
        tried.push("no cgroup file system with processor time is mounted".into());
    }
    let why = tried.join("; ");
    Err(Failure::plain(format!("--cpu-quota needs a control group that can be made here: {why}")))
}

fn bounded(hierarchy: &Hierarchy, percent: u64) -> io::Result<Group> {
    let group = hierarchy.make(NAME)?;
    let (allowed, period) = share(percent);
    match hierarchy.version {
        Version::One => {
            group.set("cpu.cfs_period_us", period)?;
            group.set("cpu.cfs_quota_us", allowed)?;
        }
        Version::Two => group.set("cpu.max", format!("{allowed} {period}"))?,
    }
    group.enter()?;
    Ok(group)
}

/// The share of a period, and the period, in microseconds.
fn share(percent: u64) -> (u64, u64) {
    let period = PERIOD.max((LEAST * 100).div_ceil(percent));
    (percent * period / 100, period)
}

impl Hierarchy {
    /// The hierarchies that control `controller`, or may.
    pub fn all(controller: &'static str) -> Vec<Self> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::of(controller, &table, &own)
    }

    /// By what /proc/self/mountinfo and /proc/self/cgroup say.
    fn of(controller: &'static str, table: &str, own: &str) -> Vec<Self> {
        let mut found = Vec::new();
        for line in table.lines() {
            let Some((place, kind)) = line.split_once(" - ") else { continue };
            let Some(top) = place.split(' ').nth(4).map(PathBuf::from) else { continue };
            let mut kind = kind.split(' ');
            let (fs_type, options) = (kind.next(), kind.nth(1).unwrap_or_default());
            let version = match fs_type {
                Some("cgroup") if options.split(',').any(|o| o == controller) => Version::One,
                Some("cgroup2") => Version::Two,
                _ => continue,
            };
            let home = home(controller, version, &top, own);
            found.push(Self { controller, version, top, home });
        }
        found
    }

    /// Makes a group below the uppermost one, called `prefix` and the number of this process, which
    /// is not in it yet.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn make(&self, prefix: &str) -> io::Result<Group> {
        sweep(&self.top, prefix);
        if self.version == Version::Two {
            let switch = self.top.join("cgroup.subtree_control");
            let enabled = fs::read_to_string(&switch)?;
            if !enabled.split_whitespace().any(|c| c == self.controller) {
                fs::write(switch, format!("+{}", self.controller))?;
            }
        }
        let path = self.top.join(format!("{prefix}{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Group { path, home: self.home.clone() })
    }
}

/// The group that a process is in, by what its /proc/PID/cgroup says.
fn home(controller: &str, version: Version, top: &Path, own: &str) -> PathBuf {
    let line = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (names, path) = rest.split_once(':')?;
        let ours = match version {
            Version::One => names.split(',').any(|n| n == controller),
            Version::Two => names.is_empty(),
        };
        ours.then_some(path)
    });
    top.join(line.unwrap_or("/").trim_start_matches('/'))
}

/// Removes the groups that killed processes left behind; the kernel keeps those that are in use.
fn sweep(top: &Path, prefix: &str) {
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        // One that is being made is empty, and its process is there.
        let left = process.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
        if left {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Group {
    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn set(&self, file: &str, value: impl ToString) -> io::Result<()> {
        fs::write(self.path.join(file), value.to_string())
    }

    /// This process, all of its threads, is in it from here on.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn enter(&self) -> io::Result<()> {
        self.set("cgroup.procs", std::process::id())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Not in it: then the write changes nothing.
        let back = fs::write(self.home.join("cgroup.procs"), std::process::id().to_string());
        if let Err(error) = back.and_then(|()| fs::remove_dir(&self.path)) {
            tracing::warn!(%error, group = %self.path.display(), "the control group is left");
        }
    }
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
