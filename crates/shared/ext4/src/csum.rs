//! The metadata_csum checksums: crc32c without final inversion, seeded per volume and inode.

use siftfs_base::{BLOCK_SIZE, InodeNr};
use zerocopy::FromBytes;

use crate::format::*;

/// ext4's crc32c: neither the seed nor the result is inverted.
pub fn crc32c_raw(seed: u32, data: &[u8]) -> u32 {
    !siftfs_base::crc32c_append(!seed, data)
}

/// The volume's checksum seed: stored with metadata_csum_seed, else from the UUID.
pub fn volume_seed(sb: &Superblock) -> u32 {
    if sb.s_feature_incompat.get() & crate::profile::INCOMPAT_CSUM_SEED != 0 {
        sb.s_checksum_seed.get()
    } else {
        crc32c_raw(!0, &sb.s_uuid)
    }
}

/// Seed of everything that belongs to one inode: itself, its tree blocks, its directory blocks.
pub fn inode_seed(seed: u32, ino: InodeNr, generation: u32) -> u32 {
    let s = crc32c_raw(seed, &ino.to_le_bytes());
    crc32c_raw(s, &generation.to_le_bytes())
}

/// Checksum of a superblock.
pub fn super_csum(bytes: &[u8; SUPER_SIZE]) -> u32 {
    crc32c_raw(!0, &bytes[..SUPER_SIZE - 4])
}

/// Is the checksum of this superblock right?
pub fn super_csum_ok(bytes: &[u8; SUPER_SIZE]) -> bool {
    Superblock::ref_from_bytes(bytes).is_ok_and(|sb| sb.s_checksum.get() == super_csum(bytes))
}

/// Stores the checksum of a superblock.
pub fn set_super_csum(bytes: &mut [u8; SUPER_SIZE]) {
    let sum = super_csum(bytes);
    bytes[SUPER_SIZE - 4..].copy_from_slice(&sum.to_le_bytes());
}

/// Checksum of `raw` up to the field at `at`, two bytes that count as zeroes; and what follows it.
fn skip_field(seed: u32, raw: &[u8], at: usize) -> (u32, &[u8]) {
    let (before, rest) = raw.split_at(at);
    let (_, after) = rest.split_at(2);
    (crc32c_raw(crc32c_raw(seed, before), &[0, 0]), after)
}

/// Checksum of a group descriptor (32 or 64 bytes).
pub fn group_csum(seed: u32, group: u32, desc: &[u8]) -> u16 {
    let s = crc32c_raw(seed, &group.to_le_bytes());
    let (s, rest) = skip_field(s, desc, BG_CHECKSUM_OFFSET);
    (crc32c_raw(s, rest) & 0xFFFF) as u16
}

/// Checksum of a bitmap of `bits` bits (a multiple of 8).
pub fn bitmap_csum(seed: u32, bitmap: &[u8; BLOCK_SIZE], bits: u32) -> u32 {
    crc32c_raw(seed, bitmap.split_at(bits as usize / 8).0)
}

/// Checksum of a whole inode record; `has_hi` says whether `i_checksum_hi` exists in it.
pub fn inode_csum(seed: u32, ino: InodeNr, generation: u32, raw: &[u8], has_hi: bool) -> u32 {
    let s = inode_seed(seed, ino, generation);
    let (s, rest) = skip_field(s, raw, I_CHECKSUM_LO);
    if !has_hi {
        return crc32c_raw(s, rest) & 0xFFFF;
    }
    let (s, rest) = skip_field(s, rest, I_CHECKSUM_HI - I_CHECKSUM_LO - 2);
    crc32c_raw(s, rest)
}

/// Checksum of an extent tree block under its inode's seed.
pub fn extent_csum(inode_seed: u32, block: &[u8; BLOCK_SIZE]) -> u32 {
    crc32c_raw(inode_seed, &block[..EXTENT_TAIL])
}
