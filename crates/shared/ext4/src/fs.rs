//! An open file system: geometry, group counters, quarantine and the superblock's image.

use std::collections::{BTreeMap, BTreeSet};

use siftfs_base::{BLOCK_SIZE, BlockNr, BlockRun, Blocks, InodeNr, RangeSet, Result, corrupt};

use crate::alloc::pools::{Allocations, Pools};
use crate::format::*;
use crate::geometry::Geometry;
use crate::group::Group;
use crate::profile;
use crate::store::BlockStore;

/// An open ext4 volume. Every method works on blocks of the [`BlockStore`] it is given, which
/// must be the one it was opened on.
///
/// Changes are made to the store's blocks and to the counters here in one step, so that the
/// store's content is a consistent file system between any two calls, the superblock's free
/// counts excepted, which [`Fs::sync_super`] writes.
pub struct Fs {
    /// Where everything lies.
    pub layout: Layout,
    /// The superblock.
    pub superblock: Super,
    pub(crate) groups: Vec<Group>,
    pub(crate) free_blocks: u64,
    pub(crate) free_inodes: u64,
    pub(crate) held: RangeSet<Blocks>,
    pub(crate) held_blocks: u64,
    pub(crate) pools: Pools,
    pub(crate) counts: Allocations,
    pub(crate) held_inos: BTreeSet<InodeNr>,
    /// Inode numbers that are not to be chosen, whether they are in use or not.
    pub(crate) withheld: BTreeSet<InodeNr>,
    /// Groups with a block, an inode, to allocate.
    pub(crate) with_blocks: BTreeSet<u32>,
    pub(crate) with_inodes: BTreeSet<u32>,
    pub(crate) orphans: Option<BTreeMap<InodeNr, crate::orphan::Links>>,
    pub(crate) dir_cursor: u32,
}

/// Where everything lies, which never changes. What only reads a mapping or checks a place needs no
/// more than this, and can allocate nothing.
pub struct Layout {
    pub(crate) geo: Geometry,
    /// Blocks of superblocks, descriptors, bitmaps and inode tables.
    pub(crate) system: RangeSet<Blocks>,
}

/// The superblock's image.
pub struct Super {
    /// Its checksum is set when it leaves.
    pub(crate) sb: Box<[u8; SUPER_SIZE]>,
    pub(crate) sb_dirty: bool,
}

impl Fs {
    /// Reads and checks superblock and group descriptors.
    ///
    /// Errors: `Incompatible` for features and sizes outside the profile, `Corrupt` for bad
    /// checksums, counts or overlapping metadata. The marker (rule R15) and `s_state` are not
    /// judged here; see [`Super::marker`](crate::Super::marker) and
    /// [`Super::is_clean`](crate::Super::is_clean).
    pub fn open(store: &mut dyn BlockStore) -> Result<Self> {
        let mut sb = Box::new([0; SUPER_SIZE]);
        sb.copy_from_slice(&store.read(0)?[SUPER_OFFSET..SUPER_OFFSET + SUPER_SIZE]);
        let geo = Geometry::new(&sb)?;
        let groups = read_groups(&geo, store)?;
        let system = system_zone(&geo, &groups)?;
        let pick = |has: fn(&Group) -> bool| {
            (0u32..).zip(&groups).filter(|(_, g)| has(g)).map(|(n, _)| n).collect()
        };
        Ok(Self {
            with_blocks: pick(|g| g.free_blocks > 0),
            with_inodes: pick(|g| g.free_inodes > 0),
            free_blocks: groups.iter().map(|g| u64::from(g.free_blocks)).sum(),
            free_inodes: groups.iter().map(|g| u64::from(g.free_inodes)).sum(),
            layout: Layout { geo, system },
            superblock: Super { sb, sb_dirty: false },
            groups,
            held: RangeSet::new(),
            held_blocks: 0,
            pools: Pools::default(),
            counts: Allocations::default(),
            held_inos: BTreeSet::new(),
            withheld: BTreeSet::new(),
            orphans: None,
            dir_cursor: 0,
        })
    }

    /// Blocks of all inode tables, ascending and disjoint; tables that lie side by side are one
    /// run.
    pub fn inode_tables(&self) -> Vec<BlockRun> {
        let mut blocks = RangeSet::<Blocks>::new();
        for group in &self.groups {
            let start = group.inode_table;
            blocks.insert(start, start + self.layout.geo.table_blocks());
        }
        blocks.iter().map(|(start, end)| BlockRun { start, len: end - start }).collect()
    }

    /// Free blocks as the bitmaps have them, quarantined ones included.
    pub fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// Free inodes as the bitmaps have them, quarantined ones included.
    pub fn free_inodes(&self) -> u64 {
        self.free_inodes
    }

    /// Blocks that may be allocated now: free and not in quarantine (rule R5), those of pools
    /// included.
    pub fn available_blocks(&self) -> u64 {
        self.free_blocks - self.held_blocks
    }

    /// Inodes that may be allocated now.
    pub fn available_inodes(&self) -> u64 {
        self.free_inodes - self.held_inos.len() as u64
    }

    /// Blocks that only root and the reserved user and group may take.
    pub fn reserved_blocks(&self) -> u64 {
        let sb = self.superblock.super_block();
        let wide = sb.s_feature_incompat.get() & profile::INCOMPAT_64BIT != 0;
        let hi = if wide { u64::from(sb.s_r_blocks_count_hi.get()) << 32 } else { 0 };
        (u64::from(sb.s_r_blocks_count_lo.get()) | hi).min(self.layout.geo.block_count)
    }
}

