//! A part of a device in memory as a device of its own: two parts stand for two devices whose
//! power fails together, with one order of operations over both.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use siftfs_base::Result;

use crate::{Device, DeviceInfo, Discards, Medium, WriteOp, check_bounds};

/// A device of which ranges can be flushed by themselves.
pub trait Divisible: Device {
    /// Makes every write that begins in the range, and had returned before this call, durable; of
    /// other writes it says nothing.
    fn flush_range(&self, range: Range<u64>) -> Result<()>;
    /// What lies at this byte, where a device has parts of either kind.
    fn medium_at(&self, offset: u64) -> Medium {
        let _ = offset;
        self.medium()
    }
}

/// A range of a [`Divisible`] device. Its flushes cover its own writes alone.
pub struct Part {
    whole: Arc<dyn Divisible>,
    range: Range<u64>,
}

impl Part {
    /// The bytes of `range`.
    ///
    /// # Panics
    /// If the range is not inside the device.
    pub fn new(whole: Arc<dyn Divisible>, range: Range<u64>) -> Self {
        assert!(range.start <= range.end && range.end <= whole.size(), "a part lies inside");
        Self { whole, range }
    }
}

impl Device for Part {
    fn size(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_bounds("read", self.size(), offset, buf.len())?;
        self.whole.read(self.range.start + offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        check_bounds("write", self.size(), offset, data.len())?;
        self.whole.write(self.range.start + offset, data, fua)
    }

    fn flush(&self) -> Result<()> {
        self.whole.flush_range(self.range.clone())
    }

    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        for op in ops {
            check_bounds("write", self.size(), op.offset, op.data.len())?;
        }
        let moved = |op: &WriteOp<'_>| self.range.start + op.offset;
        let ops: Vec<_> =
            ops.iter().map(|op| WriteOp { offset: moved(op), data: op.data }).collect();
        self.whole.write_batch(&ops)
    }

    fn discards(&self) -> Option<Discards> {
        self.whole.discards().filter(|d| self.range.start.is_multiple_of(d.unit))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        check_bounds("discard", self.size(), offset, bytes)?;
        self.whole.discard(self.range.start + offset, len)
    }

    fn urgent(&self, under_way: bool) {
        self.whole.urgent(under_way);
    }

    fn expect_urgent(&self, time: Duration) {
        self.whole.expect_urgent(time);
    }

    fn give_way(&self, pause: Duration) {
        self.whole.give_way(pause);
    }

    fn medium(&self) -> Medium {
        self.whole.medium_at(self.range.start)
    }

    fn describe(&self) -> DeviceInfo {
        self.whole.describe()
    }
}

#[cfg(test)]
#[path = "part_tests.rs"]
mod tests;
