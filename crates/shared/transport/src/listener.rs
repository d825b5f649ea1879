//! The server's side: waiting for callers.

use crate::connect::{peer_name, process};
use crate::handshake::{End, Greeting};
use crate::mapping::Layout;
use crate::socket::{Socket, wait};
use crate::{Address, ServerEnd, TransportOptions, link, shm, stream};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use siftfs_base::{Error, Result};
use siftfs_codec::Protocol;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Peers that are greeted at the same time at most; further ones wait in the kernel's queue. One
/// that says nothing does not keep others out for the time that it is given.
const GREETED_AT_ONCE: usize = 8;
/// Connections that wait in the kernel's queue.
const BACKLOG: i32 = 16;
/// Pause after the system refused to hand out a connection, for want of descriptors perhaps.
const SHORTAGE: Duration = Duration::from_millis(100);

/// Listens for callers of a protocol at an [`Address`].
///
/// A unix socket can be used by its owner alone (mode 0600). TCP has no such bound, and no
/// encryption: listen on an address that only trusted machines reach.
pub struct Listener<P: Protocol> {
    socket: OwnedFd,
    address: Address,
    options: TransportOptions,
    /// Device and inode of our socket in the file system.
    file: Option<(u64, u64)>,
    greeted: Mutex<Greeted<P>>,
    results: Sender<Result<ServerEnd<P>>>,
    /// Rung when a result is there.
    bell: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
}

struct Greeted<P: Protocol> {
    results: Receiver<Result<ServerEnd<P>>>,
    threads: Vec<JoinHandle<()>>,
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
            Address::Tcp { host, port } => {
                let listener = TcpListener::bind((&host[..], *port));
                let listener = listener.map_err(|e| cannot(e.to_string()))?;
                listener.set_nonblocking(true).map_err(|e| cannot(e.to_string()))?;
                let bound = listener.local_addr().map_err(|e| cannot(e.to_string()))?;
                let address = Address::Tcp { host: host.clone(), port: bound.port() };
                (listener.into(), address, None)
            }
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| cannot(io::Error::from(e).to_string()))?;
        let (results, received) = mpsc::channel();
        Ok(Self {
            socket,
            address,
            options: options.clone(),
            file,
            greeted: Mutex::new(Greeted { results: received, threads: Vec::new() }),
            results,
            bell: Arc::new(bell),
            stop: Arc::default(),
        })
    }

    /// Where it listens: as it was asked for, with the port that the system chose.
    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// The next caller that was greeted. Waits at most `timeout`; `None` if it passed.
    ///
    /// # Errors
    /// A peer was refused or gave up, or the system has no descriptor for one. Each error is about
    /// one peer, names it and was told to it where that was possible; the listener goes on.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<ServerEnd<P>>> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut greeted = self.greeted.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Ok(result) = greeted.results.try_recv() {
                return result.map(Some);
            }
            greeted.threads.retain(|t| !t.is_finished());
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if greeted.threads.len() < GREETED_AT_ONCE && self.greet_next(&mut greeted.threads)? {
                continue;
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            self.sleep(greeted.threads.len() < GREETED_AT_ONCE, left.unwrap_or(Duration::MAX))?;
        }
    }

    fn sleep(&self, room: bool, timeout: Duration) -> Result<()> {
        let bell = PollFd::new(&self.bell, PollFlags::IN);
        let waited = if room {
            wait(&mut [bell, PollFd::new(&self.socket, PollFlags::IN)], timeout)
        } else {
            // Only a greeting that ends makes a difference.
            wait(&mut [bell], timeout)
        };
        waited.map_err(|e| self.trouble(e))?;
        // Nothing rang: there is nothing to take, and that is no error.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        Ok(())
    }

    fn trouble(&self, e: Errno) -> Error {
        let e = io::Error::from(e);
        Error::Refused(format!("cannot take connections at {}: {e}", self.address))
    }

    /// Starts to greet the next peer that waits; returns whether there was one.
    fn greet_next(&self, threads: &mut Vec<JoinHandle<()>>) -> Result<bool> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = match rustix::net::accept_with(&self.socket, flags) {
            Ok(fd) => fd,
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR | Errno::CONNABORTED) => return Ok(true),
            Err(e) => {
                std::thread::sleep(SHORTAGE);
                return Err(self.trouble(e));
            }
        };
        let socket = Socket::new(fd).map_err(|e| self.trouble(e))?;
        let (address, options) = (self.address.clone(), self.options.clone());
        let (results, bell, stop) = (self.results.clone(), self.bell.clone(), self.stop.clone());
        let run = move || {
            // The result of a listener that is gone is not taken.
            let _ = results.send(greet::<P>(socket, &address, &options, &stop));
            let _ = rustix::io::write(&*bell, &1u64.to_le_bytes());
        };
        let thread = std::thread::Builder::new().name("siftfs-greet".into()).spawn(run);
        threads.push(thread.map_err(|e| {
            Error::Refused(format!("cannot greet a peer at {}: {e}", self.address))
        })?);
        Ok(true)
    }
}

impl<P: Protocol> Drop for Listener<P> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let greeted = self.greeted.get_mut().unwrap_or_else(PoisonError::into_inner);
        for thread in greeted.threads.drain(..) {
            // A failed assertion there has said what happened.
            let _ = thread.join();
        }
        // Ours only: another process may have listened there since.
        if let (Address::Unix(path), Some(ours)) = (&self.address, self.file)
            && std::fs::symlink_metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == ours)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn greet<P: Protocol>(
    socket: Socket,
    address: &Address,
    options: &TransportOptions,
    stop: &AtomicBool,
) -> Result<ServerEnd<P>> {
    let local = matches!(address, Address::Unix(_));
    if !local {
        // Fails for a peer that is gone already; the greeting says so.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
    }
    let process = process(&socket, address);
    let peer = peer_name(&socket, P::CALLER, address, process);
    let greeting = Greeting {
        socket: &socket,
        peer: &peer,
        deadline: Instant::now() + options.handshake,
        patience: options.handshake,
        stop,
    };
    let agreement = greeting.agree::<P>(End::Server, options, local)?;
    if agreement.slots > 0 {
        let layout = Layout::new(agreement.slots, P::SERVER_LENDS);
        let shared = greeting.take_memory(layout)?;
        let (pipes, cut) = shm::pipes(End::Server, shared, socket, &peer);
        return link::open::<P, _, _>(
            End::Server,
            &agreement,
            options,
            (peer, process),
            pipes,
            cut,
        );
    }
    let (pipes, cut) = stream::pipes(&Arc::new(socket), &peer);
    link::open::<P, _, _>(End::Server, &agreement, options, (peer, process), pipes, cut)
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
