//! Group commit: which staged transactions are written, which are durable, and who flushes.
//!
//! Rule R3: a staged transaction is acknowledged only after a flush that was issued once its own
//! write and the write of every record with a lower LSN had completed. All lanes share one order,
//! so dependencies between lanes need nothing more.

use crate::lane::RecordRef;
use crate::sync::{Condvar, Mutex, MutexGuard};
use siftfs_base::{Error, Lsn, Result};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A gathering lasts so many flushes at most.
const WORTH: u64 = 2;

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
    /// Whoever flushes next waits for so many callers in need first; then it is to be told.
    gathering: Option<usize>,
    /// Callers in need when the last flush ended: those it served, and those who came meanwhile.
    /// One is alone, and two are who may come back at about the same time.
    company: usize,
    /// How long a flush takes, smoothed, in nanoseconds.
    flush_ns: u64,
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

    /// So many are here, and all that is published is written.
    fn complete(&self, want: usize) -> bool {
        self.in_need() >= want && self.written() == self.published
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

/// A record that is published and not yet written: whoever flushes waits for it. Its writer hands it
/// back to [`Sequencer::completed`], once.
///
/// ```compile_fail,E0382
/// # use siftfs_base::{LaneId, Lsn};
/// # use siftfs_runtime::{Lane, Sequencer};
/// # let (mut lane, seq) = (Lane::new(1 << 20, 0), Sequencer::new(Default::default(), Lsn(0)));
/// # let place = lane.place(4096).unwrap();
/// # let record = lane.fix(place, LaneId(0), Lsn(1), 0, 64);
/// let published = seq.publish(&record);
/// seq.completed(published, Ok(())).unwrap();
/// seq.completed(published, Ok(())).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "everybody waits for a record that is published"]
pub struct Published {
    lsn: Lsn,
    mode: WriteMode,
}

impl Published {
    /// The record's LSN.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// How it must be written.
    pub fn mode(&self) -> WriteMode {
        self.mode
    }
}

/// Proof that everything staged up to an LSN is durable (rule R3). Only a [`Sequencer`] gives it, from
/// its durable watermark:
///
/// ```compile_fail,E0451
/// use siftfs_base::Lsn;
/// let _ = siftfs_runtime::Flushed { upto: Lsn(9) };
/// ```
#[derive(Debug)]
pub struct Flushed {
    upto: Lsn,
}

impl Flushed {
    /// Is everything staged up to `lsn` durable?
    pub fn covers(&self, lsn: Lsn) -> bool {
        lsn <= self.upto
    }
}

/// See the module's text. What is published has a fixed place (*publish-after-fix*): room that was
/// found is not enough, and neither is a number.
///
/// ```
/// # use siftfs_base::{LaneId, Lsn};
/// # use siftfs_runtime::{Lane, Sequencer};
/// # let (mut lane, seq) = (Lane::new(1 << 20, 0), Sequencer::new(Default::default(), Lsn(0)));
/// let place = lane.place(4096).unwrap();
/// let record = lane.fix(place, LaneId(0), Lsn(1), 0, 64);
/// let published = seq.publish(&record);
/// // ... the record is written ...
/// seq.completed(published, Ok(())).unwrap();
/// assert!(seq.wait_durable(Lsn(1), || Ok(())).unwrap().covers(Lsn(1)));
/// ```
///
/// ```compile_fail,E0308
/// # use siftfs_base::Lsn;
/// # use siftfs_runtime::{Lane, Sequencer};
/// # let (mut lane, seq) = (Lane::new(1 << 20, 0), Sequencer::new(Default::default(), Lsn(0)));
/// let place = lane.place(4096).unwrap();
/// let _ = seq.publish(&place);
/// ```
pub struct Sequencer {
    state: Mutex<State>,
    changed: Condvar,
    /// For the one who gathers.
    gathered: Condvar,
    wait: Duration,
}

impl Sequencer {
    /// `wait` bounds how long a flush waits for company; zero switches that off. `start` is
    /// the newest LSN already durable.
    pub fn new(wait: Duration, start: Lsn) -> Self {
        let state = State { published: start, durable: start, ..State::default() };
        Self { state: Mutex::new(state), changed: Condvar::new(), gathered: Condvar::new(), wait }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Publishes a record; called in LSN order.
    pub fn publish(&self, record: &RecordRef) -> Published {
        let lsn = record.lsn;
        let mut st = self.lock();
        assert!(lsn > st.published, "records are published in LSN order");
        let company = !self.wait.is_zero() && st.company > 1;
        let alone = st.in_flight.is_empty() && st.durable == st.published && !st.flushing;
        st.published = lsn;
        st.in_flight.insert(lsn);
        let mode = if alone && !company { WriteMode::Fua } else { WriteMode::Plain };
        Published { lsn, mode }
    }

    /// The record's write returned; with FUA it is durable itself.
    pub fn completed(&self, published: Published, result: Result<()>) -> Result<()> {
        let Published { lsn, mode } = published;
        let mut st = self.lock();
        match result {
            Ok(()) => {
                assert!(st.in_flight.remove(&lsn), "a record completes once");
                if mode == WriteMode::Fua {
                    // All below was durable when it was published.
                    st.company = 1 + st.in_need();
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

    /// Everything below is written, and can be read from its lane.
    pub fn oldest_unwritten(&self) -> Lsn {
        Lsn(self.lock().written().0 + 1)
    }

    /// Latches a failure from elsewhere (the Service, the journal).
    pub fn fail(&self, error: &Error) {
        self.lock().failed.get_or_insert(error.clone());
        self.changed.notify_all();
        self.gathered.notify_all();
    }

    /// The latched failure, if any.
    pub fn check(&self) -> Result<()> {
        self.lock().failed.as_ref().map_or(Ok(()), |e| Err(latched(e)))
    }

    /// Returns when everything up to `lsn` is durable. The first caller who finds its records
    /// written and nobody flushing flushes for all.
    pub fn wait_durable(&self, lsn: Lsn, mut flush: impl FnMut() -> Result<()>) -> Result<Flushed> {
        let mut st = self.lock();
        if st.durable >= lsn {
            return Ok(Flushed { upto: st.durable });
        }
        st.waiting.push(lsn);
        self.tell_gatherer(&st);
        let result = loop {
            if st.durable >= lsn {
                break Ok(Flushed { upto: st.durable });
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
            drop(st);
            let start = Instant::now();
            let outcome = flush();
            let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            st = self.lock();
            st.flushing = false;
            st.flush_ns = if st.flush_ns == 0 { took } else { st.flush_ns / 4 * 3 + took / 4 };
            st.company = st.in_need();
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

    /// Wakes waiters; nobody waits in the common case, and then no system call is made. While
    /// somebody gathers, only that one can do anything.
    fn tell(&self, st: &State) {
        if st.gathering.is_some() {
            self.tell_gatherer(st);
            if st.failed.is_none() {
                return;
            }
        }
        if !st.waiting.is_empty() {
            self.changed.notify_all();
        }
    }

    fn tell_gatherer(&self, st: &State) {
        if st.gathering.is_some_and(|want| st.complete(want) || st.failed.is_some()) {
            self.gathered.notify_all();
        }
    }

    fn wait_changed<'a>(&self, st: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(st).unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Bounded adaptive wait: for as many callers as were in need when the last flush ended. At most
    /// `wait`, and not longer than the flushes that it may save; in vain at most once after each time
    /// that callers met, because then the number is less.
    fn gather<'a>(&'a self, mut st: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let want = st.company;
        if self.wait.is_zero() || want <= 1 {
            return st;
        }
        let bound = Duration::from_nanos(st.flush_ns.saturating_mul(WORTH)).min(self.wait);
        let deadline = Instant::now() + bound;
        st.gathering = Some(want);
        while !st.complete(want) && st.failed.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            st = match self.gathered.wait_timeout(st, left) {
                Ok((g, _)) => g,
                Err(p) => p.into_inner().0,
            };
        }
        st.gathering = None;
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
