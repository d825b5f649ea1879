//! Running a program of the system (mke2fs, e2fsck) that must not be waited for for ever.
//!
//! Wall-clock time says nothing about a program that works on slow storage. What a program that
//! loops has in abundance is processor time without progress, so that is what is bounded.

#![allow(unsafe_code)] // what a child does before it runs its program

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// How often the child's processor time is checked.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Ticks between asking a child to end and killing it.
const FAREWELL_TICKS: u32 = 10;
/// Bytes kept of each of its outputs; what comes after them is read and dropped.
const MAX_OUTPUT: usize = 16 << 20;

/// What became of a child.
pub struct Ran {
    /// How the child ended.
    pub status: ExitStatus,
    /// The child was ended after so much processor time without progress.
    pub given_up: Option<Duration>,
    /// What the child wrote to standard output.
    pub stdout: Vec<u8>,
    /// What the child wrote to standard error.
    pub stderr: Vec<u8>,
}

/// The processor time that a program may take without getting further with `bytes` of storage: a
/// minute, and a second for each GiB.
pub fn sensible_work(bytes: u64) -> Duration {
    Duration::from_secs(60 + (bytes >> 30))
}

/// A program that runs, with nothing to read.
pub struct Child(std::process::Child);

impl Child {
    /// Starts a program. When this process dies, it is sent `on_death`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(command: &mut Command, on_death: Signal) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: between fork and exec the child makes one prctl(2), which takes no lock and no
        // memory.
        unsafe {
            command.pre_exec(move || {
                Ok(rustix::process::set_parent_process_death_signal(Some(on_death))?)
            });
        }
        command.spawn().map(Self)
    }

    /// Waits for the program's end, and takes what it writes.
    ///
    /// A program that takes more processor time than `idle_work` without `progress` having grown,
    /// or, where that is more, than four times what it took to get so far, is asked to end, and
    /// killed if it does not. With `None` it may take any.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn wait(mut self, idle_work: Option<Duration>, progress: &AtomicU64) -> io::Result<Ran> {
        let (out, err) = (self.0.stdout.take(), self.0.stderr.take());
        std::thread::scope(|scope| {
            let stdout = scope.spawn(move || out.map_or_else(Vec::new, keep));
            let stderr = scope.spawn(move || err.map_or_else(Vec::new, keep));
            let pid = Pid::from_raw(self.0.id().cast_signed());
            let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
            let given_up = watch(pid, idle_work, progress)?;
            let status = self.0.wait()?;
            let text = |reader: ScopedJoinHandle<'_, Vec<u8>>| {
                reader.join().map_err(|_| io::Error::other("a reader of its output failed"))
            };
            Ok(Ran { status, given_up, stdout: text(stdout)?, stderr: text(stderr)? })
        })
    }
}

/// The beginning of what comes, after all of it has come.
fn keep(mut from: impl Read) -> Vec<u8> {
    let (mut kept, mut part) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match from.read(&mut part) {
            Ok(0) => return kept,
            Ok(n) => {
                let room = MAX_OUTPUT.saturating_sub(kept.len());
                kept.extend_from_slice(part.get(..n.min(room)).unwrap_or_default());
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return kept,
        }
    }
}

/// Waits for the child's end, and brings it about after too much work without progress, which is
/// then returned.
fn watch(pid: Pid, most: Option<Duration>, counter: &AtomicU64) -> io::Result<Option<Duration>> {
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let (mut seen, mut then) = (counter.load(Ordering::Acquire), Duration::ZERO);
    while !ended(&process)? {
        let now = processor_time(pid).unwrap_or(then);
        let progress = counter.load(Ordering::Acquire);
        if progress != seen {
            (seen, then) = (progress, now);
        }
        let Some(least) = most else { continue };
        let idle = now.saturating_sub(then);
        if idle <= least.max(4 * then) {
            continue;
        }
        let _ = kill_process(pid, Signal::TERM);
        for _ in 0..FAREWELL_TICKS {
            if ended(&process)? {
                return Ok(Some(idle));
            }
        }
        let _ = kill_process(pid, Signal::KILL);
        return Ok(Some(idle));
    }
    Ok(None)
}

/// Has the process ended? Waits a tick for its end.
fn ended(process: impl AsFd) -> io::Result<bool> {
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&TICK)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// User and system time that a process has taken.
fn processor_time(pid: Pid) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let ticks = ticks_of(&stat)?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Fields 14 and 15; the program's name before them may hold anything.
fn ticks_of(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    next()?.checked_add(next()?)
}

#[cfg(test)]
#[path = "child_tests.rs"]
mod tests;
