//! A program's connections to one target: one for each of its threads, up to [`LINES`], with the
//! queues of all its files on each of them.

use crate::calls::Calls;
use crate::place::TargetPlace;
use siftfs_base::{Error, Result};
use siftfs_transport::CallerEnd;
use siftfs_wire::{BlockProtocol, Carried, PROTOCOL_VERSION, StorageAnswer, StorageCall, Token};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections of one program to one target.
pub(super) const LINES: usize = 4;

/// Makes a connection to a target, on which nothing was said.
pub type Connects = Box<dyn Fn() -> Result<CallerEnd<BlockProtocol>> + Send + Sync>;

/// Connections to one target, made when they are needed.
pub struct Lines {
    connects: Connects,
    lines: [Mutex<Option<Arc<Line>>>; LINES],
}

/// One connection.
pub(super) struct Line {
    pub calls: Calls,
    queues: AtomicU32,
}

/// A queue on one connection.
#[derive(Clone)]
pub(super) struct Attached {
    pub line: Arc<Line>,
    pub queue: u32,
}

/// What came of an attach, with what was carried out of the last life.
pub(super) enum Begun {
    /// The queue is open.
    Attached(Attached, Carried),
    /// The grant has ended, and what was written is durable.
    Ended(Carried),
}

impl Lines {
    /// None yet.
    pub fn new(place: TargetPlace) -> Arc<Self> {
        Self::by(Box::new(move || place.connect()))
    }

    /// None yet; each is made so.
    pub fn by(connects: Connects) -> Arc<Self> {
        Arc::new(Self { connects, lines: Default::default() })
    }

    /// Opens a queue of this life for what the token stands for, on the calling thread's
    /// connection.
    ///
    /// # Errors
    /// No target is there, it does not admit this program, or nothing is granted so any more.
    /// `EAGAIN`: the life has ended.
    pub(super) fn attach(&self, at: usize, token: Token, life: u64) -> Result<Begun> {
        let first = self.attach_once(at, token, life);
        match first {
            // The target ends a connection on which nothing is granted, perhaps just now.
            Err(Error::Link(_)) => self.attach_once(at, token, life),
            first => first,
        }
    }

    fn attach_once(&self, at: usize, token: Token, life: u64) -> Result<Begun> {
        let line = self.line(at)?;
        let queue = line.queues.fetch_add(1, Ordering::Relaxed);
        let version = PROTOCOL_VERSION;
        let attach = StorageCall::Attach { version, token, queue, life };
        match line.calls.call(attach)? {
            StorageAnswer::Attached { carried } => {
                Ok(Begun::Attached(Attached { line, queue }, carried))
            }
            StorageAnswer::Ended { carried } => Ok(Begun::Ended(carried)),
            StorageAnswer::Failed { error } => Err(error),
            _ => Err(Error::Link("the target answered what was not asked".into())),
        }
    }

    /// The connection at this index. It is made if nothing is there, or a broken one.
    fn line(&self, at: usize) -> Result<Arc<Line>> {
        let place = self.lines.get(at % LINES).ok_or_else(|| Error::Refused("no place".into()))?;
        let mut line = lock(place);
        if let Some(line) = line.as_ref().filter(|line| !line.calls.is_broken()) {
            return Ok(line.clone());
        }
        let calls = Calls::new((self.connects)()?);
        let made = Arc::new(Line { calls, queues: AtomicU32::new(0) });
        *line = Some(made.clone());
        Ok(made)
    }
}

/// Which of a program's connections the calling thread uses.
pub(super) fn of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.with(|own| match own.get() {
        Some(at) => at,
        None => {
            let at = NEXT.fetch_add(1, Ordering::Relaxed) % LINES;
            own.set(Some(at));
            at
        }
    })
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
