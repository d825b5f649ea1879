//! Threads for requests that would otherwise block the last free reader.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on threads that are started when needed and kept; at most `limit` of them. Jobs
/// queue beyond that (the kernel bounds them: each belongs to a thread that waits).
pub(crate) struct Pool {
    shared: Arc<Shared>,
    limit: usize,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.lock() {
            Ok(s) => s,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
                continue;
            }
            if state.stop {
                return;
            }
            state.idle += 1;
            state = match self.work.wait(state) {
                Ok(s) => s,
                Err(poisoned) => poisoned.into_inner(),
            };
            state.idle -= 1;
        }
    }
}

impl Pool {
    pub(crate) fn new(limit: usize) -> Self {
        assert!(limit > 0, "a pool without threads would keep its jobs for ever");
        let shared = Shared { state: Mutex::default(), work: Condvar::new() };
        Self { shared: Arc::new(shared), limit }
    }

    /// Queues a job. Falls back to the caller's thread when no thread can be started.
    pub(crate) fn run(&self, job: Job) {
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads >= self.limit {
            drop(state);
            self.shared.work.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = self.shared.clone();
        let started =
            std::thread::Builder::new().name("siftfs-wait".into()).spawn(move || shared.serve());
        if started.is_err() {
            let mut state = self.shared.lock();
            state.threads -= 1;
            let job = if state.threads == 0 { state.jobs.pop_back() } else { None };
            drop(state);
            if let Some(job) = job {
                job();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
