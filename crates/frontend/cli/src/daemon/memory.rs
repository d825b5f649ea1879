//! Memory that the daemon asks the kernel for while it serves the kernel.
//!
//! When memory is short, the kernel lets a program that allocates some wait until dirty pages have
//! been written. A daemon that waits so for pages of its own mount waits for itself. Linux does
//! that to a process in a memory control group of version 1 with a limit, when programs of the same
//! group have dirtied the group full through mappings; and all who use the mount wait with it.
//!
//! Two things are done about it. The process is an *IO flusher* (prctl(2)): no allocation of its
//! threads waits for file systems. That needs CAP_SYS_RESOURCE, and does not make memory: a group
//! that is full of pages which only the daemon can write is a group that has no memory for it, and
//! something is killed. So in such a group of version 1 the daemon has one of its own besides. In
//! version 2 the kernel does not wait, and a supervisor follows its processes by their groups: the
//! daemon stays, and takes caches that fit.

use crate::daemon::cgroup::{Group, Hierarchy, Version};
use crate::options::size::show_size;
use std::fs;
use std::path::Path;
use std::str::FromStr;

const NAME: &str = "siftfs-mount-";

/// Which memory control group the daemon is to be in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Its own where staying is dangerous.
    #[default]
    Auto,
    /// Its own.
    Own,
    /// That of the program that mounts.
    Stay,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "own" => Ok(Self::Own),
            "stay" => Ok(Self::Stay),
            _ => Err(format!("memory_group={text}: not one of auto, own, stay")),
        }
    }
}

/// How the daemon stands to the kernel's memory.
#[derive(Default)]
pub struct Arranged {
    /// No allocation waits for file systems.
    flusher: bool,
    /// The group that was left for it.
    own: Option<Group>,
    /// Bytes that the group of this process may have, with all others in it.
    pub limit: Option<u64>,
    /// What could not be had although it is needed.
    pub warning: Option<String>,
}

/// To be called before threads are started: they inherit it.
pub fn arrange(place: Place) -> Arranged {
    let flusher = rustix::process::configure_io_flusher_behavior(true);
    let mut arranged = Arranged { flusher: flusher.is_ok(), ..Arranged::default() };
    let groups = Hierarchy::all("memory");
    let limited = |h: &Hierarchy| Some((limit(h, &h.home)?, h.version));
    let tight = groups.iter().filter_map(limited).min_by_key(|(limit, _)| *limit);
    let waits = tight.is_some_and(|(_, version)| version == Version::One);
    arranged.limit = tight.map(|(limit, _)| limit);
    if place == Place::Own || place == Place::Auto && waits {
        match own(&groups) {
            Ok(group) => (arranged.own, arranged.limit) = (Some(group), None),
            Err(why) => arranged.warning = Some(why),
        }
    }
    if let (Some((limit, _)), true, None) = (tight, waits && !arranged.flusher, &arranged.own) {
        let why = arranged.warning.take().map(|why| format!(" ({why})")).unwrap_or_default();
        arranged.warning = Some(format!(
            "the daemon is in a memory control group of {} and may not ask the kernel for memory without \
             waiting for files{why}: programs of the group that store through mappings can make it, and all \
             who use the mount, wait for ever; give it CAP_SYS_RESOURCE, or a group of its own",
            show_size(limit)
        ));
    }
    arranged
}

impl Arranged {
    /// For the log.
    pub fn log(&self) {
        let own = self.own.as_ref().map(|group| group.path().display().to_string());
        let (flusher, limit) = (self.flusher, self.limit);
        tracing::info!(flusher, own, limit, "memory");
    }
}

/// A group of our own, without a limit: what a daemon takes is bounded by its options.
fn own(groups: &[Hierarchy]) -> Result<Group, String> {
    let mut tried = Vec::new();
    for hierarchy in groups {
        let made = hierarchy.make(NAME).and_then(|group| group.enter().map(|()| group));
        match made {
            Ok(group) if limit(hierarchy, group.path()).is_none() => return Ok(group),
            Ok(group) => {
                tried.push(format!("what is above {} is limited too", group.path().display()))
            }
            Err(e) => tried.push(format!("{}: {e}", hierarchy.top.display())),
        }
    }
    if tried.is_empty() {
        tried.push("no cgroup file system with memory is mounted".into());
    }
    Err(format!("it could not get a memory control group of its own: {}", tried.join("; ")))
}

/// Bytes that a group may have, by its own limit or one above it; `None` if that is as much as the
/// machine has.
fn limit(hierarchy: &Hierarchy, group: &Path) -> Option<u64> {
    let least = match hierarchy.version {
        Version::One => {
            let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
            let line = stat.lines().find_map(|l| l.strip_prefix("hierarchical_memory_limit "));
            line?.trim().parse().ok()
        }
        Version::Two => {
            let below_top = group.ancestors().take_while(|g| g.starts_with(&hierarchy.top));
            let max = |g: &Path| fs::read_to_string(g.join("memory.max")).ok();
            below_top.filter_map(max).filter_map(|text| text.trim().parse().ok()).min()
        }
    };
    least.filter(|bytes| *bytes < machine())
}

/// Bytes of memory that this machine has.
fn machine() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib * 1024)
}
