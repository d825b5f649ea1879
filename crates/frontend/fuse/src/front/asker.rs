//! Threads that have the kernel drop what it has of a file, by calls on the own mount.

use crate::mount::mountinfo::MountEntry;
use crate::pages::own_mount::{Resetting, Take, start_apart, take_back};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads at most. Each waits for pages that a request of this mount has locked, and such a
/// request does not wait for one of them.
const MOST: usize = 32;

/// How long a thread stays that has nothing to do.
const IDLE: Duration = Duration::from_secs(2);

/// What is called when a job is done, or cannot be done.
pub(super) type Done = Arc<dyn Fn(u64, bool) + Send + Sync>;

/// What is to be done, and the number under which it is reported.
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) node: u64,
    pub(super) generation: u32,
    pub(super) take: Take,
}

/// The threads of one mount. Each ends when nothing has been left to do for a while.
#[derive(Clone)]
pub(super) struct Asker {
    entry: MountEntry,
    resetting: Arc<Resetting>,
    /// Is called with a job's number when it is done; false if the mount has no place for it.
    done: Done,
    work: Arc<Mutex<Work>>,
    there: Arc<Condvar>,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
}

impl Asker {
    pub(super) fn new(entry: MountEntry, resetting: Arc<Resetting>, done: Done) -> Self {
        Self { entry, resetting, done, work: Arc::default(), there: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread do `job`.
    pub(super) fn ask(&self, job: Job) {
        {
            let mut work = self.lock();
            work.jobs.push_back(job);
            if work.idle >= work.jobs.len() {
                self.there.notify_one();
                return;
            }
            if work.threads == MOST {
                return;
            }
            work.threads += 1;
        }
        let own = self.clone();
        if let Err(error) = start_apart("siftfs-ask", move |alone| own.run(alone.is_ok())) {
            tracing::error!(%error, "no thread: the kernel may show a file as it was");
            self.run(false);
        }
    }

    /// Does what there is to do. A thread that still has the process's descriptors may not call.
    fn run(&self, may_call: bool) {
        loop {
            let job = {
                let mut work = self.lock();
                if may_call && work.jobs.is_empty() {
                    work.idle += 1;
                    let none = |work: &mut Work| work.jobs.is_empty();
                    let waited = self.there.wait_timeout_while(work, IDLE, none);
                    work = waited.unwrap_or_else(PoisonError::into_inner).0;
                    work.idle -= 1;
                }
                match work.jobs.pop_front() {
                    Some(job) => job,
                    None => {
                        work.threads -= 1;
                        return;
                    }
                }
            };
            let Job { number, node, generation, take } = job;
            let taken = may_call.then(|| {
                take_back(&self.entry, (node, generation), take, &self.resetting).unwrap_or_else(
                    |error| {
                        tracing::debug!(%error, node, "the kernel could not be asked");
                        false
                    },
                )
            });
            (self.done)(number, taken.unwrap_or(false));
        }
    }
}
