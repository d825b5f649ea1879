//! How tightly trees are kept.

/// Neighbours on each side that a full or shrunken node is settled with.
pub(super) const REACH: usize = 1;
