//! How a checkpoint replays, and within which memory.

use siftfs_base::Error;
use std::fmt;
use std::str::FromStr;

/// How a checkpoint replays. Modes differ in work, never in meaning (rule R22): the journal is
/// the same and so is every allocated block afterwards. `docs/design/coalescing.md` compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayMode {
    /// One transaction after the other, every range that has a home: the papers' baseline.
    Ordered,
    /// What is left of a ready-prefix batch, by an interval map (SIFT §3.3).
    Coalesce,
    /// Per batch, with or without the interval map, by how much of it is reused (SIFT §7.2).
    #[default]
    Auto,
}

const NAMES: [(ReplayMode, &str); 3] = [
    (ReplayMode::Ordered, "ordered"),
    (ReplayMode::Coalesce, "coalesce"),
    (ReplayMode::Auto, "auto"),
];

impl fmt::Display for ReplayMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(mode, _)| mode == self).map_or("", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for ReplayMode {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self, Error> {
        let found = NAMES.iter().find(|(_, name)| *name == s);
        found.map(|(mode, _)| *mode).ok_or_else(|| {
            Error::Refused(format!("'{s}' is no replay mode; there are ordered, coalesce and auto"))
        })
    }
}

/// Below this a checkpoint's memory cannot be kept: batches are of one transaction then, but
/// single records must fit. In bytes.
pub const MIN_MEMORY: u64 = 64 << 20;
/// Gathered writes, shared blocks, a journal read, and a window's bookkeeping.
const FIXED: u64 = 18 << 20;
/// What a window takes even if it is to be smaller: the longest staged record.
const MIN_WINDOW: u64 = siftfs_log::MAX_RECORD_LEN;

/// How a checkpoint's memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Bytes of a read window.
    pub window: u64,
    /// Bytes that a batch may take.
    pub batch: u64,
}

impl Budget {
    pub fn new(memory: u64, window: u64) -> Self {
        let window = window.min(memory / 2);
        let batch = memory.saturating_sub(window.max(MIN_WINDOW) + FIXED);
        Self { window, batch }
    }
}

#[cfg(test)]
#[path = "mode_tests.rs"]
mod tests;
