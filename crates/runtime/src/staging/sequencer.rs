//! Group commit: which staged transactions are written and which are durable, which thread flushes,
//! and which runs the answers.
//!
//! Rule R3: a staged transaction is acknowledged only when it and every record with a lower LSN are
//! durable: by durable writes of their own, or by a flush that was issued once they were written.
//! All lanes share one order, so dependencies between lanes need nothing more.
//!
//! "Who flushes, and who answers" in `docs/design/persistence-path.md` has the reasons; `records`
//! is the watermark, `ways` chooses between a shared flush and durable writes in parallel.

#[path = "sequencer/alone.rs"]
mod alone;
#[path = "sequencer/duty.rs"]
mod duty;
#[path = "sequencer/flush.rs"]
mod flush;
#[path = "sequencer/gather.rs"]
mod gather;

use crate::locks::sync::{Condvar, Mutex, MutexGuard, ThreadId};
use crate::staging::records::{LaneSet, Records};
use crate::staging::ways::{Group, Way, Ways, WaysReport};
use crate::state::log::lane::RecordRef;
use siftfs_base::{Clock, Error, Lsn, Result, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Entry of [`State::waiting`] for a thread whose own caller is answered, and that waits for
/// others. Always durable.
const FOR_OTHERS: Lsn = Lsn(0);

/// An answer that its caller did not wait for.
type Answer = Box<dyn FnOnce(Result<Flushed>) + Send>;

/// The duty to flush for callers that have left, and to run their answers: which thread has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Duty {
    /// No thread needs to have it.
    #[default]
    None,
    /// A thread inside [`Sequencer::when_durable`] flushes for all, and answers.
    Held,
    /// A thread has the duty although its own caller is answered: the next thread that comes takes
    /// it over.
    Tired,
    /// The duty is free: the next thread inside `when_durable` that checks takes it. A thread that
    /// runs answers checks after them, if no other does.
    Open,
}

struct State {
    records: Records,
    ways: Ways,
    /// A thread is flushing.
    flushing: bool,
    /// The LSN that each waiting thread waits for. Some may be durable already: those threads have
    /// been notified and have not run yet.
    waiting: Vec<Lsn>,
    /// Those of `waiting` whose threads may take the duty.
    free: Vec<Lsn>,
    /// Callers that have left, with their threads: the LSN that each needs, and its answer.
    left: Vec<(Lsn, Answer)>,
    duty: Duty,
    /// Threads that run answers now.
    answering: Vec<ThreadId>,
    /// Answers that became due inside another one: the thread that runs that one runs them next.
    nested: Vec<(Answer, Result<Flushed>)>,
    /// Threads in [`Sequencer::wait_alone`].
    alone: usize,
    /// Bound of a flush's wait for company; zero switches that off.
    wait: Duration,
    /// While a flush gathers: the number of callers in need that its thread waits for. Then it is
    /// to be notified.
    gathering: Option<usize>,
    /// Callers in need when the last flush ended, or the last durable write that moved the
    /// watermark: the callers that it served, and those that came meanwhile. With 1 the caller is
    /// alone; 2 or more may come back at about the same time.
    company: usize,
    /// How long a flush takes, smoothed, in nanoseconds.
    flush_ns: u64,
    /// The first failure; nothing is promised after it (rule R21).
    failed: Option<Error>,
    /// When it came.
    failed_at: Timestamp,
}

impl State {
    fn durable(&self) -> Lsn {
        self.records.durable()
    }

    /// What a caller that asks for `lsn` can be told now; `None` if it has to wait.
    fn outcome(&self, lsn: Lsn) -> Option<Result<Flushed>> {
        if self.durable() >= lsn {
            return Some(Ok(Flushed { upto: self.durable(), alone: None }));
        }
        self.failed.as_ref().map(|e| Err(latched(e)))
    }

