//! Threads that have the kernel drop what it has of a file, by calls on the own mount.

use crate::mount::mountinfo::MountEntry;
use crate::pages::own_mount::{Resetting, Take, start_apart, take_back};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads at most. Each waits for pages that a request of this mount has locked, and such a
/// request does not wait for one of them.
const MOST: usize = 32;

/// What is called when a job is done, or cannot be done.
pub(super) type Done = Arc<dyn Fn(u64, bool) + Send + Sync>;

/// What is to be done, and the number under which it is reported.
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) node: u64,
    pub(super) generation: u32,
    pub(super) take: Take,
}

/// The threads of one mount. Each ends when nothing is left to do.
#[derive(Clone)]
pub(super) struct Asker {
    entry: MountEntry,
    resetting: Arc<Resetting>,
    /// Is called with a job's number when it is done; false if the mount has no place for it.
    done: Done,
    work: Arc<Mutex<Work>>,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    threads: usize,
}

impl Asker {
    pub(super) fn new(entry: MountEntry, resetting: Arc<Resetting>, done: Done) -> Self {
        Self { entry, resetting, done, work: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread do `job`.
    pub(super) fn ask(&self, job: Job) {
        {
            let mut work = self.lock();
            work.jobs.push_back(job);
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
