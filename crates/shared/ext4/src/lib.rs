//! The ext4 layer: on-disk format and the algorithms on it, without I/O.
//!
//! Written from the public layout documentation of ext4. Blocks come from and go to a
//! [`BlockStore`]; this crate does not know how they are read, journaled and written.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod alloc;
mod bits;
pub mod csum;
pub mod dir;
mod extent;
pub mod format;
mod fs;
mod geometry;
mod group;
mod grow;
mod ialloc;
mod inode;
mod inode_io;
mod orphan;
pub mod profile;
mod store;
mod super_sync;
mod symlink;
pub mod testing;
pub mod xattr;

pub use alloc::pools::{Allocations, PoolId};
pub use extent::*;
pub use fs::{Fs, Layout, Super};
pub use grow::{Growth, NewBlock};
pub use ialloc::ROOT_INO;
pub use inode::*;
pub use profile::{MKE2FS_ARGS, MKE2FS_CONF};
pub use store::BlockStore;
pub use super_sync::{
    check_super, has_marker, own_bytes, set_marker, set_own_bytes, super_block_count, super_uuid,
};

#[cfg(test)]
mod adopt_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod test_image;
