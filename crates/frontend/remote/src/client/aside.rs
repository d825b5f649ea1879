//! Threads for what may wait: the one that receives waits for nothing but the server (rule R51).

use siftfs_base::{Error, Result};
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

/// Something to be done.
type Job = Box<dyn FnOnce() + Send>;

/// A thread that does one thing after the other. It ends when this is dropped, and what it was
/// given is done.
pub(super) struct Aside(Sender<Job>);

impl Aside {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: &str) -> Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let started = Builder::new().name(name.into()).spawn(move || {
            todo.into_iter().for_each(|job| job());
        });
        started.map_err(|e| Error::Refused(format!("cannot start a session's thread: {e}")))?;
        Ok(Self(jobs))
    }

    /// Has it done.
    pub fn give(&self, job: impl FnOnce() + Send + 'static) {
        // The thread lasts as long as this.
        let _ = self.0.send(Box::new(job));
    }
}
