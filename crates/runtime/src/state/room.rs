//! The room that operations need, and what is left of it: every bound and worst case of the running
//! transaction, of a staged record, and of the free space. Each number stands here once, and says
//! where it comes from.

use crate::state::Log;
use crate::state::Metadata;
use crate::state::Tree;
use crate::state::step::{Need, Step, Stop};
use crate::state::tree::references::SessionId;
use siftfs_base::{BLOCK_BYTES, InodeNr, Result, errno};
use siftfs_log::JournalData;
use siftfs_proto::{LENT_BYTES, LENT_WRITE_BYTES, LENT_WRITES};

/// Blocks that one operation may add to the running transaction at worst, besides what a directory
/// insert costs. A rename that replaces a file has most, 14: the inodes of both directories, of
/// both files and of a neighbour in the list of orphans (5), the blocks of the old name and of the
/// new one (2), a moved directory's entry of its parent (1), the inode bitmap and its descriptor
/// (2), the block bitmap and descriptor of an attribute block that is given up (2), that block (1),
/// and the superblock (1). The rest is a reserve.
pub const OP_BLOCKS: usize = 24;

/// Blocks of a transaction in which nothing has been changed yet, at most: [`CUT_BLOCKS`], a block
/// of checksums where the journal repeats data, and a reserve.
pub const EMPTY_BLOCKS: usize = 24;

/// Journal blocks of a transaction beside its images and its ranges: the tags of the images, of 16
/// bytes each, which are 16 blocks for the [`MOST_BLOCKS`] of the largest transaction.
const CUT_BLOCKS: usize = 16;

/// Blocks of the largest transaction, however long the journal is: its images, 16 MiB, are half of
/// what a journal record may be.
const MOST_BLOCKS: usize = 4096;

/// Ranges whose entries in the journal's descriptor fill a block. The entries of one range are a
/// record (32 bytes), a zero tag and a copy tag (16 and 24), a freed and a direct run (16 each),
/// and a checksum (4) at most: 108 bytes. There is room for 170: the rest is a reserve for a range
/// that has more than one tag.
const RANGES_PER_BLOCK: usize = 24;

/// Blocks that the first range of a record adds beside [`tag_blocks`]: the part of a block that the
/// division leaves out, and the one that a tag may cross into.
const RANGE_EDGES: usize = 2;

/// Blocks of a transaction that an inode takes beside those of its extent tree: its own, and one of
/// its group.
pub const INODE_BLOCKS: usize = 2;

/// Checksums, of 4 bytes for each block of data that the journal repeats, in one block.
const SUMS_PER_BLOCK: u64 = BLOCK_BYTES / 4;

/// Blocks of a group: its bitmap, of one block, has a bit for each.
const GROUP_BLOCKS: u64 = 8 * BLOCK_BYTES;

/// Block groups whose bitmaps and descriptors are few beside what a transaction takes.
pub const FEW_GROUPS: usize = 16;

/// Name operations remembered for staged transactions at most; then a commit clears them.
const MAX_PENDING_NAMES: usize = 65_536;

/// Name operations that one record carries at least, however small the journal is.
const CLOSURE_MIN: usize = 8;

/// Blocks that a session which lends has set aside while it has a lease: what it may have answered
/// by the time that all its leases have ended. That is the write which found no other space, and
/// those that wait then, [`LENT_WRITES`] at most. A write of `n` bytes touches
/// `n / BLOCK_BYTES + 2` blocks at most, if both its ends lie in the middle of one, and the bytes
/// of all are bounded, too. To that comes what the tree may want for each ([`lent_cost`]).
pub const LENT_RESERVE: u64 = {
    let writes = LENT_WRITES + 1;
    let blocks = (LENT_BYTES + LENT_WRITE_BYTES) / BLOCK_BYTES + 2 * writes;
    blocks + blocks / TREE_PART + writes * PATH_BLOCKS
};

/// Free blocks that delayed data may never reserve: room for the metadata of what is reserved.
const SPACE_SLACK: u64 = 32;

/// One block in this many that are reserved is kept for the extent trees of them all. At the worst
/// fragmentation each block is an extent, and an extent block has 340 of them: the rest is for
/// blocks that are not full.
const TREE_PART: u64 = 64;

