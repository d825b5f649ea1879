//! Directories: blocks of entries, searched one by one or through a hash index.
//!
//! A directory is a file of blocks; [`DirBlocks`] is that file. Its first block starts with
//! `.` and `..`. When that block is full, and the volume has `dir_index`, the directory gets
//! an index from hashes of names to blocks, hidden from readers that do not know it. Blocks
//! end in a checksum where the volume has `metadata_csum`.
//!
//! Deleting never merges blocks, so a block's number, once it holds entries, keeps holding entries.
//! Times, link counts and permissions are the caller's.

mod csum;
mod hash;
mod index;
mod insert;
mod iter;
mod leaf;
mod lookup;
mod volume;

use siftfs_base::{BLOCK_SIZE, Result};

use crate::csum::inode_seed;

pub use hash::{DirHash, HashKind, HashVersion, dir_hash};

/// Type codes of directory entries.
pub mod ftype {
    /// Not recorded.
    pub const UNKNOWN: u8 = 0;
    /// Regular file.
    pub const REGULAR: u8 = 1;
    /// Directory.
    pub const DIRECTORY: u8 = 2;
    /// Character device.
    pub const CHAR_DEVICE: u8 = 3;
    /// Block device.
    pub const BLOCK_DEVICE: u8 = 4;
    /// Named pipe.
    pub const FIFO: u8 = 5;
    /// Socket.
    pub const SOCKET: u8 = 6;
    /// Symbolic link.
    pub const SYMLINK: u8 = 7;
}

/// The blocks of one directory, by their number in the directory.
pub trait DirBlocks {
    /// Number of blocks.
    fn block_count(&self) -> u64;
    /// A block's content.
    fn read(&mut self, lblk: u64) -> Result<&[u8; BLOCK_SIZE]>;
    /// A block's content, to be changed.
    fn modify(&mut self, lblk: u64) -> Result<&mut [u8; BLOCK_SIZE]>;
    /// Adds a block of zeroes at the end and answers its number. ENOSPC leaves all as it was.
    fn append(&mut self) -> Result<u64>;
    /// Has this block passed its checks since it was read?
    fn verified(&mut self, lblk: u64) -> Result<bool>;
    /// Notes that the block has passed its checks.
    fn set_verified(&mut self, lblk: u64) -> Result<()>;
}

/// What the volume and the inode say about one directory.
#[derive(Clone, Copy, Debug)]
pub struct DirCtx {
    /// The directory's inode number.
    pub ino: u32,
    /// The inode's generation.
    pub generation: u32,
    /// The volume's checksum seed; `None` without `metadata_csum`.
    pub csum_seed: Option<u32>,
    /// The volume's hash seed.
    pub hash_seed: [u32; 4],
    /// Hash of new indexes; its signedness is the volume's.
    pub hash_version: HashVersion,
    /// The volume has `dir_index`.
    pub dir_index: bool,
    /// The volume has `filetype`.
    pub filetype: bool,
    /// The inode's index flag (`EXT4_INDEX_FL`); operations may change it, and the caller
    /// stores it back.
    pub indexed: bool,
}

/// An entry that a lookup found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Inode.
    pub ino: u32,
    /// Type code ([`ftype`]).
    pub ftype: u8,
}

/// An entry that an iteration delivers.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Inode.
    pub ino: u32,
    /// Type code ([`ftype`]).
    pub ftype: u8,
    /// Iterating from here delivers what comes after this entry.
    pub cookie: u64,
    /// Entries directly after this one with the very same hash. A caller that cannot take those too
    /// had better stop before the first of them, or a change among them between two calls may hide
    /// one. All but always 0.
    pub tied: usize,
}

/// How many blocks of the directory itself an insertion may touch at worst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InsertCost {
    /// Blocks changed, the appended ones included.
    pub dirtied: u32,
    /// Blocks appended.
    pub appended: u32,
}

/// Worst case of [`Dir::insert`]: root, node, its new sibling, leaf, its new sibling. The
/// space and the mapping of appended blocks come on top.
pub const INSERT_WORST_CASE: InsertCost = InsertCost { dirtied: 5, appended: 2 };

/// A directory to work on.
pub struct Dir<'a, B: DirBlocks> {
    ctx: &'a mut DirCtx,
    blocks: &'a mut B,
    layout: leaf::Layout,
}

impl<'a, B: DirBlocks> Dir<'a, B> {
    /// The directory of `ctx` whose blocks are `blocks`.
    pub fn new(ctx: &'a mut DirCtx, blocks: &'a mut B) -> Self {
        let seed = ctx.csum_seed.map(|s| inode_seed(s, ctx.ino, ctx.generation));
        let layout = leaf::Layout { seed, filetype: ctx.filetype };
        Self { ctx, blocks, layout }
    }

    fn csum(&self) -> bool {
        self.layout.seed.is_some()
    }
}

#[cfg(test)]
#[path = "mem.rs"]
pub(crate) mod mem;
#[cfg(test)]
#[path = "dir_tests.rs"]
mod tests;
