//! The wait of a flush for callers that are about to come.

use super::{Sequencer, State};
use crate::locks::sync::MutexGuard;
use crate::staging::ways::Way;
use std::time::Duration;

/// A gathering lasts this many flushes at most.
const WORTH: u64 = 2;

impl Sequencer {
    /// Bounded adaptive wait for as many callers as were in need when the last flush ended. It
    /// takes at most `wait`, and no longer than the flushes that it may save. It is in vain at most
    /// once after each time that callers met, because then the number is less.
    pub(super) fn gather<'a>(&'a self, mut st: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let want = st.company;
        if st.wait.is_zero() || want <= 1 || st.ways.way() == Way::Parallel {
            return st;
        }
        let bound = Duration::from_nanos(st.flush_ns.saturating_mul(WORTH)).min(st.wait);
        let now = || Duration::from_nanos(self.clock.mono_ns());
        let deadline = now() + bound;
        st.gathering = Some(want);
        while !st.complete(want) && st.failed.is_none() {
            let left = deadline.saturating_sub(now());
            let waited = self.gathered.wait_timeout(st, left);
            let (guard, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
            st = guard;
            // A clock that a test holds does not come to the deadline.
            if timeout.timed_out() {
                break;
            }
        }
        st.gathering = None;
        st
    }
}
