//! The redo lane of a host's storage, with the thread that makes its checkpoints.

use siftfs_base::{Error, Result};
use siftfs_service::RedoLane;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// A redo lane whose checkpoints are made in the background, too. The thread ends with this, and so
/// does a checkpoint that it is at.
pub(crate) struct OpenLane {
    lane: Arc<RedoLane>,
    thread: Option<JoinHandle<()>>,
}

impl OpenLane {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn new(lane: Arc<RedoLane>) -> Result<Self> {
        let own = lane.clone();
        let thread = thread::Builder::new().name("siftfs-redo".into());
        let thread = thread.spawn(move || own.make_checkpoints());
        let thread = thread.map_err(|e| Error::Refused(format!("no thread: {e}")))?;
        Ok(Self { lane, thread: Some(thread) })
    }

    /// The lane itself.
    pub fn lane(&self) -> Arc<RedoLane> {
        self.lane.clone()
    }
}

impl Drop for OpenLane {
    fn drop(&mut self) {
        self.lane.end_checkpoints();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the redo lane's checkpoints has failed");
        }
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