/// One block in this many that an operation asks for is kept for its extent tree. At the worst
/// fragmentation each block is an extent, and an extent block has 340 of them.
const OWN_TREE_PART: u64 = 128;

/// Blocks of the path to a place in an extent tree that new blocks there may add.
pub const PATH_BLOCKS: u64 = 2;

/// Blocks that a new inode's data may add to the running transaction: itself, and its first tree.
pub const NEW_INODE_BLOCKS: usize = 2;

/// Blocks of space that an operation on several names asks for beside what its inserts append to
/// their directories: [`CREATE_SPACE`] twice.
pub const NAMES_SPACE: u64 = 2 * CREATE_SPACE;

/// Blocks of space that a change of attributes asks for: their block, and one in reserve.
pub const ATTRIBUTE_SPACE: u64 = 2;

/// Blocks of space that a new inode asks for: a directory's first one or a link's target, and one
/// in reserve.
const CREATE_SPACE: u64 = 2;

/// ... and those of its attributes.
pub const XATTR_SPACE: u64 = 1;

/// Images that freeing one extent may add: two bitmaps and two descriptor blocks.
pub const FREED_EXTENT_BLOCKS: usize = 4;

/// Images that an eviction step may add besides the extents' own check: the inode, its bitmap and
/// descriptor, its attribute block with bitmap and descriptor, a neighbour in the list of orphans
/// and the superblock, which are 8. The rest is a reserve.
pub const EVICT_BLOCKS: usize = 16;

/// What one entry of a publish changes besides its new name's blocks and the directories' inodes:
/// the inodes of the file and of the one that it replaces, the directory block of the old name, and
/// a neighbour in the list of orphans.
pub const PUBLISH_BLOCKS: usize = 4;

/// What a name of a compound changes besides its directory's blocks: the inodes of the file and of
/// the one that it replaces, the old name's directory block and inode, and a neighbour in the list
/// of orphans.
pub const NAME_BLOCKS: usize = 5;

/// Blocks of a new inode in a compound: itself, its bitmap, a descriptor.
pub const CREATE_BLOCKS: usize = 3;

/// ... and of its attributes: their block, its bitmap, a descriptor.
pub const CREATE_XATTR_BLOCKS: usize = 3;

/// Blocks of a change of attributes: the inode, and its list.
pub const ATTRIBUTE_BLOCKS: usize = 3;

/// Blocks that any truncation in a compound changes beside the extents that it frees
/// ([`FREED_EXTENT_BLOCKS`]) and the tree's own: an [`EVICT_BLOCKS`] step's, and the bitmap and
/// descriptor of a block of the tree, twice.
pub const TRUNCATE_BLOCKS: usize = 20;

/// Blocks of the running transaction that each file of a compound may add beside its record's: the
/// inode, its attribute block, and a bitmap.
pub const FILE_BLOCKS: usize = 3;

/// Blocks of the running transaction that each file of a commit of sections may add beside its
/// record's: the inode, and for each edge of what was written a block of the tree with bitmap and
/// descriptor (6). The rest is a reserve.
pub const SECTION_BLOCKS: usize = 8;

/// Staged ranges after which a commit does not wait any longer: the cut tags each of them under the
/// state lock, and their credits come back together.
pub const CUT_RANGES: usize = 4096;

/// Bytes one transaction writes straight to the area at most.
pub const DIRECT_MAX: usize = 16 << 20;

/// ... and with what must not stay behind (rule R20; `little_unsynced` bounds that).
pub const MUST_MAX: usize = 4 * DIRECT_MAX;

/// Bytes of pushed overwrites that one record carries: an fsync whose record comes next waits for
/// the state lock while this one is encoded, and for its write (rule R3).
pub const RECORD_MAX: u64 = 256 << 10;

/// Renames over other files that one cut takes the data of.
pub const MAX_REPLACING: usize = 256;

/// Extents removed at most in one step of a long truncation.
pub const REMOVE_STEP: usize = 4096;

/// Preallocations an inode remembers for its next staged transaction; then a commit clears them.
pub const MAX_ALLOCS: usize = 1024;

/// Extents that a compound may free of one file.
pub const MOST_EXTENTS: usize = 64;

