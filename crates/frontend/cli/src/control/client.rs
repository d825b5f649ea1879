//! A command's end of the control socket. A daemon may be alive, stopped, exiting or dead at any
//! moment of the conversation; none of that lets a command wait for ever, or end with a message of
//! the socket's.

use crate::control::messages::{Answer, Ask, Device, Op, VERSION, receive, send, socket_path};
use crate::control::passing;
use crate::show::failure::Failure;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;
use serde_json::Value;
use siftfs_device::is_hosted;
use siftfs_fuse::{MountEntry, abort, is_dead, is_silent, mount_of_id};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a daemon whose connection broke may take to end: it gives its memory back meanwhile.
const ENDING: Duration = Duration::from_secs(30);
/// How long the kernel may take to take the connections of a process that has ended apart.
const TAKEN_APART: Duration = Duration::from_secs(5);
/// How long the rest of a message may take once it has begun to come.
const MESSAGE: Duration = Duration::from_secs(10);
/// A daemon that does not answer is reported as stopped when it was seen stopped in this many
/// seconds in succession.
const STOPPED_SECONDS: u32 = 3;

/// A connection to a mount's daemon.
pub struct Daemon {
    stream: UnixStream,
    /// The mount that it is asked about; `None`: the volume.
    mount: Option<Device>,
    /// `None` for a daemon outside of the command's PID namespace, as of a container.
    process: Option<(Pid, OwnedFd)>,
}

/// Why a daemon does not answer.
#[derive(Debug)]
pub enum Silence {
    /// The daemon ended, or is about to.
    Ended,
    /// The daemon does not run (SIGSTOP, a debugger).
    Stopped,
    /// Nothing came for a second; it may still.
    Nothing,
    /// The daemon answers with an error, or with something that makes no sense.
    Error(io::Error),
}

impl From<io::Error> for Silence {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Self::Ended,
            _ => Self::Error(e),
        }
    }
}

impl Daemon {
    /// Connects to the daemon of a mount.
    ///
    /// # Errors
    /// No daemon listens there, or the caller may not connect.
    pub fn of(mount: &MountEntry) -> io::Result<Self> {
        let daemon = Self::connect(&socket_path(mount))?;
        Ok(Self { mount: Some(Device::of(mount)), ..daemon })
    }

    /// Connects to a socket.
    ///
    /// # Errors
    /// As [`Daemon::of`].
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(MESSAGE))?;
        stream.set_write_timeout(Some(MESSAGE))?;
        let process = match Pid::from_raw(getsockopt(&stream, PeerCredentials)?.pid()) {
            Some(pid) => Some((pid, pidfd_open(pid, PidfdFlags::empty())?)),
            None => None,
        };
        Ok(Self { stream, mount: None, process })
    }

    /// The daemon's process, for messages.
    pub fn name(&self) -> String {
        match &self.process {
            Some((pid, _)) => format!("process {pid}"),
            None => "a process of another PID namespace".into(),
        }
    }

    /// Asks for something.
    ///
    /// # Errors
    /// The daemon has gone.
    pub fn ask(&mut self, op: Op) -> Result<(), Silence> {
        self.say(&Ask { version: VERSION, mount: self.mount, op })
    }

    /// Says more of what was asked for.
    ///
    /// # Errors
    /// The daemon has gone.
    pub fn say(&mut self, message: &impl Serialize) -> Result<(), Silence> {
        Ok(send(&mut self.stream, message)?)
    }

    /// The descriptor that comes behind an answer.
    ///
    /// # Errors
    /// The daemon has gone.
    pub fn descriptor(&mut self) -> Result<OwnedFd, Silence> {
        Ok(passing::receive(&self.stream)?)
    }

    /// The next answer, or why there is none within a second.
    ///
    /// # Errors
    /// See [`Silence`].
    pub fn next_answer(&mut self) -> Result<Value, Silence> {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&second)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Err(Silence::Nothing),
            Ok(_) => {}
            Err(e) => return Err(Silence::Error(e.into())),
        }
        let answer: Answer = receive(&mut self.stream)?;
        let error = |what: String| Err(Silence::Error(io::Error::other(what)));
        match answer.error {
            _ if answer.version != VERSION => error("daemon of another version".into()),
            Some(e) => error(e),
            None => Ok(answer.value),
        }
    }

    /// The next answer, however long it takes, as long as the daemon runs.
    ///
    /// # Errors
    /// See [`Silence`], [`Silence::Nothing`] excepted.
    pub fn answer(&mut self) -> Result<Value, Silence> {
        let mut stopped = 0;
        loop {
            match self.next_answer() {
                Err(Silence::Nothing) => {
                    stopped = if self.is_stopped() { stopped + 1 } else { 0 };
                    if stopped >= STOPPED_SECONDS {
                        return Err(Silence::Stopped);
                    }
                }
                other => return other,
            }
        }
    }

    /// Waits until `other` can be read or the daemon has something to say, `limit` at most. Which
    /// of the two is so.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait_beside(&self, other: &impl AsFd, limit: Duration) -> io::Result<[bool; 2]> {
        let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut fds = [PollFd::new(other, PollFlags::IN), PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(_) => Ok(fds.map(|fd| !fd.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok([false, false]),
            Err(e) => Err(e.into()),
        }
    }

    /// Does the process not run?
    pub fn is_stopped(&self) -> bool {
        let Some((pid, _)) = &self.process else { return false };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        matches!(state, Some('T' | 't'))
    }

    /// Waits until the process has ended, or, if that cannot be seen, until it has closed the
    /// connection; false if it has not after `limit`.
    pub fn wait_end(&self, limit: Duration) -> bool {
        let mut fds = [match &self.process {
            Some((_, process)) => PollFd::new(process, PollFlags::IN),
            None => PollFd::new(&self.stream, PollFlags::RDHUP),
        }];
        let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        poll(&mut fds, Some(&limit)).is_ok_and(|n| n > 0)
    }

    /// What is said of a daemon that does not run.
    pub fn stopped(&self) -> String {
        let pid = self.process.as_ref().map(|(pid, _)| pid.to_string()).unwrap_or_default();
        format!(
            "its daemon ({}) is stopped and cannot answer: let it go on (kill -CONT {pid}), or end it \
             (kill -KILL {pid}): what was acknowledged is then recovered by the next mount",
            self.name()
        )
    }
}

