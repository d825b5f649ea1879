//! The thread that sees to it that nothing lies on a desk for too long.

use super::{PAUSE, STILL};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle, Thread, park, park_timeout};

/// A desk.
pub(super) trait Lies: Send + Sync {
    /// Calls a thread if what lies there has lain there since `seen`, and says whether anything was
    /// laid down since.
    fn look(&self, seen: &mut u64) -> bool;
}

/// Desks, and how often something was laid down on each when it was last looked at.
type Desks = Vec<(Weak<dyn Lies>, u64)>;

/// What the thread and the desks share.
pub(super) struct Looks {
    desks: Mutex<Desks>,
    /// The thread looks no more.
    rests: AtomicBool,
    over: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Looks {
    /// Something was laid down. Called with the desk's lock held, for which the thread that looks
    /// may wait with that of all desks: none is taken here that it keeps meanwhile.
    pub fn begin(&self) {
        if self.rests.load(Ordering::SeqCst) && self.rests.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.iter().for_each(Thread::unpark);
    }

    /// Looks at all desks; whether anything was laid down.
    fn look(&self) -> bool {
        let mut any = false;
        let mut desks = self.desks.lock().unwrap_or_else(PoisonError::into_inner);
        desks.retain_mut(|(desk, seen)| {
            let desk = desk.upgrade();
            any |= desk.as_ref().is_some_and(|desk| desk.look(seen));
            desk.is_some()
        });
        any
    }

    fn run(&self) {
        let mut still = 0;
        while !self.over.load(Ordering::SeqCst) {
            park_timeout(PAUSE);
            still = if self.look() { 0 } else { still + 1 };
            if still < STILL {
                continue;
            }
            still = 0;
            self.rests.store(true, Ordering::SeqCst);
            // What was laid down before that could be seen is found now.
            if self.look() {
                self.rests.store(false, Ordering::SeqCst);
            }
            while self.rests.load(Ordering::SeqCst) && !self.over.load(Ordering::SeqCst) {
                park();
            }
        }
    }
}

/// Looks at the desks of a server.
pub(crate) struct Clerk {
    looks: Arc<Looks>,
    thread: Option<JoinHandle<()>>,
}

impl Clerk {
    /// Where the thread cannot be started, the desks do without.
    pub fn new() -> Self {
        let (desks, rests, over, thread) = Default::default();
        let looks = Arc::new(Looks { desks, rests, over, thread });
        let theirs = looks.clone();
        let started = Builder::new().name("siftfs-clerk".into()).spawn(move || theirs.run());
        let thread = match started {
            Ok(thread) => Some(thread),
            Err(error) => {
                tracing::error!(%error, "no thread looks at receivers: each call wakes one more");
                None
            }
        };
        let handle = thread.as_ref().map(|thread| thread.thread().clone());
        *looks.thread.lock().unwrap_or_else(PoisonError::into_inner) = handle;
        Self { looks, thread }
    }

    pub(super) fn looks(&self) -> Option<Arc<Looks>> {
        self.thread.as_ref().map(|_| self.looks.clone())
    }

    pub(super) fn add(&self, desk: Arc<dyn Lies>) {
        let mut desks = self.looks.desks.lock().unwrap_or_else(PoisonError::into_inner);
        desks.push((Arc::downgrade(&desk), 0));
        drop(desks);
        self.looks.begin();
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.looks.over.store(true, Ordering::SeqCst);
        self.looks.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[path = "clerk_tests.rs"]
mod tests;
