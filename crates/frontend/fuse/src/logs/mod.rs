//! The way into private logs (`docs/design/private-logs.md`): what a program gets for a file that
//! it has open through the mount, and what of a file is its own.
//!
//! `tokens` has what a program gets, and what a process has shown. `programs` says which process
//! holds the lease of which file.

mod programs;
pub(crate) mod tokens;

use crate::serve::caller::thread_group;
use crate::serve::server::Server;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::commands::GrantOut;
use siftfs_proto::{Credentials, Handle, Reply};

/// The ioctl GRANT: a token for an open file.
///
/// # Errors
/// `ENOTTY` if there are no private logs, `EBADF` for a file that is not open to be written,
/// `EOPNOTSUPP` on a mount with `sync` and for a caller that cannot be known, `EAGAIN` if there are
/// too many tokens.
pub(crate) fn grant(
    server: &Server,
    cred: &Credentials,
    (ino, handle): (InodeNr, Handle),
) -> Result<Reply> {
    let socket = server.tokens.socket().filter(|_| server.agreed.private_logs);
    let path = socket.ok_or(errno(libc::ENOTTY))?;
    let unknown = || errno(libc::EOPNOTSUPP);
    if server.synchronous {
        return Err(unknown());
    }
    let uid = server.agreed.user(cred).ok_or_else(unknown)?;
    let process = (cred.pid != 0).then(|| thread_group(cred.pid)).flatten();
    let process = process.ok_or_else(unknown)?;
    let token = server.tokens.draw((ino, handle), (uid, process))?;
    Ok(Reply::Data(GrantOut { token, path }.encode()))
}
