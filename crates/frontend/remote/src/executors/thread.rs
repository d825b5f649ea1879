//! What a thread of this process does just now, as `/proc` shows it.

use rustix::thread::Pid;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::Duration;

/// A thread at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look {
    /// It waits for something else than a processor.
    pub sleeps: bool,
    /// How long it has run, in nanoseconds.
    pub ran: u64,
}

/// How a thread of this process is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Thread(Pid);

impl Thread {
    /// The caller's.
    pub fn own() -> Self {
        Self(rustix::thread::gettid())
    }

    /// How it is; nothing if that is not to be seen.
    pub fn look(self) -> Option<Look> {
        let read = |name| {
            let thread = self.0.as_raw_nonzero();
            fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).ok()
        };
        Some(Look { sleeps: sleeps(&read("stat")?)?, ran: ran(&read("schedstat")?)? })
    }
}

/// From `/proc/PID/stat`: the letter behind the name, which may hold anything, in parentheses.
fn sleeps(stat: &str) -> Option<bool> {
    let (_, behind) = stat.rsplit_once(')')?;
    Some(behind.trim_start().chars().next()? != 'R')
}

/// From `/proc/PID/schedstat`: its first number.
fn ran(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// Processor time of the calling thread.
pub(super) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
