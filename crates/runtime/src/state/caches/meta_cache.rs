//! The metadata cache: blocks of the area that hold ext4 metadata, with the index that finds the
//! newest copy of a block in the journal until the area has it (rule R11).

use crate::state::Readers;
use crate::state::caches::eviction::{EvictionOrder, Fate, most};
use crate::state::costs;
use ahash::HashMap;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockNr, BlockRun, Result, SharedBlock, TxnSeq};
use siftfs_device::Origin;
use siftfs_ext4::BlockStore;
use std::collections::BTreeSet;
use std::sync::Arc;

struct Cached {
    data: SharedBlock,
    verified: bool,
    referenced: bool,
}

/// Where the journal holds a block's newest image.
#[derive(Clone, Copy)]
struct Image {
    seq: TxnSeq,
    /// Position in the journal ring; `None` while the transaction is not durable, and the cache
    /// must keep the block.
    pos: Option<u64>,
}

/// The metadata cache: blocks of the area, and the index of their newest images in the journal.
pub struct MetaCache {
    readers: Arc<Readers>,
    blocks: HashMap<BlockNr, Cached>,
    order: EvictionOrder<BlockNr>,
    limit: usize,
    /// Blocks the running transaction changed.
    dirty: BTreeSet<BlockNr>,
    /// Blocks whose newest journaled image is not in the area yet.
    images: HashMap<BlockNr, Image>,
    /// Runs the running transaction freed.
    drops: Vec<BlockRun>,
    /// Changes ever made, to tell whether an operation made any.
    mutations: u64,
}

/// What a transaction takes from the cache.
pub struct Snapshot {
    /// Destinations, ascending.
    pub blocks: Vec<BlockNr>,
    /// The images of `blocks`, in the same order.
    pub data: Vec<SharedBlock>,
    /// Runs freed.
    pub drops: Vec<BlockRun>,
}

fn blocks(bytes: u64) -> usize {
    usize::try_from(bytes / BLOCK_BYTES).unwrap_or(usize::MAX).max(256)
}

/// Blocks read at once where those beside a block are likely to be read next (128 KiB).
const CLUSTER: u64 = 32;

impl MetaCache {
    /// Sets the bound in bytes, kept to from the next shrinking on.
    pub fn set_limit(&mut self, bytes: u64) {
        self.limit = blocks(bytes);
    }

    /// A cache of at most `bytes` bytes of clean blocks.
    pub fn new(readers: Arc<Readers>, bytes: u64) -> Self {
        Self {
            readers,
            blocks: HashMap::default(),
            order: EvictionOrder::default(),
            limit: blocks(bytes),
            dirty: BTreeSet::new(),
            images: HashMap::default(),
            drops: Vec::new(),
            mutations: 0,
        }
    }

    /// Blocks in the running transaction.
    pub fn dirty_len(&self) -> usize {
        self.dirty.len()
    }

    /// Has the running transaction changed metadata?
    pub fn has_changes(&self) -> bool {
        !self.dirty.is_empty() || !self.drops.is_empty()
    }

