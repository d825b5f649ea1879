//! Changes of blocks that are not written anywhere yet.

use std::collections::BTreeMap;

use siftfs_base::{BLOCK_SIZE, BlockNr, BlockRun, Result};

use super::NewBlock;
use crate::store::BlockStore;

type Block = Box<[u8; BLOCK_SIZE]>;

/// The blocks of a file system with changes over them, and with new ones behind its end.
pub(super) struct Draft<'a> {
    below: &'a mut dyn BlockStore,
    /// Blocks of the file system.
    count: u64,
    changed: BTreeMap<BlockNr, Block>,
}

impl<'a> Draft<'a> {
    /// No change yet of the `count` blocks of `below`.
    pub fn new(below: &'a mut dyn BlockStore, count: u64) -> Self {
        Self { below, count, changed: BTreeMap::new() }
    }

    /// The changed blocks of the file system, and those behind its end; both ascending.
    pub fn into_parts(mut self) -> (Vec<NewBlock>, Vec<NewBlock>) {
        let behind = self.changed.split_off(&self.count);
        (self.changed.into_iter().collect(), behind.into_iter().collect())
    }
}

impl BlockStore for Draft<'_> {
    fn read(&mut self, nr: BlockNr) -> Result<&[u8; BLOCK_SIZE]> {
        match self.changed.get(&nr) {
            Some(block) => Ok(block),
            None => self.below.read(nr),
        }
    }

    fn modify(&mut self, nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]> {
        if !self.changed.contains_key(&nr) {
            let block = Box::new(*self.below.read(nr)?);
            self.changed.insert(nr, block);
        }
        Ok(self.changed.entry(nr).or_insert_with(|| unreachable!("it was put there")))
    }

    fn create(&mut self, nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]> {
        let block = self.changed.entry(nr).or_insert_with(|| Box::new([0; BLOCK_SIZE]));
        block.fill(0);
        Ok(block)
    }

    fn freed(&mut self, _run: BlockRun) {
        unreachable!("growing frees nothing");
    }

    fn verified(&self, _nr: BlockNr) -> bool {
        false
    }

    fn set_verified(&mut self, _nr: BlockNr) {}
}
