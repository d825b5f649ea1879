//! What callers want durable soon and do not wait for: they ask again.

use crate::locks::relock;
use siftfs_base::Lsn;
use std::sync::Mutex;
use std::time::Duration;

/// What the background is to make durable. Its lock is taken alone, and nothing is done under it.
#[derive(Default)]
pub struct Demand(Mutex<Option<Wanted>>);

struct Wanted {
    upto: Lsn,
    /// When it was first asked for, in monotonic nanoseconds.
    since: u64,
}

impl Demand {
    /// Everything up to `lsn` is wanted, of which what is up to `durable` is there. Returns for how
    /// long something has been wanted and not been taken.
    pub fn ask(&self, lsn: Lsn, durable: Lsn, now: u64) -> Duration {
        let mut wanted = relock(self.0.lock());
        let before = wanted.take().filter(|wanted| wanted.upto > durable);
        let since = before.as_ref().map_or(now, |wanted| wanted.since);
        let upto = before.map_or(lsn, |wanted| wanted.upto.max(lsn));
        *wanted = Some(Wanted { upto, since });
        Duration::from_nanos(now.saturating_sub(since))
    }

    /// Takes what is wanted: the caller sees to it.
    pub fn take(&self) -> Option<Lsn> {
        relock(self.0.lock()).take().map(|wanted| wanted.upto)
    }
}

#[cfg(test)]
#[path = "demand_tests.rs"]
mod tests;