    /// Blocks cached.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> u64 {
        let blocks = self.blocks.len() * (BLOCK_SIZE + costs::BLOCK);
        let table = self.blocks.capacity() * size_of::<(BlockNr, Cached)>();
        let images = self.images.capacity() * size_of::<(BlockNr, Image)>();
        (blocks + table + images + self.dirty.len() * costs::NUMBER) as u64 + self.order.bytes()
    }

    /// Changes ever made.
    pub fn mutations(&self) -> u64 {
        self.mutations
    }

    fn load(&mut self, nr: BlockNr) -> Result<&mut Cached> {
        if !self.blocks.contains_key(&nr) {
            let mut fresh = SharedBlock::zeroed();
            let data = fresh.make_mut();
            match self.images.get(&nr) {
                Some(Image { pos: Some(pos), .. }) => {
                    let at = pos % self.readers.journal.len();
                    self.readers.journal.read(Origin::Foreground, at, &mut data[..])?;
                }
                Some(Image { pos: None, seq }) => {
                    panic!("block {nr} of the transaction {} in flight left the cache", seq.0)
                }
                None => {
                    self.readers.area.read(Origin::Foreground, nr * BLOCK_BYTES, &mut data[..])?
                }
            }
            self.put(nr, fresh);
        }
        let cached = self.blocks.get_mut(&nr).expect("just loaded");
        cached.referenced = true;
        Ok(cached)
    }

    /// Reads `nr`, and with it those blocks beside it that the storage has newest.
    fn load_cluster(&mut self, nr: BlockNr, around: BlockRun) -> Result<()> {
        let first = (nr / CLUSTER * CLUSTER).max(around.start);
        let end = (nr / CLUSTER * CLUSTER + CLUSTER).min(around.end());
        let absent = |b: &BlockNr| !self.blocks.contains_key(b) && !self.images.contains_key(b);
        let before = (first..nr).rev().take_while(absent).count() as u64;
        let behind = (nr..end).take_while(absent).count() as u64;
        if behind == 0 {
            return Ok(());
        }
        let mut bytes = vec![0; ((before + behind) as usize) * BLOCK_SIZE];
        let start = nr - before;
        self.readers.area.read(Origin::Foreground, start * BLOCK_BYTES, &mut bytes)?;
        for (nr, data) in (start..).zip(bytes.chunks_exact(BLOCK_SIZE)) {
            let mut fresh = SharedBlock::zeroed();
            fresh.make_mut().copy_from_slice(data);
            self.put(nr, fresh);
        }
        Ok(())
    }

    fn put(&mut self, nr: BlockNr, data: SharedBlock) {
        if self.blocks.insert(nr, Cached { data, verified: false, referenced: true }).is_none() {
            self.order.push(nr);
        }
    }

    /// Takes the running transaction's blocks, copying none, and starts the next one; the blocks
    /// stay in the cache until `journaled` says where they lie.
    pub fn snapshot(&mut self, seq: TxnSeq) -> Snapshot {
        let blocks: Vec<BlockNr> = std::mem::take(&mut self.dirty).into_iter().collect();
        let mut data = Vec::with_capacity(blocks.len());
        for nr in &blocks {
            data.push(self.blocks[nr].data.clone());
            self.images.insert(*nr, Image { seq, pos: None });
        }
        Snapshot { blocks, data, drops: std::mem::take(&mut self.drops) }
    }

    /// The transaction is durable; its image `i` lies at `image_pos + i` blocks.
    pub fn journaled(&mut self, seq: TxnSeq, blocks: &[BlockNr], image_pos: u64) {
        for (i, nr) in (0u64..).zip(blocks) {
            if let Some(image) = self.images.get_mut(nr)
                && image.seq == seq
            {
                image.pos = Some(image_pos + i * BLOCK_BYTES);
            }
        }
    }

    /// The area holds everything up to `seq`.
    pub fn reclaimed(&mut self, seq: TxnSeq) {
        self.images.retain(|_, image| image.seq > seq);
        crate::state::tree::nodes::give_back(&mut self.images);
    }

    /// Evicts clean blocks until the cache is within its bound, or enough were checked for one
    /// call.
    pub fn shrink(&mut self) {
        let (held, mut order) = (self.blocks.len(), std::mem::take(&mut self.order));
        let excess = held.saturating_sub(self.limit);
        order.sweep(held, self.limit, most(excess), |nr, evict| {
            let Some(cached) = self.blocks.get_mut(&nr) else { return Fate::Gone };
            let in_flight = self.images.get(&nr).is_some_and(|i| i.pos.is_none());
            if !evict || in_flight || self.dirty.contains(&nr) {
                return Fate::Kept;
            }
            if std::mem::take(&mut cached.referenced) {
                return Fate::Kept;
            }
            self.blocks.remove(&nr);
            Fate::Evicted
        });
        self.order = order;
    }
}

impl BlockStore for MetaCache {
    fn read(&mut self, nr: BlockNr) -> Result<&[u8; BLOCK_SIZE]> {
        Ok(&self.load(nr)?.data)
    }

    fn read_ahead(&mut self, nr: BlockNr, around: BlockRun) -> Result<&[u8; BLOCK_SIZE]> {
        if !self.blocks.contains_key(&nr) {
            // If it fails, the block may be readable all the same.
            let _ = self.load_cluster(nr, around);
        }
        self.read(nr)
    }

    fn modify(&mut self, nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]> {
        self.load(nr)?;
        self.mutations += 1;
        self.dirty.insert(nr);
        Ok(self.load(nr)?.data.make_mut())
    }

    fn create(&mut self, nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]> {
        self.put(nr, SharedBlock::zeroed());
        self.mutations += 1;
        self.dirty.insert(nr);
        Ok(self.blocks.get_mut(&nr).expect("just put").data.make_mut())
    }

    fn freed(&mut self, run: BlockRun) {
        self.mutations += 1;
        let dead: Vec<BlockNr> = self.dirty.range(run.start..run.end()).copied().collect();
        for nr in dead {
            self.dirty.remove(&nr);
        }
        if run.len <= 64 {
            for nr in run.start..run.end() {
                self.blocks.remove(&nr);
                self.images.remove(&nr);
            }
        } else {
            let alive = |nr: &BlockNr| *nr < run.start || *nr >= run.end();
            self.blocks.retain(|nr, _| alive(nr));
            self.images.retain(|nr, _| alive(nr));
        }
        self.drops.push(run);
    }

    fn verified(&self, nr: BlockNr) -> bool {
        self.blocks.get(&nr).is_some_and(|b| b.verified)
    }

    fn set_verified(&mut self, nr: BlockNr) {
        if let Some(b) = self.blocks.get_mut(&nr) {
            b.verified = true;
        }
    }
}

#[cfg(test)]
#[path = "meta_cache_tests.rs"]
mod tests;
