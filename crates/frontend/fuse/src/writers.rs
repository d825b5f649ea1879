//! Bringing home what the kernel holds back for files that are mapped.
//!
//! syncfs(2) makes the kernel send the pages that were dirtied through shared mappings, but for
//! FUSE it does not wait for them; fsync(2) of each file does. A file can only be dirty in the
//! kernel while it is open for writing (closing and unmapping write it back), and the server
//! knows which files are.

#![allow(unsafe_code)] // open_by_handle_at(2) has no safe wrapper here

use crate::convert::node;
use crate::server::Server;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// The files of a mount that are open for writing.
#[derive(Clone)]
pub struct Writers {
    server: Arc<Server>,
}

impl Writers {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self { server }
    }

    /// Node id and generation of each, for [`flush`].
    pub fn list(&self) -> Vec<(u64, u32)> {
        let files = self.server.open_for_writing();
        files.iter().map(|a| (node(a.ino), a.generation)).collect()
    }
}

/// A FUSE file handle: node id (high, low half) and generation.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    id: [u32; 3],
}

/// FILEID_INO64_GEN.
const INO64_GEN: i32 = 0x81;

/// Writes a file's pages back, waits for them, and makes the file durable. `mount` is any
/// descriptor on the mount. Must not be called by the mount's own daemon: it would wait for
/// itself.
///
/// # Errors
/// What fsync(2) says; a file that is gone is none.
pub fn flush(mount: impl AsFd, node: u64, generation: u32) -> io::Result<()> {
    match open_node(mount, node, generation) {
        Ok(file) => Ok(rustix::fs::fsync(&file)?),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Opens an inode of the mount for reading.
pub(crate) fn open_node(mount: impl AsFd, node: u64, generation: u32) -> io::Result<OwnedFd> {
    let id = [(node >> 32) as u32, (node & 0xFFFF_FFFF) as u32, generation];
    let mut handle = FileHandle { bytes: 12, kind: INO64_GEN, id };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the handle is laid out as the call has it, `bytes` says how long it is, and the
    // call keeps no pointer.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_fd().as_raw_fd(),
            &raw mut handle,
            flags,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the call returned a new descriptor, which has no other owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
