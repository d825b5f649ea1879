//! One grant: what of the area it names, and what was done under it.
//!
//! A call enters the grant before its blocks are checked, and leaves it when it is counted as
//! carried out. The end of a grant waits for those inside, and lets nobody in meanwhile: so nothing
//! runs under a grant that has ended (rule R29).

use crate::device::calls;
use crate::device::programs::atomic::Redo;
use crate::device::programs::counts::Counts;
use crate::device::programs::entrance::{self, Entered, Entering, Entrance, Gate};
use crate::device::programs::fresh::{Fresh, Report};
use crate::device::programs::queue::Queue;
use crate::device::programs::request::Request;
use crate::device::programs::table::Table;
use siftfs_base::{BLOCK_BYTES, Error, Inside, Result, Turnstile};
use siftfs_device::{AlignedBuf, Device};
use siftfs_wire::{Carried, StorageAnswer, Token};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Blocks that one program may read, and perhaps write.
pub(crate) struct Grant {
    pub token: Token,
    /// The way to what it names.
    entrance: Entrance<Table, Request>,
    /// It lasts no more, or is about to end.
    over: AtomicBool,
    /// It has ended, and what was written is durable.
    flushed: AtomicBool,
    /// The target looks at it again and again, because a request waits.
    pub watched: AtomicBool,
    /// The newest life of its queue that was counted; 0 without one.
    pub life: AtomicU64,
    /// The order of its requests.
    pub queue: Queue<Request>,
    /// Blocks that the file has not written before.
    pub fresh: Fresh,
    /// Writes of whole blocks enter it, and one that keeps a part of a block is alone: what it
    /// keeps must not be older than a write beside it.
    patching: OnceLock<Arc<Turnstile>>,
    /// Something was written since a host was told.
    pub written: AtomicBool,
    /// What was written, not durably, and what a flush has covered.
    pub unflushed: Unflushed,
}

/// Counts of writes: all that a flush has to cover, and those that one has covered. A flush that
/// runs has covered nothing, so another one is made beside it.
#[derive(Default)]
pub(crate) struct Unflushed {
    written: AtomicU64,
    covered: AtomicU64,
}

impl Unflushed {
    /// A write has ended that is not durable.
    pub fn note(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// Has a flush something to cover?
    pub fn any(&self) -> bool {
        self.written.load(Ordering::Acquire) > self.covered.load(Ordering::Acquire)
    }

    /// Flushes, and counts what that has covered unless it fails.
    pub fn flush(&self, device: &dyn Device) -> Result<()> {
        let written = self.written.load(Ordering::Acquire);
        device.flush()?;
        self.covered.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }
}

/// Is inside a grant.
pub(crate) type Within = Entered<Grant>;

impl Gate for Grant {
    type Granted = Table;
    type Late = Request;

    fn entrance(&self) -> &Entrance<Table, Request> {
        &self.entrance
    }
}

/// What a grant was, at its end.
pub(crate) struct Ended {
    /// Requests that waited, and are over.
    pub waited: Vec<Request>,
    /// Whether anything was written; of fresh blocks, which were.
    pub settled: Result<(bool, Report)>,
}

impl Grant {
    /// Of these blocks, with nothing done under it.
    pub fn new(token: Token, table: Table, fresh: Fresh) -> Self {
        let (over, flushed, watched, life) = Default::default();
        let (patching, written, unflushed) = Default::default();
        let (entrance, queue) = (Entrance::new(table), Queue::new());
        Self {
            token,
            entrance,
            over,
            flushed,
            watched,
            life,
            queue,
            fresh,
            patching,
            written,
            unflushed,
        }
    }

    /// Has nobody ended it?
    pub fn lasts(&self) -> bool {
        !self.over.load(Ordering::Acquire)
    }

    /// A request whose turn it is comes to what is granted, which does not end before it leaves.
    pub fn enter(self: &Arc<Self>, request: Request) -> Entering<Self> {
        entrance::enter(self, request)
    }

    /// What is granted, which does not end as long as this is held. An end that has begun is waited
    /// for; then there is nothing.
    pub fn inside(self: &Arc<Self>) -> Option<Within> {
        entrance::inside(self)
    }

    /// Drops the transactions of atomic writes that run. If it ends, its end does that.
    pub fn abort_all(self: &Arc<Self>) {
        let table = entrance::try_inside(self);
        table.iter().flat_map(|table| &table.redo).for_each(Redo::abort_all);
    }

    /// Its queue has this life; whether there was an older one.
    pub fn begins_life(&self, life: u64, counts: &Counts) -> bool {
        match self.life.fetch_max(life, Ordering::AcqRel) {
            0 => counts.opened(),
            before if before < life => {
                counts.further_life();
                return true;
            }
            _ => {}
        }
        false
    }

    /// A write has ended. What failed may have been written in part.
    pub fn wrote(&self, durable: bool, well: bool) {
        self.written.store(true, Ordering::Release);
        if !durable || !well {
            self.unflushed.note();
        }
    }

    /// Enters what keeps writes of parts of blocks alone, if that can be done at once.
    pub fn beside(&self) -> Option<Inside> {
        self.patching().try_enter()
    }

    /// What keeps a write of a part of a block alone. It is made when something is written.
    fn patching(&self) -> &Arc<Turnstile> {
        self.patching.get_or_init(Arc::default)
    }

    /// Reads at a byte of the device. Fresh blocks that were not written are zeros.
    pub fn read(&self, table: &Table, place: u64, len: u32) -> Result<StorageAnswer> {
        calls::read_by(len, |bytes| {
            // Before the blocks are read: a checkpoint must not come between.
            let committed = table.hold();
            self.fill(table, place, bytes)?;
            committed.iter().for_each(|held| held.patch(place - table.area.start, bytes));
            Ok(())
        })
    }

