//! The inode record: 128 bytes everywhere, then `i_extra_isize` bytes of further fields.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the part that every inode has.
pub const INODE_BASE: usize = 128;
/// Bytes of the further fields that this code knows, `i_extra_isize` itself included.
pub const INODE_EXTRA: usize = 32;
/// Bytes of `i_block`.
pub const I_BLOCK_LEN: usize = 60;

/// The inode as far as it is declared.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawInode {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    pub i_version_lo: U32,
    pub i_block: [u8; I_BLOCK_LEN],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_obso_faddr: U32,
    pub i_blocks_high: U16,
    pub i_file_acl_high: U16,
    pub i_uid_high: U16,
    pub i_gid_high: U16,
    pub i_checksum_lo: U16,
    pub i_reserved: U16,
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
}

/// Byte offset of `i_dtime`.
pub const I_DTIME: usize = 0x14;
/// Byte offset of `i_checksum_lo`.
pub const I_CHECKSUM_LO: usize = 0x7C;
/// Byte offset of `i_checksum_hi`.
pub const I_CHECKSUM_HI: usize = 0x82;

const _: () = assert!(size_of::<RawInode>() == INODE_BASE + INODE_EXTRA);
const _: () = assert!(std::mem::offset_of!(RawInode, i_block) == 0x28);
const _: () = assert!(std::mem::offset_of!(RawInode, i_dtime) == I_DTIME);
const _: () = assert!(std::mem::offset_of!(RawInode, i_checksum_lo) == I_CHECKSUM_LO);
const _: () = assert!(std::mem::offset_of!(RawInode, i_checksum_hi) == I_CHECKSUM_HI);

/// Mask of the file type in `i_mode`.
pub const S_IFMT: u16 = 0xF000;
/// Socket.
pub const S_IFSOCK: u16 = 0xC000;
/// Symbolic link.
pub const S_IFLNK: u16 = 0xA000;
/// Regular file.
pub const S_IFREG: u16 = 0x8000;
/// Block device.
pub const S_IFBLK: u16 = 0x6000;
/// Directory.
pub const S_IFDIR: u16 = 0x4000;
/// Character device.
pub const S_IFCHR: u16 = 0x2000;
/// Named pipe.
pub const S_IFIFO: u16 = 0x1000;

/// `i_flags`: writes are synchronous.
pub const FL_SYNC: u32 = 0x8;
/// `i_flags`: immutable.
pub const FL_IMMUTABLE: u32 = 0x10;
/// `i_flags`: append only.
pub const FL_APPEND: u32 = 0x20;
/// `i_flags`: no atime updates.
pub const FL_NOATIME: u32 = 0x80;
/// `i_flags`: encrypted (refused).
pub const FL_ENCRYPT: u32 = 0x800;
/// `i_flags`: hashed directory.
pub const FL_INDEX: u32 = 0x1000;
/// `i_flags`: directory changes are synchronous.
pub const FL_DIRSYNC: u32 = 0x1_0000;
/// `i_flags`: `i_blocks` counts file-system blocks, not 512-byte units.
pub const FL_HUGE_FILE: u32 = 0x4_0000;
/// `i_flags`: `i_block` holds an extent tree.
pub const FL_EXTENTS: u32 = 0x8_0000;
/// `i_flags`: the inode stores a large extended attribute (refused).
pub const FL_EA_INODE: u32 = 0x20_0000;
/// `i_flags`: data lies in the inode (refused).
pub const FL_INLINE_DATA: u32 = 0x1000_0000;
