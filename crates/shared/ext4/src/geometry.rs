//! Sizes and places that never change while a volume is open.

use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockNr, Error, InodeNr, Result, corrupt};

use crate::csum;
use crate::format::*;
use crate::profile::{self, INCOMPAT_64BIT};

/// Geometry from a checked superblock.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub block_count: u64,
    pub blocks_per_group: u32,
    pub inodes_per_group: u32,
    pub inode_count: u32,
    pub inode_size: usize,
    pub first_ino: InodeNr,
    pub desc_size: usize,
    pub group_count: u32,
    pub gdt_blocks: u64,
    pub reserved_gdt: u64,
    pub seed: u32,
}

fn bad(detail: impl Into<String>) -> Error {
    corrupt("superblock", detail)
}

impl Geometry {
    /// Checks magic, checksum, features and every size.
    pub fn new(bytes: &[u8; SUPER_SIZE]) -> Result<Self> {
        let sb = super_ref(bytes);
        if sb.s_magic.get() != SUPER_MAGIC {
            return Err(Error::Incompatible("no ext4 superblock (magic)".into()));
        }
        if sb.s_rev_level.get() != 1 {
            let rev = sb.s_rev_level.get();
            return Err(Error::Incompatible(format!("ext4 revision {rev}")));
        }
        // The checksum's own feature bit lies in the checked bytes, so features come first.
        profile::check_features(sb)?;
        if sb.s_checksum_type != CHECKSUM_CRC32C {
            return Err(Error::Incompatible("checksum type other than crc32c".into()));
        }
        if !csum::super_csum_ok(bytes) {
            return Err(bad("checksum"));
        }
        if sb.s_log_block_size.get() != 2 || sb.s_log_cluster_size.get() != 2 {
            return Err(Error::Incompatible("block size other than 4096".into()));
        }
        if sb.s_first_data_block.get() != 0 {
            return Err(bad("first data block of a 4 KiB volume is not 0"));
        }
        let geo = Self::sizes(sb)?;
        geo.check_group_space()?;
        Ok(geo)
    }

    fn sizes(sb: &Superblock) -> Result<Self> {
        let wide = sb.s_feature_incompat.get() & INCOMPAT_64BIT != 0;
        let hi = |v: u32| if wide { u64::from(v) << 32 } else { 0 };
        let block_count = u64::from(sb.s_blocks_count_lo.get()) | hi(sb.s_blocks_count_hi.get());
        let blocks_per_group = sb.s_blocks_per_group.get();
        if !blocks_per_group.is_multiple_of(8)
            || !(256..=BLOCK_SIZE as u32 * 8).contains(&blocks_per_group)
            || sb.s_clusters_per_group.get() != blocks_per_group
        {
            return Err(bad(format!("{blocks_per_group} blocks per group")));
        }
        // Block numbers have 48 bits in inodes and extents.
        if !(64..1 << 48).contains(&block_count) {
            return Err(bad(format!("{block_count} blocks")));
        }
        let group_count = u32::try_from(block_count.div_ceil(u64::from(blocks_per_group)))
            .map_err(|_| bad("too many groups"))?;
        let inode_size = usize::from(sb.s_inode_size.get());
        if !inode_size.is_power_of_two() || !(128..=BLOCK_SIZE).contains(&inode_size) {
            return Err(bad(format!("inode size {inode_size}")));
        }
        if inode_size < 256 {
            return Err(Error::Incompatible("inode size below 256".into()));
        }
        let inodes_per_group = sb.s_inodes_per_group.get();
        let per_block = (BLOCK_SIZE / inode_size) as u32;
        if !inodes_per_group.is_multiple_of(per_block.max(8))
            || !(1..=BLOCK_SIZE as u32 * 8).contains(&inodes_per_group)
        {
            return Err(bad(format!("{inodes_per_group} inodes per group")));
        }
        let inode_count = sb.s_inodes_count.get();
        if u64::from(inode_count) != u64::from(inodes_per_group) * u64::from(group_count) {
            return Err(bad(format!("{inode_count} inodes in {group_count} groups")));
        }
        let first_ino = sb.s_first_ino.get();
        if first_ino < 11 || first_ino > inodes_per_group {
            return Err(bad(format!("first inode {first_ino}")));
        }
        let desc_size = if wide { usize::from(sb.s_desc_size.get()) } else { 32 };
        if wide && desc_size != 64 {
            return Err(Error::Incompatible(format!("descriptor size {desc_size}")));
        }
        let per_gdt_block = (BLOCK_SIZE / desc_size) as u64;
        Ok(Self {
            block_count,
            blocks_per_group,
            inodes_per_group,
            inode_count,
            inode_size,
            first_ino,
            desc_size,
            group_count,
            gdt_blocks: u64::from(group_count).div_ceil(per_gdt_block),
            reserved_gdt: u64::from(sb.s_reserved_gdt_blocks.get()),
            seed: csum::volume_seed(sb),
        })
    }

    /// Superblock and descriptors must fit the first group, and the last group if it has them.
    fn check_group_space(&self) -> Result<()> {
        let own = 1 + self.gdt_blocks + self.reserved_gdt;
        let last = self.group_count - 1;
        if own >= u64::from(self.blocks_in_group(0))
            || (self.has_super(last) && own > u64::from(self.blocks_in_group(last)))
        {
            return Err(bad("descriptors do not fit a group"));
        }
        Ok(())
    }

    /// Does this group hold a copy of the superblock (sparse_super)?
    pub fn has_super(&self, group: u32) -> bool {
        let power_of = |base: u32| {
            let mut g = group;
            while g > 1 && g.is_multiple_of(base) {
                g /= base;
            }
            g == 1
        };
        group <= 1 || power_of(3) || power_of(5) || power_of(7)
    }

    /// First block of a group.
    pub fn group_start(&self, group: u32) -> BlockNr {
        u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks of a group; the last may be short.
    pub fn blocks_in_group(&self, group: u32) -> u32 {
        let left = self.block_count - self.group_start(group);
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// (group, bit) of a block below the block count.
    pub fn locate(&self, block: BlockNr) -> (u32, u32) {
        let per = u64::from(self.blocks_per_group);
        ((block / per) as u32, (block % per) as u32)
    }

    /// (group, index in the group) of an inode number, checked.
    pub fn locate_inode(&self, ino: InodeNr) -> Result<(u32, u32)> {
        if ino == 0 || ino > self.inode_count {
            return Err(corrupt(format!("inode number {ino}"), "out of range"));
        }
        Ok(((ino - 1) / self.inodes_per_group, (ino - 1) % self.inodes_per_group))
    }

    /// Blocks of one group's inode table.
    pub fn table_blocks(&self) -> u64 {
        u64::from(self.inodes_per_group) * self.inode_size as u64 / BLOCK_BYTES
    }
}
