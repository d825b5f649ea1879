//! Group commit: which staged transactions are written, which are durable, and who flushes.
//!
//! Rule R3: a staged transaction is acknowledged only after a flush that was issued once its own
//! write and the write of every record with a lower LSN had completed. All lanes share one order,
//! so dependencies between lanes need nothing more.

use crate::sync::{Condvar, Mutex, MutexGuard};
use siftfs_base::{Error, Lsn, Result};
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Default)]
struct State {
    /// Published, write not yet completed.
    in_flight: BTreeSet<Lsn>,
    /// Newest published.
    published: Lsn,
    /// Everything up to here is durable.
    durable: Lsn,
    /// Somebody is flushing.
    flushing: bool,
    /// What each caller inside `wait_durable` waits for. Some may be durable already: their callers
    /// have been told and have not run yet.
    waiting: Vec<Lsn>,
    /// Callers that shared each of the last flushes, newest first: `gather` hopes for the most.
    last_groups: [usize; 8],
    /// First failure; nothing is promised after it (rule R21).
    failed: Option<Error>,
}

impl State {
    /// Every record up to this LSN has been written.
    fn written(&self) -> Lsn {
        self.in_flight.first().map_or(self.published, |l| Lsn(l.0 - 1))
    }

    /// Callers that a flush would serve.
    fn in_need(&self) -> usize {
        self.waiting.iter().filter(|lsn| **lsn > self.durable).count()
    }
}

/// How a record must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Everything below is durable and nothing else is in flight: FUA makes it durable at once.
    Fua,
    /// A shared flush will follow.
    Plain,
}

/// See the module's text.
pub struct Sequencer {
    state: Mutex<State>,
    changed: Condvar,
    wait: Duration,
}

impl Sequencer {
    /// `wait` bounds how long a flush waits for company; zero switches that off. `start` is
    /// the newest LSN already durable.
    pub fn new(wait: Duration, start: Lsn) -> Self {
        let state = State { published: start, durable: start, ..State::default() };
        Self { state: Mutex::new(state), changed: Condvar::new(), wait }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A record's place is fixed; called in LSN order.
    pub fn publish(&self, lsn: Lsn) -> WriteMode {
        let mut st = self.lock();
        assert!(lsn > st.published, "records are published in LSN order");
        let company = !self.wait.is_zero() && st.last_groups.iter().any(|g| *g > 1);
        let alone = st.in_flight.is_empty() && st.durable == st.published && !st.flushing;
        st.published = lsn;
        st.in_flight.insert(lsn);
        if alone && !company { WriteMode::Fua } else { WriteMode::Plain }
    }

    /// The record's write returned; with FUA it is durable itself.
    pub fn completed(&self, lsn: Lsn, mode: WriteMode, result: Result<()>) -> Result<()> {
        let mut st = self.lock();
        match result {
            Ok(()) => {
                assert!(st.in_flight.remove(&lsn), "a record completes once");
                if mode == WriteMode::Fua {
                    // All below was durable when it was published.
                    st.durable = st.durable.max(lsn);
                }
            }
            Err(e) => {
                st.failed.get_or_insert(e);
            }
        }
        self.tell(&st);
        st.failed.clone().map_or(Ok(()), |e| Err(latched(&e)))
    }

    /// Queue depths: records being written, and callers waiting for durability.
    pub fn depths(&self) -> (usize, usize) {
        let st = self.lock();
        (st.in_flight.len(), st.waiting.len())
    }

    /// Newest LSN known durable.
    pub fn durable(&self) -> Lsn {
        self.lock().durable
    }

    /// Newest LSN published.
    pub fn published(&self) -> Lsn {
        self.lock().published
    }

    /// Latches a failure from elsewhere (the Service, the journal).
    pub fn fail(&self, error: &Error) {
        self.lock().failed.get_or_insert(error.clone());
        self.changed.notify_all();
    }

    /// The latched failure, if any.
    pub fn check(&self) -> Result<()> {
        self.lock().failed.as_ref().map_or(Ok(()), |e| Err(latched(e)))
    }

    /// Returns when everything up to `lsn` is durable. The first caller who finds its records
    /// written and nobody flushing flushes for all.
    pub fn wait_durable(&self, lsn: Lsn, mut flush: impl FnMut() -> Result<()>) -> Result<()> {
        let mut st = self.lock();
        if st.durable >= lsn {
            return Ok(());
        }
        st.waiting.push(lsn);
        if st.flushing {
            self.changed.notify_all();
        }
        let result = loop {
            if st.durable >= lsn {
                break Ok(());
            }
            if let Some(e) = &st.failed {
                break Err(latched(e));
            }
            if st.flushing || st.written() < lsn {
                st = self.wait_changed(st);
                continue;
            }
            st.flushing = true;
            st = self.gather(st);
            let target = st.written();
            let group = st.in_need();
            drop(st);
            let outcome = flush();
            st = self.lock();
            st.flushing = false;
            st.last_groups.rotate_right(1);
            st.last_groups[0] = group;
            match outcome {
                Ok(()) => st.durable = st.durable.max(target),
                Err(e) => {
                    st.failed.get_or_insert(e);
                }
            }
            self.tell(&st);
        };
        let at = st.waiting.iter().position(|l| *l == lsn).expect("entered above");
        st.waiting.swap_remove(at);
        result
    }

    /// Wakes waiters; nobody waits in the common case, and then no system call is made.
    fn tell(&self, st: &State) {
        if !st.waiting.is_empty() {
            self.changed.notify_all();
        }
    }

    fn wait_changed<'a>(&self, st: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(st).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Bounded adaptive wait: for as many callers as shared the last flush, at most `wait`.
    fn gather<'a>(&'a self, mut st: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let want = st.last_groups.iter().copied().max().unwrap_or(0);
        if self.wait.is_zero() || want <= 1 {
            return st;
        }
        let deadline = std::time::Instant::now() + self.wait;
        while st.in_need() < want || st.written() < st.published {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || st.failed.is_some() {
                break;
            }
            st = match self.changed.wait_timeout(st, left) {
                Ok((g, _)) => g,
                Err(p) => p.into_inner().0,
            };
        }
        st
    }
}

fn latched(e: &Error) -> Error {
    match e {
        Error::Latched(_) => e.clone(),
        other => Error::Latched(other.to_string()),
    }
}

#[cfg(test)]
#[path = "sequencer_tests.rs"]
mod tests;
