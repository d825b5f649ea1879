//! Directories of a volume: [`Dir`] over an inode's extents.

use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockNr, BlockRun, InodeNr, Result, corrupt, errno};

use super::{Dir, DirBlocks, DirCtx, DirEntry, Found, HashVersion, INSERT_WORST_CASE, InsertCost};
use crate::extent::Mapping;
use crate::format::FL_INDEX;
use crate::fs::{Fs, Layout};
use crate::inode::Inode;
use crate::store::BlockStore;

/// Mappings remembered during one operation: root, node, leaf and one to spare.
const REMEMBERED: usize = 4;

/// What an operation may do with volume and inode.
enum Access<'a> {
    Look(&'a Fs, &'a Inode),
    Grow(&'a mut Fs, &'a mut Inode),
}

impl Access<'_> {
    fn parts(&self) -> (&Fs, &Inode) {
        match self {
            Access::Look(fs, inode) => (fs, inode),
            Access::Grow(fs, inode) => (fs, inode),
        }
    }
}

/// The blocks of a directory during one operation.
struct FsBlocks<'a> {
    access: Access<'a>,
    store: &'a mut dyn BlockStore,
    /// (first logical block, blocks, first physical block).
    known: Vec<(u64, u64, BlockNr)>,
    /// The whole directory is likely to be read.
    listing: bool,
}

impl<'a> FsBlocks<'a> {
    fn new(access: Access<'a>, store: &'a mut dyn BlockStore) -> Result<Self> {
        let (_, inode) = access.parts();
        if !inode.is_dir() {
            return Err(errno(libc::ENOTDIR));
        }
        if !inode.size.is_multiple_of(BLOCK_BYTES) {
            let detail = format!("a directory of {} bytes", inode.size);
            return Err(corrupt(format!("inode {}", inode.ino), detail));
        }
        Ok(Self { access, store, known: Vec::with_capacity(REMEMBERED), listing: false })
    }

    fn place(&mut self, lblk: u64) -> Result<BlockNr> {
        Ok(self.run(lblk)?.0)
    }

    /// The place of a block, and the run from the first block that was asked for of those that lie
    /// side by side with it.
    fn run(&mut self, lblk: u64) -> Result<(BlockNr, BlockRun)> {
        for (first, len, start) in &self.known {
            if (*first..first + len).contains(&lblk) {
                return Ok((start + (lblk - first), BlockRun { start: *start, len: *len }));
            }
        }
        let (fs, inode) = self.access.parts();
        let count = inode.size / BLOCK_BYTES;
        let bad = |what: &str| {
            corrupt(format!("inode {}", inode.ino), format!("directory block {lblk} {what}"))
        };
        if lblk >= count {
            return Err(bad("is beyond the directory's end"));
        }
        match fs.layout.map(self.store, inode, lblk, count - lblk)? {
            Mapping::Mapped { pblk, len, unwritten: false } => {
                if self.known.len() == REMEMBERED {
                    self.known.remove(0);
                }
                self.known.push((lblk, len, pblk));
                Ok((pblk, BlockRun { start: pblk, len }))
            }
            Mapping::Mapped { .. } => Err(bad("was never written")),
            Mapping::Hole { .. } => Err(bad("is a hole")),
        }
    }
}

impl DirBlocks for FsBlocks<'_> {
    fn block_count(&self) -> u64 {
        self.access.parts().1.size / BLOCK_BYTES
    }

    fn read(&mut self, lblk: u64) -> Result<&[u8; BLOCK_SIZE]> {
        let (nr, run) = self.run(lblk)?;
        if self.listing { self.store.read_ahead(nr, run) } else { self.store.read(nr) }
    }

    fn modify(&mut self, lblk: u64) -> Result<&mut [u8; BLOCK_SIZE]> {
        let nr = self.place(lblk)?;
        self.store.modify(nr)
    }

    fn append(&mut self) -> Result<u64> {
        let lblk = self.block_count();
        // Behind the last block, so that a directory that grows alone stays in one piece.
        let goal = match lblk.checked_sub(1) {
            Some(last) => self.place(last)? + 1,
            None => {
                let (fs, inode) = self.access.parts();
                fs.layout.goal_for_inode(inode.ino)
            }
        };
        let Access::Grow(fs, inode) = &mut self.access else {
            unreachable!("only insertions append, and they may grow the directory");
        };
        // The block is only taken if its place in the tree can be recorded.
        if fs.available_blocks() < 1 + fs.layout.worst_case_blocks(inode, 1)? {
            return Err(errno(libc::ENOSPC));
        }
        let run = fs.alloc_blocks(self.store, goal, 1)?;
        if let Err(e) = fs.insert(self.store, inode, lblk, run, false) {
            fs.free_run(self.store, run)?;
            return Err(e);
        }
        self.store.create(run.start)?;
        inode.size += BLOCK_BYTES;
        Ok(lblk)
    }

    fn verified(&mut self, lblk: u64) -> Result<bool> {
        let nr = self.place(lblk)?;
        Ok(self.store.verified(nr))
    }

    fn set_verified(&mut self, lblk: u64) -> Result<()> {
        let nr = self.place(lblk)?;
        self.store.set_verified(nr);
        Ok(())
    }
}