/// The daemon of a mount, or that it has died.
pub enum Reached {
    /// The daemon has taken the question.
    Answers(Daemon, Value),
    /// The mount's server is gone.
    Dead,
}

/// Asks the daemon of `mount` and waits for the first answer. `given` is what messages are about.
///
/// # Errors
/// The daemon may not be asked, does not run, or says no.
pub fn reach(given: &Path, mount: &MountEntry, op: &Op) -> Result<Reached, Failure> {
    let about = |what: &str| Failure::about(given, what);
    let mut daemon = match Daemon::of(mount) {
        Ok(daemon) => daemon,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Err(about("only root and the mounting user may ask its daemon"));
        }
        Err(_) if dies(mount) || ends_abandoned(mount) => return Ok(Reached::Dead),
        Err(e) if is_there(mount) => {
            return Err(about(&format!("no SiftFS daemon answers for this mount ({e})")));
        }
        Err(_) => return Err(about("it was unmounted by another program meanwhile")),
    };
    match daemon.ask(op.clone()).and_then(|()| daemon.answer()) {
        Ok(value) => Ok(Reached::Answers(daemon, value)),
        Err(Silence::Stopped) => Err(about(&daemon.stopped())),
        Err(Silence::Error(e)) => Err(about(&e.to_string())),
        Err(Silence::Ended | Silence::Nothing) => after_its_end(given, mount, &daemon),
    }
}

/// The connection broke before an answer: the daemon is exiting, or has too much to do.
fn after_its_end(given: &Path, mount: &MountEntry, daemon: &Daemon) -> Result<Reached, Failure> {
    let about = |what: &str| Failure::about(given, what);
    // A thread of a dead process may stay in the kernel: the process then does not end.
    if !dies(mount) && !daemon.wait_end(ENDING) {
        return Err(about(&format!(
            "its daemon ({}) closed the connection and goes on: it serves too many commands at once, or is \
             ending; try again",
            daemon.name()
        )));
    }
    match dies(mount) {
        true => Ok(Reached::Dead),
        false if is_there(mount) => Err(about("its daemon ended while it was asked")),
        false => Err(about("it was unmounted by another program meanwhile")),
    }
}

/// Is the mount's server gone, or about to be? The kernel takes a dead process's connections apart,
/// its rings above all, after the process has ended and its sockets have been closed.
pub fn dies(mount: &MountEntry) -> bool {
    let start = Instant::now();
    while is_there(mount) && start.elapsed() < TAKEN_APART {
        if is_dead(&mount.mount_point) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Ends the connection of a mount whose daemon is dead without having ended it, because something
/// else has it: every call on the mount would wait for ever. False if it is no such mount.
///
/// A daemon is dead if its socket is there and it does not listen, nor has it the volume. One that
/// is stopped or slow has both.
pub fn ends_abandoned(mount: &MountEntry) -> bool {
    let refused = || match Daemon::of(mount) {
        Err(e) => e.kind() == io::ErrorKind::ConnectionRefused,
        Ok(_) => false,
    };
    let free = || is_hosted(&mount.source).is_ok_and(|hosted| !hosted);
    let is_ours = mount.fs_type == "fuse.siftfs";
    is_ours
        && refused()
        && free()
        && is_silent(&mount.mount_point)
        && is_there(mount)
        && abort(mount).is_ok()
}

/// Is the mount still where it was?
pub fn is_there(mount: &MountEntry) -> bool {
    mount_of_id(mount.id).is_ok_and(|now| now.is_some_and(|m| m.is_same_as(mount)))
}

/// What is said of a mount whose daemon has died.
pub fn has_died(given: &Path, mount: &MountEntry) -> Failure {
    let volume = mount.source.display();
    let then = match is_served(mount) {
        true => format!("mount {volume} again, or `siftfs umount` the directory"),
        false => format!(
            "mount {volume} again (that recovers it), or `siftfs umount` the directory and `siftfs recover` \
             the volume"
        ),
    };
    Failure::about(given, format!("the mount's daemon has died; {then}"))
}

/// Is the volume of the mount served by another process? Its address is no path; of all others the
/// table has the whole path, or the target whose storage the volume lies on.
pub fn is_served(mount: &MountEntry) -> bool {
    !mount.source.is_absolute()
        && !mount.source.as_os_str().as_encoded_bytes().starts_with(b"target:")
}
