//! What is kept costs memory beside its own bytes: estimates, for the report and for bounds.

/// What an entry of a tree or of a hash table costs beside its own bytes, about.
const ENTRY: u64 = 24;

/// What a range of a set costs, about: two numbers in an entry of a tree.
pub const RANGE: u64 = ENTRY + 16;

/// What a block of memory costs beside its bytes, about: the allocator's head, and where it is
/// known.
pub const BLOCK: usize = 16;

/// What a page in a table of its own costs beside its bytes, about: as [`BLOCK`], and the entry
/// with its key and counts.
pub const PAGE: usize = 64;

/// What a pending operation on names costs beside itself, about: its names, twice, and an entry in
/// each of four indices.
pub const OPERATION: usize = 400;

/// What a dirty block's number costs in its set, about.
pub const NUMBER: usize = 32;
