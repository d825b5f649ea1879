//! The Runtime's side: connecting to a Service.

use crate::handshake::{Greeting, Role};
use crate::socket::Socket;
use crate::{Address, HostEnd, TransportOptions, link, shm, stream};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use siftfs_base::{Error, Result};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long to wait before a listener that is busy is asked again.
const BUSY: Duration = Duration::from_millis(10);

/// How long the check whether a process listens may take.
const LOOK: Duration = Duration::from_secs(1);

/// Connects to the Service at `address`, greets it and agrees with it on what to use.
///
/// # Errors
/// No process listens, or one that is no Service of a version and with limits that suit this side,
/// or one that does not answer within [`TransportOptions::handshake`]. The message names the
/// address and the reason.
pub fn connect(address: &Address, options: &TransportOptions) -> Result<HostEnd> {
    let deadline = Instant::now() + options.handshake;
    let (fd, local) = match address {
        Address::Unix(path) => (connect_unix(path, deadline), true),
        Address::Tcp { host, port } => (connect_tcp(host, *port, deadline), false),
    };
    let cannot = |e: io::Error| Error::Refused(format!("cannot connect to {address}: {}", why(&e)));
    let socket = fd.and_then(|fd| Ok(Socket::new(fd)?)).map_err(cannot)?;
    let peer = peer_name(&socket, Role::Device, address);
    let greeting = Greeting {
        socket: &socket,
        peer: &peer,
        deadline,
        patience: options.handshake,
        stop: &AtomicBool::new(false),
    };
    let agreement = greeting.agree(Role::Host, options, local)?;
    if agreement.slots > 0 {
        let shared = greeting.give_memory(agreement.slots)?;
        let (pipes, cut) = shm::pipes(Role::Host, shared, socket, &peer);
        return link::open(Role::Host, &agreement, options, peer, pipes, cut);
    }
    let (pipes, cut) = stream::pipes(&Arc::new(socket), &peer);
    link::open(Role::Host, &agreement, options, peer, pipes, cut)
}

/// Does the system say that no process listens at `address`: a connection is refused, or there is
/// no such socket? False in every doubt, and after a second.
pub fn nobody_listens(address: &Address) -> bool {
    let fd = match address {
        Address::Unix(path) => connect_unix(path, Instant::now()),
        Address::Tcp { host, port } => connect_tcp(host, *port, Instant::now() + LOOK),
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

fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<OwnedFd> {
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

/// The process at the other end of a socket, for messages.
pub(crate) fn peer_name(socket: &Socket, role: Role, address: &Address) -> String {
    let role = role.name();
    match address {
        // 0 is a process of another PID namespace.
        Address::Unix(_) => match getsockopt(socket, PeerCredentials) {
            Ok(peer) if peer.pid() != 0 => {
                format!("the {role} in process {} at {address}", peer.pid())
            }
            _ => format!("the {role} at {address}"),
        },
        Address::Tcp { .. } => {
            let remote = rustix::net::getpeername(socket).ok().flatten();
            match remote.and_then(|remote| SocketAddr::try_from(remote).ok()) {
                Some(remote) => format!("the {role} at {remote}"),
                None => format!("the {role} at {address}"),
            }
        }
    }
}
