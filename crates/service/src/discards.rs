//! The discards that wait for their turn.

use siftfs_base::BlockRun;
use std::collections::VecDeque;

/// Steps of emergency checkpoints between two steps of discards, while both wait.
const EMERGENCY_STEPS: u32 = 8;

/// One `Discard` message, and what is left of it.
pub(crate) struct Request {
    pub id: u64,
    /// What is left, in the order of the message.
    pub runs: VecDeque<BlockRun>,
    pub blocks: u64,
    pub failed: u64,
    pub unsupported: bool,
}

/// The discards that wait.
#[derive(Default)]
pub(crate) struct Discards {
    pub waiting: VecDeque<Request>,
    /// Steps of checkpoints since the last step of discards.
    passed: u32,
    /// Has a failure been logged? One line is enough.
    pub told: bool,
}

impl Discards {
    /// Is nothing to be done?
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Is it the turn of a discard? `checkpoint` says what else waits: nothing, or a checkpoint
    /// that is an emergency or not.
    pub fn is_next(&mut self, checkpoint: Option<bool>) -> bool {
        let most = match checkpoint {
            None => 0,
            Some(false) => 1,
            Some(true) => EMERGENCY_STEPS,
        };
        let next = !self.waiting.is_empty() && self.passed >= most;
        self.passed = if next { 0 } else { self.passed.saturating_add(1) };
        next
    }
}
