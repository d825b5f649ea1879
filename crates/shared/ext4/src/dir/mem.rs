//! A directory's blocks in memory, for tests.

use super::*;
use siftfs_base::errno;

/// Blocks, which of them are verified, and how often what was asked.
#[derive(Default, Clone)]
pub(crate) struct MemBlocks {
    pub blocks: Vec<[u8; BLOCK_SIZE]>,
    pub checked: Vec<bool>,
    pub reads: std::collections::BTreeSet<u64>,
    pub dirtied: std::collections::BTreeSet<u64>,
    pub room: Option<usize>,
}

impl MemBlocks {
    /// Forgets what was counted and verified, as if all blocks had left the cache.
    pub fn cool(&mut self) {
        self.checked.fill(false);
        self.reads.clear();
        self.dirtied.clear();
    }
}

impl DirBlocks for MemBlocks {
    fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }
    fn read(&mut self, lblk: u64) -> Result<&[u8; BLOCK_SIZE]> {
        self.reads.insert(lblk);
        Ok(&self.blocks[lblk as usize])
    }
    fn modify(&mut self, lblk: u64) -> Result<&mut [u8; BLOCK_SIZE]> {
        self.dirtied.insert(lblk);
        Ok(&mut self.blocks[lblk as usize])
    }
    fn append(&mut self) -> Result<u64> {
        if self.room == Some(self.blocks.len()) {
            return Err(errno(libc::ENOSPC));
        }
        self.blocks.push([0; BLOCK_SIZE]);
        self.checked.push(false);
        Ok(self.blocks.len() as u64 - 1)
    }
    fn verified(&mut self, lblk: u64) -> Result<bool> {
        Ok(self.checked[lblk as usize])
    }
    fn set_verified(&mut self, lblk: u64) -> Result<()> {
        self.checked[lblk as usize] = true;
        Ok(())
    }
}

/// A context with all features.
pub(crate) fn ctx() -> DirCtx {
    DirCtx {
        ino: 12,
        generation: 7,
        csum_seed: Some(0x1234_5678),
        hash_seed: [1, 2, 3, 4],
        hash_version: HashVersion { kind: HashKind::HalfMd4, unsigned: false },
        dir_index: true,
        filetype: true,
        indexed: false,
    }
}
