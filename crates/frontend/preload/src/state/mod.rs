//! What is known of descriptors, files and mounts.

pub mod direct;
pub mod inode;
pub mod pace;
pub mod process;
pub mod registry;
pub mod section;
pub mod table;
