//! Checkpoints that are made before a commit has to wait for one.

use crate::redo::RedoLane;

impl RedoLane {
    /// Makes a checkpoint whenever lane or index is half full, until one fails or
    /// [`RedoLane::end_checkpoints`] is called: the caller's thread is for that alone.
    pub fn make_checkpoints(&self) {
        while self.await_due() {
            if let Err(error) = self.checkpoint() {
                tracing::error!(%error, "a checkpoint of the redo lane failed");
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "background_tests.rs"]
mod tests;
