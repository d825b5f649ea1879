//! What goes to the area ahead of the running transaction.

use siftfs_base::{BLOCK_SIZE, BlockRun};

/// Runs written ahead for the running transaction, which will list them.
#[derive(Default)]
pub struct Pushed {
    /// The runs, in the order in which they were handed over.
    runs: Vec<BlockRun>,
    /// Bytes of the runs.
    bytes: usize,
}

impl Pushed {
    /// A run is handed over. One that `joins` the run before it lies right behind that one, and is
    /// listed together with it.
    pub fn add(&mut self, run: BlockRun, joins: bool) {
        self.bytes += run.len as usize * BLOCK_SIZE;
        match self.runs.last_mut().filter(|_| joins) {
            Some(last) => last.len += run.len,
            None => self.runs.push(run),
        }
    }

    /// Bytes handed over since the last cut.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The runs as the transaction lists them.
    pub fn into_runs(self) -> Vec<BlockRun> {
        self.runs
    }
}

#[cfg(test)]
#[path = "pushed_tests.rs"]
mod tests;
