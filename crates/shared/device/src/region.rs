//! A counted, bounds-checked window of a device.

use std::sync::Arc;
use std::time::Duration;

use siftfs_base::Result;

use crate::{
    Counters, Device, DeviceInfo, Discards, Medium, Origin, ReadOp, RegionKind, WriteOp,
    check_bounds, io_error,
};

/// Largest record, in bytes, that is written ahead of bulk. Larger ones count as bulk.
pub const URGENT_MAX: usize = 64 << 10;

/// A window of a device. Offsets are relative to its start; an I/O that leaves it is refused
/// with `EINVAL` and neither done nor counted. Errors of the device name device offsets.
pub struct Region {
    device: Arc<dyn Device>,
    kind: RegionKind,
    offset: u64,
    len: u64,
    counters: Arc<Counters>,
}

impl Region {
    /// The `len` bytes at `offset` of `device`.
    ///
    /// # Errors
    /// `EINVAL` when they do not lie on the device.
    pub fn new(
        device: Arc<dyn Device>,
        kind: RegionKind,
        offset: u64,
        len: u64,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= device.size());
        if !inside {
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            return Err(io_error("region", offset, len, libc::EINVAL));
        }
        Ok(Self { device, kind, offset, len, counters })
    }

    /// What statistics count this region as.
    pub fn kind(&self) -> RegionKind {
        self.kind
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// No bytes at all?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Do both regions lie on one device, so that one flush serves both?
    pub fn shares_device(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.device, &other.device)
    }

    /// Runs what an fsync waits for; bulk writes to the device give way to it.
    fn urgent<T>(&self, origin: Origin, len: usize, work: impl FnOnce() -> T) -> T {
        let small = self.kind == RegionKind::Staging && len <= URGENT_MAX;
        if origin != Origin::Foreground || !small {
            return work();
        }
        self.device.urgent(true);
        let result = work();
        self.device.urgent(false);
        result
    }

    /// Has the device do something, which counts as waiting until it has answered.
    fn ask(&self, call: impl FnOnce(&dyn Device) -> Result<()>) -> Result<()> {
        let _waiting = self.counters.waits().begin();
        call(&*self.device)
    }

    fn noted(&self, origin: Origin, result: Result<()>) -> Result<()> {
        if result.is_err() {
            self.counters.error(self.kind, origin);
        }
        result
    }

    /// Does a write that may need a new block below, and waits until there is room for it. Lanes
    /// were written once when they were made, and a caller waits for theirs; recovery, mount and
    /// unmount say at once what is wrong.
    fn with_room(&self, origin: Origin, write: impl FnMut() -> Result<()>) -> Result<()> {
        let mut write = write;
        if origin == Origin::Admin || self.kind == RegionKind::Staging {
            return self.noted(origin, write());
        }
        self.counters.room().wait_for(|| self.noted(origin, write()))
    }

    /// Fills `buf` from `offset`.
    pub fn read(&self, origin: Origin, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_bounds("read", self.len, offset, buf.len())?;
        self.counters.read(self.kind, origin, 1, buf.len() as u64);
        self.noted(origin, self.ask(|device| device.read(self.offset + offset, buf)))
    }

    /// Writes `data` at `offset`; volatile until a later [`Region::flush`].
    pub fn write(&self, origin: Origin, offset: u64, data: &[u8]) -> Result<()> {
        check_bounds("write", self.len, offset, data.len())?;
        self.counters.write(self.kind, origin, 1, data.len() as u64);
        let write = || self.ask(|device| device.write(self.offset + offset, data, false));
        self.with_room(origin, || self.urgent(origin, data.len(), write))
    }

    /// Writes `data` at `offset`, durable when it returns; says nothing of other writes.
    pub fn write_fua(&self, origin: Origin, offset: u64, data: &[u8]) -> Result<()> {
        check_bounds("write", self.len, offset, data.len())?;
        self.counters.write(self.kind, origin, 1, data.len() as u64);
        self.counters.flush(self.kind, origin);
        let write = || self.ask(|device| device.write(self.offset + offset, data, true));
        self.noted(origin, self.urgent(origin, data.len(), write))
    }

    /// Makes every write that returned before this call durable: those to this region, and
    /// those to every other region of the same device.
    pub fn flush(&self, origin: Origin) -> Result<()> {
        self.counters.flush(self.kind, origin);
        self.noted(origin, self.urgent(origin, 0, || self.ask(|device| device.flush())))
    }

    /// As [`Region::flush`], for a caller that has written bulk: no other bulk gives way to it.
    pub fn flush_bulk(&self, origin: Origin) -> Result<()> {
        self.counters.flush(self.kind, origin);
        self.noted(origin, self.ask(|device| device.flush()))
    }

    /// Gives the space of `len` bytes at `offset` back: see [`Device::discard`].
    pub fn discard(&self, origin: Origin, offset: u64, len: u64) -> Result<()> {
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        check_bounds("discard", self.len, offset, bytes)?;
        self.counters.discard(self.kind, origin, len);
        self.noted(origin, self.ask(|device| device.discard(self.offset + offset, len)))
    }

    /// What can be given back of the region: see [`Device::discards`]. `None` also where the
    /// region does not begin at a multiple of what can be given back.
    pub fn discards(&self) -> Option<Discards> {
        self.device.discards().filter(|d| d.unit > 0 && self.offset.is_multiple_of(d.unit))
    }

    /// See [`Device::expect_urgent`].
    pub fn expect_urgent(&self, time: Duration) {
        self.device.expect_urgent(time);
    }

    /// See [`Device::medium`].
    pub fn medium(&self) -> Medium {
        self.device.medium()
    }

    /// See [`Device::describe`].
    pub fn describe(&self) -> DeviceInfo {
        self.device.describe()
    }

    /// See [`Device::give_way`].
    pub fn give_way(&self, pause: Duration) {
        self.device.give_way(pause);
    }

    /// Several reads in flight; `ops` keep region offsets.
    pub fn read_batch(&self, origin: Origin, ops: &mut [ReadOp<'_>]) -> Result<()> {
        let mut bytes = 0;
        for op in ops.iter() {
            check_bounds("read", self.len, op.offset, op.buf.len())?;
            bytes += op.buf.len() as u64;
        }
        self.counters.read(self.kind, origin, ops.len() as u64, bytes);
        let mut moved: Vec<ReadOp<'_>> = ops
            .iter_mut()
            .map(|op| ReadOp { offset: self.offset + op.offset, buf: &mut *op.buf })
            .collect();
        self.noted(origin, self.ask(|device| device.read_batch(&mut moved)))
    }

    /// Several writes in flight, in no order; volatile until a later [`Region::flush`].
    pub fn write_batch(&self, origin: Origin, ops: &[WriteOp<'_>]) -> Result<()> {
        let mut bytes = 0;
        for op in ops {
            check_bounds("write", self.len, op.offset, op.data.len())?;
            bytes += op.data.len() as u64;
        }
        self.counters.write(self.kind, origin, ops.len() as u64, bytes);
        let moved: Vec<WriteOp<'_>> = ops
            .iter()
            .map(|op| WriteOp { offset: self.offset + op.offset, data: op.data })
            .collect();
        self.with_room(origin, || self.ask(|device| device.write_batch(&moved)))
    }
}
