//! Checksums of directory blocks.

use siftfs_base::BLOCK_SIZE;

use crate::csum::crc32c_raw as crc32c;

/// Length of the phony entry at the end of a block of entries that holds its checksum.
pub(super) const TAIL_LEN: usize = 12;
/// Where that phony entry starts.
pub(super) const TAIL_AT: usize = BLOCK_SIZE - TAIL_LEN;

/// Checksum of a block of entries.
pub(super) fn leaf_csum(seed: u32, block: &[u8; BLOCK_SIZE]) -> u32 {
    crc32c(seed, &block[..TAIL_AT])
}

/// Checksum of an index block whose entries in use end at `used` and whose tail is at `tail`.
/// Both lie within the block, which the caller has checked.
pub(super) fn index_csum(seed: u32, block: &[u8; BLOCK_SIZE], used: usize, tail: usize) -> u32 {
    let ((pairs, _), (_, tail)) = (block.split_at(used), block.split_at(tail));
    // The tail counts with its checksum field as zero.
    crc32c(crc32c(crc32c(seed, pairs), tail.split_at(4).0), &[0; 4])
}
