//! The interface between the ext4 layer and the layer that caches and journals its metadata blocks.

use siftfs_base::{BLOCK_SIZE, BlockNr, BlockRun, Result};

/// A cache of metadata blocks of the file-system area.
///
/// All calls are made under the Runtime's lock; a miss reads storage inside the call.
pub trait BlockStore {
    /// The block's newest content.
    fn read(&mut self, nr: BlockNr) -> Result<&[u8; BLOCK_SIZE]>;
    /// As [`BlockStore::read`]. The blocks of `around`, of which `nr` is one, are metadata as well
    /// and likely to be read next: those near it may be read with it.
    fn read_ahead(&mut self, nr: BlockNr, around: BlockRun) -> Result<&[u8; BLOCK_SIZE]> {
        debug_assert!((around.start..around.end()).contains(&nr), "{nr} is not in {around:?}");
        self.read(nr)
    }
    /// The block's newest content, to be changed; the block joins the running transaction.
    fn modify(&mut self, nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]>;
    /// A newly allocated metadata block, all zeroes, read from nowhere; joins the transaction.
    fn create(&mut self, nr: BlockNr) -> Result<&mut [u8; BLOCK_SIZE]>;
    /// These blocks were freed: forget any cached or dirty content (they hold no metadata any
    /// more), and remember them as dropped by the running transaction.
    fn freed(&mut self, run: BlockRun);
    /// A block whose checksum or structure failed: has this block been verified since it was
    /// read? Lets the ext4 layer check each block once per stay in the cache.
    fn verified(&self, nr: BlockNr) -> bool;
    /// The block passed its checks.
    fn set_verified(&mut self, nr: BlockNr);
}
