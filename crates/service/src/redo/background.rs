//! Checkpoints that are made before a commit has to wait for one.

use crate::redo::RedoLane;
use siftfs_base::{Error, Result};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// A redo lane with a thread that makes a checkpoint when lane or index is half full. It ends with
/// this, and so does a checkpoint that it is at.
pub struct CheckpointedLane {
    lane: Arc<RedoLane>,
    thread: Option<JoinHandle<()>>,
}

impl CheckpointedLane {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(lane: Arc<RedoLane>) -> Result<Self> {
        let own = lane.clone();
        let thread = thread::Builder::new().name("siftfs-redo".into());
        let thread = thread.spawn(move || run(&own));
        let thread = thread.map_err(|e| Error::Refused(format!("no thread: {e}")))?;
        Ok(Self { lane, thread: Some(thread) })
    }

    /// The lane itself.
    pub fn lane(&self) -> &Arc<RedoLane> {
        &self.lane
    }
}

impl Drop for CheckpointedLane {
    fn drop(&mut self) {
        self.lane.end_background();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoints of the redo lane have failed");
        }
    }
}

fn run(lane: &RedoLane) {
    while lane.await_due() {
        if let Err(error) = lane.checkpoint() {
            tracing::error!(%error, "a checkpoint of the redo lane failed");
            return;
        }
    }
}

#[cfg(test)]
#[path = "background_tests.rs"]
mod tests;
