//! A block store in memory and an inode of no volume, for tests of this workspace.

use std::collections::{BTreeMap, BTreeSet};

use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockNr, BlockRun, Error, InodeNr, Result, Timestamp};

use crate::inode::Inode;
use crate::store::BlockStore;

type Block = Box<[u8; BLOCK_SIZE]>;

/// A fresh inode that is on no volume, with a type and permissions; see [`crate::Fs::new_inode`].
pub fn fresh_inode(ino: InodeNr, mode: u16) -> Inode {
    Inode::fresh(ino, mode, Timestamp::default(), 256, 32)
}

/// A volume held in memory; blocks that were never written are zero.
#[derive(Clone, Default)]
pub struct MemStore {
    blocks: BTreeMap<BlockNr, Block>,
    verified: BTreeSet<BlockNr>,
    count: u64,
    /// Blocks changed since this was last cleared.
    pub dirty: BTreeSet<BlockNr>,
    /// Runs reported as freed, in order.
    pub freed: Vec<BlockRun>,
}

impl MemStore {
    /// An empty volume of `count` blocks.
    pub fn new(count: u64) -> Self {
        Self { count, ..Self::default() }
    }

    /// A volume from its bytes; a last partial block is left out.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut store = Self::new(bytes.len() as u64 / BLOCK_BYTES);
        for (nr, chunk) in (0..).zip(bytes.chunks_exact(BLOCK_SIZE)) {
            store.put(nr, chunk);
        }
        store
    }

    /// The volume in a file.
    pub fn load(path: &std::path::Path) -> std::io::Result<Self> {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::open(path)?;
        let mut store = Self::new(file.metadata()?.len() / BLOCK_BYTES);
        let mut buf = vec![0; BLOCK_SIZE * 256];
        for at in (0..store.count).step_by(256) {
            let len = (store.count - at).min(256) as usize * BLOCK_SIZE;
            let (part, _) = buf.split_at_mut(len);
            file.read_exact_at(part, at * BLOCK_BYTES)?;
            for (nr, chunk) in (at..).zip(part.chunks_exact(BLOCK_SIZE)) {
                store.put(nr, chunk);
            }
        }
        Ok(store)
    }

    /// Writes every block that differs from a hole to `path`, made or cut to the volume's size.
    pub fn save(&self, path: &std::path::Path) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(path)?;
        file.set_len(self.count * BLOCK_BYTES)?;
        for (nr, block) in &self.blocks {
            file.write_all_at(&block[..], nr * BLOCK_BYTES)?;
        }
        Ok(())
    }

    fn put(&mut self, nr: BlockNr, bytes: &[u8]) {
        if bytes.iter().any(|b| *b != 0) {
            let mut block = Box::new([0; BLOCK_SIZE]);
            block.copy_from_slice(bytes);
            self.blocks.insert(nr, block);
        }
    }

    /// Blocks of the volume.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Numbers of the blocks that hold anything.
    pub fn present(&self) -> impl Iterator<Item = BlockNr> + '_ {
        self.blocks.keys().copied()
    }

    /// Forgets which blocks were verified, as if the cache had been emptied.
    pub fn forget_verified(&mut self) {
        self.verified.clear();
    }

    /// A block's bytes, without marking it dirty (tests damage blocks with it).
    pub fn raw(&mut self, nr: BlockNr) -> &mut [u8; BLOCK_SIZE] {
        self.blocks.entry(nr).or_insert_with(|| Box::new([0; BLOCK_SIZE]))
    }

    fn check(&self, nr: BlockNr) -> Result<()> {
        if nr < self.count {
            return Ok(());
        }
        let offset = nr.saturating_mul(BLOCK_BYTES);
        Err(Error::Io { op: "read", offset, len: BLOCK_BYTES, errno: libc::EIO })
    }
}

impl BlockStore for MemStore {
    fn read(&mut self, nr: BlockNr) -> Result<&[u8; BLOCK_SIZE]> {
        self.check(nr)?;
        static ZERO: [u8; BLOCK_SIZE] = [0; BLOCK_SIZE];
        Ok(self.blocks.get(&nr).map_or(&ZERO, |b| b))
    }

    fn modify(&mut self, nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]> {
        self.check(nr)?;
        self.dirty.insert(nr);
        Ok(self.raw(nr))
    }

    fn create(&mut self, nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]> {
        self.check(nr)?;
        self.dirty.insert(nr);
        self.verified.remove(&nr);
        let block = self.raw(nr);
        block.fill(0);
        Ok(block)
    }

    fn freed(&mut self, run: BlockRun) {
        for nr in run.start..run.end() {
            self.blocks.remove(&nr);
            self.verified.remove(&nr);
            self.dirty.remove(&nr);
        }
        self.freed.push(run);
    }

    fn verified(&self, nr: BlockNr) -> bool {
        self.verified.contains(&nr)
    }

    fn set_verified(&mut self, nr: BlockNr) {
        self.verified.insert(nr);
    }
}
