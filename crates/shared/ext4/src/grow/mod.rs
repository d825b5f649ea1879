//! Making a file system larger, on paper: which blocks come behind its end, and which of its own
//! change with them.
//!
//! Nothing here writes. If what is behind the old end is written first, durably, and then what
//! changes before it in one step, a crash leaves the old file system or the larger one.

mod draft;

use siftfs_base::{BLOCK_SIZE, BlockNr, BlockRun, Error, Result, Timestamp, corrupt};
use zerocopy::FromBytes;

use crate::bits::{self, Bitmap};
use crate::csum;
use crate::format::*;
use crate::fs::Fs;
use crate::geometry::Geometry;
use crate::group::{self, Group};
use crate::profile::INCOMPAT_64BIT;
use crate::store::BlockStore;
use draft::Draft;

/// Bits of a bitmap.
const BITS: u32 = BLOCK_SIZE as u32 * 8;
/// A last group with fewer blocks for data than this is left out, as mke2fs does it.
const FEWEST: u64 = 50;

/// A block and its new content.
pub type NewBlock = (BlockNr, Box<[u8; BLOCK_SIZE]>);

/// What makes a file system larger.
pub struct Growth {
    /// Blocks of the larger file system.
    pub blocks: u64,
    /// Blocks behind the old end that have to be zero: the new inode tables.
    pub zeroed: Vec<BlockRun>,
    /// Other blocks behind the old end, ascending. The old file system names none of them.
    pub behind: Vec<NewBlock>,
    /// Blocks of the old file system, ascending, which have to change all at once.
    pub changed: Vec<NewBlock>,
}

impl Fs {
    /// The most blocks that it can be grown to in place: its table of group descriptors has room
    /// for no more groups.
    pub fn most_blocks(&self) -> u64 {
        let geo = &self.layout.geo;
        let described = geo.gdt_blocks * (BLOCK_SIZE / geo.desc_size) as u64;
        let numbered = u64::from(u32::MAX / geo.inodes_per_group);
        let wide = self.superblock.super_block().s_feature_incompat.get() & INCOMPAT_64BIT != 0;
        let addressed = if wide { (1 << 48) - 1 } else { u64::from(u32::MAX) };
        (described.min(numbered) * u64::from(geo.blocks_per_group)).min(addressed)
    }

    /// How many of `blocks` a larger file system can have: all of them, or those before a new last
    /// group that would be too short for its own structures.
    pub fn fitting_blocks(&self, blocks: u64) -> u64 {
        let geo = &self.layout.geo;
        let per_group = u64::from(geo.blocks_per_group);
        let (last, rest) = (blocks / per_group, blocks % per_group);
        let Ok(last) = u32::try_from(last) else { return blocks };
        let short = rest < own_blocks(geo, last) + FEWEST;
        if rest > 0 && last >= geo.group_count && short { blocks - rest } else { blocks }
    }

    /// What makes it `blocks` long, at the time `now`. The new groups hold their own bitmaps and
    /// inode tables; blocks reserved for root grow in proportion.
    ///
    /// # Errors
    /// Refused if it would not be larger, is beyond [`Fs::most_blocks`], not one of
    /// [`Fs::fitting_blocks`], or has an inode of reserved descriptors; corrupt if a structure that
    /// has to change is damaged.
    pub fn grow(&self, store: &mut dyn BlockStore, blocks: u64, now: Timestamp) -> Result<Growth> {
        let old = &self.layout.geo;
        check_growth(self, blocks)?;
        let per_group = u64::from(old.blocks_per_group);
        let groups = u32::try_from(blocks.div_ceil(per_group)).map_err(|_| too_many(blocks))?;
        let inode_count = groups.checked_mul(old.inodes_per_group).ok_or(too_many(blocks))?;
        let new = Geometry { block_count: blocks, group_count: groups, inode_count, ..old.clone() };
        let mut draft = Draft::new(store, old.block_count);
        let mut growth =
            Growth { blocks, zeroed: Vec::new(), behind: Vec::new(), changed: Vec::new() };
        let mut added =
            Added { blocks: lengthen_last(self, &new, &mut draft)?, ..Added::default() };
        for nr in old.group_count..groups {
            let group = make_group(&new, nr, &mut draft)?;
            growth.zeroed.push(BlockRun { start: group.inode_table, len: new.table_blocks() });
            added.blocks += u64::from(group.free_blocks);
            added.overhead += own_blocks(&new, nr);
        }
        let image = larger_super(self, &new, &added, now)?;
        let checked = Geometry::new(&image)?;
        assert_eq!(
            checked.gdt_blocks, old.gdt_blocks,
            "the table of descriptors stays where it is"
        );
        write_copies(&checked, &image, &mut draft)?;
        (growth.changed, growth.behind) = draft.into_parts();
        Ok(growth)
    }
}

