//! Numbers with a meaning. Plain aliases where arithmetic is constant, newtypes where a
//! mix-up would lose data.

/// Bytes in one block of the file-system area, the staging lanes and the journal.
pub const BLOCK_SIZE: usize = 4096;

/// `BLOCK_SIZE` as `u64`.
pub const BLOCK_BYTES: u64 = BLOCK_SIZE as u64;
/// The unit that a block device writes without tearing, in bytes (crash model).
pub const SECTOR_SIZE: usize = 512;

/// Number of a block of the file-system area, counted from its start.
pub type BlockNr = u64;
/// An ext4 inode number (the root directory is 2).
pub type InodeNr = u32;

/// Volume-wide sequence number of an operation or of a staged transaction (rule R1).
/// 0 is "none"; drawn numbers start at 1 and only grow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lsn(pub u64);

/// Sequence number of a background journal transaction; the first is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TxnSeq(pub u64);

/// Index of a staging lane in the header's lane table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LaneId(pub u16);

/// Mount epoch; every mount and every recovery opens a new one (rule R8).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

/// A run of `len` blocks starting at `start`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BlockRun {
    /// First block.
    pub start: BlockNr,
    /// Number of blocks.
    pub len: u64,
}

impl BlockRun {
    /// One past the last block.
    pub fn end(&self) -> BlockNr {
        self.start + self.len
    }
}
