//! The way to a private log (`docs/design/private-logs.md`).

use crate::call::ioctl;
use siftfs_proto::commands::{GRANT, GrantOut, SOCKET_BYTES, TOKEN_BYTES};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What a program shows to a mount's grantor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Stands for an open file, its user and process, for two seconds and one use.
    pub token: [u8; TOKEN_BYTES],
    /// The socket on which the grantor listens.
    pub socket: PathBuf,
}

/// A token of `file`, which is open to be written.
///
/// # Errors
/// `ENOTTY` if it is not on a mount with `private_logs=on`; `EBADF` if it is not open to be
/// written; `EOPNOTSUPP` for a mount that has none for this program; `EAGAIN` if there are too many
/// tokens.
pub fn grant(file: impl AsFd) -> io::Result<Grant> {
    let mut answer = [0; TOKEN_BYTES + SOCKET_BYTES];
    ioctl(file.as_fd(), GRANT, &mut answer)?;
    let decoded = GrantOut::decode(&answer);
    let GrantOut { token, path } = decoded.map_err(|e| io::Error::from_raw_os_error(e.errno()))?;
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Grant { token, socket: OsStr::from_bytes(path).into() })
}
