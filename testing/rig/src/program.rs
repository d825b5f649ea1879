//! Programs that run for a bounded time.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, Read, Seek};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a program ended.
pub struct Ended {
    /// From its start to its end.
    pub time: Duration,
    /// None if it was killed because its time was over.
    pub status: Option<ExitStatus>,
    /// Standard output and error.
    pub printed: String,
}

/// Runs a program, and kills it when `limit` is over.
pub fn run_for(command: &mut Command, limit: Duration) -> io::Result<Ended> {
    let mut printed = tempfile::tempfile()?;
    command.stdout(printed.try_clone()?).stderr(printed.try_clone()?);
    let start = Instant::now();
    let mut child = command.spawn()?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    let ended = poll(&mut fds, Some(&limit));
    if !matches!(ended, Ok(1)) {
        child.kill()?;
    }
    let status = child.wait()?;
    let time = start.elapsed();
    let mut text = String::new();
    printed.rewind()?;
    printed.read_to_string(&mut text)?;
    Ok(Ended { time, status: (ended? == 1).then_some(status), printed: text })
}

/// Runs a program that must end by itself within `limit`, with one of these statuses.
pub fn run_whole(command: &mut Command, limit: Duration, fine: &[i32]) -> io::Result<Ended> {
    let ended = run_for(command.stdin(Stdio::null()), limit)?;
    let code = ended.status.map(|s| s.code());
    if code.is_some_and(|c| c.is_some_and(|c| fine.contains(&c))) {
        return Ok(ended);
    }
    let how = ended.status.map_or_else(|| format!("not done in {limit:?}"), |s| s.to_string());
    Err(io::Error::other(format!("{command:?}: {how}\n{}", ended.printed)))
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
