//! Answers that are given in time: what was asked for, or ETIMEDOUT from a thread of its own.

use siftfs_base::{Result, errno};
use siftfs_proto::{Completion, Reply};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests that are under way at most, those among them that were answered for them.
const MOST: usize = 1024;

/// The requests of a mount that have to be answered in time. The thread begins with the first and
/// ends with this.
#[derive(Default)]
pub(crate) struct Timers {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By when each answer is due, the next first.
    due: BTreeMap<(Instant, u64), Completion>,
    /// Requests so far: it tells those apart that are due at once.
    count: u64,
    under_way: usize,
    running: bool,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers what is due, until the mount ends.
    fn run(&self) {
        let mut state = self.lock();
        while !state.ended {
            let now = Instant::now();
            state = match state.due.first_entry() {
                Some(first) if first.key().0 <= now => {
                    let late = first.remove();
                    drop(state);
                    late(Err(errno(libc::ETIMEDOUT)));
                    self.lock()
                }
                Some(first) => {
                    let left = first.key().0.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The request with this key has its answer, if it was not answered before.
    fn answered(&self, key: (Instant, u64), reply: Result<Reply>) {
        let answer = {
            let mut state = self.lock();
            state.under_way -= 1;
            state.due.remove(&key)
        };
        if let Some(answer) = answer {
            answer(reply);
        }
    }
}

impl Timers {
    /// Gives `answer` what the result is called with, or ETIMEDOUT after `timeout`, if that comes
    /// first. The result must be called in the end. `None` if too many requests are under way:
    /// `answer` has been told then.
    pub(crate) fn limit(&self, timeout: Duration, answer: Completion) -> Option<Completion> {
        // Longer than the machine runs.
        let Some(end) = Instant::now().checked_add(timeout) else { return Some(answer) };
        let mut state = self.shared.lock();
        if state.under_way == MOST || !self.runs(&mut state) {
            drop(state);
            answer(Err(errno(libc::EAGAIN)));
            return None;
        }
        state.under_way += 1;
        state.count += 1;
        let key = (end, state.count);
        state.due.insert(key, answer);
        let is_next = state.due.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(state);
        if is_next {
            self.shared.changed.notify_one();
        }
        let shared = self.shared.clone();
        Some(Box::new(move |reply| shared.answered(key, reply)))
    }

    /// Starts the thread if it does not run; does it?
    fn runs(&self, state: &mut State) -> bool {
        if !state.running {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("siftfs-timer".into());
            match thread.spawn(move || shared.run()) {
                Ok(_) => state.running = true,
                Err(error) => tracing::error!(%error, "no thread for waits with a timeout"),
            }
        }
        state.running
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
#[path = "timers_tests.rs"]
mod tests;
