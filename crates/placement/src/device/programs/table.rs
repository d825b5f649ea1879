//! The blocks of the area that a grant names.

use crate::device::permissions::{Checked, Owner, Permissions};
use siftfs_base::{BLOCK_BYTES, Error, Result};
use siftfs_device::Device;
use std::ops::Range;
use std::sync::Arc;

pub(super) struct Table {
    pub device: Arc<dyn Device>,
    /// Where the area lies on the device.
    pub area: Range<u64>,
    /// Who has which block, of all grants.
    pub permissions: Arc<Permissions>,
    /// Who they are for.
    pub owner: Owner,
    /// They may be written, too.
    pub write: bool,
}

impl Table {
    /// Where these bytes of the area lie on the device, if all of their blocks are granted.
    pub fn place(&self, offset: u64, len: u64) -> Result<u64> {
        let refuse = || Error::Refused(format!("{len} bytes at byte {offset} of the area"));
        let end = offset.checked_add(len).ok_or_else(refuse)?;
        let blocks = blocks_of(&(offset..end));
        if !blocks.is_empty() && self.permissions.check(self.owner, blocks)? == Checked::Refused {
            return Err(refuse());
        }
        self.area.start.checked_add(offset).ok_or_else(refuse)
    }

    /// Those of the blocks of these bytes of the area that were not written, in order.
    pub fn unwritten(&self, bytes: &Range<u64>) -> Result<Vec<Range<u64>>> {
        let blocks = blocks_of(bytes);
        if blocks.is_empty() {
            return Ok(Vec::new());
        }
        match self.permissions.check(self.owner, blocks)? {
            Checked::Written => Ok(Vec::new()),
            Checked::Unwritten(blocks) => Ok(blocks),
            Checked::Refused => Err(Error::Refused(format!("blocks of bytes {bytes:?}"))),
        }
    }

    /// The blocks of these bytes of the area were written.
    pub fn set_written(&self, bytes: &Range<u64>) -> Result<()> {
        match self.unwritten(bytes)?.is_empty() {
            true => Ok(()),
            false => self.permissions.set_written(self.owner, blocks_of(bytes)),
        }
    }
}

fn blocks_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES)
}
