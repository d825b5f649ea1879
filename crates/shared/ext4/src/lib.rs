//! The ext4 layer: on-disk format and the algorithms on it, without I/O.
//!
//! Written from the public layout documentation of ext4. Blocks come from and go to a
//! [`BlockStore`]; who reads, journals and writes them is not known here.

pub mod dir;
mod store;
pub mod xattr;
pub use store::BlockStore;