/// Directory operations. Where they take `&mut Inode` they may change its size, blocks, tree
/// and flags; the caller writes it, sets times and keeps link counts. Entries' type codes are
/// those of [`super::ftype`]. All errors of [`Dir`]'s operations apply; ENOTDIR besides.
impl Fs {
    fn dir_ctx(&self, inode: &Inode) -> Result<DirCtx> {
        let kind = HashVersion::from_disk(self.superblock.def_hash_version(), false)?.kind;
        Ok(DirCtx {
            ino: inode.ino,
            generation: inode.generation,
            csum_seed: Some(self.layout.csum_seed()),
            hash_seed: self.superblock.hash_seed(),
            hash_version: HashVersion { kind, unsigned: self.superblock.unsigned_hash() },
            dir_index: self.superblock.has_dir_index(),
            filetype: true,
            indexed: inode.flags & FL_INDEX != 0 && self.superblock.has_dir_index(),
        })
    }

    fn with_dir<T>(
        &self,
        store: &mut dyn BlockStore,
        inode: &Inode,
        f: impl FnOnce(Dir<'_, FsBlocks<'_>>) -> Result<T>,
    ) -> Result<T> {
        let mut ctx = self.dir_ctx(inode)?;
        let mut blocks = FsBlocks::new(Access::Look(self, inode), store)?;
        f(Dir::new(&mut ctx, &mut blocks))
    }

    fn grow_dir<T>(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        f: impl FnOnce(Dir<'_, FsBlocks<'_>>) -> Result<T>,
    ) -> Result<T> {
        let mut ctx = self.dir_ctx(inode)?;
        let mut blocks = FsBlocks::new(Access::Grow(self, inode), store)?;
        let done = f(Dir::new(&mut ctx, &mut blocks));
        // After an error too: the directory may have got its index before space ran out.
        inode.flags = inode.flags & !FL_INDEX | if ctx.indexed { FL_INDEX } else { 0 };
        done
    }

    /// The entry of `name`; see [`Dir::lookup`].
    pub fn dir_lookup(
        &self,
        store: &mut dyn BlockStore,
        dir: &Inode,
        name: &[u8],
    ) -> Result<Option<Found>> {
        self.with_dir(store, dir, |mut d| d.lookup(name))
    }

    /// Makes a new directory inode an empty directory below `parent`; see [`Dir::init`].
    pub fn dir_init(
        &mut self,
        store: &mut dyn BlockStore,
        dir: &mut Inode,
        parent: InodeNr,
    ) -> Result<()> {
        self.grow_dir(store, dir, |mut d| d.init(parent))
    }

    /// Puts a new name into a directory; see [`Dir::insert`]. The inode must be written after
    /// an error too: blocks may have been added before it.
    pub fn dir_insert(
        &mut self,
        store: &mut dyn BlockStore,
        dir: &mut Inode,
        name: &[u8],
        ino: InodeNr,
        ftype: u8,
    ) -> Result<()> {
        self.grow_dir(store, dir, |mut d| d.insert(name, ino, ftype))
    }

    /// Removes a name and answers what it was; see [`Dir::remove`].
    pub fn dir_remove(
        &self,
        store: &mut dyn BlockStore,
        dir: &Inode,
        name: &[u8],
    ) -> Result<Found> {
        self.with_dir(store, dir, |mut d| d.remove(name))
    }

    /// Lets a name lead elsewhere and answers where it led; see [`Dir::replace`].
    pub fn dir_replace(
        &self,
        store: &mut dyn BlockStore,
        dir: &Inode,
        name: &[u8],
        ino: InodeNr,
        ftype: u8,
    ) -> Result<Found> {
        self.with_dir(store, dir, |mut d| d.replace(name, ino, ftype))
    }

    /// The parent's inode number.
    pub fn dir_dotdot(&self, store: &mut dyn BlockStore, dir: &Inode) -> Result<InodeNr> {
        self.with_dir(store, dir, |mut d| d.dotdot())
    }

    /// Gives the directory another parent.
    pub fn dir_set_dotdot(
        &self,
        store: &mut dyn BlockStore,
        dir: &Inode,
        parent: InodeNr,
    ) -> Result<()> {
        self.with_dir(store, dir, |mut d| d.set_dotdot(parent))
    }

    /// Is there nothing but `.` and `..`?
    pub fn dir_is_empty(&self, store: &mut dyn BlockStore, dir: &Inode) -> Result<bool> {
        self.with_dir(store, dir, |mut d| d.is_empty())
    }

    /// Delivers the entries after `cookie` until `f` answers false; see [`Dir::iterate`].
    pub fn dir_iterate(
        &self,
        store: &mut dyn BlockStore,
        dir: &Inode,
        cookie: u64,
        f: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let mut ctx = self.dir_ctx(dir)?;
        let mut blocks = FsBlocks::new(Access::Look(self, dir), store)?;
        blocks.listing = true;
        Dir::new(&mut ctx, &mut blocks).iterate(cookie, f)
    }
}

impl Layout {
    /// What one [`Fs::dir_insert`] into this directory may cost at worst: `appended` counts
    /// every block it may allocate, its extent tree's included, and `dirtied` every metadata
    /// block it may change, bitmaps, group descriptors and the inode's block included.
    pub fn dir_insert_cost(&self, dir: &Inode) -> Result<InsertCost> {
        let tree_each = u32::try_from(self.worst_case_blocks(dir, 1)?).unwrap_or(u32::MAX);
        let own = INSERT_WORST_CASE;
        let tree = tree_each.saturating_mul(own.appended);
        let appended = own.appended.saturating_add(tree);
        // Each new tree block may have a changed sibling and parent; each allocation changes a
        // bitmap and a descriptor; then the inode.
        let dirtied = own
            .dirtied
            .saturating_add(tree.saturating_mul(3))
            .saturating_add(appended.saturating_mul(2))
            .saturating_add(1);
        Ok(InsertCost { dirtied, appended })
    }
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
