//! A program's connection to a mount's grantor.

use crate::leased::Leased;
use crate::medium::{Medium, OwnLog, boot_time};
use siftfs_client::Grant;
use siftfs_device_target::Lines;
use siftfs_lease::{
    Answer, Ask, FULL, ForkMark, HEADER, MOST_DATA, Memory, Packets, Publish, Published, Settled,
    Token, View, Writer, is_vouched, open,
};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a sleep takes before it is looked whether the daemon is still there.
const SLEEP: Duration = Duration::from_millis(50);

/// A session with a mount's grantor. All threads of a program use one. A child of a fork has none
/// of it: its calls go through the mount.
#[derive(Clone)]
pub struct Session(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    socket: Packets,
    pub view: Arc<View>,
    writer: Mutex<Writer<View, Memory>>,
    /// One question at a time.
    asks: Mutex<()>,
    /// Taken before `writer` and `asks`, by an fsync(2) alone.
    medium: Mutex<Medium>,
    /// Pages in the caches of its files.
    pub cached: AtomicUsize,
    mark: ForkMark,
    over: AtomicBool,
    /// Connections to targets, by what a host calls them.
    lines: Mutex<HashMap<String, Arc<Lines>>>,
    /// When blocks were granted last whose target was not reached.
    unreached: Mutex<Option<Instant>>,
}

/// Is told of a descriptor that the library has opened for itself.
pub type Noted = fn(RawFd);

impl Session {
    /// Enters the grantor of the mount on which `file` is, open to be written.
    ///
    /// # Errors
    /// `ENOTTY`: the mount has no private logs. Those of [`siftfs_client::grant`] and of
    /// [`Session::enter_with`]. The program goes on by the kernel.
    pub fn enter(file: impl AsFd) -> io::Result<Self> {
        let Grant { token, socket } = siftfs_client::grant(file)?;
        Self::enter_with(&socket, &token)
    }

    /// Takes the lease of a file of the mount that is open to be written.
    ///
    /// # Errors
    /// Those of [`siftfs_client::grant`] and of [`Session::lease_with`]. The program goes on by the
    /// kernel.
    pub fn lease(&self, file: impl AsFd) -> io::Result<Leased> {
        self.lease_with(&siftfs_client::grant(file)?.token)
    }

    /// The descriptors that the session keeps open. Code that closes what it does not know, or puts
    /// another file under its number, must leave them alone: the session would talk to that file.
    /// Has the daemon make the session's log, if that was not asked for yet.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let socket = self.0.socket.as_fd().as_raw_fd();
        let log = match &*self.0.medium() {
            Medium::Own(log) => log.descriptor(),
            Medium::Unknown | Medium::Daemon(_) => None,
        };
        [Some(socket), log].into_iter().flatten().collect()
    }

    /// Enters by the socket of this name, with a token of a file of the mount.
    ///
    /// # Errors
    /// `EACCES` for a token that is not this process's, was used or is too old; nobody listens
    /// there, or the daemon is of another version or has too many sessions.
    pub fn enter_with(path: &Path, token: &Token) -> io::Result<Self> {
        let socket = Packets::connect(path)?;
        socket.send_in_turn(&Ask::Enter(*token).encode())?;
        let packet = socket.receive(HEADER, true)?.ok_or(io::ErrorKind::ConnectionReset)?;
        let answer = Answer::decode(&packet.bytes).map_err(io::Error::other)?;
        let (epoch, largest) = match answer {
            Answer::Entered { epoch, largest } => (epoch, largest),
            Answer::Failed(errno) => return Err(io::Error::from_raw_os_error(errno)),
            _ => return Err(odd()),
        };
        let passed = packet.descriptors.try_into().map_err(|_| odd())?;
        let (view, memory) = open(&passed, epoch).map_err(io::Error::other)?;
        let view = Arc::new(view);
        let writer = Mutex::new(Writer::new((view.clone(), Arc::new(memory)), FULL, largest));
        let (asks, over, mark) = (Mutex::default(), AtomicBool::default(), ForkMark::new()?);
        let (medium, cached) = (Mutex::new(Medium::Unknown), AtomicUsize::new(0));
        let (lines, unreached) = Default::default();
        let shared =
            Shared { socket, view, writer, asks, medium, cached, mark, over, lines, unreached };
        Ok(Self(Arc::new(shared)))
    }

    /// Takes the lease of the file that a token stands for.
    ///
    /// # Errors
    /// `EACCES` as of [`Session::enter_with`]. `EAGAIN`, `EBUSY`: others use the file just now, or
    /// there are too many leases. `EOPNOTSUPP`: a file that nobody may lease. `ENOENT`: a file that
    /// has no name any more. `ENOTCONN`: the session is over. The program goes on by the kernel.
    pub fn lease_with(&self, token: &Token) -> io::Result<Leased> {
        match self.0.ask(Ask::Lease(*token), 0) {
            Some(Answer::Leased { held, size, mtime, ino }) => {
                if !self.0.writer().begin(held, size, mtime) {
                    self.0.abandon();
                    return Err(odd());
                }
                Ok(Leased::new(self.0.clone(), held, ino))
            }
            Some(Answer::Failed(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(_) => {
                self.0.abandon();
                Err(odd())
            }
            None => Err(io::Error::from_raw_os_error(libc::ENOTCONN)),
        }
    }
}

/// The daemon does not do what it should.
fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the daemon answers something else")
}

