//! Block group descriptors: 32 bytes, or 64 with the 64bit feature.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `bg_flags`: the inode bitmap and table hold nothing yet.
pub const BG_INODE_UNINIT: u16 = 1;
/// `bg_flags`: the block bitmap was never written; it is computed.
pub const BG_BLOCK_UNINIT: u16 = 2;
/// `bg_flags`: the inode table is zeroed.
pub const BG_INODE_ZEROED: u16 = 4;

/// The first 32 bytes, present in every descriptor.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct GroupDesc32 {
    pub bg_block_bitmap_lo: U32,
    pub bg_inode_bitmap_lo: U32,
    pub bg_inode_table_lo: U32,
    pub bg_free_blocks_count_lo: U16,
    pub bg_free_inodes_count_lo: U16,
    pub bg_used_dirs_count_lo: U16,
    pub bg_flags: U16,
    pub bg_exclude_bitmap_lo: U32,
    pub bg_block_bitmap_csum_lo: U16,
    pub bg_inode_bitmap_csum_lo: U16,
    pub bg_itable_unused_lo: U16,
    pub bg_checksum: U16,
}

/// The second 32 bytes of a 64-byte descriptor.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct GroupDescHi {
    pub bg_block_bitmap_hi: U32,
    pub bg_inode_bitmap_hi: U32,
    pub bg_inode_table_hi: U32,
    pub bg_free_blocks_count_hi: U16,
    pub bg_free_inodes_count_hi: U16,
    pub bg_used_dirs_count_hi: U16,
    pub bg_itable_unused_hi: U16,
    pub bg_exclude_bitmap_hi: U32,
    pub bg_block_bitmap_csum_hi: U16,
    pub bg_inode_bitmap_csum_hi: U16,
    pub bg_reserved: U32,
}

/// Byte offset of `bg_checksum` in a descriptor.
pub const BG_CHECKSUM_OFFSET: usize = 0x1E;

const _: () = assert!(size_of::<GroupDesc32>() == 32);
const _: () = assert!(size_of::<GroupDescHi>() == 32);
const _: () = assert!(std::mem::offset_of!(GroupDesc32, bg_checksum) == BG_CHECKSUM_OFFSET);
