//! The blocks of the area that a grant names.

use siftfs_base::{BLOCK_BYTES, BlockRun, Error, Result};
use siftfs_device::Device;
use std::ops::Range;
use std::sync::Arc;

pub(super) struct Table {
    pub device: Arc<dyn Device>,
    /// Where the area lies on the device.
    pub area: Range<u64>,
    /// In the order of their blocks; none meets another.
    pub runs: Vec<BlockRun>,
    /// They may be written, too.
    pub write: bool,
}

impl Table {
    /// Where these bytes of the area lie on the device, if all of their blocks are granted.
    pub fn place(&self, offset: u64, len: u64) -> Result<u64> {
        let refuse = || Error::Refused(format!("{len} bytes at byte {offset} of the area"));
        let end = offset.checked_add(len).ok_or_else(refuse)?;
        let (mut block, last) = (offset / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let at = self.runs.partition_point(|run| run.end() <= block);
        let mut runs = self.runs.iter().skip(at);
        while block < last {
            let run = runs.next().filter(|run| run.start <= block).ok_or_else(refuse)?;
            block = run.end();
        }
        self.area.start.checked_add(offset).ok_or_else(refuse)
    }
}
