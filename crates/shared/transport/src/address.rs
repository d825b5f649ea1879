//! Where a server listens.

use crate::handshake::Carrier;
use siftfs_base::Error;
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest path of a unix socket in bytes (`sun_path` less its terminating zero).
const MAX_UNIX_PATH: usize = 107;

/// Where a server listens: `unix:PATH`, `tcp:HOST:PORT` or `rdma:HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket; both processes are on one machine, and share memory if both agree.
    Unix(PathBuf),
    /// TCP. The host is a name or an address; an IPv6 address stands in brackets when written.
    Tcp {
        /// Name or address.
        host: String,
        /// Port; 0 lets the system choose one when listening.
        port: u16,
    },
    /// TCP where the two sides meet, and then RDMA between the devices that have the two ends of
    /// that connection. A server there serves callers over TCP, too.
    Rdma {
        /// Name or address.
        host: String,
        /// Port of TCP; 0 lets the system choose one when listening.
        port: u16,
    },
}

impl Address {
    /// Host and port of an address on a network.
    pub fn network(&self) -> Option<(&str, u16)> {
        match self {
            Address::Unix(_) => None,
            Address::Tcp { host, port } | Address::Rdma { host, port } => Some((host, *port)),
        }
    }

    /// The same on a network, at this port.
    pub(crate) fn at_port(&self, port: u16) -> Self {
        match self.clone() {
            Address::Tcp { host, .. } => Address::Tcp { host, port },
            Address::Rdma { host, .. } => Address::Rdma { host, port },
            unix @ Address::Unix(_) => unix,
        }
    }

    pub(crate) fn carrier(&self) -> Carrier {
        match self {
            Address::Unix(_) => Carrier::Local,
            Address::Tcp { .. } => Carrier::Stream,
            Address::Rdma { .. } => Carrier::Rdma,
        }
    }
}

fn refused(text: &str, why: &str) -> Error {
    Error::Refused(format!(
        "address '{text}': {why}; write unix:PATH, tcp:HOST:PORT or rdma:HOST:PORT"
    ))
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err(refused(text, "the path is missing")),
                n if n > MAX_UNIX_PATH => Err(refused(
                    text,
                    &format!("a socket's path has at most {MAX_UNIX_PATH} bytes, this one {n}"),
                )),
                _ if path.contains('\0') => Err(refused(text, "a path contains no zero byte")),
                _ => Ok(Address::Unix(path.into())),
            };
        }
        let (kind, rest) = text.split_once(':').unwrap_or_default();
        if !["tcp", "rdma"].contains(&kind) {
            return Err(refused(text, "neither a unix socket nor a TCP address"));
        }
        let (host, port) =
            rest.rsplit_once(':').ok_or_else(|| refused(text, "the port is missing"))?;
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let host = match bare {
            Some(bare) => bare,
            None if host.contains([':', '[', ']']) => {
                return Err(refused(
                    text,
                    "an IPv6 address stands in brackets, as in tcp:[::1]:7400",
                ));
            }
            None => host,
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(refused(text, "the host is missing"));
        }
        let port = port
            .parse()
            .map_err(|_| refused(text, &format!("'{port}' is no port (0 to 65535)")))?;
        let host = host.into();
        match kind {
            "tcp" => Ok(Address::Tcp { host, port }),
            _ if siftfs_rdma::BUILT_IN => Ok(Address::Rdma { host, port }),
            _ => Err(refused(text, siftfs_rdma::NOT_BUILT_IN)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port } => write!(f, "tcp:{}:{port}", bracketed(host)),
            Address::Rdma { host, port } => write!(f, "rdma:{}:{port}", bracketed(host)),
        }
    }
}

fn bracketed(host: &str) -> Cow<'_, str> {
    match host.contains(':') {
        true => format!("[{host}]").into(),
        false => host.into(),
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