/// Inodes whose permissions a record of nothing else carries; their xattrs go along.
pub const PERMS_PER_RECORD: usize = 8;

/// Permission changes that a record takes along because one of them may be above a file whose
/// ancestors are not known. For more, a full commit is cheaper.
pub const MOST_GUARDS: usize = 32;

/// Most entries of a publish. Each may have to take its file's creation along, and one record
/// carries twice as many operations.
pub const ENTRIES_MAX: usize = 64;

/// Most operations one staged transaction carries, however large the journal; a larger closure
/// becomes a full commit.
const CLOSURE_MAX: usize = 128;

/// Bytes that a range of a pushed record takes beside its own: an item, and perhaps a checksum.
pub const PUSHED_RANGE_BYTES: u64 = 64;

/// Eighths of a pushed record up to which a file's data is taken whole, beyond the size that its
/// inode has.
pub const WHOLE_EIGHTHS: u64 = 7;

/// Bytes that fallocate(2) zeroes in one operation.
pub const ALLOCATE_PIECE: u64 = 64 << 20;

/// An inode has little dirty data if its dirty pages are at most this part of the limit: 1 MiB of
/// 128.
pub const LITTLE_PART: u64 = 128;

/// One page in this many of the page cache may be dirty; then writers wait for the background.
pub const DIRTY_PART: u64 = 2;

/// Quarters of that up to which a file with much dirty data may add to it.
pub const STREAM_QUARTERS: u64 = 3;

/// One page in this many of the page cache may be the sections', all together.
pub const SECTIONS_PART: u64 = 2;

/// Bytes of a section's record's head beside its ranges: the header, the inode, and a name or two.
const HEAD_BYTES: u64 = 1024;

/// Bytes of a record's head for each range, and for the gap before it.
const RANGE_BYTES: u64 = 96;

/// Bytes of a record's head for each block of data: its checksum.
const SUM_BYTES: u64 = 4;

/// Bytes of the head of a record with this many ranges, at most.
pub fn head_bytes(ranges: usize, bytes: u64) -> u64 {
    HEAD_BYTES + ranges as u64 * RANGE_BYTES + bytes.div_ceil(BLOCK_BYTES) * SUM_BYTES
}

/// Room in the journal for a record of this many bytes: it is not cut at the ring's end, and the
/// gap there before it is shorter than itself.
pub fn journal_room(bytes: u64) -> u64 {
    2 * bytes
}

/// Blocks that a new inode asks for, with attributes or without.
pub fn create_space(attributes: bool) -> u64 {
    if attributes { CREATE_SPACE + XATTR_SPACE } else { CREATE_SPACE }
}

/// This many blocks of data, and those that map them if they are in one place.
pub fn with_path(blocks: u64) -> u64 {
    if blocks > 0 { blocks + PATH_BLOCKS } else { 0 }
}

/// This many blocks of data, and those that map them at the worst fragmentation.
pub fn with_tree(blocks: u64) -> u64 {
    blocks + blocks / OWN_TREE_PART + PATH_BLOCKS
}

/// What a write of this many new blocks takes of a session's reserve: the blocks, what is promised
/// beside them for their trees ([`TREE_PART`]; a block at most for the part that a division leaves
/// out), and the path to them.
pub fn lent_cost(blocks: u64) -> u64 {
    blocks + blocks / TREE_PART + PATH_BLOCKS
}

/// Journal blocks that the entries of this many ranges take in a descriptor.
pub fn tag_blocks(ranges: usize) -> usize {
    ranges / RANGES_PER_BLOCK
}

impl Metadata {
    /// Called before a mutating operation changes anything: is there room in the running
    /// transaction, and are `blocks` blocks of space free for metadata?
    pub fn begin(&mut self, blocks: u64) -> Step<()> {
        self.begin_with(blocks, OP_BLOCKS)
    }

    /// As `begin`, for an operation that inserts a name into `dir`.
    pub fn begin_insert(&mut self, dir: InodeNr, blocks: u64) -> Step<()> {
        let cost = self.tree.fs.layout.dir_insert_cost(&self.tree.node(dir).inode)?;
        self.begin_with(blocks + u64::from(cost.appended), OP_BLOCKS + cost.dirtied as usize)
    }

