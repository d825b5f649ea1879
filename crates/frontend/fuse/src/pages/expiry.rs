//! Dirty pages of open files, asked for by age.
//!
//! With the writeback cache the kernel keeps what write(2) brought until its own age of 30 s, and
//! `commit=` promises less. So a thread asks for it, with syncfs(2) on the mount: the kernel then
//! sends the dirty pages and times of every file. A closed file has no dirty pages, so the thread
//! does so only while a file is open for writing.
//!
//! How it opens the mount, and why it has its own descriptors: `own_mount`.

use crate::mount::mountinfo::MountEntry;
use crate::pages::own_mount;
use crate::serve::server::Server;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Shortest time between two passes.
const LEAST: Duration = Duration::from_millis(10);

/// What the thread is told.
enum Word {
    /// Ask so often from now on.
    Every(Duration),
    /// The thread is not needed any more.
    End,
}

/// Says how often the kernel's dirty pages are asked for, from any thread, as long as the mount is
/// served.
#[derive(Clone)]
pub struct WriteBack(Sender<Word>);

impl WriteBack {
    /// At once, also for the pause under way.
    pub fn set_every(&self, every: Duration) {
        // Without the writeback cache no thread receives this.
        let _ = self.0.send(Word::Every(every));
    }
}

/// A thread that is to be started.
pub(crate) struct Prepared {
    told: Sender<Word>,
    heard: Receiver<Word>,
    every: Duration,
}

impl Prepared {
    /// A thread that asks `every` so often.
    pub(crate) fn new(every: Duration) -> Self {
        let (told, heard) = channel();
        Self { told, heard, every }
    }

    pub(crate) fn handle(&self) -> WriteBack {
        WriteBack(self.told.clone())
    }
}

/// The thread that asks; it ends, after a pass under way, when this is dropped.
pub(crate) struct Expiry(Sender<Word>);

impl Drop for Expiry {
    fn drop(&mut self) {
        let _ = self.0.send(Word::End);
    }
}

/// Asks once. What is lost the kernel tells the first one who asks, which is to be a user.
fn ask(entry: &MountEntry, server: &Server) {
    match own_mount::sync(entry) {
        Ok(lost) => lost.into_iter().for_each(|errno| server.open_files.note_lost(errno)),
        Err(error) => tracing::warn!(%error, "dirty pages of open files were not asked for"),
    }
}

impl Expiry {
    /// Starts the thread. Without a thread the kernel's own age holds, and the log says so.
    pub(crate) fn start(entry: MountEntry, server: Arc<Server>, prepared: Prepared) -> Self {
        let Prepared { told, heard, mut every } = prepared;
        let body = move || {
            loop {
                match heard.recv_timeout(every.max(LEAST)) {
                    Ok(Word::Every(new)) => every = new,
                    Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        if server.open_files.any() {
                            ask(&entry, &server);
                        }
                    }
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("siftfs-expiry".into()).spawn(body) {
            tracing::error!(%error, "no thread for expiry: dirty pages wait for the kernel's own age");
        }
        Self(told)
    }
}
