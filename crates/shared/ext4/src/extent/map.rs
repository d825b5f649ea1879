//! Lookup of logical blocks.

use siftfs_base::{BlockNr, BlockRun, Result};

use super::node::{Entry, Extent, child, key};
use crate::fs::Layout;
use crate::inode::Inode;
use crate::store::BlockStore;

/// Logical blocks a file can have: the last block number is not usable.
pub const MAX_FILE_BLOCKS: u64 = u32::MAX as u64;

/// What lies at a logical block, and how far it goes on like that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    /// Nothing is allocated; reads as zeroes.
    Hole {
        /// Blocks from the one asked for.
        len: u64,
    },
    /// Allocated.
    Mapped {
        /// Physical block of the one asked for.
        pblk: BlockNr,
        /// Blocks from the one asked for, contiguous.
        len: u64,
        /// Allocated, but reads as zeroes.
        unwritten: bool,
    },
}

impl Mapping {
    /// Blocks it covers.
    pub fn len(&self) -> u64 {
        match self {
            Mapping::Hole { len } | Mapping::Mapped { len, .. } => *len,
        }
    }
    /// Never: a mapping covers a block at least.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A mapped range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedRange {
    /// First logical block.
    pub lblk: u64,
    /// Where it lies.
    pub run: BlockRun,
    /// Reads as zeroes.
    pub unwritten: bool,
}

/// The entry that may cover `lblk`: the last that begins at or before it.
pub(super) fn position(all: &[Entry], lblk: u32) -> Option<usize> {
    all.partition_point(|e| key(e) <= lblk).checked_sub(1)
}

impl Layout {
    /// What lies at logical block `lblk`, for at most `max` blocks. A hole may be reported in
    /// several pieces. Works on block maps of older files too.
    ///
    /// Errors: `Corrupt` for a bad tree or a place outside the data zone.
    pub fn map(
        &self,
        store: &mut dyn BlockStore,
        inode: &Inode,
        lblk: u64,
        max: u64,
    ) -> Result<Mapping> {
        assert!(max > 0, "a mapping of no blocks");
        let Ok(at) = u32::try_from(lblk) else {
            return Ok(Mapping::Hole { len: max });
        };
        if lblk >= MAX_FILE_BLOCKS {
            return Ok(Mapping::Hole { len: max });
        }
        if !inode.has_extents() {
            return self.map_indirect(store, inode, at, max);
        }
        let found = self.find(store, inode, at)?;
        Ok(clip(found, lblk, max))
    }

    /// The next mapped range at or behind `lblk` and before `end`, cut to `[lblk, end)`; `None`
    /// if there is none. For SEEK_DATA, SEEK_HOLE and copying.
    pub fn next_mapped(
        &self,
        store: &mut dyn BlockStore,
        inode: &Inode,
        lblk: u64,
        end: u64,
    ) -> Result<Option<MappedRange>> {
        let end = end.min(MAX_FILE_BLOCKS);
        let mut at = lblk;
        while at < end {
            match self.map(store, inode, at, end - at)? {
                Mapping::Hole { len } => at += len,
                Mapping::Mapped { pblk, len, unwritten } => {
                    let run = BlockRun { start: pblk, len };
                    return Ok(Some(MappedRange { lblk: at, run, unwritten }));
                }
            }
        }
        Ok(None)
    }

    /// The extent that covers `lblk`, or where the hole it lies in ends.
    fn find(&self, store: &mut dyn BlockStore, inode: &Inode, lblk: u32) -> Result<Found> {
        let (mut head, mut all) = self.root(inode)?;
        let mut upper = MAX_FILE_BLOCKS;
        loop {
            let pos = position(all, lblk);
            let next = all.get(pos.map_or(0, |p| p + 1)).map(key);
            upper = next.map_or(upper, |n| upper.min(u64::from(n)));
            let Some(entry) = pos.and_then(|p| all.get(p)) else {
                return Ok(Found::Hole(upper));
            };
            if head.depth == 0 {
                let e = Extent::decode(entry);
                let hit = u64::from(lblk) < e.end();
                return Ok(if hit { Found::Extent(e) } else { Found::Hole(upper) });
            }
            let (nr, first) = (child(entry), key(entry));
            (head, all) = self.node(store, inode, nr, head.depth - 1, first)?;
        }
    }
}

enum Found {
    Extent(Extent),
    /// One past the hole.
    Hole(u64),
}

fn clip(found: Found, lblk: u64, max: u64) -> Mapping {
    match found {
        // A tree whose leaves overlap can name an end that is not behind; never return nothing.
        Found::Hole(upper) => Mapping::Hole { len: upper.saturating_sub(lblk).clamp(1, max) },
        Found::Extent(e) => {
            let skip = lblk - u64::from(e.lblk);
            let len = (u64::from(e.len) - skip).min(max);
            Mapping::Mapped { pblk: e.pblk + skip, len, unwritten: e.unwritten }
        }
    }
}
