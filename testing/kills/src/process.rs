//! Real processes: started, killed, and never left behind.

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use siftfs_base::bounded::ask_each;
use siftfs_rig::connection;
use siftfs_rig::place::{Failed, Result, failed};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often a condition that is waited for is polled.
pub const LOOK: Duration = Duration::from_millis(2);
/// Clock ticks per second, as `/proc` counts them on every Linux.
const TICKS: u64 = 100;

/// A child. It is killed and waited for when it is dropped.
pub struct Process {
    /// What the process is, for messages.
    pub name: String,
    /// The file with what it wrote to standard error.
    pub stderr: PathBuf,
    child: Child,
    pid: Pid,
}

impl Process {
    /// Starts `command`; what it writes to standard error goes to the file `stderr`.
    pub fn start(name: &str, command: &mut Command, stderr: &Path, watch: &Watch) -> Result<Self> {
        let log = File::options().create(true).append(true).open(stderr);
        let log = log.map_err(failed(stderr.display()))?;
        let child = command.stdin(Stdio::null()).stderr(log).spawn().map_err(failed(name))?;
        let pid = Pid::from_child(&child);
        let process = Self { name: name.into(), stderr: stderr.into(), pid, child };
        watch.add(name, process.pid)?;
        Ok(process)
    }

    /// What the process writes to standard output, if that was asked for.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let sent = kill_process(self.pid, signal);
        sent.map_err(|e| Failed(format!("{}: signal {signal:?}: {e}", self.name)))
    }

    /// How the process ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(failed(&self.name))
    }

    /// Waits for its end.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if start.elapsed() > limit {
                return Err(Failed(format!("{} does not end within {limit:?}", self.name)));
            }
            thread::sleep(LOOK);
        }
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::KILL)?;
        self.wait(limit)
    }

    /// Processor time that it has used; nothing once it is gone.
    pub fn cpu(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.pid.as_raw_nonzero());
        let Ok(text) = std::fs::read_to_string(path) else { return Duration::ZERO };
        // The name in parentheses may hold spaces; user and system time are 11 and 12 words later.
        let words = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: u64 = words.skip(11).take(2).filter_map(|w| w.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1000 / TICKS)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _gone = self.child.kill();
            let _status = self.child.wait();
        }
    }
}

type Watched = Vec<(String, Pid, OwnedFd)>;

struct Guarded {
    dirs: Vec<PathBuf>,
    processes: Mutex<Watched>,
    since: Mutex<Instant>,
    report: Mutex<Option<String>>,
    done: AtomicBool,
}

/// Ends the mounts' connections and all processes if [`Watch::alive`] is not called for too long,
/// so that a call that hangs on a mount returns, whatever it waits for.
pub struct Watch {
    shared: Arc<Guarded>,
    thread: Option<JoinHandle<()>>,
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Ends everything after `limit` without [`Watch::alive`]. The mounts are what is mounted at
    /// `dirs` then.
    pub fn start(dirs: &[&Path], limit: Duration) -> Self {
        // As the table of mounts has them.
        let shown = |dir: &&Path| dir.canonicalize().unwrap_or_else(|_| dir.into());
        let shared = Arc::new(Guarded {
            dirs: dirs.iter().map(shown).collect(),
            processes: Mutex::default(),
            since: Mutex::new(Instant::now()),
            report: Mutex::default(),
            done: AtomicBool::new(false),
        });
        let seen = shared.clone();
        let thread = thread::spawn(move || {
            while !seen.done.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(100));
                if lock(&seen.since).elapsed() > limit {
                    seen.end_all(limit);
                }
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// Says that the run goes on.
    pub fn alive(&self) {
        *lock(&self.shared.since) = Instant::now();
    }

    /// What was ended, and what it was doing.
    pub fn report(&self) -> Option<String> {
        lock(&self.shared.report).clone()
    }

    fn add(&self, name: &str, pid: Pid) -> Result<()> {
        let fd = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|e| Failed(format!("{name}: pidfd: {e}")))?;
        let mut all = lock(&self.shared.processes);
        all.retain(|(_, _, fd)| !is_gone(fd));
        all.push((name.into(), pid, fd));
        Ok(())
    }
}

fn is_gone(fd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)), Ok(1))
}

impl Guarded {
    fn end_all(&self, limit: Duration) {
        // Held until it is complete: the calls that end meanwhile are to be explained by it.
        let mut report = lock(&self.report);
        let mut text = format!("nothing happened for {limit:?}; ended:\n");
        let processes = std::mem::take(&mut *lock(&self.processes));
        let (gone, living): (Vec<_>, Vec<_>) =
            processes.into_iter().partition(|(_, _, fd)| is_gone(fd));
        drop(gone);
        let names = living.iter().map(|(name, pid, _)| (name.clone(), *pid)).collect();
        // Another process may keep the reader of its /proc waiting.
        let mut said = ask_each(names, |(name, pid): &(String, Pid)| {
            format!("{name} ({}):\n{}", pid.as_raw_nonzero(), threads_of(*pid))
        });
        said.given.sort();
        text.extend(said.given);
        if !said.complete {
            text.push_str("of more processes nothing could be read\n");
        }
        for dir in &self.dirs {
            for number in connection::at(dir) {
                let how = connection::abort(number);
                let how = how.map_or_else(|Failed(e)| e, |()| "aborted".into());
                text.push_str(&format!("FUSE connection {number} of {}: {how}\n", dir.display()));
            }
        }
        for (_, _, fd) in &living {
            let _gone = pidfd_send_signal(fd, Signal::KILL);
        }
        report.get_or_insert(text);
        *lock(&self.since) = Instant::now();
    }
}

/// Where the kernel says that each thread waits.
fn threads_of(pid: Pid) -> String {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let Ok(dir) = std::fs::read_dir(tasks) else { return String::new() };
    let lines = dir.flatten().map(|task| {
        let of = |file| read(&task.path().join(file));
        format!("  {} in {}, call {}\n", of("comm"), of("wchan"), of("syscall"))
    });
    lines.collect()
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.done.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
