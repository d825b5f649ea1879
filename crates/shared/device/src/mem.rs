//! Memory as a device.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use siftfs_base::Result;

use crate::{Device, Divisible, Image, Io, IoDone, IoKind, IoQueue, WriteOp, check_bounds};

/// A device in memory that loses nothing while the process lives.
///
/// Sparse: bytes never written take no memory. It has no volatile cache, so `flush` has
/// nothing to do; crash tests use [`crate::FaultDevice`].
pub struct MemDevice {
    image: RwLock<Image>,
    size: u64,
}

impl MemDevice {
    /// `size` zero bytes.
    pub fn new(size: u64) -> Self {
        Self::from_image(Image::new(size))
    }

    /// A device that starts with the contents of `image`.
    pub fn from_image(image: Image) -> Self {
        Self { size: image.size(), image: RwLock::new(image) }
    }

    /// The present contents; cheap.
    pub fn snapshot(&self) -> Image {
        self.shared().clone()
    }

    // A panic of another thread cannot leave an image half written in a way that matters: a
    // write in flight has no defined content anyway.
    fn shared(&self) -> RwLockReadGuard<'_, Image> {
        self.image.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, Image> {
        self.image.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for MemDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_bounds("read", self.size, offset, buf.len())?;
        self.shared().read(offset, buf);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], _fua: bool) -> Result<()> {
        check_bounds("write", self.size, offset, data.len())?;
        self.exclusive().write(offset, data);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// At once: it is a copy.
    fn begin(self: Arc<Self>, io: Io, queue: &mut IoQueue) -> std::result::Result<(), Io> {
        let Io { id, kind, offset, mut buf } = io;
        let result = match kind {
            IoKind::Read => self.read(offset, &mut buf),
            IoKind::Write { durable } => self.write(offset, &buf, durable),
        };
        queue.tell(IoDone { id, buf, result });
        Ok(())
    }

    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        for op in ops {
            check_bounds("write", self.size, op.offset, op.data.len())?;
        }
        let mut image = self.exclusive();
        ops.iter().for_each(|op| image.write(op.offset, op.data));
        Ok(())
    }
}

impl Divisible for MemDevice {
    fn flush_range(&self, _range: Range<u64>) -> Result<()> {
        Ok(())
    }
}
