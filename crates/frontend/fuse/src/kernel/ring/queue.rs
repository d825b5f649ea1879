//! How many threads a queue has: one more than have a request, and then some.
//!
//! A thread whose request is carried out, but not answered yet (an fsync under way, an answer that
//! is held back until the kernel has dropped pages), is *parked*. What it waits for may need
//! requests of its own queue. So parked threads do not count towards the bound on the others.
//!
//! The kernel gives a request to an entry that waits, the one that was used last first. A request
//! that finds none waits until an entry of its queue commits, even if another registers meanwhile:
//! so threads are started while some still wait, and not when the last one is gone. They stay
//! until the mount ends, because an entry cannot be taken back without a moment in which it could
//! be given a request; idle ones cost a few pages.

use crate::kernel::bounds::{CALLS, HELD_BACK, LOCK_WAITS};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Threads of all queues together, as far as each may still have [`LEAST`].
const MOST: usize = 128;
/// Threads that each queue may have on a machine of any size.
const LEAST: usize = 8;
/// Sections that there are, each of which may be ending, and requests with a time limit: 1,024 of
/// each at most.
const OTHERS: usize = 2 * 1024;
/// Parked threads that do not count: one for each answer that may wait for requests of the
/// kernel, or for something that a user decides. Whatever else is parked ends by itself.
const PARKED: usize = HELD_BACK + CALLS + OTHERS + LOCK_WAITS;

/// The threads of one queue.
pub(super) struct Queue {
    /// The queue's number, which is that of its processor.
    pub(super) id: u16,
    /// This many threads shall wait for a request.
    spare: usize,
    /// This many threads the queue may have that are not parked.
    most: usize,
    /// Threads whose entry waits for a request, or is about to.
    idle: AtomicUsize,
    /// A request came: others may have found no entry since.
    used: AtomicBool,
    /// Threads that are parked.
    parked: AtomicUsize,
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    /// The queue's threads, those being started among them.
    all: usize,
    /// Threads whose entry is not registered yet.
    starting: usize,
}

impl Queue {
    /// Queue `id` of `queues`, without a thread.
    pub(super) fn new(id: u16, queues: usize, spare: usize) -> Self {
        let most = (MOST / queues.max(1)).max(LEAST);
        Self {
            id,
            spare: spare.clamp(1, most),
            most,
            idle: AtomicUsize::new(0),
            used: AtomicBool::new(false),
            parked: AtomicUsize::new(0),
            threads: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Threads there are.
    pub(super) fn threads(&self) -> usize {
        self.lock().all
    }

    /// Threads that have a request, those that are parked among them.
    pub(super) fn busy(&self) -> usize {
        let threads = self.lock();
        (threads.all - threads.starting).saturating_sub(self.idle.load(Ordering::SeqCst))
    }

    /// A thread is going to be started.
    pub(super) fn starts(&self) {
        let mut threads = self.lock();
        threads.all += 1;
        threads.starting += 1;
    }

    /// The thread could not be started, or its entry was refused.
    pub(super) fn not_started(&self) {
        let mut threads = self.lock();
        threads.all -= 1;
        threads.starting -= 1;
    }

    /// A thread's entry is registered. True if a request may wait that came while there was none.
    /// That is the kernel's to know: it gives entries away faster than their threads run and count
    /// themselves as taken, so our own count of idle threads says nothing about it.
    pub(super) fn registered(&self) -> bool {
        self.lock().starting -= 1;
        self.idle.fetch_add(1, Ordering::SeqCst);
        self.used.load(Ordering::SeqCst)
    }

    /// The calling thread has a request. Returns how many threads it has to start first; they are
    /// counted already.
    pub(super) fn taken(&self) -> usize {
        let before = self.idle.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a thread that gets a request was waiting");
        self.used.store(true, Ordering::SeqCst);
        self.missing(before - 1)
    }

    /// Threads to be started beside `idle` ones; they are counted.
    fn missing(&self, idle: usize) -> usize {
        if idle >= self.spare {
            return 0;
        }
        let mut threads = self.lock();
        let missing = self.spare.saturating_sub(idle + threads.starting);
        let most = self.most + self.parked.load(Ordering::SeqCst).min(PARKED);
        let start = missing.min(most.saturating_sub(threads.all));
        threads.all += start;
        threads.starting += start;
        start
    }

    /// The calling thread is parked from now on, until it calls [`Queue::goes_on`].
    pub(super) fn parks(&self) {
        self.parked.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how many threads are to be started while some are parked; they are counted already.
    pub(super) fn beside_parked(&self) -> usize {
        self.missing(self.idle.load(Ordering::SeqCst))
    }

    /// The calling thread is not parked any more.
    pub(super) fn goes_on(&self) {
        let before = self.parked.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a thread that goes on was parked");
    }

    /// The calling thread has answered.
    pub(super) fn done(&self) {
        self.idle.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
