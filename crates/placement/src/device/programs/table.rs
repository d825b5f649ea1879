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
        let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        if !blocks.is_empty() && self.permissions.check(self.owner, blocks)? != Checked::Written {
            return Err(refuse());
        }
        self.area.start.checked_add(offset).ok_or_else(refuse)
    }
}
