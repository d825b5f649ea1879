//! Freed blocks go back to the storage: what the Service is asked for, and what its answers mean
//! (`docs/design/discard.md`). No caller of the file system waits for it but one that is out of
//! space, and the one that closes the volume.

use crate::assembly::freeze::once_open;
use crate::runtime::Runtime;
use crate::state::State;
use crate::state::Tree;
use crate::state::discards::{MOST_BLOCKS, inner};
use siftfs_base::{BLOCK_BYTES, BlockNr, BlockRun, Result, errno};
use siftfs_status::Trimmed;
use siftfs_wire::{CheckpointReport, DISCARD_MAX_RUNS, ToService, Urgency};
use std::time::Duration;

/// How long the one who closes a volume waits for what is still to be given back; the rest is left
/// to a trim.
const CLOSING: Duration = Duration::from_secs(10);

/// Blocks of a block group, the longest run that there can be.
const GROUP_BLOCKS: u64 = 8 * BLOCK_BYTES;

impl State {
    /// Blocks whose transaction is reclaimed may be allocated again, or wait for their discard.
    pub(crate) fn reclaim_blocks(&mut self, run: BlockRun) {
        if !self.discards.take(run) {
            self.metadata.tree.fs.release_blocks(run);
        }
    }

    /// The Service has ended a discard: its blocks may be allocated again.
    ///
    /// # Errors
    /// Refused if that was not asked for.
    pub(crate) fn on_discarded(
        &mut self,
        id: u64,
        (blocks, failed): (u64, u64),
        unsupported: bool,
    ) -> Result<()> {
        let ended = self.discards.ended(id, blocks, failed, unsupported)?;
        self.metadata.tree.release(ended.free);
        if ended.refused {
            tracing::warn!("the storage cannot give space back: discard is off");
        }
        Ok(())
    }
}

impl Tree {
    fn release(&mut self, runs: Vec<BlockRun>) {
        runs.into_iter().for_each(|run| self.fs.release_blocks(run));
    }
}

impl Runtime {
    /// Journals and checkpoints everything, and begins to give back what that freed.
    pub(crate) fn checkpoint_all(&self) -> Result<CheckpointReport> {
        let _durable = self.sync_all()?;
        let report = self.checkpoint(Urgency::Emergency)?;
        self.discard_some()?;
        Ok(report)
    }

    /// Asks the Service to give back some of what was freed, if it is not at it. Part of the
    /// background work.
    pub fn discard_some(&self) -> Result<()> {
        let now = self.clock.mono_ns();
        loop {
            let mut st = self.lock();
            st.discards.forget_shortage(now);
            let (request, small) = st.discards.next();
            let more = !small.is_empty();
            st.metadata.tree.release(small);
            drop(st);
            match request {
                Some((id, runs)) => return self.link.send(ToService::Discard { id, runs }),
                None if more => {}
                None => return Ok(()),
            }
        }
    }

    /// Frees what waits for a discard at once, for a caller that is out of space, and waits for
    /// what the Service is at.
    pub(crate) fn end_discards(&self) -> Result<()> {
        let mut st = self.lock();
        let free = st.discards.run_short(self.clock.mono_ns());
        st.metadata.tree.release(free);
        let last = st.discards.last();
        drop(st);
        self.wait_for_help(|st| (!st.discards.is_open(last)).then_some(()))
    }

    /// Gives everything back that waits, as far as that is done soon. Nothing is under way
    /// afterwards.
    pub(crate) fn finish_discards(&self) -> Result<()> {
        let start = self.clock.mono_ns();
        while u128::from(self.clock.mono_ns().saturating_sub(start)) < CLOSING.as_nanos() {
            if self.lock().discards.is_idle() {
                return Ok(());
            }
            self.discard_some()?;
            let last = self.lock().discards.last();
            self.wait_for_help(|st| (!st.discards.is_open(last)).then_some(()))?;
        }
        self.end_discards()
    }
}

/// The free blocks of a trim's next request.
struct Found {
    /// The request's number and runs; `None` if nothing is to be asked for here.
    request: Option<(u64, Vec<BlockRun>)>,
    /// Where to go on.
    next: BlockNr,
}

impl State {
    /// Takes free blocks for a trim out of what may be allocated, from `at` on: at most half of
    /// what nobody has been promised, so that no promise is broken meanwhile. `None` if that is too
    /// little, or a caller is short of space.
    fn hold_for_trim(
        &mut self,
        (at, end): (BlockNr, BlockNr),
        least: u64,
    ) -> Result<Option<Found>> {
        if self.metadata.log.config.read_only {
            return Err(errno(libc::EROFS));
        }
        let Some(unit) = self.discards.unit() else { return Err(errno(libc::EOPNOTSUPP)) };
        let most = (self.metadata.spendable() / 2).min(MOST_BLOCKS);
        if self.discards.is_short() || most < least.max(unit) {
            return Ok(None);
        }
        let bounds = (most, DISCARD_MAX_RUNS);
        let (held, next) = self.metadata.tree.fs.hold_free(
            &mut self.metadata.tree.meta,
            at,
            least.max(unit),
            bounds,
        )?;
        let (mut whole, mut asked) = (Vec::new(), Vec::new());
        for run in held {
            let inside = BlockRun { len: run.end().min(end).saturating_sub(run.start), ..run };
            match inner(inside, unit).filter(|inner| inner.len >= least) {
                Some(inner) => {
                    asked.push(inner);
                    whole.push(run);
                }
                None => self.metadata.tree.fs.release_blocks(run),
            }
        }
        let request = (!asked.is_empty()).then(|| (self.discards.depart(whole, true), asked));
        Ok(Some(Found { request, next }))
    }
}

impl Runtime {
    /// Gives back what is free among the `len` bytes from `start` on, in runs of `least` bytes or
    /// more, group by group. No lock is held while the storage works, and what it works at may not
    /// be allocated meanwhile.
    ///
    /// # Errors
    /// EINVAL for a range or a least length that no volume of this size has; EOPNOTSUPP; EROFS.
    pub(crate) fn trim(&self, start: u64, len: u64, least: u64) -> Result<Trimmed> {
        let blocks = self.lock().metadata.tree.fs.layout.block_count();
        let (first, least) = (start.div_ceil(BLOCK_BYTES), least.div_ceil(BLOCK_BYTES));
        let end = (start.saturating_add(len) / BLOCK_BYTES).min(blocks);
        if len < BLOCK_BYTES || first >= blocks || least > GROUP_BLOCKS {
            return Err(errno(libc::EINVAL));
        }
        let (mut at, mut total) = (first, Trimmed::default());
        while at < end {
            self.seq.check()?;
            self.check_help()?;
            let found = once_open(self)?.hold_for_trim((at, end), least.max(1))?;
            let Some(Found { request, next }) = found else {
                total.incomplete = true;
                break;
            };
            at = next;
            let Some((id, runs)) = request else { continue };
            self.link.send(ToService::Discard { id, runs })?;
            let done = self.wait_until(|st| st.discards.take_trimmed(id))?;
            total.bytes += done.bytes;
            total.failed += done.failed;
            if done.incomplete {
                return Err(errno(libc::EOPNOTSUPP));
            }
        }
        Ok(total)
    }
}