    /// Fills the buffer with the file's bytes that lie at a byte of the device.
    fn fill(&self, table: &Table, place: u64, bytes: &mut [u8]) -> Result<()> {
        let at = place - table.area.start;
        let end = at + bytes.len() as u64;
        let zeros = match self.fresh.blocks() {
            0 => Vec::new(),
            _ => table.unwritten(&(at..end))?,
        };
        if zeros.is_empty() {
            return table.device.read(place, bytes);
        }
        bytes.fill(0);
        let mut from = at;
        let starts = zeros.iter().map(|run| (run.start * BLOCK_BYTES, run.end * BLOCK_BYTES));
        for (start, next) in starts.chain([(end, end)]) {
            if from < start {
                let len = usize::try_from(start - from).map_err(|_| too_long())?;
                let mut part = AlignedBuf::zeroed(len);
                table.device.read(table.area.start + from, &mut part)?;
                let skip = usize::try_from(from - at).map_err(|_| too_long())?;
                bytes.iter_mut().skip(skip).zip(&*part).for_each(|(to, from)| *to = *from);
            }
            from = next;
        }
        Ok(())
    }

    /// These bytes of the device are written.
    ///
    /// # Errors
    /// The table could not be told: they read as before.
    fn note(&self, table: &Table, bytes: Range<u64>, durable: bool) -> Result<()> {
        if self.fresh.blocks() == 0 {
            return Ok(());
        }
        if !durable {
            // Before it counts as written: what is reported is flushed before.
            self.unflushed.note();
        }
        let of = |place: u64| place - table.area.start;
        let bytes = of(bytes.start)..of(bytes.end);
        table.set_written(&bytes)?;
        self.fresh.note_written(&bytes);
        Ok(())
    }

    /// Writes at a byte of the device, behind what is committed of its blocks. What a block keeps
    /// beside that is read first, and of a fresh block it is zeros.
    pub fn write(&self, table: &Table, place: u64, data: &[u8], durable: bool) -> Result<()> {
        let at = place - table.area.start;
        let write = || self.write_home(table, place, data, durable);
        table.write_beside(&(at..at + data.len() as u64), write)
    }

    fn write_home(&self, table: &Table, place: u64, data: &[u8], durable: bool) -> Result<()> {
        let whole = |at: u64| (at - table.area.start).is_multiple_of(BLOCK_BYTES);
        let end = place + data.len() as u64;
        if whole(place) && whole(end) {
            let _beside = self.patching().enter();
            table.device.write(place, data, durable)?;
            return self.note(table, place..end, durable);
        }
        let start = place - (place - table.area.start) % BLOCK_BYTES;
        let behind = table.area.start + (end - table.area.start).next_multiple_of(BLOCK_BYTES);
        let len = usize::try_from(behind - start).map_err(|_| too_long())?;
        let mut blocks = AlignedBuf::zeroed(len);
        let _alone = self.patching().alone();
        self.fill(table, start, &mut blocks)?;
        let skip = usize::try_from(place - start).unwrap_or(len);
        blocks.iter_mut().skip(skip).zip(data).for_each(|(to, from)| *to = *from);
        table.device.write(start, &blocks, durable)?;
        self.note(table, place..end, durable)
    }

    /// Makes durable what was answered, and says whether anything was written since it was said
    /// last; of fresh blocks, which were.
    pub fn settle(self: &Arc<Self>) -> Result<(bool, Report)> {
        match self.inside() {
            Some(table) => self.settle_on(Some(&*table.device)),
            None => Ok((false, Report::default())),
        }
    }

    /// What is reported was written before the flush. Without a device all of it was flushed.
    fn settle_on(&self, device: Option<&dyn Device>) -> Result<(bool, Report)> {
        let written = self.written.swap(false, Ordering::AcqRel);
        let report = self.fresh.unreported();
        // A flush of the program's own may be under way. It covers nothing before it has ended.
        let settled = match device {
            Some(device) if self.unflushed.any() || !report.is_empty() => {
                self.unflushed.flush(device)
            }
            _ => Ok(()),
        };
        settled.map(|()| {
            self.fresh.reported(&report);
            (written || !report.is_empty(), report)
        })
    }

    /// Ends it. Nothing runs under it when this returns. If what it was says that there is more to
    /// report, it is asked again, of a grant that has ended.
    pub fn end(&self) -> Ended {
        self.over.store(true, Ordering::Release);
        let ((mut waited, settled), late) = self.entrance.end(|table| {
            // What waits for the end may rely on what was written, so it waits for the flush, too.
            let waited = self.queue.close();
            let Some(table) = table else { return (waited, self.settle_on(None)) };
            let settled = table.drain().and_then(|()| self.settle_on(Some(&*table.device)));
            self.flushed.store(settled.is_ok(), Ordering::Release);
            (waited, settled)
        });
        for request in late {
            request.has_ended();
            waited.push(request);
        }
        Ended { waited, settled }
    }

    /// Is there nothing more that its end does?
    pub fn is_over(&self) -> bool {
        self.entrance.has_ended()
    }

    /// What was carried out of its last life, when it has ended, which is waited for.
    ///
    /// # Errors
    /// Refused: what was written may not be durable.
    pub fn has_ended(&self) -> Result<Carried> {
        self.entrance.wait_for_end();
        match self.flushed.load(Ordering::Acquire) {
            true => Ok(self.queue.told()),
            false => Err(Error::Refused("nothing is granted so".into())),
        }
    }
}

fn too_long() -> Error {
    Error::Refused("too long".into())
}
