//! Tells the service manager that the mount is usable (sd_notify(3)'s protocol: one datagram to the
//! socket that `NOTIFY_SOCKET` names).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `READY=1`, if a service manager asked for it.
pub fn ready() {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|s| !s.is_empty()) else { return };
    if let Err(error) = send(&socket, b"READY=1\n") {
        tracing::warn!(%error, "the service manager was not told that the mount is usable");
    }
}

fn send(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let sent = UnixDatagram::unbound()?.send_to_addr(message, &address)?;
    if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

#[cfg(test)]
#[path = "notify_tests.rs"]
mod tests;
