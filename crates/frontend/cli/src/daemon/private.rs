//! Files and sockets that are their owner's alone from the moment at which they exist.

use crate::show::output::complain;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Listens on a new unix socket that its owner alone may connect to. Its file has that mode when it
/// appears: a socket that is changed afterwards can be connected to meanwhile.
///
/// # Errors
/// There is something under this name already, or it is too long for a socket.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    listen_as(path, SocketType::STREAM).map(UnixListener::from)
}

/// As [`listen`], for packets; then everybody may connect to it, if it is `for_all`.
///
/// # Errors
/// As of [`listen`].
pub fn listen_to_packets(path: &Path, for_all: bool) -> io::Result<OwnedFd> {
    let socket = listen_as(path, SocketType::SEQPACKET)?;
    if for_all {
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    }
    Ok(socket)
}

fn listen_as(path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket: OwnedFd = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let address = SocketAddrUnix::new(path).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, "the path is too long for a unix socket")
    })?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Warns of a file that holds the contents of a volume's files and that others than its owner and
/// group may read or write. A device node's mode is the system's.
pub fn warn_of_open_file(path: &Path) {
    let Ok(meta) = fs::metadata(path) else { return };
    let mode = meta.permissions().mode() & 0o7777;
    if meta.is_file() && mode & 0o006 != 0 {
        let path = path.display();
        complain(format_args!(
            "{path}: everybody may open it (mode {mode:o}), and with it every file of the \
             volume; `chmod 600 {path}` makes it its owner's alone"
        ));
    }
}

#[cfg(test)]
#[path = "private_tests.rs"]
mod tests;
