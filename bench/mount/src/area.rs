//! What a cell has to work with on one system, and what it finds.

use crate::counts::{Counts, Disk};
use crate::library::postgres::Postgres;
use crate::programs::Script;
use crate::system::System;
use crate::tree::Archive;
use siftfs_rig::place::Failed;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Threads of the rows with threads.
pub const THREADS: u64 = 4;
/// Bytes of one write or read of a stream.
pub const CHUNK: usize = 1 << 20;

/// What a cell found of one row.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Nanoseconds of each operation, for rows of latencies.
    pub nanos: Vec<u64>,
    /// Operations or MiB in a second, for the others.
    pub rate: f64,
    /// Operations done; for streams, MiB.
    pub operations: u64,
    /// What the operations, without their preparation, cost.
    pub counts: Counts,
}

/// A system with the counters below it.
pub struct Probe<'s> {
    /// The system.
    pub system: &'s dyn System,
    /// The disk below all systems.
    pub disk: &'s Disk,
}

impl Probe<'_> {
    /// Runs the operations between two readings of the counters.
    pub fn count(&self, work: impl FnOnce() -> io::Result<Measured>) -> io::Result<Measured> {
        let (measured, counts) = Counts::around(self.system, self.disk, work, io_error)?;
        Ok(Measured { counts, ..measured })
    }
}

/// What programs need, outside of the systems that are measured.
pub struct Inputs {
    /// A tree to unpack.
    pub archive: Archive,
    /// Transactions for SQLite.
    pub script: Script,
    /// A database for pgbench, where PostgreSQL is installed and that row is wanted.
    pub postgres: Option<Postgres>,
}

/// An empty directory for programs on a mounted system.
pub struct WorkArea<'s> {
    /// The directory.
    pub dir: PathBuf,
    /// What programs need.
    pub inputs: &'s Inputs,
    /// The system, and the counters below it.
    pub probe: &'s Probe<'s>,
}

impl WorkArea<'_> {
    /// Runs the operations between two readings of the counters.
    pub fn count(&self, work: impl FnOnce() -> io::Result<Measured>) -> io::Result<Measured> {
        self.probe.count(work)
    }

    /// What was prepared is durable afterwards.
    pub fn settle(&self) -> io::Result<()> {
        self.probe.system.settle().map_err(io_error)
    }

    /// Nothing is left to be written afterwards.
    pub fn rest(&self) -> io::Result<()> {
        self.probe.system.rest().map_err(io_error)
    }

    /// Nothing is cached afterwards.
    pub fn forget(&self) -> io::Result<()> {
        self.probe.system.forget().map_err(io_error)
    }
}

/// For errors of the harness below a call that answers with the system's.
pub fn io_error(Failed(message): Failed) -> io::Error {
    io::Error::other(message)
}

/// How much a program is to do.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Until this time is over.
    Time(Duration),
    /// This many operations, however long they take.
    Operations(u64),
}

/// One operation after the other until it is enough, as a rate.
pub fn until(
    bound: Bound,
    mut operation: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<Measured> {
    let (start, mut operations) = (Instant::now(), 0);
    let goes_on = |done| match bound {
        Bound::Time(time) => start.elapsed() < time,
        Bound::Operations(all) => done < all,
    };
    while goes_on(operations) {
        operation(operations)?;
        operations += 1;
    }
    Ok(rate(operations, start.elapsed()))
}

/// The rate of this many operations in so much time.
pub fn rate(operations: u64, time: Duration) -> Measured {
    per_second(operations, time.as_secs_f64())
}

/// The rate of this many operations in this many seconds.
pub fn per_second(operations: u64, seconds: f64) -> Measured {
    Measured { rate: operations as f64 / seconds, operations, ..Measured::default() }
}

#[cfg(test)]
#[path = "area_tests.rs"]
mod tests;
