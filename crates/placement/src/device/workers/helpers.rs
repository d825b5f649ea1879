//! Threads for what cannot be begun without a wait.

use crate::device::calls::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Helpers at most.
pub(crate) const MOST: usize = 8;

/// What a helper does.
pub(super) type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    /// Helpers that do something, and the most that ever did at one time.
    busy: usize,
    most_busy: usize,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

/// A few threads, each started when it is needed. When it is dropped, what is asked is done first.
#[derive(Default)]
pub(super) struct Helpers {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Helpers {
    /// Has a job done; by the caller where there is no thread at all. True if the job waits for a
    /// helper that does another one.
    pub fn help(&self, job: Job) -> bool {
        let mut state = lock(&self.shared.state);
        let mut waits = state.jobs.len() >= state.idle;
        if waits && state.threads.len() < MOST {
            let shared = self.shared.clone();
            let helper = thread::Builder::new().name("siftfs-helper".into());
            match helper.spawn(move || shared.work()) {
                Ok(thread) => {
                    state.threads.push(thread);
                    waits = false;
                }
                Err(error) if state.threads.is_empty() => {
                    drop(state);
                    tracing::warn!(%error, "no thread for a request that waits for storage");
                    job();
                    return false;
                }
                Err(error) => tracing::debug!(%error, "fewer helpers than usual"),
            }
        }
        state.jobs.push_back(job);
        drop(state);
        self.shared.changed.notify_one();
        waits
    }

    /// The most helpers that were busy at one time.
    pub fn most_busy(&self) -> usize {
        lock(&self.shared.state).most_busy
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.closed = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.changed.notify_all();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a helper ended with a failed assertion");
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.busy += 1;
                state.most_busy = state.most_busy.max(state.busy);
                drop(state);
                job();
                state = lock(&self.state);
                state.busy -= 1;
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
#[path = "helpers_tests.rs"]
mod tests;
