//! The windowed replay pipeline (SIFT §3.3.5, §4.3.4): a window is read in the order of sources
//! and written in the order of destinations, in steps of bounded size.

use crate::batch::Batch;
use crate::blocks::{Gather, Io, Plan};
use crate::piece::Origin;
use crate::window::Window;
use siftfs_base::{Clock, Result};

/// Pieces whose shared blocks are fetched together.
const SOME: usize = 512;

/// Replays batches. Its buffers are kept from one window to the next.
#[derive(Default)]
pub(crate) struct Replay {
    window: Window,
    out: Gather,
    plan: Plan,
    /// What the window was opened for, in bytes; a single record may be longer.
    limit: u64,
    /// Pieces of the window brought to the area; nothing yet while it is being read.
    written: Option<usize>,
    /// Bytes written since the last [`Replay::reclaiming`].
    volatile: u64,
}

impl Replay {
    /// Opens a window over the batch's next pieces; see [`Window::plan`].
    pub fn open(&mut self, batch: &mut Batch, limit: u64, short: u64) {
        assert!(self.written.is_none(), "one window at a time");
        self.window.plan(batch, limit, short);
        self.limit = limit;
    }

    /// Is a window open?
    pub fn is_open(&self) -> bool {
        self.window.is_open()
    }

    /// Closes a window that was opened for more than `limit` bytes, if nothing of it was written
    /// yet.
    pub fn give_up_above(&mut self, limit: u64) {
        if self.written.is_none() && self.limit > limit {
            self.window.close();
        }
    }

    /// Bytes brought to the area and not yet reclaimed.
    pub fn volatile(&self) -> u64 {
        self.volatile
    }

    /// Notes that the bytes counted by `volatile` are being reclaimed.
    pub fn reclaiming(&mut self) {
        self.volatile = 0;
    }

    /// Gives the window's memory back; no window is open.
    pub fn release(&mut self) {
        self.window.release();
    }

    /// Reads or writes about `limit` bytes of the open window. When it is done, the batch's
    /// cursor stands behind it, and its writes are volatile until the area is flushed.
    ///
    /// # Errors
    /// Corrupt if something staged does not verify; nothing of the window was written then.
    pub fn advance(
        &mut self,
        io: &mut Io<'_>,
        clock: &dyn Clock,
        batch: &mut Batch,
        limit: u64,
    ) -> Result<()> {
        let start = clock.mono_ns();
        if !self.window.is_loaded() {
            self.window.load(io, batch, limit)?;
            io.report.read_nanos += clock.mono_ns().saturating_sub(start);
            return Ok(());
        }
        let from = match self.written {
            Some(from) => from,
            None => {
                self.window.sort_by_destination();
                self.plan = Plan::new(self.window.work.iter().map(|w| &w.piece));
                self.count(io, batch);
                0
            }
        };
        let to = self.write(io, batch, from, limit)?;
        self.written = Some(to);
        if to == self.window.work.len() {
            self.finish(io, batch)?;
        }
        io.report.write_nanos += clock.mono_ns().saturating_sub(start);
        Ok(())
    }

    /// Writes pieces from `from` on, about `limit` bytes; where it ended.
    fn write(&mut self, io: &mut Io<'_>, batch: &Batch, from: usize, limit: u64) -> Result<usize> {
        let (mut to, mut bytes) = (from, 0);
        while to < self.window.work.len() && bytes < limit {
            let some = &self.window.work[to..];
            let some = &some[..some.len().min(SOME)];
            self.plan.read_bases(io, some.iter().map(|w| &w.piece))?;
            for w in some {
                let data = self.window.bytes_of(batch, w);
                self.plan.apply(io, &mut self.out, self.window.held(), &w.piece, data)?;
                bytes += u64::from(w.piece.len);
            }
            self.plan.spill(io, &mut self.out, self.window.held())?;
            to += some.len();
        }
        self.volatile += bytes;
        Ok(to)
    }

    fn finish(&mut self, io: &mut Io<'_>, batch: &mut Batch) -> Result<()> {
        assert!(self.plan.is_complete(), "a block still waits for bytes that no piece has");
        self.out.drain(io, self.window.held())?;
        batch.cursor += self.window.pieces();
        io.report.windows += u64::from(self.window.bytes() > 0);
        self.window.close();
        self.written = None;
        Ok(())
    }

    /// Replays all that is left of a batch.
    pub fn run(
        &mut self,
        io: &mut Io<'_>,
        clock: &dyn Clock,
        batch: &mut Batch,
        window: u64,
    ) -> Result<()> {
        while batch.cursor < batch.pieces.len() {
            if !self.is_open() {
                self.open(batch, window, window);
            }
            self.advance(io, clock, batch, window)?;
        }
        Ok(())
    }

    /// The window's share of the report.
    fn count(&self, io: &mut Io<'_>, batch: &Batch) {
        let r = &mut io.report;
        r.surviving_tags += self.window.work.len() as u64;
        r.surviving_blocks += self.plan.blocks();
        for w in &self.window.work {
            if let Origin::Image { slot, offset: 0 } = w.piece.source.origin() {
                r.surviving_images += 1;
                r.surviving_inodes += batch.images.inodes(slot);
            }
        }
    }
}
