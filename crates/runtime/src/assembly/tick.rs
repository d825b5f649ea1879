//! The background work of a thread of the host's: when something is due, and doing it.

use crate::locks::relock;
use crate::runtime::Runtime;
use crate::session::recall;
use crate::state::Log;
use crate::state::State;
use crate::state::log::running::Push;
use crate::state::room::CUT_RANGES;
use siftfs_base::{Error, Result, TxnSeq};
use siftfs_wire::Urgency;
use std::time::Duration;

/// Most rounds of eviction in one tick.
const ROUNDS: usize = 64;

impl Runtime {
    /// One round of background work that is due: what callers poll for is made durable, records of
    /// other tickets are written, aged state is journaled, and a checkpoint is asked for when
    /// staging or journal pass the low watermark.
    ///
    /// # Errors
    /// The latched failure.
    pub fn tick(&self) -> Result<()> {
        match self.round() {
            // There is no help now. The next round tries again.
            Err(Error::Posix(libc::ENOSPC | libc::ETIMEDOUT)) => self.check(),
            other => other,
        }
    }

    fn round(&self) -> Result<()> {
        recall::sweep(self);
        self.meet_demand()?;
        let (commit, reclaim) = {
            let mut st = self.lock();
            let reclaim = st.metadata.log.reclaim_due();
            if reclaim {
                st.metadata.log.ledger.questions.ask_background();
            }
            (st.commit_due(), reclaim)
        };
        if commit {
            self.commit(&Push::Aged)?;
        }
        if reclaim {
            self.ask(TxnSeq(u64::MAX), Urgency::Background, self.checkpoint_id())?;
        }
        self.discard_some()?;
        self.give_back_memory();
        Ok(())
    }

    /// Waits until there may be background work, at most `timeout`.
    pub fn wait_for_work(&self, timeout: Duration) {
        self.wake.wait(timeout);
    }

    /// Wakes the thread in [`Runtime::wait_for_work`].
    pub fn wake(&self) {
        self.wake.ring();
    }

    /// Brings the caches back within their bounds where no operation comes by any more, and gives
    /// freed memory back to the kernel. Part of the background work.
    pub(crate) fn give_back_memory(&self) {
        for _ in 0..ROUNDS {
            let mut st = self.lock();
            let before =
                (st.metadata.tree.inodes.len(), st.pages.len(), st.metadata.tree.meta.len());
            st.shrink_caches(self.seq.oldest_unwritten());
            if before
                == (st.metadata.tree.inodes.len(), st.pages.len(), st.metadata.tree.meta.len())
            {
                break;
            }
        }
        relock(self.trimmer.lock()).pace(self.clock.mono_ns());
    }
}

impl State {
    /// Is something old enough, or staged long enough, to be journaled?
    fn commit_due(&self) -> bool {
        let now = self.metadata.log.time.mono_ns();
        let old = |since: u64| {
            u128::from(now.saturating_sub(since)) >= self.metadata.log.config.commit_age.as_nanos()
        };
        let aged = self.metadata.log.running.unjournaled_since().is_some_and(old)
            // A file without a name does not age: every check would find it here again.
            || self.metadata.log.running.data.inodes().filter_map(|i| self.metadata.tree.inodes.get(&i)).any(|n| {
                n.inode.nlink > 0 && n.dirty_since.is_some_and(old)
            });
        aged || self.commit_early()
    }

    /// Enough is staged, dirty or changed that a commit should not wait for the timer. The bound of
    /// the transaction is of the worst case, in which no two changed inodes share a block and every
    /// new range splits an extent: on a volume with the smallest journal (2 MiB, transactions of
    /// 128 blocks) fifteen new files reach half of it, whatever the timer says.
    fn commit_early(&self) -> bool {
        // With the lanes full of what a checkpoint is about to free, there is nowhere to push to.
        let reclaiming = self.metadata.log.ledger.questions.is_open(Urgency::Background);
        let nowhere = reclaiming && self.metadata.log.staging.is_crowded();
        self.metadata.log.staging.is_cut_due()
            || self.metadata.log.running.overlay.ranges() >= CUT_RANGES
            || self.metadata.log.running.data.bytes() > self.dirty_limit() / 2 && !nowhere
            || self.metadata.is_beyond(2)
    }

    pub(crate) fn should_wake(&self) -> bool {
        self.commit_early() || self.metadata.log.reclaim_due()
    }
}

impl Log {
    /// Low watermark of staging or journal passed, something to reclaim, and no checkpoint asked
    /// for.
    pub(crate) fn reclaim_due(&self) -> bool {
        !self.ledger.questions.is_open(Urgency::Background)
            && self.ledger.has_journaled()
            && self.log_fill_percent() + self.config.low_watermark > 100
    }
}
