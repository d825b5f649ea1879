//! Extent trees: a header, then entries of 12 bytes, in `i_block` (the root) or in a block.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `eh_magic`.
pub const EXTENT_MAGIC: u16 = 0xF30A;
/// Bytes of the header, and of each entry.
pub const EXTENT_ENTRY: usize = 12;
/// Entries of the root in `i_block`.
pub const ROOT_ENTRIES: usize = 4;
/// Entries of a 4 KiB tree block.
pub const NODE_ENTRIES: usize = 340;
/// Byte offset of the checksum in a 4 KiB tree block.
pub const EXTENT_TAIL: usize = EXTENT_ENTRY * (NODE_ENTRIES + 1);
/// Deepest tree the format allows.
pub const MAX_DEPTH: u16 = 5;
/// Longest written extent, in blocks.
pub const MAX_WRITTEN: u32 = 32768;
/// Longest unwritten extent, in blocks.
pub const MAX_UNWRITTEN: u32 = 32767;

/// Header of a node.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtentHeader {
    pub eh_magic: U16,
    pub eh_entries: U16,
    pub eh_max: U16,
    pub eh_depth: U16,
    pub eh_generation: U32,
}

/// An entry of a node of depth 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtent {
    pub ee_block: U32,
    pub ee_len: U16,
    pub ee_start_hi: U16,
    pub ee_start_lo: U32,
}

/// An entry of a deeper node.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtentIndex {
    pub ei_block: U32,
    pub ei_leaf_lo: U32,
    pub ei_leaf_hi: U16,
    pub ei_unused: U16,
}

/// The checksum behind the entries of a tree block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtentTail {
    pub et_checksum: U32,
}

const _: () = assert!(size_of::<RawExtentHeader>() == EXTENT_ENTRY);
const _: () = assert!(size_of::<RawExtent>() == EXTENT_ENTRY);
const _: () = assert!(size_of::<RawExtentIndex>() == EXTENT_ENTRY);
const _: () = assert!(size_of::<RawExtentTail>() == 4);
const _: () = assert!(EXTENT_TAIL + size_of::<RawExtentTail>() == siftfs_base::BLOCK_SIZE);
