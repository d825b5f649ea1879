//! The caller's side: connecting to a server.

use crate::handshake::{End, Greeting};
use crate::mapping::Layout;
use crate::socket::Socket;
use crate::{Address, CallerEnd, Peer, TransportOptions, link, shm, stream};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use siftfs_base::{Error, Result};
use siftfs_codec::{Party, Protocol};
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

/// Connects to the server at `address`, greets it and agrees with it on what to use.
///
/// # Errors
/// No process listens, or one that is no such server of a version and with limits that suit this
/// side, or one that does not answer within [`TransportOptions::handshake`]. The message names the
/// address and the reason.
pub fn connect<P: Protocol>(address: &Address, options: &TransportOptions) -> Result<CallerEnd<P>> {
    let deadline = Instant::now() + options.handshake;
    let (fd, local) = match address {
        Address::Unix(path) => (connect_unix(path, deadline), true),
        Address::Tcp { host, port } => (connect_tcp(host, *port, deadline), false),
    };
    let cannot = |e: io::Error| Error::Refused(format!("cannot connect to {address}: {}", why(&e)));
    let socket = fd.and_then(|fd| Ok(Socket::new(fd)?)).map_err(cannot)?;
    let process = process(&socket, address);
    let peer = peer_name(&socket, P::SERVER, address, process);
    let greeting = Greeting {
        socket: &socket,
        peer: &peer,
        deadline,
        patience: options.handshake,
        stop: &AtomicBool::new(false),
    };
    let agreement = greeting.agree::<P>(End::Caller, options, local)?;
    if agreement.slots > 0 {
        let layout = Layout::new(agreement.slots, P::SERVER_LENDS);
        let shared = greeting.give_memory(layout)?;
        let (pipes, cut) = shm::pipes(End::Caller, shared, socket, &peer);
        return link::open::<P, _, _>(
            End::Caller,
            &agreement,
            options,
            (peer, process),
            pipes,
            cut,
        );
    }
    let (pipes, cut) = stream::pipes(&Arc::new(socket), &peer);
    link::open::<P, _, _>(End::Caller, &agreement, options, (peer, process), pipes, cut)
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

/// Whose process is at the other end of a socket, if the kernel says so.
pub(crate) fn process(socket: &Socket, address: &Address) -> Option<Peer> {
    match address {
        Address::Tcp { .. } => None,
        Address::Unix(_) => getsockopt(socket, PeerCredentials).ok().map(|peer| Peer {
            uid: peer.uid(),
            gid: peer.gid(),
            pid: peer.pid().try_into().unwrap_or(0),
        }),
    }
}

/// The process at the other end of a socket, for messages.
pub(crate) fn peer_name(
    socket: &Socket,
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
        (Address::Tcp { .. }, _) => {
            let remote = rustix::net::getpeername(socket).ok().flatten();
            match remote.and_then(|remote| SocketAddr::try_from(remote).ok()) {
                Some(remote) => format!("the {name} at {remote}"),
                None => format!("the {name} at {address}"),
            }
        }
    }
}