impl Super {
    pub(crate) fn super_block(&self) -> &Superblock {
        super_ref(&self.sb)
    }

    /// (user, group) that may take reserved blocks besides root; group 0 means none.
    pub fn reserved_ids(&self) -> (u32, u32) {
        let sb = self.super_block();
        (u32::from(sb.s_def_resuid.get()), u32::from(sb.s_def_resgid.get()))
    }

    /// The volume's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.super_block().s_uuid
    }

    /// `s_hash_seed` of the directory hash.
    pub fn hash_seed(&self) -> [u32; 4] {
        self.super_block().s_hash_seed.map(|w| w.get())
    }

    /// `s_def_hash_version`: the hash of new hashed directories, in its signed form.
    pub fn def_hash_version(&self) -> u8 {
        self.super_block().s_def_hash_version
    }

    /// Are directory hashes made with unsigned characters?
    pub fn unsigned_hash(&self) -> bool {
        self.super_block().s_flags.get() & FLAG_UNSIGNED_HASH != 0
    }

    /// May directories be hashed (dir_index)?
    pub fn has_dir_index(&self) -> bool {
        self.super_block().s_feature_compat.get() & 0x20 != 0
    }
}

impl Layout {
    /// Blocks of the volume.
    pub fn block_count(&self) -> u64 {
        self.geo.block_count
    }

    /// Number of inodes, used or not.
    pub fn inode_count(&self) -> u32 {
        self.geo.inode_count
    }

    /// Bytes of an inode record.
    pub fn inode_size(&self) -> usize {
        self.geo.inode_size
    }

    /// Blocks taken by superblocks, descriptors, bitmaps and inode tables (statfs subtracts
    /// them from the size).
    pub fn overhead_blocks(&self) -> u64 {
        self.system.total()
    }

    /// Seed of every metadata checksum.
    pub fn csum_seed(&self) -> u32 {
        self.geo.seed
    }

    /// Seed of one inode's checksums.
    pub fn inode_seed(&self, ino: InodeNr, generation: u32) -> u32 {
        crate::csum::inode_seed(self.geo.seed, ino, generation)
    }

    /// Is an extent block, a data block or an xattr block allowed here: in the volume and
    /// outside superblocks, descriptors, bitmaps and inode tables?
    pub fn is_data_block(&self, block: BlockNr) -> bool {
        block < self.geo.block_count && !self.system.contains(block)
    }

    /// The same for a run; corrupt, named after `what`, if not. A run is not empty.
    pub fn check_run(&self, run: BlockRun, what: impl FnOnce() -> String) -> Result<()> {
        let inside = run.len > 0
            && run.start.checked_add(run.len).is_some_and(|end| end <= self.geo.block_count);
        if inside && !self.system.overlaps(run.start, run.end()) {
            return Ok(());
        }
        let (start, len) = (run.start, run.len);
        Err(corrupt(what(), format!("{len} blocks at {start} are not in the data zone")))
    }

    /// Where the blocks of an inode's file are best put when nothing else is known.
    pub fn goal_for_inode(&self, ino: InodeNr) -> BlockNr {
        let group = (ino.max(1) - 1) / self.geo.inodes_per_group;
        self.geo.group_start(group.min(self.geo.group_count - 1))
    }

    /// First blocks of the backup superblocks' groups, in order: the copies stand at byte 0.
    pub fn backup_superblocks(&self) -> Vec<BlockNr> {
        (1..self.geo.group_count)
            .filter(|g| self.geo.has_super(*g))
            .map(|g| self.geo.group_start(g))
            .collect()
    }
}

fn read_groups(geo: &Geometry, store: &mut dyn BlockStore) -> Result<Vec<Group>> {
    let per_block = (BLOCK_SIZE / geo.desc_size) as u32;
    let mut groups = Vec::new();
    for b in 0..geo.gdt_blocks {
        let block = store.read(1 + b)?;
        for raw in block.chunks_exact(geo.desc_size).take(per_block as usize) {
            let nr = groups.len() as u32;
            if nr == geo.group_count {
                break;
            }
            groups.push(Group::parse(geo, nr, raw)?);
        }
    }
    Ok(groups)
}

/// Collects the metadata places of all groups; they must lie in the volume and not overlap.
fn system_zone(geo: &Geometry, groups: &[Group]) -> Result<RangeSet<Blocks>> {
    let mut zone = RangeSet::new();
    let mut add = |nr: u32, what: &str, start: BlockNr, len: u64| {
        let end = start.checked_add(len).filter(|e| *e <= geo.block_count);
        match end {
            Some(end) if !zone.overlaps(start, end) => {
                zone.insert(start, end);
                Ok(())
            }
            _ => Err(corrupt(
                format!("group descriptor {nr}"),
                format!("{what} at block {start} lies outside the volume or over other metadata"),
            )),
        }
    };
    for nr in 0..geo.group_count {
        if geo.has_super(nr) {
            let len = 1 + geo.gdt_blocks + geo.reserved_gdt;
            add(nr, "superblock copy", geo.group_start(nr), len)?;
        }
    }
    for (nr, g) in (0u32..).zip(groups) {
        add(nr, "block bitmap", g.block_bitmap, 1)?;
        add(nr, "inode bitmap", g.inode_bitmap, 1)?;
        add(nr, "inode table", g.inode_table, geo.table_blocks())?;
    }
    Ok(zone)
}
