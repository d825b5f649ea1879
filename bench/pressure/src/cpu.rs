//! Processor time of processes, by what /proc says.

use serde::Serialize;
use siftfs_rig::place::{Failed, Result, failed};

/// Threads of the background path in a host (`crates/placement`).
const BACKGROUND: [&str; 4] = ["siftfs-service", "siftfs-commit", "siftfs-link", "siftfs-resend"];

/// User and system time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    pub user: f64,
    pub system: f64,
}

impl Cpu {
    /// Of a process, all its threads, those that have ended too.
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/stat");
        let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Self::parse(&text, ticks).ok_or_else(|| Failed(format!("{path}: not understood: {text}")))
    }

    /// Of those threads of a process that do the background work, or hand it over.
    pub fn of_background(pid: u32) -> Result<Self> {
        let dir = format!("/proc/{pid}/task");
        let mut all = Self::default();
        for thread in std::fs::read_dir(&dir).map_err(failed(&dir))?.flatten() {
            // A thread may have ended meanwhile.
            let read = |name| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            if BACKGROUND.contains(&read("comm").trim_end()) {
                let ticks = rustix::param::clock_ticks_per_second() as f64;
                all = all + Self::parse(&read("stat"), ticks).unwrap_or_default();
            }
        }
        Ok(all)
    }

    /// Fields 14 and 15 of stat(5); the name, field 2, may hold anything.
    fn parse(stat: &str, ticks: f64) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut seconds = || Some(fields.next()?.parse::<u64>().ok()? as f64 / ticks);
        Some(Self { user: seconds()?, system: seconds()? })
    }

    pub fn total(&self) -> f64 {
        self.user + self.system
    }
}

impl std::ops::Add for Cpu {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self { user: self.user + o.user, system: self.system + o.system }
    }
}

impl std::ops::Sub for Cpu {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        Self { user: self.user - o.user, system: self.system - o.system }
    }
}

#[cfg(test)]
#[path = "cpu_tests.rs"]
mod tests;
