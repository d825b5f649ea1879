//! A model of storage: every access takes a settable time, and any number of them at once takes no
//! longer, as with an NVMe device that is not saturated. What is written lies in memory.

use crate::wait;
use siftfs_base::Result;
use siftfs_device::{
    Device, DeviceInfo, Discards, Io, IoDone, IoKind, IoQueue, Medium, ReadOp, WriteOp,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A device whose every read, write and flush takes at least `time`, from its begin on. A batch
/// takes as long as one access.
pub struct Modelled<D> {
    inner: D,
    time: Duration,
}

impl<D: Device> Modelled<D> {
    /// All I/O goes to `inner`.
    pub fn new(inner: D, time: Duration) -> Self {
        Self { inner, time }
    }

    fn timed<T>(&self, io: impl FnOnce(&D) -> Result<T>) -> Result<T> {
        let due = Instant::now() + self.time;
        let done = io(&self.inner);
        wait::until(due);
        done
    }
}

impl<D: Device> Device for Modelled<D> {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.timed(|device| device.read(offset, buf))
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.timed(|device| device.write(offset, data, fua))
    }
    fn begin(self: Arc<Self>, io: Io, queue: &mut IoQueue) -> std::result::Result<(), Io> {
        let due = Instant::now() + self.time;
        let Io { id, kind, offset, mut buf } = io;
        let result = match kind {
            IoKind::Read => self.inner.read(offset, &mut buf),
            IoKind::Write { durable } => self.inner.write(offset, &buf, durable),
        };
        queue.tell_at(due, IoDone { id, buf, result });
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        self.timed(D::flush)
    }
    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        self.timed(|device| device.read_batch(ops))
    }
    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        self.timed(|device| device.write_batch(ops))
    }
    fn discards(&self) -> Option<Discards> {
        self.inner.discards()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
    fn medium(&self) -> Medium {
        self.inner.medium()
    }
    fn describe(&self) -> DeviceInfo {
        let why = format!("every access takes {:?}, by a model of a bench", self.time);
        DeviceInfo { why, ..self.inner.describe() }
    }
}

#[cfg(test)]
#[path = "storage_tests.rs"]
mod tests;