impl Shared {
    pub fn writer(&self) -> MutexGuard<'_, Writer<View, Memory>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lock_lines(&self) -> MutexGuard<'_, HashMap<String, Arc<Lines>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lock_unreached(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unreached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is this the process that entered, and does the session last, as far as is known? Nothing
    /// else tells a program that asks nothing that its daemon was killed.
    pub fn is_usable(&self) -> bool {
        let lasts = !self.over.load(Ordering::Acquire) && self.view.is_alive();
        self.mark.is_own() && lasts && is_vouched(&*self.view, boot_time())
    }

    /// Has no more to do with the daemon.
    pub fn abandon(&self) {
        self.over.store(true, Ordering::Release);
        self.socket.cut();
    }

    /// Asks, and waits for the answer, which brings `data` bytes at most; none, if the session is
    /// over.
    pub fn ask(&self, ask: Ask, data: usize) -> Option<Answer> {
        self.ask_for(ask, data, false).map(|(answer, _)| answer)
    }

    /// As [`Shared::ask`], with the descriptors that the answer brings if they are `wanted`.
    fn ask_for(&self, ask: Ask, data: usize, wanted: bool) -> Option<(Answer, Vec<OwnedFd>)> {
        if !self.mark.is_own() || self.over.load(Ordering::Acquire) {
            return None;
        }
        let _turn = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = self.socket.send_in_turn(&ask.encode()).ok().and_then(|()| {
            let packet = self.socket.receive(HEADER + data.min(MOST_DATA), wanted).ok()??;
            Some((Answer::decode(&packet.bytes).ok()?, packet.descriptors))
        });
        if answer.is_none() {
            self.abandon();
        }
        answer
    }

    /// What makes the files of this session durable.
    pub fn medium(&self) -> MutexGuard<'_, Medium> {
        let mut medium = self.medium.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*medium, Medium::Unknown) {
            *medium = self.own_log().map_or(Medium::Daemon(0), |log| Medium::Own(log.into()));
        }
        medium
    }

    /// Asks for a log of this program's own.
    fn own_log(&self) -> Option<OwnLog> {
        let (answer, mut passed) = self.ask_for(Ask::Log, 0, true)?;
        let log = match (answer, passed.pop()) {
            (Answer::Log(shape), Some(file)) => OwnLog::new(file, shape),
            (Answer::Failed(_), None) => return None,
            _ => Err(odd()),
        };
        // One that this process cannot map is left alone, and the daemon is asked instead.
        log.inspect_err(|error| {
            if error.kind() == io::ErrorKind::InvalidData {
                self.abandon();
            }
        })
        .ok()
    }

    /// Says that the ring is half full.
    fn nudge(&self) {
        self.say(Ask::Nudge);
    }

    /// Says something that has no answer.
    pub fn say(&self, ask: Ask) {
        // Without room the daemon has others of these to read.
        let _ = self.socket.send(&ask.encode(), &[]);
    }

    /// Has the ring taken in. False: the session is over.
    pub fn make_room(&self) -> bool {
        self.ask(Ask::Ingest, 0) == Some(Answer::Done)
    }

    /// Where in the file a published write went; none, if it is not done and never will be.
    pub fn settle(&self, published: &Published) -> Option<u64> {
        if published.half {
            self.nudge();
        }
        if published.look(&*self.view) {
            return Some(published.offset);
        }
        let mut over = false;
        loop {
            match published.settled(&*self.view) {
                Settled::Done => return Some(published.offset),
                Settled::Lost => return None,
                // The daemon has died: the mount says so.
                Settled::NotYet { .. } if over => return None,
                Settled::NotYet { index, value } => {
                    // The connection is cut after the leases have ended: the next look counts.
                    over = self.socket.is_over();
                    if !over {
                        self.view.sleep_while(index, value, SLEEP);
                    }
                }
            }
        }
    }

    /// What becomes of a write that was not published; true: it may be tried again.
    pub fn after(&self, publish: &Publish) -> bool {
        match publish {
            Publish::Full => self.make_room(),
            Publish::Broken => {
                self.abandon();
                false
            }
            Publish::Published(_) | Publish::Ended | Publish::Unfit => false,
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
