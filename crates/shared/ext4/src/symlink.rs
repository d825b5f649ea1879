//! Symbolic links whose target does not fit the inode: one block of target.

use siftfs_base::{BLOCK_SIZE, Result, corrupt, errno};

use crate::extent::Mapping;
use crate::fs::{Fs, Layout};
use crate::inode::Inode;
use crate::store::BlockStore;

impl Fs {
    /// Stores the target of a new symbolic link, in the inode or, from 60 bytes on, in a block
    /// allocated for it. The caller writes the inode.
    ///
    /// Errors: ENAMETOOLONG if the target and its terminator exceed a block; ENOSPC.
    pub fn symlink_init(
        &mut self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        target: &[u8],
    ) -> Result<()> {
        if target.len() >= BLOCK_SIZE {
            return Err(errno(libc::ENAMETOOLONG));
        }
        if inode.set_fast_symlink(target) {
            return Ok(());
        }
        inode.init_extents();
        let goal = self.layout.goal_for_inode(inode.ino);
        let run = self.alloc_blocks(store, goal, 1)?;
        self.insert(store, inode, 0, run, false)?;
        if let Some(bytes) = store.create(run.start)?.get_mut(..target.len()) {
            bytes.copy_from_slice(target);
        }
        inode.size = target.len() as u64;
        Ok(())
    }
}

impl Layout {
    /// The target of a symbolic link.
    pub fn symlink_read(&self, store: &mut dyn BlockStore, inode: &Inode) -> Result<Vec<u8>> {
        if let Some(target) = inode.fast_symlink() {
            return Ok(target.to_vec());
        }
        let bad = |what: &str| corrupt(format!("symbolic link inode {}", inode.ino), what);
        let len = usize::try_from(inode.size).ok().filter(|l| *l < BLOCK_SIZE);
        let len = len.ok_or_else(|| bad("target longer than a block"))?;
        match self.map(store, inode, 0, 1)? {
            Mapping::Mapped { pblk, unwritten: false, .. } => {
                let block = store.read(pblk)?;
                Ok(block.get(..len).unwrap_or_default().to_vec())
            }
            _ => Err(bad("no block for its target")),
        }
    }
}
