//! A program's connection: its calls, each under its grant.

use crate::device::calls::{Answers, Carried};
use crate::device::programs::grant::Grant;
use crate::device::programs::table::Table;
use siftfs_base::{Error, Result};
use siftfs_wire::{StorageAnswer, StorageCall};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A program's connection.
pub(crate) struct Attached {
    pub(super) grant: Arc<Grant>,
    pub(super) connection: u64,
}

impl Answers for Attached {
    const WORKERS: usize = 4;

    fn is_over(&self) -> bool {
        let newest = self.grant.connections.load(Ordering::Acquire);
        newest != self.connection || self.grant.table().is_none()
    }

    fn carry_out(&self, call: StorageCall) -> Result<StorageAnswer> {
        match call {
            StorageCall::Read { device: 0, offset, len } => self.by_grant(|table| {
                let place = table.place(offset, len.into())?;
                self.grant.read(table, place, len)
            }),
            StorageCall::Write { device: 0, offset, len, durable, blocks } => {
                let carried = Carried::of(len, &blocks)?;
                let data = carried.data()?;
                self.by_grant(|table| {
                    let place = table.place(offset, len.into())?;
                    if !table.write {
                        let what = format!("a write at byte {offset} of the area");
                        return Err(Error::Refused(format!("{what}, which is only to be read")));
                    }
                    let written = self.grant.write(table, place, data, durable);
                    // What failed may have been written in part.
                    self.grant.written.store(true, Ordering::Release);
                    if !durable || written.is_err() {
                        self.grant.unflushed.store(true, Ordering::Release);
                    }
                    written.map(|()| StorageAnswer::Done)
                })
            }
            StorageCall::Flush { device: 0 } => self.by_grant(|table| {
                if !table.write {
                    return Err(Error::Refused("a flush by one who may only read".into()));
                }
                self.grant.unflushed.store(false, Ordering::Release);
                let flushed = table.device.flush();
                if flushed.is_err() {
                    self.grant.unflushed.store(true, Ordering::Release);
                }
                flushed.map(|()| StorageAnswer::Done)
            }),
            _ => Err(Error::Refused("a call that is no program's".into())),
        }
    }
}

impl Attached {
    /// What is done under the grant, as long as that lasts.
    fn by_grant(
        &self,
        work: impl FnOnce(&Table) -> Result<StorageAnswer>,
    ) -> Result<StorageAnswer> {
        match &*self.grant.table() {
            Some(table) => work(table),
            // Its end may come before the program has heard of it: that is no offence.
            None => Err(Error::Posix(libc::ESTALE)),
        }
    }
}
