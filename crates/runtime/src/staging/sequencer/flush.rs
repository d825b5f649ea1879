//! One flush for all that is written.

use super::{Sequencer, State};
use crate::locks::sync::MutexGuard;
use crate::staging::records::LaneSet;
use siftfs_base::Result;

impl Sequencer {
    /// Flushes once for all that is written, after a gathering.
    pub(super) fn flush_for_all<'a>(
        &'a self,
        mut st: MutexGuard<'a, State>,
        flush: &mut impl FnMut(LaneSet) -> Result<()>,
    ) -> MutexGuard<'a, State> {
        st.flushing = true;
        st = self.gather(st);
        let (number, lanes) = st.records.begin_flush();
        drop(st);
        let start = self.clock.mono_ns();
        let outcome = flush(lanes);
        let took = self.clock.mono_ns().saturating_sub(start);
        st = self.lock();
        st.flushing = false;
        st.flush_ns = if st.flush_ns == 0 { took } else { st.flush_ns / 4 * 3 + took / 4 };
        st.company = st.in_need();
        match outcome {
            Ok(()) => {
                st.records.flushed(number);
                st.note_acknowledged(|| self.clock.mono_ns());
            }
            Err(e) => {
                self.latch(&mut st, e);
            }
        }
        self.tell(&st, true);
        st
    }

    /// Wakes waiters. In the common case no thread waits, and no system call is made. While a flush
    /// gathers and the watermark has not `advanced`, only the gathering thread can do anything, and
    /// only it is notified.
    pub(super) fn tell(&self, st: &State, advanced: bool) {
        if st.gathering.is_some() {
            self.tell_gatherer(st);
            if st.failed.is_none() && !advanced && st.alone == 0 {
                return;
            }
        }
        if !st.waiting.is_empty() || st.alone > 0 {
            self.changed.notify_all();
        }
    }

    pub(super) fn tell_gatherer(&self, st: &State) {
        if st.gathering.is_some_and(|want| st.complete(want) || st.failed.is_some()) {
            self.gathered.notify_all();
        }
    }
}
