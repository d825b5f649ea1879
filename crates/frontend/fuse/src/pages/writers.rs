//! Bringing home what the kernel holds back for files that are mapped.
//!
//! syncfs(2) makes the kernel send the pages that were dirtied through shared mappings, but for
//! FUSE it does not wait for them; fsync(2) of each file does. A file can only be dirty in the
//! kernel while it is open for writing (closing and unmapping write it back), and the server
//! knows which files are.

use crate::kernel::convert::node;
use crate::pages::handles::open_node;
use crate::serve::server::Server;
use std::io;
use std::os::fd::AsFd;
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

    /// The errno of pages that could not be written, of which the daemon was told in the place of
    /// the caller, since this was asked last.
    pub fn take_lost(&self) -> Option<i32> {
        self.server.open_files.take_lost()
    }
}

/// Writes a file's pages back, waits for them, and makes the file durable. `mount` is any
/// descriptor on the mount. Must not be called by the mount's own daemon: it would wait for
/// itself.
///
/// # Errors
/// What fsync(2) says; a file that is gone is none. The kernel's fsync(2) ends with the first error
/// that was not told yet, however old, and leaves the file's times where they are: so it is called
/// again after an error.
pub fn flush(mount: impl AsFd, node: u64, generation: u32) -> io::Result<()> {
    match open_node(mount, node, generation) {
        Ok(file) => rustix::fs::fsync(&file).map_err(|e| {
            let _ = rustix::fs::fsync(&file);
            e.into()
        }),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)) => Ok(()),
        Err(e) => Err(e),
    }
}
