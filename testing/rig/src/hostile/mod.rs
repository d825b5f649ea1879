//! Users without rights who make others wait: what each can do with his own files alone.
//!
//! [`silent`] is a FUSE server of the user's own that never answers a READ, [`lock`] keeps a
//! directory's lock with its help, [`callers`] are many threads that make calls at once.

pub mod callers;
pub mod lock;
pub mod silent;

use std::io;

/// The user `nobody`.
pub const NOBODY: u32 = 65_534;

/// Makes the calling thread, and no other of the process, one of `user`, without any right of
/// root's.
///
/// # Errors
/// The thread was not root's.
#[allow(unsafe_code)] // the safe calls change all threads
pub fn become_user(user: u32) -> io::Result<()> {
    if user == 0 {
        return Ok(());
    }
    // SAFETY: no memory is passed, and the system calls concern the calling thread alone.
    let done = unsafe {
        libc::syscall(libc::SYS_setgroups, 0, 0) == 0
            && libc::syscall(libc::SYS_setresgid, user, user, user) == 0
            && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
