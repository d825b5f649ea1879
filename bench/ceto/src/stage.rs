//! Starts the processes of a figure, and ends them.

use crate::Plan;
use crate::roles::{self, NAME};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use siftfs::{Claim, Direct, Volume};
use siftfs_device_target::TargetPlace;
use siftfs_rig::place::{Failed, Result, failed};
use siftfs_transport::CallerEnd;
use siftfs_wire::BlockProtocol;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to answer, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process of the bench: a target, or a host. It is killed when this is dropped.
pub struct Process {
    child: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    said: Value,
}

impl Process {
    fn start(plan: &Plan<'_>, role: &str, dir: &Path, more: &[&str]) -> Result<Self> {
        fs::create_dir_all(dir).map_err(failed(dir.display()))?;
        let nanos = |time: Duration| format!("{}ns", time.as_nanos());
        let mut child = Command::new(plan.program)
            .args([role, "--net-delay", &nanos(plan.net_delay), "--spin", &nanos(plan.spin)])
            .arg("--dir")
            .arg(dir)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed(plan.program.display()))?;
        let asks = child.stdin.take();
        let answers = child.stdout.take().ok_or_else(|| Failed(format!("{role}: no output")))?;
        let (answers, said) = (BufReader::new(answers), Value::Null);
        let mut process = Self { child, asks, answers, said };
        process.said = process.line().map_err(|e| Failed(format!("{role}: {}", e.0)))?;
        Ok(process)
    }

    fn line(&mut self) -> Result<Value> {
        let wait = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let mut fds = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
        let ready = self.answers.buffer().is_empty();
        if ready && poll(&mut fds, Some(&wait)).map_err(|e| Failed(e.to_string()))? == 0 {
            return Err(Failed("it does not answer".into()));
        }
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(failed("its output"))?;
        let what = "it has ended; its reason is above";
        serde_json::from_str(&line).map_err(|_| Failed(what.into()))
    }

    fn says(&self, what: &str) -> Result<&str> {
        self.said[what].as_str().ok_or_else(|| Failed(format!("it does not say its {what}")))
    }

    /// Microseconds that it has used of the processors, without what it spent on injected times.
    ///
    /// # Errors
    /// It has ended.
    pub fn used(&mut self) -> Result<f64> {
        let said = self.asked()?;
        let number = |name: &str| said[name].as_f64().unwrap_or_default();
        Ok(number("us") - number("injected_us"))
    }

    fn asked(&mut self) -> Result<Value> {
        let asks = self.asks.as_mut().ok_or_else(|| Failed("it ends".into()))?;
        asks.write_all(b"used\n").and_then(|()| asks.flush()).map_err(failed("its input"))?;
        self.line()
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// It does not end, or not well.
    pub fn end(mut self) -> Result<()> {
        self.asks = None;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            match self.child.try_wait().map_err(failed("a process"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Failed(format!("a process ended with {status}"))),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        Err(Failed("a process does not end".into()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a target is to have.
#[derive(Clone, Copy, Default)]
pub struct Made {
    /// Bytes of the volume.
    pub size: u64,
    /// Bytes of its redo lane; without one, none.
    pub redo_lane: Option<u64>,
    /// Bytes of programs' messages are counted.
    pub counts: bool,
}

impl From<u64> for Made {
    /// A volume of this size, and nothing else.
    fn from(size: u64) -> Self {
        Self { size, ..Self::default() }
    }
}

/// A target, by itself or with a host.
pub struct Stage {
    /// The host's process, if there is one. It ends before the target.
    pub host: Option<Process>,
    target: Process,
    spin: Duration,
}

impl Stage {
    /// A target with a new volume, of this size or made so.
    ///
    /// # Errors
    /// It does not start.
    pub fn target(plan: &Plan<'_>, name: &str, made: impl Into<Made>) -> Result<Self> {
        let Made { size, redo_lane, counts } = made.into();
        let storage = format!("{}ns", plan.storage.as_nanos());
        let (size, lane) = (size.to_string(), redo_lane.map(|bytes| bytes.to_string()));
        let mut more = vec!["--storage", &storage, "--size", &size];
        lane.iter().for_each(|bytes| more.extend(["--redo-lane", bytes]));
        more.extend(counts.then_some("--count"));
        let target = Process::start(plan, "target", &folder(plan, name), &more)?;
        Ok(Self { host: None, target, spin: plan.spin })
    }

    /// As [`Stage::target`], with a host that keeps this many bytes of pages.
    ///
    /// # Errors
    /// One of them does not start.
    pub fn host(plan: &Plan<'_>, name: &str, made: impl Into<Made>, cache: u64) -> Result<Self> {
        let mut stage = Self::target(plan, name, made)?;
        let (target, cache) = (stage.target.says("hosts")?, cache.to_string());
        let more = ["--target", target, "--cache", &cache];
        let host = Process::start(plan, "host", &folder(plan, name), &more)?;
        stage.host = Some(host);
        Ok(stage)
    }

    /// Where hosts reach the target.
    ///
    /// # Errors
    /// It has not said so.
    pub fn place(&self) -> Result<TargetPlace> {
        Ok(TargetPlace {
            address: self.target.says("hosts")?.parse().map_err(said)?,
            volume: NAME.into(),
            options: roles::options(self.spin),
            secured: None,
        })
    }

    fn address(&self) -> Result<siftfs::Address> {
        let host = self.host.as_ref().ok_or_else(|| Failed("there is no host".into()))?;
        host.says("programs")?.parse().map_err(said)
    }

    /// Bytes of messages between programs and the target so far, both ways, where they are counted.
    ///
    /// # Errors
    /// The target has ended.
    pub fn crossed(&mut self) -> Result<f64> {
        let said = self.target.asked()?;
        said["wire"].as_f64().ok_or_else(|| Failed("it does not say what crossed".into()))
    }

    /// A session of the host, by which all goes to the host.
    ///
    /// # Errors
    /// The host does not admit it.
    pub fn volume(&self) -> Result<Volume> {
        let (address, options) = (self.address()?, roles::options(self.spin));
        Volume::connect_with(&address, (&options, None), "", Claim::Owner).map_err(said)
    }

    /// A session with direct files.
    ///
    /// # Errors
    /// The host does not admit it.
    pub fn direct(&self) -> Result<Direct> {
        let (address, options) = (self.address()?, roles::options(self.spin));
        let spin = self.spin;
        let reach = Box::new(move |target: &str| {
            let named = TargetPlace::parse(target).and_then(std::result::Result::ok);
            let refused = || siftfs_base::Error::Refused(format!("{target}: no target's volume"));
            let (address, volume) = named.ok_or_else(refused)?;
            Ok(TargetPlace { address, volume, options: roles::options(spin), secured: None })
        });
        Direct::connect_with(&address, (&options, None), ("", Claim::Owner), reach).map_err(said)
    }

    /// Ends all in order.
    ///
    /// # Errors
    /// One of them does not end well.
    pub fn end(self) -> Result<()> {
        let Self { host, target, .. } = self;
        host.map_or(Ok(()), Process::end)?;
        target.end()
    }
}

/// A process that answers at once, to time the way of a call alone.
pub struct Echo {
    process: Process,
    spin: Duration,
}

impl Echo {
    /// Starts it.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(plan: &Plan<'_>) -> Result<Self> {
        let process = Process::start(plan, "echo", &folder(plan, "echo"), &[])?;
        Ok(Self { process, spin: plan.spin })
    }

    /// A connection with it, of the same transport that programs have with a target.
    ///
    /// # Errors
    /// It does not take one.
    pub fn connect(&self) -> Result<CallerEnd<BlockProtocol>> {
        let address: siftfs::Address = self.process.says("echo")?.parse().map_err(said)?;
        siftfs_transport::connect::<BlockProtocol>(&address, &roles::options(self.spin))
            .map_err(said)
    }

    /// Ends it in order. Its connections have ended before.
    ///
    /// # Errors
    /// It does not end well.
    pub fn end(self) -> Result<()> {
        self.process.end()
    }
}

fn folder(plan: &Plan<'_>, name: &str) -> PathBuf {
    plan.dir.join(name)
}

/// An error in words.
pub fn said(error: impl std::fmt::Display) -> Failed {
    Failed(error.to_string())
}
