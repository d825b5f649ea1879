//! Processor time and context switches of processes, by what the kernel says.

use serde::Serialize;
use std::path::Path;

/// What processes have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// User and system time in microseconds.
    pub cpu_us: u64,
    /// Context switches, voluntary and not, of the threads that live.
    pub switches: u64,
}

impl Usage {
    /// Of this process and of the processes that it has started and that have ended.
    pub fn own() -> Self {
        let (own, children) = (of(libc::RUSAGE_SELF), of(libc::RUSAGE_CHILDREN));
        own.plus(&children)
    }

    /// Of a process with all its threads.
    pub fn of_process(pid: u32) -> Option<Self> {
        let dir = format!("/proc/{pid}");
        let stat = std::fs::read_to_string(format!("{dir}/stat")).ok()?;
        let ticks = rustix::param::clock_ticks_per_second();
        let cpu_us = cpu_us(&stat, ticks)?;
        let tasks = std::fs::read_dir(format!("{dir}/task")).ok()?;
        let switches = tasks.flatten().map(|t| switches_of(&t.path())).sum();
        Some(Self { cpu_us, switches })
    }

    /// What was added since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            cpu_us: self.cpu_us.saturating_sub(before.cpu_us),
            switches: self.switches.saturating_sub(before.switches),
        }
    }

    /// The sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        Self { cpu_us: self.cpu_us + other.cpu_us, switches: self.switches + other.switches }
    }
}

/// getrusage(2).
#[allow(unsafe_code)]
fn of(who: libc::c_int) -> Usage {
    // SAFETY: `rusage` consists of integers, for which zeros are valid values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole `rusage` of this frame, which the kernel fills.
    let done = unsafe { libc::getrusage(who, &raw mut usage) };
    if done != 0 {
        return Usage::default();
    }
    let us = |t: libc::timeval| {
        u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(t.tv_usec).unwrap_or(0)
    };
    let count = |n: libc::c_long| u64::try_from(n).unwrap_or(0);
    Usage {
        cpu_us: us(usage.ru_utime) + us(usage.ru_stime),
        switches: count(usage.ru_nvcsw) + count(usage.ru_nivcsw),
    }
}

/// Fields 14 and 15 of stat(5); the name, field 2, may hold anything.
fn cpu_us(stat: &str, ticks_per_second: u64) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) * 1_000_000 / ticks_per_second.max(1))
}

/// None of a thread that has ended meanwhile.
fn switches_of(task: &Path) -> u64 {
    let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
    switches(&status)
}

fn switches(status: &str) -> u64 {
    let lines = status.lines().filter_map(|l| l.split_once("_ctxt_switches:"));
    lines.filter_map(|(_, n)| n.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
