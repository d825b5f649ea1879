//! Declarations of ext4's on-disk structures, with sizes asserted at compile time.
//!
//! All integers are little-endian; every structure is unaligned and free of padding, so that
//! any byte string of the right length is one.

mod extent;
mod group;
mod inode;
mod superblock;

pub use extent::*;
pub use group::*;
pub use inode::*;
pub use superblock::*;
