//! The caller's side: connecting to a server.

use crate::channel::secret::Secret;
use crate::channel::socket::Socket;
use crate::handshake::End;
use crate::link::Met;
use crate::meeting::begin::Begin;
use crate::{Address, CallerEnd, Peer, Secured, TransportOptions};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use siftfs_base::{Error, Result};
use siftfs_codec::{Party, Protocol};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long to wait before a listener that is busy is asked again.
const BUSY: Duration = Duration::from_millis(10);

/// How long the check whether a process listens may take.
const LOOK: Duration = Duration::from_secs(1);

/// Connects to the server at `address`, greets it and agrees with it on what to use. TCP is not
/// encrypted, nor is RDMA, and neither says which machine is at the other end.
///
/// # Errors
/// No process listens, or one that is no such server of a version and with limits that suit this
/// side, or one that does not answer within [`TransportOptions::handshake`]. The message names the
/// address and the reason.
pub fn connect<P: Protocol>(address: &Address, options: &TransportOptions) -> Result<CallerEnd<P>> {
    let deadline = Instant::now() + options.handshake;
    met::<P>(dial(address, options)?, address, options, deadline)
}

/// As [`connect`], over a socket that is connected to that server already: for one who cares which
/// descriptors there are. Without shared memory it is the only one that the connection has.
///
/// # Errors
/// As [`connect`].
pub fn connect_over<P: Protocol>(
    socket: OwnedFd,
    address: &Address,
    options: &TransportOptions,
) -> Result<CallerEnd<P>> {
    met::<P>(socket, address, options, Instant::now() + options.handshake)
}

fn met<P: Protocol>(
    socket: OwnedFd,
    address: &Address,
    options: &TransportOptions,
    deadline: Instant,
) -> Result<CallerEnd<P>> {
    let socket = Socket::new(socket).map_err(|e| cannot(address, &e))?;
    let process = process(&socket, address);
    let peer = peer_name(&socket, P::SERVER, address, process);
    let met = Met { peer, process, key: None };
    let begin = Begin { end: End::Caller, options, deadline, stop: &AtomicBool::new(false) };
    match address {
        Address::Unix(_) => begin.local::<P, _, _>(socket, met),
        _ => begin.over::<P, _, _, _>(socket, met, address.carrier()),
    }
}

/// As [`connect`]; with `secured` by keys, over TCP: both sides prove theirs before a byte of the
/// protocol is sent.
///
/// # Errors
/// As [`connect`]; and the server's key is another one than is expected, or it does not admit ours.
pub fn reach<P: Protocol>(
    address: &Address,
    options: &TransportOptions,
    secured: Option<&Secured>,
) -> Result<CallerEnd<P>> {
    match secured {
        None => connect::<P>(address, options),
        Some(secured) => connect_secured::<P>(address, options, secured),
    }
}

fn connect_secured<P: Protocol>(
    address: &Address,
    options: &TransportOptions,
    secured: &Secured,
) -> Result<CallerEnd<P>> {
    let deadline = Instant::now() + options.handshake;
    let stream = TcpStream::from(dial(address, options)?);
    stream.set_nonblocking(false).map_err(|e| cannot(address, &e))?;
    let tls = secured.tls.connect(&secured.expect, &stream, options.handshake)?;
    let socket = Socket::new(stream.into()).map_err(|e| cannot(address, &e))?;
    let peer = peer_name(&socket, P::SERVER, address, None);
    let met = Met { peer, process: None, key: None };
    let begin = Begin { end: End::Caller, options, deadline, stop: &AtomicBool::new(false) };
    begin.over::<P, _, _, _>(Secret::new(socket, tls.into()), met, address.carrier())
}

fn dial(address: &Address, options: &TransportOptions) -> Result<OwnedFd> {
    let deadline = Instant::now() + options.dial.min(options.handshake);
    let fd = match address {
        Address::Unix(path) => connect_unix(path, deadline),
        Address::Tcp { host, port } | Address::Rdma { host, port } => {
            connect_tcp(host, *port, deadline)
        }
    };
    fd.map_err(|e| cannot(address, &e))
}

fn cannot(address: &Address, e: &io::Error) -> Error {
    Error::Refused(format!("cannot connect to {address}: {}", why(e)))
}

/// Does the system say that no process listens at `address`: a connection is refused, or there is
/// no such socket? False in every doubt, and after a second.
pub fn nobody_listens(address: &Address) -> bool {
    let fd = match address {
        Address::Unix(path) => connect_unix(path, Instant::now()),
        Address::Tcp { host, port } | Address::Rdma { host, port } => {
            connect_tcp(host, *port, Instant::now() + LOOK)
        }
    };
    fd.is_err_and(|e| matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

/// An error in words that say what to check.
fn why(e: &io::Error) -> String {
    match e.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            format!("nobody listens there ({e})")
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "it does not answer".into(),
        _ => e.to_string(),
    }
}

/// A connected unix socket to the process that listens at `path`, for [`connect_over`].
///
/// # Errors
/// Nobody listens there, or takes the connection within `patience`.
pub fn dial_unix(path: &Path, patience: Duration) -> io::Result<OwnedFd> {
    connect_unix(path, Instant::now() + patience)
}

fn connect_unix(path: &Path, deadline: Instant) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    loop {
        match rustix::net::connect(&fd, &address) {
            Ok(()) => return Ok(fd),
            Err(Errno::INTR) => {}
            // Its queue of connections is full.
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(BUSY),
            Err(e) => return Err(e.into()),
        }
    }
}

pub(crate) fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<OwnedFd> {
    let mut last = io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream.into());
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Whose process is at the other end of a socket, if the kernel says so.
pub(crate) fn process(socket: &impl AsFd, address: &Address) -> Option<Peer> {
    match address {
        Address::Tcp { .. } | Address::Rdma { .. } => None,
        Address::Unix(_) => getsockopt(socket, PeerCredentials).ok().map(|peer| Peer {
            uid: peer.uid(),
            gid: peer.gid(),
            pid: peer.pid().try_into().unwrap_or(0),
        }),
    }
}

/// The process at the other end of a socket, for messages.
pub(crate) fn peer_name(
    socket: &impl AsFd,
    party: Party,
    address: &Address,
    process: Option<Peer>,
) -> String {
    let name = party.name;
    match (address, process) {
        (Address::Unix(_), Some(peer)) if peer.pid != 0 => {
            format!("the {name} in process {} at {address}", peer.pid)
        }
        (Address::Unix(_), _) => format!("the {name} at {address}"),
        (Address::Tcp { .. } | Address::Rdma { .. }, _) => {
            let remote = rustix::net::getpeername(socket).ok().flatten();
            match remote.and_then(|remote| SocketAddr::try_from(remote).ok()) {
                Some(remote) => format!("the {name} at {remote}"),
                None => format!("the {name} at {address}"),
            }
        }
    }
}