    /// As `begin`, for this many operations on names of which there must not be a part alone.
    pub fn begin_many(&mut self, blocks: u64, images: usize, names: usize) -> Step<()> {
        if self.log.names.len() + names > MAX_PENDING_NAMES && !self.log.is_replaying() {
            return Err(Stop::Needs(Need::Commit));
        }
        self.begin_with(blocks, images)
    }

    fn begin_with(&mut self, blocks: u64, images: usize) -> Step<()> {
        if self.log.names.len() > MAX_PENDING_NAMES && !self.log.is_replaying() {
            return Err(Stop::Needs(Need::Commit));
        }
        self.room_in_transaction(images)?;
        if blocks > 0 && self.spendable() < blocks {
            return Err(self.log.shortage());
        }
        Ok(())
    }

    /// Does the running transaction take `blocks` more images? (rule R10)
    pub fn room_in_transaction(&mut self, blocks: usize) -> Step<()> {
        // Recovery checks this between records: one record is applied whole or not at all.
        if self.log.is_replaying() {
            return Ok(());
        }
        if self.transaction_blocks() + blocks > self.log.max_transaction_blocks() {
            return Err(Stop::Needs(Need::Commit));
        }
        Ok(())
    }

    /// Images that the running transaction still has room for.
    pub fn room(&self) -> usize {
        self.log.max_transaction_blocks().saturating_sub(self.transaction_blocks())
    }

    /// Upper bound of the running transaction's journal blocks if it were cut now.
    pub fn transaction_blocks(&self) -> usize {
        self.tree.meta.dirty_len()
            + self.log.running.inodes_owed()
            + self.log.running.overlay.blocks(self.tree.groups())
            + self.log.repeated_blocks(self.log.running.overlay.bytes())
            + CUT_BLOCKS
    }

    /// Is more than one part in this many of a transaction in use?
    pub fn is_beyond(&self, parts: usize) -> bool {
        self.transaction_blocks() * parts > self.log.max_transaction_blocks()
    }

    /// Blocks that may be allocated or reserved: free in the last durable state, not promised, and
    /// not set aside.
    pub fn spendable(&self) -> u64 {
        unpromised(self).saturating_sub(self.log.reserves.kept())
    }

    /// Share in use of a lane or of the running transaction, whichever is fuller. A full record
    /// area holds no caller up: the next record goes elsewhere.
    pub fn fill(&self, lane: usize) -> f64 {
        let transaction =
            self.transaction_blocks() as f64 / self.log.max_transaction_blocks() as f64;
        if self.log.staging.record_area() == Some(lane) {
            return transaction;
        }
        self.log.staging.lanes()[lane].fill().max(transaction)
    }
}

/// Blocks that are free in the last durable state, and not promised.
fn unpromised(metadata: &Metadata) -> u64 {
    let reserved = metadata.log.running.data.reserved();
    let promised = reserved + reserved / TREE_PART + SPACE_SLACK;
    metadata.tree.fs.available_blocks().saturating_sub(promised)
}

/// Sessions' reserves that were used are whole again, if there is space for all.
pub fn fill_up(metadata: &mut Metadata) {
    if unpromised(metadata) >= metadata.log.reserves.kept() {
        metadata.log.reserves.fill_up();
    }
}

/// Is there space that the session may set aside, if it has not? The caller is as of
/// [`Metadata::check_space`].
///
/// # Errors
/// `ENOSPC`, also if what it has set aside was used.
pub fn may_set_aside(metadata: &mut Metadata, session: SessionId, privileged: bool) -> Result<()> {
    fill_up(metadata);
    let held_back = if privileged { 0 } else { metadata.tree.fs.reserved_blocks() };
    let has = match metadata.log.reserves.left(session) {
        Some(left) => left == LENT_RESERVE,
        None => metadata.spendable() >= LENT_RESERVE + held_back,
    };
    if has { Ok(()) } else { Err(errno(libc::ENOSPC)) }
}

impl Log {
    /// Most name operations of one staged transaction: recovery must find room for them too.
    pub fn closure_max(&self) -> usize {
        self.eighth_of_transaction().clamp(CLOSURE_MIN, CLOSURE_MAX)
    }