    /// Callers that a flush would serve.
    fn in_need(&self) -> usize {
        let durable = self.durable();
        let left = self.left.iter().map(|(lsn, _)| lsn);
        self.waiting.iter().chain(left).filter(|lsn| **lsn > durable).count()
    }

    /// Are `want` callers in need, and is all written that is on its way?
    fn complete(&self, want: usize) -> bool {
        self.in_need() >= want && self.records.all_come()
    }

    /// Takes the answers of callers that left and can be answered now.
    fn take_due(&mut self) -> Vec<(Answer, Result<Flushed>)> {
        let mut due = Vec::new();
        let mut at = 0;
        while at < self.left.len() {
            match self.outcome(self.left[at].0) {
                Some(outcome) => due.push((self.left.remove(at).1, outcome)),
                None => at += 1,
            }
        }
        due
    }

    /// May the caller of `lsn` leave? Only if a thread that can run its answer will come by for
    /// sure: the one with the duty, or a caller whose own durable write is in flight below.
    fn may_leave(&self, lsn: Lsn) -> bool {
        let durable = self.durable();
        match self.duty {
            Duty::Held => true,
            Duty::Tired if self.free.iter().any(|waits| *waits > durable) => true,
            _ => self.records.settled_by_callers(lsn),
        }
    }

    /// Must a thread stay for the callers that left?
    fn keeps_somebody(&self) -> bool {
        self.left.iter().any(|(lsn, _)| !self.records.settled_by_callers(*lsn))
    }

    /// Does a flush that begins now serve this caller, or one that left?
    fn flush_serves(&self, own: Option<Lsn>) -> bool {
        let left = self.left.iter().map(|(lsn, _)| *lsn);
        !self.flushing && own.into_iter().chain(left).any(|lsn| self.records.flush_serves(lsn))
    }

    /// Counts what the watermark has passed.
    fn note_acknowledged(&mut self, now: impl Fn() -> u64) {
        while let Some((way, since)) = self.records.acknowledged() {
            self.ways.acknowledged(way, now().saturating_sub(since));
        }
    }
}

/// How a record must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Durable by its own write. Nothing else is in flight, or durable writes in parallel are the
    /// device's better way.
    Fua,
    /// A shared flush will follow.
    Plain,
}

/// The thread that writes a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A caller that waits for the record and holds no lock: its thread may run the answers of
    /// others.
    Caller,
    /// The background, under the assembly lock: its thread runs no answers.
    Background,
    /// None yet: the record is of a ticket, and waits in memory (`unwritten`). The thread that
    /// writes it in the end may hold the assembly lock: it runs no answers.
    Ticket,
}

