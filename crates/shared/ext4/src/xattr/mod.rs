//! Extended attributes: in the space behind an inode's fields, and in one block of their own.
//!
//! Both places are parsed into one owned list; a change makes a new list, which is laid out
//! again over both. What fits in the inode is kept there. Blocks that inodes share are
//! copied when one of them changes.

mod acl;
mod encode;
mod name;
mod parse;
mod volume;

pub use acl::{ACL_ID_NONE, Acl, AclEntry, AclTag};
pub use encode::{Layout, encode_block, lay_out};
pub use name::{MAX_NAME, full_name, split_name};
pub use parse::{parse_block, parse_inode};
pub use volume::SetMode;

/// Largest value in bytes that an attribute block of its own can hold with the shortest name.
pub const MAX_VALUE: usize = siftfs_base::BLOCK_SIZE - BLOCK_HEADER - ENTRY - 4 - 4;

/// First field of an attribute block and of the attributes in an inode.
const MAGIC: u32 = 0xea02_0000;
/// Bytes of an attribute block's header.
const BLOCK_HEADER: usize = 32;
/// Bytes of the header of the attributes in an inode.
const INODE_HEADER: usize = 4;
/// Bytes of an entry before its name.
const ENTRY: usize = 16;
/// Bytes of zeroes behind the last entry.
const END: usize = 4;

/// An attribute as stored: its name without the prefix that `index` stands for, and for
/// access control lists the value in ext4's own form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Xattr {
    /// Which prefix.
    pub index: u8,
    /// The rest of the name.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl Xattr {
    /// Bytes of its entry.
    fn entry_len(&self) -> usize {
        (ENTRY + self.name.len() + 3) & !3
    }
    /// Bytes of its value with padding.
    fn value_len(&self) -> usize {
        (self.value.len() + 3) & !3
    }
    fn len(&self) -> usize {
        self.entry_len() + self.value_len()
    }
}

#[cfg(test)]
#[path = "xattr_tests.rs"]
mod tests;
