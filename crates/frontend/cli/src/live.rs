//! Commands on a mounted volume.

use crate::args::{self, Dir, DirJson, Umount};
use crate::control::{Answer, Ask, Left, Op, VERSION, receive, send, socket_path};
use crate::failure::{Failure, Outcome};
use crate::mount::resolve;
use crate::output::{complain, print};
use crate::progress::Display;
use crate::status_text;
use crate::view::Status;
use crate::volume::print_json;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Deserialize;
use serde_json::Value;
use siftfs_fuse::{MountEntry, containing, detach, flush, is_dead, mounts, top_mount, unmount};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// After how long somebody who sees no progress hears that it goes on.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a mount's daemon.
struct Daemon {
    stream: UnixStream,
    pid: Pid,
}

impl Daemon {
    fn connect(mount: &MountEntry) -> io::Result<Self> {
        let stream = UnixStream::connect(socket_path(mount))?;
        let pid = rustix::net::sockopt::socket_peercred(&stream)?.pid;
        Ok(Self { stream, pid })
    }

    fn ask(&mut self, op: Op) -> io::Result<()> {
        send(&mut self.stream, &Ask { version: VERSION, op })
    }

    fn answer(&mut self) -> io::Result<Value> {
        let answer: Answer = receive(&mut self.stream)?;
        match answer.error {
            _ if answer.version != VERSION => Err(io::Error::other("daemon of another version")),
            Some(e) => Err(io::Error::other(e)),
            None => Ok(answer.value),
        }
    }
}

/// Asks the daemon of the mount that `dir` lies on.
fn ask(dir: &Path, op: Op) -> Result<Value, Failure> {
    let about = |e: &dyn std::fmt::Display| Failure::about(dir, e);
    let path = resolve(dir).map_err(|e| about(&e))?;
    let mount = containing(&path).map_err(|e| about(&e))?.filter(MountEntry::is_fuse);
    let mount = mount.ok_or_else(|| about(&"not on a SiftFS mount"))?;
    let mut daemon = Daemon::connect(&mount).map_err(|e| no_daemon(dir, &mount, &e))?;
    daemon.ask(op).and_then(|()| daemon.answer()).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => about(&"its daemon ended while it was asked"),
        _ => about(&e),
    })
}

fn no_daemon(dir: &Path, mount: &MountEntry, e: &io::Error) -> Failure {
    let what = if e.kind() == io::ErrorKind::PermissionDenied {
        "only root and the mounting user may ask its daemon".to_string()
    } else if is_dead(&mount.mount_point) {
        format!(
            "the mount's daemon has died; mount {} again (that recovers it), or \
             `siftfs umount` the directory and `siftfs recover` the volume",
            mount.source.display()
        )
    } else {
        format!("no SiftFS daemon answers for this mount ({e})")
    };
    Failure::about(dir, what)
}

/// Sends what the kernel holds back (pages dirtied through shared mappings) to the daemon, and
/// waits until it has it.
fn sync_kernel(dir: &Path) -> Result<(), Failure> {
    let about = |e: &dyn std::fmt::Display| Failure::about(dir, e);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let root = rustix::fs::open(dir, flags, Mode::empty()).map_err(|e| about(&e))?;
    // Starts it for all files at once; the kernel does not wait for a FUSE file's pages here.
    rustix::fs::syncfs(&root).map_err(|e| about(&e))?;
    let writers = serde_json::from_value(ask(dir, Op::Writers)?);
    let writers: Vec<(u64, u32)> = writers.map_err(|e| about(&e))?;
    for (node, generation) in writers {
        flush(&root, node, generation).map_err(|e| about(&e))?;
    }
    Ok(())
}

/// `siftfs sync`.
pub fn sync(a: &Dir) -> Outcome {
    sync_kernel(&a.dir)?;
    ask(&a.dir, Op::Sync).map(|_| 0)
}

