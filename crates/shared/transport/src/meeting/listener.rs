//! The server's side: waiting for callers.

use crate::channel::secret::Secret;
use crate::channel::socket::{Socket, wait};
use crate::handshake::End;
use crate::link::Met;
use crate::meeting::begin::Begin;
use crate::meeting::connect::{peer_name, process};
use crate::meeting::door::{Caller, Door, Greeted, Leash};
use crate::{Address, ServerEnd, TransportOptions};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use siftfs_base::{Error, Result};
use siftfs_codec::Protocol;
use siftfs_keys::ServerTls;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Connections that wait in the kernel's queue.
const BACKLOG: i32 = 64;
/// Pause after the system refused to hand out a connection, for want of descriptors perhaps.
const SHORTAGE: Duration = Duration::from_millis(100);

/// Listens for callers of a protocol at an [`Address`].
///
/// A unix socket can be used by its owner alone (mode 0600). TCP has no such bound, and no
/// encryption, unless keys are asked for ([`Listener::admitting`]): without them, listen on an
/// address that only trusted machines reach. With RDMA the two sides meet over TCP, with keys or
/// without, and what they say from then on is not encrypted.
pub struct Listener<P: Protocol> {
    socket: OwnedFd,
    host: Arc<Host>,
    /// Device and inode of our socket in the file system.
    file: Option<(u64, u64)>,
    door: Mutex<Door>,
    results: Sender<Result<ServerEnd<P>>>,
    received: Mutex<Receiver<Result<ServerEnd<P>>>>,
    /// Rung when a result is there.
    bell: Arc<OwnedFd>,
}

/// What greetings need to know of their listener.
struct Host {
    address: Address,
    options: TransportOptions,
    keys: Option<Arc<ServerTls>>,
    stop: AtomicBool,
}

/// What a look at the door has found.
struct Found {
    /// A greeting is over.
    rang: bool,
    /// A caller waits in the kernel's queue.
    come: bool,
    /// The place of one who has said something, among those that had said nothing.
    speaks: Option<usize>,
}

impl<P: Protocol> Listener<P> {
    /// Starts to listen. A unix socket that a process left behind when it died is replaced.
    ///
    /// # Errors
    /// The address is in use or cannot be used; the message says why.
    pub fn bind(address: &Address, options: &TransportOptions) -> Result<Self> {
        let cannot = |why: String| Error::Refused(format!("cannot listen at {address}: {why}"));
        let (socket, address, file) = match address {
            Address::Unix(path) => {
                let socket = bind_unix(path).map_err(cannot)?;
                let file = std::fs::symlink_metadata(path).map_err(|e| cannot(e.to_string()))?;
                (socket, address.clone(), Some((file.dev(), file.ino())))
            }
            Address::Tcp { host, port } | Address::Rdma { host, port } => {
                let listener = TcpListener::bind((&host[..], *port));
                let listener = listener.map_err(|e| cannot(e.to_string()))?;
                listener.set_nonblocking(true).map_err(|e| cannot(e.to_string()))?;
                let bound = listener.local_addr().map_err(|e| cannot(e.to_string()))?;
                (listener.into(), address.at_port(bound.port()), None)
            }
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| cannot(io::Error::from(e).to_string()))?;
        let (results, received) = mpsc::channel();
        let (options, stop) = (options.clone(), AtomicBool::new(false));
        Ok(Self {
            socket,
            host: Arc::new(Host { address, options, keys: None, stop }),
            file,
            door: Mutex::default(),
            results,
            received: Mutex::new(received),
            bell: Arc::new(bell),
        })
    }

    /// The listener, which from now on speaks TLS over TCP and admits callers whose keys it knows.
    /// Unix sockets are as before.
    pub fn admitting(mut self, keys: Arc<ServerTls>) -> Self {
        let host = Arc::get_mut(&mut self.host).expect("no caller is greeted before it is built");
        host.keys = Some(keys);
        self
    }

    /// Where it listens: as it was asked for, with the port that the system chose.
    pub fn address(&self) -> Address {
        self.host.address.clone()
    }

