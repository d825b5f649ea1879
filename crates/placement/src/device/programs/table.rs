//! The blocks of the area that a grant names.

use crate::device::permissions::{Checked, Owner, Permissions};
use crate::device::programs::atomic::Redo;
use crate::device::programs::fresh::Fresh;
use siftfs_base::{BLOCK_BYTES, Error, Result, SharedBlock};
use siftfs_device::Device;
use siftfs_service::Held;
use siftfs_wire::AtomicRun;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Table {
    pub device: Arc<dyn Device>,
    /// Where the area lies on the device.
    pub area: Range<u64>,
    /// Who has which block, of all grants.
    pub permissions: Arc<Permissions>,
    /// Who they are for.
    pub owner: Owner,
    /// They may be written, too.
    pub write: bool,
    /// Where atomic writes go first, if the volume has a redo lane.
    pub redo: Option<Redo>,
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

    /// As [`Table::place`], without a wait. `None`: something has to be read for that, or a block
    /// was not written where that is of account.
    pub fn place_at_once(&self, offset: u64, len: u64, written: bool) -> Result<Option<u64>> {
        let refuse = || Error::Refused(format!("{len} bytes at byte {offset} of the area"));
        let end = offset.checked_add(len).ok_or_else(refuse)?;
        let blocks = blocks_of(&(offset..end));
        if blocks.is_empty() {
            return Ok(None);
        }
        match self.permissions.check_at_once(self.owner, blocks)? {
            None => return Ok(None),
            Some(Checked::Refused) => return Err(refuse()),
            Some(Checked::Unwritten(_)) if written => return Ok(None),
            Some(_) => {}
        }
        self.area.start.checked_add(offset).map(Some).ok_or_else(refuse)
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

    /// Adds to a transaction, and perhaps commits it. Each of the ranges is checked as one of a
    /// plain write is, and the grant keeps its blocks until its end, for which this call is waited.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: there is no redo lane, or a block was granted as a fresh one: what is
    /// committed in it would be gone with a target that dies before the host has journaled that the
    /// block is written (rule R30).
    pub fn write_atomic(
        &self,
        named: (u64, bool),
        (runs, blocks): (&[AtomicRun], &[SharedBlock]),
        fresh: &Fresh,
    ) -> Result<()> {
        let redo = self.redo.as_ref().ok_or(Error::Posix(libc::EOPNOTSUPP))?;
        redo.write(named, (runs, blocks), |run| {
            self.place(run.offset, run.len.into())?;
            match fresh.meets(&(run.offset..run.offset + u64::from(run.len))) {
                false => Ok(()),
                true => Err(Error::Posix(libc::EOPNOTSUPP)),
            }
        })
    }

    /// What is committed, as it is while this is held; `None` without a redo lane.
    pub fn hold(&self) -> Option<Held<'_>> {
        self.redo.as_ref().map(Redo::hold)
    }

    /// Does a plain write of these bytes of the area, behind what is committed of their blocks
    /// (rule R33).
    pub fn write_beside(
        &self,
        bytes: &Range<u64>,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match &self.redo {
            Some(redo) => redo.write_beside(bytes, write),
            None => write(),
        }
    }

    /// Nothing more comes of the grant's transactions. No call of it is under way.
    pub fn drain(&self) -> Result<()> {
        self.redo.as_ref().map_or(Ok(()), Redo::drain)
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