/// `siftfs status`.
pub fn status(a: &args::Status) -> Outcome {
    let value = ask(&a.dir, Op::Status)?;
    check_log(&a.dir, &value, a.log.as_deref())?;
    if a.json {
        print_json(&value)?;
    } else {
        print(&status_text::text(&read_status(&a.dir, value)?))?;
    }
    Ok(0)
}

/// The log of the mount that `status` is about is where the caller thinks it is.
fn check_log(dir: &Path, status: &Value, wanted: Option<&Path>) -> Result<(), Failure> {
    let Some(wanted) = wanted else { return Ok(()) };
    let full = wanted.canonicalize().map_err(|e| Failure::about(wanted, e))?;
    match status["log"].as_str() {
        Some(log) if Path::new(log).canonicalize().is_ok_and(|l| l == full) => Ok(()),
        Some(log) => Err(Failure::about(dir, format!("its log is {log}, not {}", full.display()))),
        None => Err(Failure::about(dir, "its log is with the volume, not elsewhere")),
    }
}

/// The status of the mount that `dir` lies on.
pub fn status_of(dir: &Path) -> Result<Status, Failure> {
    read_status(dir, ask(dir, Op::Status)?)
}

fn read_status(dir: &Path, value: Value) -> Result<Status, Failure> {
    let what = "the daemon's answer makes no sense to this version";
    serde_json::from_value(value).map_err(|e| Failure::about(dir, format!("{what}: {e}")))
}

/// `siftfs checkpoint`.
pub fn checkpoint(a: &DirJson) -> Outcome {
    sync_kernel(&a.dir)?;
    show(&ask(&a.dir, Op::Checkpoint)?, a.json)
}

fn show(value: &Value, json: bool) -> Outcome {
    if json {
        print_json(value)?;
    } else {
        let mut lines = Vec::new();
        flatten("", value, &mut lines);
        let width = lines.iter().map(|(k, _)| k.len()).max().unwrap_or(0);
        for (key, value) in lines {
            if !print(&format!("{key:width$}  {value}\n"))? {
                break;
            }
        }
    }
    Ok(0)
}

fn flatten(prefix: &str, value: &Value, out: &mut Vec<(String, String)>) {
    let name = |part: &str| {
        if prefix.is_empty() { part.to_string() } else { format!("{prefix}.{part}") }
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| flatten(&name(k), v, out)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, v)| flatten(&name(&i.to_string()), v, out));
        }
        Value::String(s) => out.push((prefix.to_string(), s.clone())),
        other => out.push((prefix.to_string(), other.to_string())),
    }
}

/// The mount on the directory `given`, or of the volume `given`: umount(8) takes both.
fn mounted_as(given: &Path) -> io::Result<Option<MountEntry>> {
    if let Some(mount) = top_mount(given)?.filter(MountEntry::is_fuse) {
        return Ok(Some(mount));
    }
    let volume = !std::fs::metadata(given).is_ok_and(|m| m.is_dir());
    let of_it = |m: &MountEntry| volume && m.is_fuse() && m.source == given;
    let found = mounts()?.into_iter().rev().find(of_it);
    match found {
        Some(mount) => Ok(top_mount(&mount.mount_point)?.filter(|top| top.id == mount.id)),
        None => Ok(None),
    }
}

