//! The locks that keep one writer per part of a volume (rule R9).
//!
//! Each [`Role`] has one byte, far behind any data, that it locks on every file or device of the
//! volume. The lock belongs to the open file that does the I/O: it is released when the last
//! reference to that open file goes, and I/O in flight holds one. So a process that gets the lock
//! of one that died knows that the dead process' writes have ended. Closing another descriptor of
//! the same file does not release it.

// fcntl(2) with the lock of an open file has no safe wrapper in rustix.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::Role;

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// By one writer.
    Alone,
    /// By readers.
    Shared,
}

/// The byte that stands for a role.
pub(super) const fn byte_of(role: Role) -> i64 {
    (1 << 62) + role as i64
}

fn request(role: Role, kind: i32) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).expect("lock kinds are small"),
        l_whence: i16::try_from(libc::SEEK_SET).expect("whence is small"),
        l_start: byte_of(role),
        l_len: 1,
        // What an open file's own lock demands.
        l_pid: 0,
    }
}

fn fcntl(file: &File, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open for the call's duration, and `lock` is a valid `flock`
        // that the kernel reads and may write.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
        if done == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes the lock; false if another process has it.
pub(super) fn try_lock(file: &File, role: Role, hold: Hold) -> io::Result<bool> {
    let kind = if hold == Hold::Alone { libc::F_WRLCK } else { libc::F_RDLCK };
    match fcntl(file, libc::F_OFD_SETLK, &mut request(role, kind)) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Has another open file the lock, for writing?
pub(super) fn is_locked(file: &File, role: Role) -> io::Result<bool> {
    let mut lock = request(role, libc::F_RDLCK);
    fcntl(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Gives the lock back; nothing happens if it is not held.
pub(crate) fn unlock(file: &File, role: Role) -> io::Result<()> {
    fcntl(file, libc::F_OFD_SETLK, &mut request(role, libc::F_UNLCK))
}
