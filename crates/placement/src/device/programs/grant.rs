//! One grant: what of the area it names, and what was done under it.
//!
//! A call's blocks are checked at its execution, under the lock of the grant's table, which is held
//! until the I/O has ended. The end of a grant takes that lock to write: so nothing runs under a
//! grant that has ended (rule R29).

use crate::device::programs::attached::Request;
use crate::device::programs::queue::Queue;
use crate::device::programs::table::Table;
use siftfs_base::{BLOCK_BYTES, Error, Result};
use siftfs_device::{AlignedBuf, Device};
use siftfs_wire::{Carried, Token};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Blocks that one program may read, and perhaps write.
pub(super) struct Grant {
    pub token: Token,
    /// Nothing, when the grant has ended.
    table: RwLock<Option<Table>>,
    /// It lasts no more, or is about to end.
    over: AtomicBool,
    /// It has ended, and what was written is durable.
    flushed: AtomicBool,
    /// The order of its requests.
    pub queue: Queue<Request>,
    /// Taken to read by writes of whole blocks, and to write by those that keep a part of one: what
    /// they keep must not be older than a write beside them.
    patching: RwLock<()>,
    /// Something was written since a host was told.
    pub written: AtomicBool,
    /// Something was written, not durably, since the last flush began.
    pub unflushed: AtomicBool,
}

/// What a grant was, at its end.
pub(super) struct Ended {
    /// Requests that waited, and are over.
    pub waited: Vec<Request>,
    /// Whether anything was written.
    pub settled: Result<bool>,
}

impl Grant {
    /// Of these blocks, with nothing done under it.
    pub fn new(token: Token, table: Table) -> Self {
        let (over, flushed, patching, written, unflushed) = Default::default();
        let (table, queue) = (RwLock::new(Some(table)), Queue::new());
        Self { token, table, over, flushed, queue, patching, written, unflushed }
    }

    /// Has nobody ended it?
    pub fn lasts(&self) -> bool {
        !self.over.load(Ordering::Acquire)
    }

    /// What is granted, which does not end as long as this is held.
    pub fn table(&self) -> RwLockReadGuard<'_, Option<Table>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes at a byte of the device; what a block keeps beside that is read first.
    pub fn write(&self, table: &Table, place: u64, data: &[u8], durable: bool) -> Result<()> {
        let whole = |at: u64| (at - table.area.start).is_multiple_of(BLOCK_BYTES);
        let end = place + data.len() as u64;
        if whole(place) && whole(end) {
            let _beside = self.patching.read().unwrap_or_else(PoisonError::into_inner);
            return table.device.write(place, data, durable);
        }
        let start = place - (place - table.area.start) % BLOCK_BYTES;
        let behind = table.area.start + (end - table.area.start).next_multiple_of(BLOCK_BYTES);
        let len = usize::try_from(behind - start).map_err(|_| Error::Refused("too long".into()))?;
        let mut blocks = AlignedBuf::zeroed(len);
        let _alone = self.patching.write().unwrap_or_else(PoisonError::into_inner);
        table.device.read(start, &mut blocks)?;
        let skip = usize::try_from(place - start).unwrap_or(len);
        blocks.iter_mut().skip(skip).zip(data).for_each(|(to, from)| *to = *from);
        table.device.write(start, &blocks, durable)
    }

    /// Makes durable what was answered, and says whether anything was written since it was said
    /// last.
    pub fn settle(&self) -> Result<bool> {
        let table = self.table();
        match &*table {
            Some(table) => self.settle_on(&*table.device),
            None => Ok(false),
        }
    }

    fn settle_on(&self, device: &dyn Device) -> Result<bool> {
        let written = self.written.swap(false, Ordering::AcqRel);
        let settled = match self.unflushed.swap(false, Ordering::AcqRel) {
            true => device.flush(),
            false => Ok(()),
        };
        if settled.is_err() {
            self.unflushed.store(true, Ordering::Release);
        }
        settled.map(|()| written)
    }

    /// Ends it. Nothing runs under it when this returns.
    pub fn end(&self) -> Ended {
        self.over.store(true, Ordering::Release);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        // What waits for the end may rely on what was written, so it waits for the flush, too.
        let waited = self.queue.close();
        match table.take() {
            Some(ended) => {
                let settled = self.settle_on(&*ended.device);
                self.flushed.store(settled.is_ok(), Ordering::Release);
                Ended { waited, settled }
            }
            None => Ended { waited, settled: Ok(false) },
        }
    }

    /// What was carried out of its last life, when it has ended, which is waited for.
    ///
    /// # Errors
    /// Refused: what was written may not be durable.
    pub fn has_ended(&self) -> Result<Carried> {
        let _ended = self.table();
        match self.flushed.load(Ordering::Acquire) {
            true => Ok(self.queue.told()),
            false => Err(Error::Refused("nothing is granted so".into())),
        }
    }
}
