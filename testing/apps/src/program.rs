//! Programs that end with us: each runs in a process namespace of its own, whose first process the
//! kernel kills when ours goes, and all of its descendants with it.

use siftfs_rig::place::{Failed, Result, failed};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a program that is waited for is polled.
const LOOK: Duration = Duration::from_millis(5);
/// A killed program must be gone by then.
const GONE: Duration = Duration::from_secs(20);
/// What is quoted of a failed program's output, in bytes.
const QUOTED: usize = 2000;

/// A command that will run guarded. The shell between is the namespace's first process: it keeps
/// the wish to die with its parent where the program changes its user and would lose it. Signals
/// that stop a program do so, also where the process that started this one had them ignored, as a
/// shell does for what it runs in the background.
pub fn guarded<S: AsRef<std::ffi::OsStr>>(program: &str, args: &[S]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,QUIT,TERM", "unshare"]);
    command.args(["--fork", "--pid", "--kill-child", "sh", "-c", "\"$@\"; exit $?", "sh"]);
    command.arg(program).args(args).env("PATH", path()).stdin(Stdio::null());
    command
}

/// The search path for programs.
pub fn path() -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// A running guarded program; killed when dropped.
pub struct Program {
    name: String,
    child: Arc<Mutex<Child>>,
    log: PathBuf,
}

/// To kill it from elsewhere.
#[derive(Clone)]
pub struct Handle(Arc<Mutex<Child>>);

impl Handle {
    /// SIGKILL; safe after its end.
    pub fn kill(&self) {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
    }
}

impl Program {
    /// Starts a [`guarded`] command. What it prints, where the command does not say otherwise, goes
    /// to a log in `logs`.
    pub fn start(name: &str, logs: &Path, mut command: Command, output: Output) -> Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let file = File::create(&log).map_err(failed(log.display()))?;
        let other = file.try_clone().map_err(failed(log.display()))?;
        match output {
            Output::Logged => command.stdout(file).stderr(other),
            Output::Piped => command.stdout(Stdio::piped()).stderr(other),
            Output::ErrorPiped => command.stdout(file).stderr(Stdio::piped()),
        };
        let child = command.spawn().map_err(failed(name))?;
        Ok(Self { name: name.into(), child: Arc::new(Mutex::new(child)), log })
    }

    /// To kill it from elsewhere.
    pub fn handle(&self) -> Handle {
        Handle(self.child.clone())
    }

    /// The child itself, to take its pipes.
    pub fn child<T>(&self, work: impl FnOnce(&mut Child) -> T) -> T {
        work(&mut self.child.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The status if it has ended.
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        self.child(Child::try_wait).map_err(failed(&self.name))
    }

    /// Waits for the end; kills it at the limit or as soon as `stop` says so.
    pub fn wait(&self, limit: Duration, stop: impl Fn() -> bool) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if stop() || start.elapsed() > limit {
                self.handle().kill();
                let reason = if stop() { "stopped" } else { "did not end in time" };
                return Err(Failed(format!("{} {reason}\n{}", self.name, self.printed())));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The end of what it printed to its log.
    pub fn printed(&self) -> String {
        let mut text = Vec::new();
        let read = File::open(&self.log).and_then(|mut f| f.read_to_end(&mut text));
        if read.is_err() {
            return String::new();
        }
        String::from_utf8_lossy(&text[text.len().saturating_sub(QUOTED)..]).into_owned()
    }

    /// Sends a signal to the program itself, behind its guards.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let pid = self.child(|c| c.id());
        let inner = only_child(pid).and_then(only_child);
        let inner = inner.and_then(|p| i32::try_from(p).ok());
        let inner = inner.and_then(rustix::process::Pid::from_raw);
        let inner = inner.ok_or_else(|| Failed(format!("{}: has ended", self.name)))?;
        rustix::process::kill_process(inner, signal)
            .map_err(|e| Failed(format!("{}: {e}", self.name)))
    }
}

fn only_child(pid: u32) -> Option<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    list.split_whitespace().next()?.parse().ok()
}

impl Drop for Program {
    /// The namespace is gone when this returns, so that nothing holds the mount.
    fn drop(&mut self) {
        let first = only_child(self.child(|c| c.id()));
        let first = first.and_then(|p| i32::try_from(p).ok());
        let first = first.and_then(rustix::process::Pid::from_raw);
        let first = first.and_then(|p| {
            rustix::process::pidfd_open(p, rustix::process::PidfdFlags::empty()).ok()
        });
        self.handle().kill();
        self.child(|c| drop(c.wait()));
        if let Some(first) = first {
            let limit = rustix::event::Timespec { tv_sec: GONE.as_secs() as i64, tv_nsec: 0 };
            let mut fds = [rustix::event::PollFd::new(&first, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, Some(&limit));
        }
    }
}

/// Where a program's output goes.
#[derive(Clone, Copy)]
pub enum Output {
    /// All to its log.
    Logged,
    /// Standard output to a pipe.
    Piped,
    /// Standard error to a pipe.
    ErrorPiped,
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
