//! The requests of a mount that wait for locks, by their numbers.

use crate::kernel::bounds::LOCK_WAITS;
use crate::serve::calls::Calls;
use siftfs_proto::{Completion, Reply};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Signals that are remembered for requests that do not wait yet. Such a request is on its way from
/// the thread that read it. Of signals for all other requests, only their number is kept here.
const EARLY: usize = 1024;

/// The requests of a mount that wait for locks.
pub(crate) struct LockWaits {
    /// Bounds them, and leaves places to each user.
    pub(crate) places: Arc<Calls>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Wait {
    interrupted: bool,
    /// Is told of its end, if that is to come in time.
    in_time: Option<Completion>,
}

#[derive(Default)]
struct Known {
    waits: HashMap<u64, Wait>,
    /// Interrupted requests that did not wait, the oldest first.
    early: VecDeque<u64>,
    /// The mount is gone.
    over: bool,
}

impl Default for LockWaits {
    fn default() -> Self {
        Self { places: Arc::new(Calls::of(LOCK_WAITS)), known: Mutex::default() }
    }
}

impl LockWaits {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins to wait. False if it must not: it has been interrupted.
    pub(crate) fn begin(&self, unique: u64) -> bool {
        let mut known = self.lock();
        if known.over || known.early.contains(&unique) {
            return false;
        }
        known.waits.insert(unique, Wait::default());
        true
    }

    /// A request is interrupted. True if its wait has begun.
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        let mut known = self.lock();
        if let Some(wait) = known.waits.get_mut(&unique) {
            wait.interrupted = true;
            return true;
        }
        if known.early.len() == EARLY {
            known.early.pop_front();
        }
        known.early.push_back(unique);
        false
    }

    /// Has the request been interrupted, and is it not answered yet?
    pub(crate) fn is_interrupted(&self, unique: u64) -> bool {
        self.lock().waits.get(&unique).is_some_and(|wait| wait.interrupted)
    }

    /// Is the request not answered yet?
    pub(crate) fn goes_on(&self, unique: u64) -> bool {
        self.lock().waits.contains_key(&unique)
    }

    /// `told` is called when the request is answered.
    pub(crate) fn end_in_time(&self, unique: u64, told: Completion) {
        let mut known = self.lock();
        if let Some(wait) = known.waits.get_mut(&unique) {
            wait.in_time = Some(told);
            return;
        }
        drop(known);
        told(Ok(Reply::Done));
    }

    /// The request is about to be answered.
    pub(crate) fn end(&self, unique: u64) {
        let ended = self.lock().waits.remove(&unique);
        if let Some(told) = ended.and_then(|wait| wait.in_time) {
            told(Ok(Reply::Done));
        }
    }

    /// From here on no wait begins. Returns those that have begun.
    pub(crate) fn over(&self) -> Vec<u64> {
        let mut known = self.lock();
        known.over = true;
        known.waits.values_mut().for_each(|wait| wait.interrupted = true);
        known.waits.keys().copied().collect()
    }
}