    /// Journal blocks that a transaction needs to repeat this many staged bytes, their checksums
    /// included: none where it refers to them.
    pub fn repeated_blocks(&self, bytes: u64) -> usize {
        if self.ledger.journal_data() == JournalData::Ref {
            return 0;
        }
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        usize::try_from(blocks + blocks / SUMS_PER_BLOCK + 1).unwrap_or(usize::MAX)
    }

    /// Bytes of data that one staged record carries at most: a transaction that repeats them must
    /// have room for it, whatever else is in it.
    pub fn most_staged(&self) -> u64 {
        match self.ledger.journal_data() {
            JournalData::Ref => u64::MAX,
            JournalData::Copy => self.half_transaction() as u64 * BLOCK_BYTES,
        }
    }

    /// Half of a transaction: what one record, or the tidying of one tree, may add to an empty one.
    /// The other half is for what the running transaction has anyway.
    pub fn half_transaction(&self) -> usize {
        self.max_transaction_blocks() / 2
    }

    /// A quarter of a transaction: what bulk and pushed data leave to callers.
    pub fn quarter_of_transaction(&self) -> usize {
        self.max_transaction_blocks() / 4
    }

    /// An eighth of a transaction: the most names of one record, or ranges that a group takes
    /// along. Each of them changes several blocks.
    pub fn eighth_of_transaction(&self) -> usize {
        self.max_transaction_blocks() / 8
    }

    /// Bytes of data that a file which is renamed over another one takes along into the next cut
    /// (rule R20): half a record, so that what is written meanwhile fits, too.
    pub fn most_replacing(&self) -> u64 {
        self.staging.max_record() / 2
    }

    /// Bytes of data that a group, or one push, takes along into one record: half of what it may
    /// carry, because the names and the permissions need the rest.
    pub fn half_record(&self) -> u64 {
        (self.staging.max_record() / 2).min(self.most_staged() / 2)
    }

    /// A transaction closes before it outgrows a quarter of the journal: with the gap before its
    /// record ([`journal_room`]) it takes a half, and the next one can be cut before the Service
    /// has reclaimed it.
    pub fn max_transaction_blocks(&self) -> usize {
        let quarter = self.ledger.journal_len() / BLOCK_BYTES / 4;
        usize::try_from(quarter).unwrap_or(usize::MAX).min(MOST_BLOCKS)
    }

    /// What to answer when space is short: background progress may help once (rule R5).
    pub fn shortage(&self) -> Stop {
        if !self.running.is_shortage_final() && !self.is_replaying() {
            Stop::Needs(Need::Space)
        } else {
            errno(libc::ENOSPC).into()
        }
    }

    /// Ranges of data that one record carries at most.
    pub fn most_ranges(&self) -> usize {
        self.quarter_of_transaction() + 1
    }

    /// Blocks of the running transaction that a caller's record leaves free: bulk, a quarter.
    pub fn kept_from(&self, bulk: bool) -> usize {
        if bulk { self.quarter_of_transaction() } else { 0 }
    }

    /// Blocks of the running transaction that this many staged ranges and their bytes add at worst.
    pub fn range_blocks(&self, ranges: usize, bytes: u64) -> usize {
        tag_blocks(ranges) + RANGE_EDGES + self.repeated_blocks(bytes)
    }
}

impl Tree {
    /// Block groups: each has a bitmap that an allocation may change, and part of a descriptor
    /// block.
    pub fn groups(&self) -> usize {
        usize::try_from(self.fs.layout.block_count() / GROUP_BLOCKS + 1).unwrap_or(usize::MAX)
    }

    /// Most blocks of the inode's extent tree that a home for one range changes.
    pub fn tree_touched(&self, ino: InodeNr) -> usize {
        let tree = self.fs.layout.worst_case_touched(&self.node(ino).inode).unwrap_or(1);
        usize::try_from(tree).unwrap_or(usize::MAX)
    }

    /// ... and an inode of which this many ranges are staged: one that is loaded.
    pub fn inode_blocks(&self, ino: InodeNr, ranges: usize) -> usize {
        let tree = self.fs.layout.worst_case_touched(&self.node(ino).inode).unwrap_or(1);
        let blocks = usize::try_from(tree).unwrap_or(usize::MAX).saturating_add(INODE_BLOCKS);
        if tree > 1 { blocks.saturating_add(ranges) } else { blocks }
    }
}
