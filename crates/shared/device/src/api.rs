//! What a device promises (crash model, "Medium").

use siftfs_base::Result;

/// Part of the volume an I/O touches; statistics count by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegionKind {
    /// The file-system area (ext4 format).
    Area,
    /// A staging lane.
    Staging,
    /// The journal ring.
    Journal,
    /// Either header copy.
    Header,
}

/// On whose behalf an I/O is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// A caller waits for it.
    Foreground,
    /// Journaling, checkpointing, reclamation.
    Background,
    /// Recovery, mkfs, mount, unmount.
    Admin,
}

/// One buffer of a batched write.
pub struct WriteOp<'a> {
    /// Byte offset on the device.
    pub offset: u64,
    /// Bytes to write.
    pub data: &'a [u8],
}

/// One buffer of a batched read.
pub struct ReadOp<'a> {
    /// Byte offset on the device.
    pub offset: u64,
    /// Bytes to fill.
    pub buf: &'a mut [u8],
}

/// A block device, or a file used as one.
///
/// A write that returned is *volatile*: until a [`Device::flush`] that was called after it has
/// returned, a power cut may lose it, tear it at sectors, or keep it while losing earlier
/// writes. A flush covers every write that had returned before the flush was called. A write
/// with `fua` is durable itself when it returns, and says nothing of any other write.
/// All calls may be made from several threads at once. Offsets and lengths may have any
/// alignment; backends bounce what their medium does not take (slowly).
pub trait Device: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;
    /// Fills `buf` from `offset`. Short reads are errors.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Writes `data` at `offset`; `fua` makes this write durable before it returns.
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()>;
    /// Makes every write that had returned before this call durable.
    fn flush(&self) -> Result<()>;
    /// Several reads in flight; default is one after the other.
    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        ops.iter_mut().try_for_each(|op| self.read(op.offset, op.buf))
    }
    /// Several writes in flight, in no order; default is one after the other.
    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        ops.iter().try_for_each(|op| self.write(op.offset, op.data, false))
    }
}
