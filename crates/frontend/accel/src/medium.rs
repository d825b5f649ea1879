//! What makes a session's files durable: the daemon, or a log that this program writes.

use crate::way::{Way, odd};
use rustix::time::{ClockId, clock_gettime};
use siftfs_lease::{Batches, LogShape, View, forgotten};
use std::io;
use std::os::fd::{OwnedFd, RawFd};

/// How a session's files become durable.
pub(crate) enum Medium {
    /// It was not asked for a log yet.
    Unknown,
    /// By the daemon alone. A log that was written before, and failed, ends here.
    Daemon(u64),
    /// By a log of this program's own.
    Own(Box<OwnLog>),
}

impl Medium {
    /// Up to where the log is to be forgotten when the daemon makes all durable.
    pub fn end(&self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Daemon(end) => *end,
            Self::Own(log) => log.batches.position(),
        }
    }
}

/// A log, which one thread at a time writes.
pub(crate) struct OwnLog {
    way: Way,
    shape: LogShape,
    pub batches: Batches,
    /// Records below this one are durable.
    pub durable: u64,
    /// Up to where the daemon was asked to forget it.
    asked: u64,
}

impl OwnLog {
    /// A new log.
    ///
    /// # Errors
    /// It is no file, not as long as it should be, or not what its medium is.
    pub fn new(file: OwnedFd, shape: LogShape) -> io::Result<Self> {
        let batches = Batches::new(shape).ok_or_else(odd)?;
        let way = Way::new(file, &shape)?;
        Ok(Self { way, shape, batches, durable: 0, asked: 0 })
    }

    /// Writes the batch in the making, and returns when it is durable. False: there is no room
    /// before the daemon has forgotten more, and nothing was written.
    ///
    /// # Errors
    /// Nothing is known of the batch, and the log is of no use any more.
    pub fn write(&mut self, grantor: &View) -> io::Result<bool> {
        if self.batches.is_empty() {
            return Ok(true);
        }
        let Some(batch) = self.batches.seal(forgotten(grantor)) else { return Ok(false) };
        self.way.persist(&batch).map(|()| true)
    }

    /// The number of the descriptor that it keeps, if it keeps one.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.way.descriptor()
    }

    /// Half of the log is used, and the daemon was not asked to forget that: up to where it is to.
    pub fn half(&mut self, grantor: &View) -> Option<u64> {
        let (end, begin) = (self.batches.position(), forgotten(grantor).max(self.asked));
        (end.saturating_sub(begin) >= self.shape.len / 2).then(|| {
            self.asked = end;
            end
        })
    }
}

/// CLOCK_BOOTTIME, in nanoseconds.
pub(crate) fn boot_time() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(ns).unwrap_or(u64::MAX)
}