/// A record that is published and not yet written: the thread that flushes waits for it. Its writer
/// hands it back to [`Sequencer::completed`] (or, with others, [`Sequencer::completed_together`]),
/// once.
///
/// ```compile_fail,E0382
/// # use siftfs_base::{LaneId, Lsn};
/// # use siftfs_runtime::{Lane, Sequencer, Writer};
/// # let (mut lane, seq) = (Lane::new(1 << 20, 0), Sequencer::for_tests());
/// # let place = lane.place(4096).unwrap();
/// # let record = lane.fix(place, LaneId(0), Lsn(1), 0, 64);
/// let published = seq.publish(&record, Writer::Caller);
/// seq.completed(published, Ok(())).unwrap();
/// seq.completed(published, Ok(())).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "everybody waits for a record that is published"]
pub struct Published {
    lsn: Lsn,
    mode: WriteMode,
    writer: Writer,
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

/// Proof that everything staged up to an LSN is durable (rule R3). Only a [`Sequencer`] gives it,
/// from its durable watermark:
///
/// ```compile_fail,E0451
/// use siftfs_base::Lsn;
/// let _ = siftfs_runtime::Flushed { upto: Lsn(9), alone: None };
/// ```
#[derive(Debug)]
pub struct Flushed {
    upto: Lsn,
    /// A record of the record area that is durable by itself, and all that it needs.
    alone: Option<Lsn>,
}

impl Flushed {
    /// Is everything durable that the record `lsn` needs, and itself?
    pub fn covers(&self, lsn: Lsn) -> bool {
        lsn <= self.upto || self.alone == Some(lsn)
    }
}

/// Group commit of staged transactions. What is published has a fixed place (*publish-after-fix*):
/// room that was found is not enough, and neither is a number.
///
/// ```
/// # use siftfs_base::{LaneId, Lsn};
/// # use siftfs_runtime::{Lane, Sequencer, Writer};
/// # let (mut lane, seq) = (Lane::new(1 << 20, 0), Sequencer::for_tests());
/// let place = lane.place(4096).unwrap();
/// let record = lane.fix(place, LaneId(0), Lsn(1), 0, 64);
/// let published = seq.publish(&record, Writer::Caller);
/// // ... the record is written ...
/// seq.completed(published, Ok(())).unwrap();
/// assert!(seq.wait_durable(Lsn(1), |_| Ok(())).unwrap().covers(Lsn(1)));
/// ```
///
/// ```compile_fail,E0308
/// # use siftfs_base::Lsn;
/// # use siftfs_runtime::{Lane, Sequencer, Writer};
/// # let (mut lane, seq) = (Lane::new(1 << 20, 0), Sequencer::for_tests());
/// let place = lane.place(4096).unwrap();
/// let _ = seq.publish(&place, Writer::Caller);
/// ```
pub struct Sequencer {
    state: Mutex<State>,
    changed: Condvar,
    /// Notifies the thread that gathers.
    gathered: Condvar,
    clock: Arc<dyn Clock>,
}

impl Sequencer {
    /// `wait` bounds how long a flush waits for company; zero switches that off. `start` is
    /// the newest LSN already durable.
    pub fn new(wait: Duration, start: Lsn, group: Group, clock: Arc<dyn Clock>) -> Self {
        let state = State {
            records: Records::new(start),
            ways: Ways::new(group),
            flushing: false,
            waiting: Vec::new(),
            free: Vec::new(),
            left: Vec::new(),
            duty: Duty::None,
            answering: Vec::new(),
            nested: Vec::new(),
            alone: 0,
            wait,
            gathering: None,
            company: 0,
            flush_ns: 0,
            failed: None,
            failed_at: Timestamp::default(),
        };
        let (changed, gathered) = (Condvar::new(), Condvar::new());
        Self { state: Mutex::new(state), changed, gathered, clock }
    }

    /// Sets the bound of the wait for company, for every flush to come.
    pub fn set_wait(&self, wait: Duration) {
        self.lock().wait = wait;
    }

