//! How checkpoints replay, as an administrator chooses it.

use siftfs_service::{ReplayMode, ServiceOptions};

/// How checkpoints replay, and within which memory. Modes differ in work, never in meaning (rule R22).
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// `docs/design/coalescing.md` compares them.
    pub mode: ReplayMode,
    /// Bytes that a checkpoint may take, at least [`crate::MIN_MEMORY`].
    pub memory: u64,
}

impl Default for Replay {
    fn default() -> Self {
        Self { mode: ReplayMode::default(), memory: 256 << 20 }
    }
}

impl Replay {
    /// Puts it where the Service looks.
    pub(crate) fn choose(self, options: &mut ServiceOptions) {
        options.mode = self.mode;
        options.memory = self.memory;
    }
}
