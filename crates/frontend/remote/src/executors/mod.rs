//! Executors: how many commands of all sessions are carried out at a time, and which is next
//! (`docs/design/command-queues.md`).

mod line;
mod lookout;
mod queue;
mod thread;
mod touches;
mod turn;

pub use queue::Schedule;
pub(crate) use turn::Entry;

use line::Ticket;
use queue::{Queue, SessionNr};
use siftfs_proto::Request;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thread::{Look, Thread};
use touches::{Touches, is_brief};

/// How a server carries commands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    /// Commands that are at work at a time, over all sessions.
    pub executors: usize,
    /// Which is next.
    pub schedule: Schedule,
    /// How many times as long as it takes a command keeps its executor: a slower processor.
    pub cpu_factor: f64,
    /// How long an executor waits before it begins a command: a bus.
    pub doorbell_delay: Duration,
}

impl Default for Execution {
    /// An executor per processor that this process may run on, two at least.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            executors: processors.max(2),
            schedule: Schedule::default(),
            cpu_factor: 1.0,
            doorbell_delay: Duration::ZERO,
        }
    }
}

/// A thread with a command, from its arrival until it has ended.
struct Caller {
    session: SessionNr,
    thread: Thread,
    handle: std::thread::Thread,
    may: Arc<AtomicBool>,
    /// What was seen of it at the last look.
    seen: Option<Look>,
    /// It was looked at before.
    looked: bool,
}

struct State {
    queue: Queue,
    callers: HashMap<Ticket, Caller>,
    /// The thread that looks has nothing to look at.
    rests: bool,
    over: bool,
}

/// What threads share.
struct Shared {
    execution: Execution,
    began: Instant,
    state: Mutex<State>,
    /// There is something to look at, or all is over.
    look: Condvar,
    waited: AtomicU64,
    lent: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Starts what may start.
    fn start(&self, state: &mut State) {
        while let Some(ticket) = state.queue.start(self.now()) {
            if let Some(caller) = state.callers.get(&ticket) {
                caller.may.store(true, Ordering::Release);
                caller.handle.unpark();
            }
        }
        if state.rests && state.queue.waits() {
            state.rests = false;
            self.look.notify_one();
        }
    }
}

/// The executors of a server.
pub(crate) struct Executors {
    shared: Arc<Shared>,
    looks: Option<JoinHandle<()>>,
}

impl Executors {
    pub fn new(mut execution: Execution) -> Self {
        let queue = |execution: &Execution| State {
            queue: Queue::new(execution.schedule, execution.executors.max(1)),
            callers: HashMap::new(),
            rests: false,
            over: false,
        };
        let state = Mutex::new(queue(&execution));
        let shared = |execution, state| {
            Arc::new(Shared {
                execution,
                began: Instant::now(),
                state,
                look: Condvar::new(),
                waited: AtomicU64::new(0),
                lent: AtomicU64::new(0),
            })
        };
        let ours = shared(execution.clone(), state);
        match lookout::begin(ours.clone()) {
            Ok(looks) => Self { shared: ours, looks: Some(looks) },
            Err(error) => {
                tracing::error!(%error, "no thread for the executors: commands do not queue");
                execution.executors = usize::MAX;
                let state = Mutex::new(queue(&execution));
                Self { shared: shared(execution, state), looks: None }
            }
        }
    }

    /// A session begins.
    pub fn open(&self) -> Commands {
        Commands { shared: self.shared.clone(), session: self.shared.lock().queue.open() }
    }

    /// Commands that waited for an executor, and those that lent theirs.
    pub fn counts(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.shared.waited), of(&self.shared.lent))
    }
}

impl Drop for Executors {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.look.notify_all();
        if let Some(looks) = self.looks.take() {
            let _ = looks.join();
        }
    }
}

/// The commands of a session.
pub(crate) struct Commands {
    shared: Arc<Shared>,
    session: SessionNr,
}

impl Commands {
    /// A command has come: its place in the order is fixed. The calling thread is to carry it out.
    pub fn arrive(&self, request: &Request) -> Entry {
        let may = Arc::new(AtomicBool::new(false));
        let (shared, session) = (self.shared.clone(), self.session);
        let mut state = shared.lock();
        let what = (Touches::of(request), is_brief(request));
        let ticket = state.queue.arrive(session, what, shared.now());
        if let Some(ticket) = ticket {
            let (thread, handle) = (Thread::own(), std::thread::current());
            let caller =
                Caller { session, thread, handle, may: may.clone(), seen: None, looked: false };
            state.callers.insert(ticket, caller);
            shared.start(&mut state);
        }
        let waits = ticket.is_some() && !may.load(Ordering::Acquire);
        drop(state);
        if waits {
            shared.waited.fetch_add(1, Ordering::Relaxed);
        }
        Entry::new(shared, session, ticket, may)
    }

    /// The session is over: what waits will not be carried out.
    pub fn end(&self) {
        let mut state = self.shared.lock();
        for ticket in state.queue.close(self.session) {
            if let Some(caller) = state.callers.remove(&ticket) {
                caller.handle.unpark();
            }
        }
        // Others may have an executor that was kept from them.
        self.shared.start(&mut state);
    }
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
