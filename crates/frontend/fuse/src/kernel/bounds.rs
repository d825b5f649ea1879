//! How many requests may be under way and wait, by kind.

/// Background requests (read-ahead, asynchronous direct reads and writes) that the kernel has under
/// way at once, and the number from which on it throttles the callers that cause them.
pub(super) const MAX_BACKGROUND: u16 = 2048;
pub(super) const CONGESTED: u16 = 48;
/// Answers that may be held back at a time while the kernel drops pages: it may need as many
/// requests of the background again.
pub(crate) const HELD_BACK: usize = MAX_BACKGROUND as usize / 2;
/// Requests for locks that may wait at a time for other programs.
pub(crate) const LOCK_WAITS: usize = 8192;
/// Compounds, publishes and renames that may wait at a time until the kernel has done something.
pub(crate) const CALLS: usize = 2048;