/// Refuses what a file system cannot grow to.
fn check_growth(fs: &Fs, blocks: u64) -> Result<()> {
    let old = &fs.layout.geo;
    let refuse = |why: String| Err(Error::Refused(why));
    if blocks <= old.block_count {
        return refuse(format!("{blocks} blocks are no more than it has"));
    }
    if blocks > fs.most_blocks() {
        return refuse(format!(
            "its table of group descriptors has room for {} blocks, and not for {blocks}",
            fs.most_blocks()
        ));
    }
    if old.reserved_gdt > 0 {
        return refuse(
            "it has an inode of reserved descriptors (resize_inode), which resize2fs keeps in \
             order, and SiftFS does not"
                .into(),
        );
    }
    // A group that may hold copies has to have room for all that a group can hold.
    let largest = 1 + old.gdt_blocks + 2 + old.table_blocks() + FEWEST;
    if largest > u64::from(old.blocks_per_group) {
        return refuse("its groups are too short to hold their own structures".into());
    }
    if fs.fitting_blocks(blocks) != blocks {
        return refuse(format!("{blocks} blocks would leave a last group too short to be one"));
    }
    Ok(())
}

/// Gives the last group the blocks behind its end that are its own now; returns how many.
fn lengthen_last(fs: &Fs, new: &Geometry, draft: &mut Draft<'_>) -> Result<u64> {
    let nr = fs.layout.geo.group_count - 1;
    let (from, to) = (fs.layout.geo.blocks_in_group(nr), new.blocks_in_group(nr));
    if from == to {
        return Ok(0);
    }
    // Checks it against its descriptor.
    fs.block_bitmap(draft, nr)?;
    let mut group = group::at(&fs.groups, nr).clone();
    if !group.has(BG_BLOCK_UNINIT) {
        let map = draft.modify(group.block_bitmap)?;
        if bits::next_zero(map, from, to) != to {
            let what = format!("block bitmap of group {nr}");
            return Err(corrupt(what, "bits behind the end of the group are not set"));
        }
        bits::fill(map, from, to, false);
        group.block_csum = csum::bitmap_csum(new.seed, map, new.blocks_per_group);
    }
    group.free_blocks += to - from;
    group.store(new, nr, draft)?;
    Ok(u64::from(to - from))
}

/// The primary superblock of the larger file system.
fn larger_super(
    fs: &Fs,
    new: &Geometry,
    added: &Added,
    now: Timestamp,
) -> Result<Box<[u8; SUPER_SIZE]>> {
    let old = &fs.layout.geo;
    let mut image = fs.superblock.sb.clone();
    let reserved = u128::from(fs.reserved_blocks()) * u128::from(new.block_count)
        / u128::from(old.block_count);
    let reserved = u64::try_from(reserved).map_err(|_| too_many(new.block_count))?;
    let free = fs.free_blocks + added.blocks;
    let inodes = fs.free_inodes + u64::from(new.inode_count - old.inode_count);
    let inodes = u32::try_from(inodes).map_err(|_| too_many(new.block_count))?;
    let overhead = u32::try_from(added.overhead).map_err(|_| too_many(new.block_count))?;
    let low = |v: u64| ((v & 0xFFFF_FFFF) as u32).into();
    let high = |v: u64| ((v >> 32) as u32).into();
    let sb = super_mut(&mut image);
    (sb.s_blocks_count_lo, sb.s_blocks_count_hi) = (low(new.block_count), high(new.block_count));
    (sb.s_r_blocks_count_lo, sb.s_r_blocks_count_hi) = (low(reserved), high(reserved));
    (sb.s_free_blocks_count_lo, sb.s_free_blocks_count_hi) = (low(free), high(free));
    sb.s_inodes_count = new.inode_count.into();
    sb.s_free_inodes_count = inodes.into();
    // Zero means that nobody has counted them.
    if sb.s_overhead_blocks.get() != 0 {
        let overhead = sb.s_overhead_blocks.get().saturating_add(overhead);
        sb.s_overhead_blocks = overhead.into();
    }
    let seconds = now.sec.clamp(0, (1 << 40) - 1);
    (sb.s_wtime, sb.s_wtime_hi) = (((seconds & 0xFFFF_FFFF) as u32).into(), (seconds >> 32) as u8);
    csum::set_super_csum(&mut image);
    Ok(image)
}

/// What the new groups, and the longer last one, bring.
#[derive(Default)]
struct Added {
    /// Free blocks.
    blocks: u64,
    /// Blocks of the new groups' own structures.
    overhead: u64,
}