    /// The next caller that was greeted. Waits at most `timeout`; `None` if it passed.
    ///
    /// # Errors
    /// A peer was refused or gave up, or the system has no descriptor for one. Each error is about
    /// one peer, names it and was told to it where that was possible; the listener goes on.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<ServerEnd<P>>> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Ok(result) = received.try_recv() {
                return result.map(Some);
            }
            let now = Instant::now();
            door.tidy(now);
            if let Some(caller) = door.silent_too_long(now, self.host.options.handshake) {
                return Err(self.said_nothing(&caller));
            }
            let left = deadline.map_or(Duration::MAX, |d| d.saturating_duration_since(now));
            let until = left.min(door.next_change(now, self.host.options.handshake));
            let found = self.look(&door, until)?;
            let served = self.serve(&mut door, &found)?;
            if left.is_zero() && !served && !found.rang {
                return Ok(None);
            }
        }
    }

    /// Sleeps until there is something, at most `timeout`.
    fn look(&self, door: &Door, timeout: Duration) -> Result<Found> {
        let mut fds = vec![PollFd::new(&self.bell, PollFlags::IN)];
        if door.has_room() {
            fds.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        let waiting = fds.len();
        if door.may_greet() {
            fds.extend(door.silent().map(|caller| PollFd::new(&caller.fd, PollFlags::IN)));
        }
        wait(&mut fds, timeout).map_err(|e| self.trouble(&e))?;
        let mut there = fds.iter().map(|fd| !fd.revents().is_empty());
        let rang = there.next().unwrap_or_default();
        let come = door.has_room() && there.next().unwrap_or_default();
        let speaks = fds.iter().skip(waiting).position(|fd| !fd.revents().is_empty());
        if rang {
            // Results are looked for after it.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
        Ok(Found { rang, come, speaks })
    }

    /// Begins to greet one, or lets one in; whether there was one.
    fn serve(&self, door: &mut Door, found: &Found) -> Result<bool> {
        if let Some(caller) = found.speaks.and_then(|at| door.take(at)) {
            self.greet(door, caller)?;
            return Ok(true);
        }
        Ok(found.come && self.let_in(door)?)
    }

    fn said_nothing(&self, caller: &Caller) -> Error {
        let (address, patience) = (&self.host.address, self.host.options.handshake);
        let peer = peer_name(&caller.fd, P::CALLER, address, process(&caller.fd, address));
        Error::Link(format!("{peer} said nothing within {patience:?}"))
    }

    fn trouble(&self, e: &io::Error) -> Error {
        Error::Refused(format!("cannot take connections at {}: {e}", self.host.address))
    }

    /// Takes the next caller from the kernel's queue; whether there was one.
    fn let_in(&self, door: &mut Door) -> Result<bool> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.socket, flags) {
            Ok(fd) => door.let_in(Caller { fd, since: Instant::now() }),
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(e) => {
                // Those that say nothing have what is missing.
                if door.drop_oldest().is_none() {
                    std::thread::sleep(SHORTAGE);
                }
                return Err(self.trouble(&e.into()));
            }
        }
        Ok(true)
    }

    fn greet(&self, door: &mut Door, caller: Caller) -> Result<()> {
        let leash = Leash::new(caller.fd.try_clone().map_err(|e| self.trouble(&e))?);
        let greeted = leash.clone();
        let (results, bell, host) = (self.results.clone(), self.bell.clone(), self.host.clone());
        let run = move || {
            let result = host.greet::<P>(caller.fd);
            greeted.drop_it();
            // The result of a listener that is gone is not taken.
            let _ = results.send(result);
            let _ = rustix::io::write(&*bell, &1u64.to_le_bytes());
        };
        let thread = std::thread::Builder::new().name("siftfs-greet".into()).spawn(run);
        let thread = thread.map_err(|e| {
            Error::Refused(format!("cannot greet a peer at {}: {e}", self.host.address))
        })?;
        door.greets(Greeted { thread, leash, since: Instant::now() });
        Ok(())
    }
}

impl<P: Protocol> Drop for Listener<P> {
    fn drop(&mut self) {
        self.host.stop.store(true, Ordering::Relaxed);
        self.door.get_mut().unwrap_or_else(PoisonError::into_inner).close();
        // Ours only: another process may have listened there since.
        if let (Address::Unix(path), Some(ours)) = (&self.host.address, self.file)
            && std::fs::symlink_metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == ours)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Host {
    fn greet<P: Protocol>(&self, fd: OwnedFd) -> Result<ServerEnd<P>> {
        let Host { address, options, keys, stop } = self;
        let begin =
            Begin { end: End::Server, options, deadline: Instant::now() + options.handshake, stop };
        let process = process(&fd, address);
        let peer = peer_name(&fd, P::CALLER, address, process);
        let lost = |e: io::Error| Error::Link(format!("{peer}: {e}"));
        if let Address::Unix(_) = address {
            let socket = Socket::new(fd).map_err(lost)?;
            return begin.local::<P, _, _>(socket, Met { peer, process, key: None });
        }
        let carrier = address.carrier();
        // Fails for a peer that is gone already; the greeting says so.
        let _ = sockopt::set_tcp_nodelay(&fd, true);
        let Some(keys) = keys else {
            let socket = Socket::new(fd).map_err(lost)?;
            return begin.over::<P, _, _, _>(socket, Met { peer, process, key: None }, carrier);
        };
        let stream = TcpStream::from(fd);
        stream.set_nonblocking(false).map_err(lost)?;
        let (tls, key) = keys.accept(&stream, options.handshake)?;
        let socket = Socket::new(stream.into()).map_err(lost)?;
        let peer = format!("{peer} with the key {}", key.line.name());
        let met = Met { peer, process, key: Some(key) };
        begin.over::<P, _, _, _>(Secret::new(socket, tls.into()), met, carrier)
    }
}

fn bind_unix(path: &Path) -> std::result::Result<OwnedFd, String> {
    let text = |e: Errno| io::Error::from(e).to_string();
    remove_stale(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(text)?;
    let address = SocketAddrUnix::new(path).map_err(text)?;
    rustix::net::bind(&fd, &address).map_err(text)?;
    // Before it listens: no process can have connected with the wider permissions.
    chmod(path, Mode::RUSR | Mode::WUSR).map_err(text)?;
    rustix::net::listen(&fd, BACKLOG).map_err(text)?;
    Ok(fd)
}

/// Removes a socket at `path` that no process listens at.
fn remove_stale(path: &Path) -> std::result::Result<(), String> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e.to_string()),
        Ok(file) if !file.file_type().is_socket() => {
            Err("the path exists and is not a socket".into())
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(|e| e.to_string())
            }
            _ => Err("another process listens there".into()),
        },
    }
}
