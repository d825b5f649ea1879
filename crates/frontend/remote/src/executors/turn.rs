//! A command's way through the queue, at the thread that carries it out.

use super::line::Ticket;
use super::queue::SessionNr;
use super::thread::processor_time;
use super::{Execution, Shared};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::park;
use std::time::{Duration, Instant};

/// A command that has come and has not started. Dropped, it never does.
pub(crate) struct Entry {
    shared: Arc<Shared>,
    session: SessionNr,
    ticket: Option<Ticket>,
    may: Arc<AtomicBool>,
}

impl Entry {
    pub(super) fn new(
        shared: Arc<Shared>,
        session: SessionNr,
        ticket: Option<Ticket>,
        may: Arc<AtomicBool>,
    ) -> Self {
        Self { shared, session, ticket, may }
    }

    /// Waits for an executor, and calls `before` if it has to; none if the session has ended
    /// meanwhile.
    pub fn begin(mut self, before: impl FnOnce()) -> Option<Arc<Turn>> {
        let ticket = self.ticket?;
        if !self.may.load(Ordering::Acquire) {
            before();
        }
        while !self.may.load(Ordering::Acquire) {
            if !self.shared.lock().callers.contains_key(&ticket) {
                return None;
            }
            park();
        }
        self.ticket = None;
        spin_for(self.shared.execution.doorbell_delay);
        let (began, charged) = (processor_time(), AtomicU64::new(0));
        let (shared, session) = (self.shared.clone(), self.session);
        Some(Arc::new(Turn { shared, session, ticket, began, charged, has: AtomicBool::new(true) }))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            end(&self.shared, self.session, ticket, Duration::ZERO);
        }
    }
}

/// A command that has an executor.
pub(crate) struct Turn {
    shared: Arc<Shared>,
    session: SessionNr,
    ticket: Ticket,
    /// Processor time of the thread when it began.
    began: Duration,
    /// What the session was charged, in nanoseconds.
    charged: AtomicU64,
    has: AtomicBool,
}

impl Turn {
    /// The command has its answer: another one gets the executor. To be called by the thread that
    /// carries the command out.
    pub fn release(&self) {
        if !self.has.swap(false, Ordering::AcqRel) {
            return;
        }
        slow_down(&self.shared.execution, self.began);
        end(&self.shared, self.session, self.ticket, self.uncharged());
    }

    /// The thread has nothing more to do for the command.
    pub fn finish(&self) {
        self.release();
        let rest = self.uncharged();
        self.shared.lock().queue.charge(self.session, rest);
    }

    /// What the thread has worked since it was last asked.
    fn uncharged(&self) -> Duration {
        let all = processor_time().saturating_sub(self.began);
        let nanos = u64::try_from(all.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos.saturating_sub(self.charged.swap(nanos, Ordering::AcqRel)))
    }
}

/// A command whose thread fails an assertion keeps no executor.
impl Drop for Turn {
    fn drop(&mut self) {
        self.release();
    }
}

fn end(shared: &Shared, session: SessionNr, ticket: Ticket, used: Duration) {
    let mut state = shared.lock();
    state.callers.remove(&ticket);
    state.queue.end(session, ticket, shared.now(), used);
    shared.start(&mut state);
}

/// Works on for as long as a slower processor would have taken longer.
fn slow_down(execution: &Execution, began: Duration) {
    if execution.cpu_factor > 1.0 {
        let until = began + processor_time().saturating_sub(began).mul_f64(execution.cpu_factor);
        while processor_time() < until {
            std::hint::spin_loop();
        }
    }
}

fn spin_for(time: Duration) {
    if !time.is_zero() {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }
}
