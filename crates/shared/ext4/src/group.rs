//! Block groups in memory, and their descriptors on disk.
//!
//! The counters here are the truth while the volume is open; every change is written to the
//! descriptor's block at once, so that a transaction's images always agree with its bitmaps.

use siftfs_base::{BLOCK_SIZE, BlockNr, Result, corrupt};
use zerocopy::FromBytes;

use crate::csum;
use crate::format::*;
use crate::geometry::Geometry;
use crate::store::BlockStore;

/// One block group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub block_bitmap: BlockNr,
    pub inode_bitmap: BlockNr,
    pub inode_table: BlockNr,
    pub block_csum: u32,
    pub inode_csum: u32,
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub used_dirs: u32,
    pub itable_unused: u32,
    pub flags: u16,
    /// Free blocks and inodes that may not be allocated yet (rule R5).
    pub held_blocks: u32,
    pub held_inodes: u32,
    /// Free blocks that are in a pool.
    pub pooled_blocks: u32,
    /// No block or inode that may be allocated, and is in no pool, has a lower index.
    pub block_hint: u32,
    pub inode_hint: u32,
    /// No run of allocatable blocks is longer, as far as is known.
    pub longest: u32,
}

/// A group by its number, which lies below the volume's count: the geometry gives no other.
pub(crate) fn at(groups: &[Group], nr: u32) -> &Group {
    groups.get(nr as usize).expect("the geometry counts the groups")
}

/// The same, to be changed.
pub(crate) fn at_mut(groups: &mut [Group], nr: u32) -> &mut Group {
    groups.get_mut(nr as usize).expect("the geometry counts the groups")
}

impl Group {
    /// Blocks that may be allocated now and are in no pool.
    pub fn blocks(&self) -> u32 {
        self.free_blocks - self.held_blocks - self.pooled_blocks
    }
    /// Inodes that may be allocated now.
    pub fn inodes(&self) -> u32 {
        self.free_inodes - self.held_inodes
    }
    /// Is this `bg_flags` bit set?
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Parses and checks one descriptor.
    pub fn parse(geo: &Geometry, nr: u32, raw: &[u8]) -> Result<Self> {
        let bad = |detail: String| corrupt(format!("group descriptor {nr}"), detail);
        let short = || bad("short".into());
        let (lo, rest) = GroupDesc32::ref_from_prefix(raw).map_err(|_| short())?;
        let hi = match geo.desc_size {
            32 => GroupDescHi::read_from_bytes(&[0; 32]).map_err(|_| short())?,
            _ => GroupDescHi::read_from_prefix(rest).map_err(|_| short())?.0,
        };
        if lo.bg_checksum.get() != csum::group_csum(geo.seed, nr, raw) {
            return Err(bad("checksum".into()));
        }
        let wide = |l: u32, h: u32| u64::from(l) | u64::from(h) << 32;
        let half = |l: u16, h: u16| u32::from(l) | u32::from(h) << 16;
        let group = Self {
            block_bitmap: wide(lo.bg_block_bitmap_lo.get(), hi.bg_block_bitmap_hi.get()),
            inode_bitmap: wide(lo.bg_inode_bitmap_lo.get(), hi.bg_inode_bitmap_hi.get()),
            inode_table: wide(lo.bg_inode_table_lo.get(), hi.bg_inode_table_hi.get()),
            block_csum: half(lo.bg_block_bitmap_csum_lo.get(), hi.bg_block_bitmap_csum_hi.get()),
            inode_csum: half(lo.bg_inode_bitmap_csum_lo.get(), hi.bg_inode_bitmap_csum_hi.get()),
            free_blocks: half(lo.bg_free_blocks_count_lo.get(), hi.bg_free_blocks_count_hi.get()),
            free_inodes: half(lo.bg_free_inodes_count_lo.get(), hi.bg_free_inodes_count_hi.get()),
            used_dirs: half(lo.bg_used_dirs_count_lo.get(), hi.bg_used_dirs_count_hi.get()),
            itable_unused: half(lo.bg_itable_unused_lo.get(), hi.bg_itable_unused_hi.get()),
            flags: lo.bg_flags.get(),
            held_blocks: 0,
            held_inodes: 0,
            pooled_blocks: 0,
            block_hint: 0,
            inode_hint: 0,
            longest: geo.blocks_in_group(nr),
        };
        let ipg = geo.inodes_per_group;
        let counts_ok = group.free_blocks <= geo.blocks_in_group(nr)
            && group.free_inodes <= ipg
            && group.used_dirs <= ipg - group.free_inodes
            && group.itable_unused <= group.free_inodes
            && (!group.has(BG_INODE_UNINIT) || (group.free_inodes == ipg && nr > 0));
        if !counts_ok {
            return Err(bad(format!(
                "counts: {} blocks and {} inodes free, {} directories, {} unused",
                group.free_blocks, group.free_inodes, group.used_dirs, group.itable_unused
            )));
        }
        Ok(group)
    }

    /// Writes what can change into the descriptor.
    pub fn store(&self, geo: &Geometry, nr: u32, store: &mut dyn BlockStore) -> Result<()> {
        let per_block = BLOCK_SIZE / geo.desc_size;
        let block = store.modify(1 + u64::from(nr) / per_block as u64)?;
        let at = nr as usize % per_block * geo.desc_size;
        let raw = block.get_mut(at..at + geo.desc_size).expect("whole descriptors fill a block");
        let low = |v: u32| zerocopy::little_endian::U16::new((v & 0xFFFF) as u16);
        let high = |v: u32| zerocopy::little_endian::U16::new((v >> 16) as u16);
        let Ok((lo, rest)) = GroupDesc32::mut_from_prefix(&mut *raw) else {
            unreachable!("a descriptor is 32 bytes at least")
        };
        lo.bg_free_blocks_count_lo = low(self.free_blocks);
        lo.bg_free_inodes_count_lo = low(self.free_inodes);
        lo.bg_used_dirs_count_lo = low(self.used_dirs);
        lo.bg_itable_unused_lo = low(self.itable_unused);
        lo.bg_block_bitmap_csum_lo = low(self.block_csum);
        lo.bg_inode_bitmap_csum_lo = low(self.inode_csum);
        lo.bg_flags = self.flags.into();
        if let Ok((hi, _)) = GroupDescHi::mut_from_prefix(rest) {
            hi.bg_free_blocks_count_hi = high(self.free_blocks);
            hi.bg_free_inodes_count_hi = high(self.free_inodes);
            hi.bg_used_dirs_count_hi = high(self.used_dirs);
            hi.bg_itable_unused_hi = high(self.itable_unused);
            hi.bg_block_bitmap_csum_hi = high(self.block_csum);
            hi.bg_inode_bitmap_csum_hi = high(self.inode_csum);
        }
        let sum = csum::group_csum(geo.seed, nr, raw);
        let (_, field) = raw.split_at_mut(BG_CHECKSUM_OFFSET);
        field.split_at_mut(2).0.copy_from_slice(&sum.to_le_bytes());
        Ok(())
    }
}
