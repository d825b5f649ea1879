//! The inode deduplication table (SIFT §3.3.3, §4.3.3): of a batch's images, the newest of each
//! block; within inode tables, which inodes they change.

use siftfs_base::{BLOCK_SIZE, BlockNr, BlockRun};
use std::collections::HashMap;

/// Where the volume's inode tables lie. Without it images are folded all the same, but no
/// inode is counted.
#[derive(Clone, Debug, Default)]
pub struct InodeTables {
    /// Blocks of the inode tables, ascending and disjoint.
    pub runs: Vec<BlockRun>,
    /// Bytes of an inode; a divisor of the block size, at least 128.
    pub inode_size: usize,
}

impl InodeTables {
    /// Is `block` part of an inode table?
    fn holds(&self, block: BlockNr) -> bool {
        let next = self.runs.partition_point(|r| r.start <= block);
        next > 0 && self.runs[next - 1].end() > block
    }

    /// Which inodes differ between two versions of a block, as bits.
    fn changed(&self, old: &[u8], new: &[u8]) -> u32 {
        let size = self.inode_size.clamp(128, BLOCK_SIZE);
        let pairs = old.chunks(size).zip(new.chunks(size)).enumerate();
        pairs.filter(|(_, (o, n))| o != n).fold(0, |bits, (i, _)| bits | 1 << i)
    }
}

/// The newest image of a block.
struct Slot {
    /// Transaction of the batch that it is from.
    txn: u32,
    /// Inodes that changed from one image to the next.
    inodes: u32,
    in_table: bool,
    data: Box<[u8; BLOCK_SIZE]>,
}

/// The newest images of a batch.
#[derive(Default)]
pub(crate) struct Images {
    by_block: HashMap<BlockNr, u32>,
    slots: Vec<Slot>,
    /// Updates of inodes that the images added so far carry.
    pub raw_inodes: u64,
}

/// Memory of one image: the block, its allocation, its slot, twice its entry in the table.
const EACH: usize = BLOCK_SIZE + 16 + size_of::<Slot>() + 2 * 17;

impl Images {
    /// Takes an image of transaction `txn`; returns its slot, which is the block's for the
    /// whole batch.
    pub fn put(&mut self, tables: &InodeTables, block: BlockNr, image: &[u8], txn: u32) -> u32 {
        if let Some(nr) = self.by_block.get(&block) {
            let slot = &mut self.slots[*nr as usize];
            if slot.in_table {
                let changed = tables.changed(&slot.data[..], image);
                self.raw_inodes += u64::from(changed.count_ones().max(1));
                slot.inodes |= changed;
            }
            slot.data.copy_from_slice(image);
            slot.txn = txn;
            return *nr;
        }
        let mut data = Box::new([0; BLOCK_SIZE]);
        data.copy_from_slice(image);
        let in_table = tables.holds(block);
        self.raw_inodes += u64::from(in_table);
        let nr = u32::try_from(self.slots.len()).expect("memory ends long before slots do");
        self.slots.push(Slot { txn, inodes: 0, in_table, data });
        self.by_block.insert(block, nr);
        nr
    }

    pub fn data(&self, slot: u32) -> &[u8; BLOCK_SIZE] {
        &self.slots[slot as usize].data
    }

    pub fn txn(&self, slot: u32) -> u32 {
        self.slots[slot as usize].txn
    }

    /// Inodes that replaying this image updates.
    pub fn inodes(&self, slot: u32) -> u64 {
        let s = &self.slots[slot as usize];
        if s.in_table { u64::from(s.inodes.count_ones().max(1)) } else { 0 }
    }

    pub fn memory(&self) -> usize {
        self.slots.len() * EACH
    }

    pub fn clear(&mut self) {
        self.by_block.clear();
        self.slots.clear();
        self.raw_inodes = 0;
    }
}

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;