/// `siftfs umount`.
pub fn umount(a: &Umount) -> Outcome {
    let about = |e: &dyn std::fmt::Display| Failure::about(&a.dir, e);
    let given = resolve(&a.dir).map_err(|e| about(&e))?;
    let mount = mounted_as(&given).map_err(|e| about(&e))?;
    let mount = mount.ok_or_else(|| about(&"not a SiftFS mount"))?;
    if a.log.is_some() {
        check_log(&a.dir, &ask(&a.dir, Op::Status)?, a.log.as_deref())?;
    }
    let dir = mount.mount_point.clone();
    let mut daemon = match Daemon::connect(&mount) {
        Ok(daemon) => daemon,
        Err(_) if is_dead(&dir) => {
            detach(&dir).map_err(|e| about(&e))?;
            let volume = mount.source.display();
            let what = "its daemon had died; the mount is detached, but the volume is not plain \
                        ext4 yet";
            return Err(about(&format!(
                "{what}: run `siftfs recover {volume}`, or mount it again"
            )));
        }
        Err(e) => return Err(no_daemon(&a.dir, &mount, &e)),
    };
    let process = pidfd_open(daemon.pid, PidfdFlags::empty()).map_err(|e| about(&e))?;
    // Heard before the mount goes: the daemon waits for whom it serves, and for nobody else.
    let left = daemon.ask(Op::WaitClosed).and_then(|()| daemon.answer()).map_err(|e| about(&e))?;
    let leave = if a.lazy { detach(&dir) } else { unmount(&dir) };
    leave.map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => about(
            &"in use: a process has a file open or its working directory there (see \
              `fuser -vm`); end it, or use --lazy",
        ),
        Some(libc::EPERM) => about(&"only root may unmount"),
        _ => about(&e),
    })?;
    wait_closed(&mount, left, &mut daemon, &process)
}

/// What is seen while the daemon closes the volume.
struct Waiting<'a> {
    dir: &'a Path,
    what: &'a str,
    display: Display,
    since: Instant,
    told: bool,
    /// Most bytes that were left.
    total: u64,
    /// Fewest bytes that were left: it does not go back.
    left: u64,
    /// For whom, as it was said.
    whom: Option<String>,
}

impl<'a> Waiting<'a> {
    fn new(dir: &'a Path, what: &'a str) -> Self {
        let mut display = Display::new();
        display.wait(what);
        let (told, since) = (display.is_shown(), Instant::now());
        Self { dir, what, display, since, told, total: 0, left: u64::MAX, whom: None }
    }

    fn update(&mut self, left: Left) {
        // Said at once: it is not this machine's work that takes the time.
        if let Some(whom) = left.waiting.filter(|_| self.whom.is_none()) {
            complain(format_args!("{}: {whom}", self.dir.display()));
            self.whom = Some(whom);
        }
        self.total = self.total.max(left.left_bytes);
        self.left = self.left.min(left.left_bytes);
        if self.total > 0 {
            self.display.update(self.what, self.total - self.left, self.total);
        }
        self.goes_on();
    }

    /// Says once that it takes long, where nobody sees the progress.
    fn goes_on(&mut self) {
        if !self.told && self.since.elapsed() >= PATIENCE {
            complain(format_args!("{}: {}", self.dir.display(), self.what));
            self.told = true;
        }
    }
}

/// Waits until the daemon has closed the volume and is gone.
fn wait_closed(mount: &MountEntry, left: Value, daemon: &mut Daemon, process: &OwnedFd) -> Outcome {
    let dir = &mount.mount_point;
    let about = |e: &dyn std::fmt::Display| Failure::about(dir, e);
    daemon.stream.set_read_timeout(Some(PATIENCE)).map_err(|e| about(&e))?;
    let what = "waiting for the daemon to bring everything into the ext4 area";
    let mut waiting = Waiting::new(dir, what);
    let mut said: io::Result<Value> = Ok(left);
    let answer = loop {
        match said {
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                waiting.goes_on();
            }
            Ok(value) => match Left::deserialize(&value) {
                Ok(left) => waiting.update(left),
                Err(_) => break Ok(()),
            },
            Err(e) => break Err(e),
        }
        said = daemon.answer();
    };
    drop(waiting);
    answer.map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            let volume = mount.source.display();
            about(&format!(
                "the daemon died before the volume was plain ext4; nothing acknowledged is lost: \
                 run `siftfs recover {volume}`, or mount it again"
            ))
        }
        _ => about(&e),
    })?;
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
    match poll(&mut fds, Some(&limit)) {
        Ok(0) => Err(about(&"the volume is closed, but its daemon does not end")),
        Ok(_) => Ok(0),
        Err(e) => Err(about(&e)),
    }
}
