//! Dirty pages of open files, asked for by age.
//!
//! With the writeback cache the kernel keeps what write(2) brought until its own age of 30 s, and
//! `commit=` promises less. So a thread asks for it, with syncfs(2) on the mount: the kernel then
//! sends the dirty pages and times of every file. A closed file has no dirty pages, so the thread
//! does so only while a file is open for writing.
//!
//! How it opens the mount, and why it has its own descriptors: `own_mount`.

use crate::mountinfo::MountEntry;
use crate::own_mount;
use crate::server::Server;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Shortest time between two passes.
const LEAST: Duration = Duration::from_millis(10);

/// The thread that asks; it ends, after a pass under way, when this is dropped.
pub(crate) struct Expiry {
    _alive: Sender<()>,
}

impl Expiry {
    /// Starts the thread, which asks `every` so often. Without a thread the kernel's own age holds,
    /// and the log says so.
    pub(crate) fn start(entry: MountEntry, server: Arc<Server>, every: Duration) -> Self {
        let (alive, ended) = channel();
        let every = every.max(LEAST);
        let body = move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(every) {
                if server.files().any()
                    && let Err(error) = own_mount::sync(&entry)
                {
                    tracing::warn!(%error, "dirty pages of open files were not asked for");
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("siftfs-expiry".into()).spawn(body) {
            tracing::error!(%error, "no thread for expiry: dirty pages wait for the kernel's own age");
        }
        Self { _alive: alive }
    }
}
