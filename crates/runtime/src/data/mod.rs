//! The bytes of files: pages, blocks and holes.

pub mod appended;
pub mod file;
pub mod fill;
pub mod ranges;
pub mod shape;
pub mod staged_reads;
pub mod write_back;
