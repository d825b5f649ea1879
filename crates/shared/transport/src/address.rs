//! Where a server listens.

use siftfs_base::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest path of a unix socket in bytes (`sun_path` less its terminating zero).
const MAX_UNIX_PATH: usize = 107;

/// Where a server listens: `unix:PATH` or `tcp:HOST:PORT`.
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
}

fn refused(text: &str, why: &str) -> Error {
    Error::Refused(format!("address '{text}': {why}; write unix:PATH or tcp:HOST:PORT"))
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
        let Some(rest) = text.strip_prefix("tcp:") else {
            return Err(refused(text, "neither a unix socket nor a TCP address"));
        };
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
        Ok(Address::Tcp { host: host.into(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
