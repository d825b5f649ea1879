//! What a server counts, and what its process costs.

use siftfs_transport::Repeats;
use siftfs_wire::{DeviceStatistics, ProgramStatistics, RegionCounts, WorkerStatistics};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What a server says of itself.
#[derive(Default)]
pub(crate) struct Tally {
    pub counts: ServerCounts,
    /// What was refused, in the log.
    repeats: Repeats,
}

impl Tally {
    /// Counts what was refused, and says it in the log.
    pub fn refused(&self, why: &str) {
        self.counts.refusal();
        say(self.repeats.note(why, Instant::now()));
    }

    /// Says what was refused again and again, and is not in the log yet.
    pub fn look(&self) {
        say(self.repeats.due(Instant::now()));
    }
}

fn say(lines: Vec<String>) {
    for error in lines {
        tracing::warn!(error, "a connection was refused");
    }
}

/// Counts since the start.
#[derive(Default)]
pub(crate) struct ServerCounts {
    messages: AtomicU64,
    refusals: AtomicU64,
    hosts: AtomicU64,
    hints: AtomicU64,
}

impl ServerCounts {
    pub fn message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub fn refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    pub fn host(&self) {
        self.hosts.fetch_add(1, Ordering::Relaxed);
    }

    pub fn hint(&self) {
        self.hints.fetch_add(1, Ordering::Relaxed);
    }

    /// As the protocol has it.
    pub fn statistics(
        &self,
        io: RegionCounts,
        (programs, workers): (ProgramStatistics, WorkerStatistics),
    ) -> DeviceStatistics {
        DeviceStatistics {
            pid: std::process::id(),
            cpu_us: process_cpu_us(),
            messages: self.messages.load(Ordering::Relaxed),
            refusals: self.refusals.load(Ordering::Relaxed),
            hosts: self.hosts.load(Ordering::Relaxed),
            hints: self.hints.load(Ordering::Relaxed),
            programs,
            workers,
            io,
        }
    }
}

/// Processor time of this process in microseconds, of all its threads.
pub(crate) fn process_cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1000
}