fn too_many(blocks: u64) -> Error {
    Error::Refused(format!("{blocks} blocks are more than ext4 can count"))
}

/// Blocks that a new group's structures take: copies of superblock and descriptors, where it holds
/// some, two bitmaps, its inode table.
fn own_blocks(geo: &Geometry, nr: u32) -> u64 {
    copies(geo, nr) + 2 + geo.table_blocks()
}

/// Blocks of the copies that a group holds.
fn copies(geo: &Geometry, nr: u32) -> u64 {
    if geo.has_super(nr) { 1 + geo.gdt_blocks + geo.reserved_gdt } else { 0 }
}

/// A new group, empty: its bitmaps and its descriptor.
fn make_group(geo: &Geometry, nr: u32, draft: &mut Draft<'_>) -> Result<Group> {
    let (start, first) = (geo.group_start(nr), copies(geo, nr));
    let used = u32::try_from(own_blocks(geo, nr)).expect("a group has at most 32768 blocks");
    let len = geo.blocks_in_group(nr);
    let block_map = |map: &mut Bitmap| {
        bits::fill(map, 0, used, true);
        bits::fill(map, len, BITS, true);
        csum::bitmap_csum(geo.seed, map, geo.blocks_per_group)
    };
    let inode_map = |map: &mut Bitmap| {
        bits::fill(map, geo.inodes_per_group, BITS, true);
        csum::bitmap_csum(geo.seed, map, geo.inodes_per_group)
    };
    let group = Group {
        block_bitmap: start + first,
        inode_bitmap: start + first + 1,
        inode_table: start + first + 2,
        block_csum: block_map(draft.create(start + first)?),
        inode_csum: inode_map(draft.create(start + first + 1)?),
        free_blocks: len.checked_sub(used).ok_or_else(|| too_many(geo.block_count))?,
        free_inodes: geo.inodes_per_group,
        used_dirs: 0,
        itable_unused: geo.inodes_per_group,
        flags: BG_INODE_ZEROED,
        held_blocks: 0,
        held_inodes: 0,
        pooled_blocks: 0,
        block_hint: 0,
        inode_hint: 0,
        longest: 0,
    };
    place_group(geo, nr, &group, draft)?;
    group.store(geo, nr, draft)?;
    Ok(group)
}

/// Writes into a new group's descriptor what never changes afterwards.
fn place_group(geo: &Geometry, nr: u32, group: &Group, draft: &mut Draft<'_>) -> Result<()> {
    let per_block = BLOCK_SIZE / geo.desc_size;
    let block = draft.modify(1 + u64::from(nr) / per_block as u64)?;
    let at = nr as usize % per_block * geo.desc_size;
    let raw = block.get_mut(at..at + geo.desc_size).expect("whole descriptors fill a block");
    raw.fill(0);
    let low = |v: u64| ((v & 0xFFFF_FFFF) as u32).into();
    let high = |v: u64| ((v >> 32) as u32).into();
    let Ok((lo, rest)) = GroupDesc32::mut_from_prefix(raw) else {
        unreachable!("a descriptor is 32 bytes at least")
    };
    lo.bg_block_bitmap_lo = low(group.block_bitmap);
    lo.bg_inode_bitmap_lo = low(group.inode_bitmap);
    lo.bg_inode_table_lo = low(group.inode_table);
    if let Ok((hi, _)) = GroupDescHi::mut_from_prefix(rest) {
        hi.bg_block_bitmap_hi = high(group.block_bitmap);
        hi.bg_inode_bitmap_hi = high(group.inode_bitmap);
        hi.bg_inode_table_hi = high(group.inode_table);
    }
    Ok(())
}

/// Writes the superblock, and copies of it and of the descriptors into every group that holds some.
fn write_copies(geo: &Geometry, image: &[u8; SUPER_SIZE], draft: &mut Draft<'_>) -> Result<()> {
    let (_, to) = draft.modify(0)?.split_at_mut(SUPER_OFFSET);
    to.split_at_mut(SUPER_SIZE).0.copy_from_slice(image);
    for nr in (1..geo.group_count).filter(|nr| geo.has_super(*nr)) {
        let start = geo.group_start(nr);
        let mut copy = *image;
        super_mut(&mut copy).s_block_group_nr = ((nr & 0xFFFF) as u16).into();
        csum::set_super_csum(&mut copy);
        draft.create(start)?.split_at_mut(SUPER_SIZE).0.copy_from_slice(&copy);
        // The table of a copy may be of an older state: all of it is written.
        for i in 1..=geo.gdt_blocks {
            let descriptors = *draft.read(i)?;
            *draft.create(start + i)? = descriptors;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "grow_tests.rs"]
mod tests;
