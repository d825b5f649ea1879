//! Extent trees: which blocks a file's logical blocks lie in.

mod edit;
mod indirect;
mod map;
mod node;
mod ops;
mod pack;

pub use map::{MAX_FILE_BLOCKS, MappedRange, Mapping};
pub use ops::Removed;

#[cfg(test)]
#[path = "../extent_tests.rs"]
mod tests;