    /// A sequencer for examples: nothing is published, no flush gathers, and the clock stands
    /// still.
    #[doc(hidden)]
    pub fn for_tests() -> Self {
        let clock = Arc::new(siftfs_base::ManualClock::new(0));
        Self::new(Duration::ZERO, Lsn(0), Group::Measured, clock)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Publishes a record; called in LSN order.
    pub fn publish(&self, record: &RecordRef, writer: Writer) -> Published {
        let lsn = record.lsn;
        let mut st = self.lock();
        let way = st.ways.way();
        let company = way == Way::Shared && !st.wait.is_zero() && st.company > 1;
        let parallel = way == Way::Parallel && writer == Writer::Caller;
        // A record of the background's or of a ticket below needs a flush, which serves this one as
        // well.
        let durable = st.records.idle() && !company || parallel && !st.records.behind_others();
        let durable = durable && writer != Writer::Ticket;
        let mode = if durable { WriteMode::Fua } else { WriteMode::Plain };
        st.records.publish(lsn, record.lane, mode, writer);
        if writer == Writer::Caller {
            st.records.note_caller(way, self.clock.mono_ns());
            let under_way = st.records.unacknowledged();
            st.ways.published(under_way);
        }
        Published { lsn, mode, writer }
    }

    /// The record's write returned; with FUA the record is durable by that alone. Runs the answers
    /// of the callers that left and are due by this.
    pub fn completed(&self, published: Published, result: Result<()>) -> Result<()> {
        let writer = published.writer;
        let mut st = self.lock();
        let (compact, written) = (st.records.is_compact(published.lsn), st.records.written());
        let advanced = self.end_write(&mut st, published, result);
        if advanced || !compact || st.waits_above(written) || st.gathering.is_some() {
            self.tell(&st, advanced);
        }
        let answer = st.failed.clone().map_or(Ok(()), |e| Err(latched(&e)));
        if writer == Writer::Caller && !st.left.is_empty() {
            let due = st.take_due();
            drop(self.answer(st, due));
        }
        answer
    }

    /// As [`Sequencer::completed`], for records of tickets that one write brought. Runs no answers,
    /// so it may be called under locks.
    pub fn completed_together(
        &self,
        records: impl IntoIterator<Item = Published>,
        result: &Result<()>,
    ) {
        let mut st = self.lock();
        let mut advanced = false;
        for published in records {
            advanced |= self.end_write(&mut st, published, result.clone());
        }
        self.tell(&st, advanced);
    }

    /// A write has ended; did the watermark move?
    fn end_write(&self, st: &mut State, published: Published, result: Result<()>) -> bool {
        if let Err(e) = result {
            self.latch(st, e);
            return false;
        }
        let before = st.durable();
        let compact = st.records.is_compact(published.lsn);
        st.records.written_ok(published.lsn, published.mode);
        let advanced = st.durable() > before;
        if advanced {
            // No flush serves the record area: what comes by there is no company.
            if !compact {
                st.company = 1 + st.in_need();
            }
            st.note_acknowledged(|| self.clock.mono_ns());
        }
        advanced
    }

    /// Queue depths: records that are not written, and callers waiting for durability.
    pub fn depths(&self) -> (usize, usize) {
        let st = self.lock();
        let waiting = st.waiting.iter().filter(|lsn| **lsn != FOR_OTHERS).count();
        (st.records.in_flight(), waiting + st.left.len())
    }

    /// What the choice between a shared flush and durable writes in parallel rests on.
    pub fn ways(&self) -> WaysReport {
        self.lock().ways.report()
    }

    /// Newest LSN known durable.
    pub fn durable(&self) -> Lsn {
        self.lock().durable()
    }

    /// The proof that everything up to `lsn` is durable; `None` if it is not yet.
    ///
    /// # Errors
    /// It never will be.
    pub fn proof(&self, lsn: Lsn) -> Result<Option<Flushed>> {
        self.lock().outcome(lsn).transpose()
    }

    /// Newest LSN published.
    pub fn published(&self) -> Lsn {
        self.lock().records.last()
    }

    /// Everything below is written, and can be read from its lane.
    pub fn oldest_unwritten(&self) -> Lsn {
        Lsn(self.lock().records.written().0 + 1)
    }

    /// Latches a failure from elsewhere (the Service, the journal). Callers that left are answered
    /// by the thread that has the duty, or by the writer whose durable write they wait for.
    pub fn fail(&self, error: &Error) {
        let mut st = self.lock();
        self.latch(&mut st, error.clone());
        drop(st);
        self.changed.notify_all();
        self.gathered.notify_all();
    }

    /// Notes the first failure, and when it came.
    fn latch(&self, st: &mut State, error: Error) {
        if st.failed.is_none() {
            (st.failed, st.failed_at) = (Some(error), self.clock.now());
        }
    }

    /// The first failure, as callers are told of it, and when it came.
    pub fn failure(&self) -> Option<(Error, Timestamp)> {
        let st = self.lock();
        st.failed.as_ref().map(|error| (latched(error), st.failed_at))
    }

    /// The latched failure, if any.
    pub fn check(&self) -> Result<()> {
        self.lock().failed.as_ref().map_or(Ok(()), |e| Err(latched(e)))
    }

    /// Returns when everything up to `lsn` is durable. If a flush serves this caller and no thread
    /// is flushing, the calling thread flushes for all: `flush` makes durable what was written
    /// before in the lanes that it is given. Runs no answer of another caller, so it may be called
    /// under locks.
    ///
    /// Records of tickets up to `lsn` must have been written, or taken by a thread that writes
    /// them, before: no thread comes by that would do so for this one.
    pub fn wait_durable(
        &self,
        lsn: Lsn,
        flush: impl FnMut(LaneSet) -> Result<()>,
    ) -> Result<Flushed> {
        self.wait(lsn, None, flush).map(|proof| proof.expect("it is waited for without end"))
    }

    /// As [`Sequencer::wait_durable`], for `most` at most: then `None`. A flush by this thread that
    /// has begun is waited for.
    pub fn wait_durable_for(
        &self,
        lsn: Lsn,
        most: Duration,
        flush: impl FnMut(LaneSet) -> Result<()>,
    ) -> Result<Option<Flushed>> {
        self.wait(lsn, Some(most), flush)
    }

    fn wait(
        &self,
        lsn: Lsn,
        most: Option<Duration>,
        mut flush: impl FnMut(LaneSet) -> Result<()>,
    ) -> Result<Option<Flushed>> {
        let mut st = self.lock();
        if st.durable() >= lsn {
            return Ok(Some(Flushed { upto: st.durable(), alone: None }));
        }
        let now = || Duration::from_nanos(self.clock.mono_ns());
        let deadline = most.map(|most| now().saturating_add(most));
        let mut over = false;
        st.waiting.push(lsn);
        self.tell_gatherer(&st);
        let result = loop {
            if let Some(outcome) = st.outcome(lsn) {
                break outcome.map(Some);
            }
            let left = deadline.map(|deadline| deadline.saturating_sub(now()));
            if over || left.is_some_and(|left| left.is_zero()) {
                break Ok(None);
            }
            // The thread with the duty may wait for something else, or be this very one.
            if !st.flushing && st.records.flush_serves(lsn) {
                st = self.flush_for_all(st, &mut flush);
            } else if let Some(left) = left {
                let waited = self.changed.wait_timeout(st, left);
                let (guard, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
                st = guard;
                // A clock that a test holds does not come to the deadline.
                over = timeout.timed_out();
            } else {
                st = self.wait_changed(st);
            }
        };
        forget(&mut st.waiting, lsn);
        result
    }

    /// Calls `answer` once everything up to `lsn` is durable, or can never be: once, on the thread
    /// that saw to it, with none of the Runtime's locks held. Records of tickets up to `lsn` must
    /// have been written, or taken by a thread that writes them, before.
    ///
    /// Returns at once if another thread will see to it. Otherwise this thread flushes, answers,
    /// and goes on for callers that left meanwhile, until none of them is left or the next thread
    /// that comes takes over. So the caller must hold no lock. `answer` may ask for more; it must
    /// not wait for another answer.
    pub fn when_durable(
        &self,
        lsn: Lsn,
        mut flush: impl FnMut(LaneSet) -> Result<()>,
        answer: impl FnOnce(Result<Flushed>) + Send + 'static,
    ) {
        let mut st = self.lock();
        if let Some(outcome) = st.outcome(lsn) {
            drop(self.answer_one(st, answer, outcome));
            return;
        }
        if st.may_leave(lsn) {
            st.left.push((lsn, Box::new(answer)));
            self.tell_gatherer(&st);
            return;
        }
        st.waiting.push(lsn);
        st.free.push(lsn);
        self.tell_gatherer(&st);
        if st.waiting.contains(&FOR_OTHERS) {
            self.changed.notify_all();
        }
        self.serve(st, lsn, &mut flush, answer);
    }

    fn wait_changed<'a>(&self, st: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(st).unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Takes one entry out.
fn forget(entries: &mut Vec<Lsn>, lsn: Lsn) {
    let at = entries.iter().position(|entry| *entry == lsn).expect("entered before");
    entries.swap_remove(at);
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
