//! Who has connected and is no caller yet: those that said nothing so far, and those that are
//! greeted.
//!
//! A peer that connects costs a descriptor, and a thread once it has said something. Neither those
//! that say nothing nor those that stop in the middle keep others out for long: where room is
//! short, the oldest of them that had its time goes.

use rustix::fd::OwnedFd;
use rustix::net::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Peers that are greeted at a time, at most.
const GREETED: usize = 32;
/// Peers that have said nothing, at most; further ones wait in the kernel's queue.
const SILENT: usize = 1024;
/// What each peer has for saying something, and again for its greeting, where others wait for room.
const GRACE: Duration = Duration::from_secs(1);

/// A peer that has connected.
#[derive(Debug)]
pub(crate) struct Caller {
    pub fd: OwnedFd,
    pub since: Instant,
}

/// A peer that is greeted.
pub(crate) struct Greeted {
    pub thread: JoinHandle<()>,
    /// Its connection, to be ended from here.
    pub leash: Leash,
    pub since: Instant,
}

/// Ends a connection while it is greeted, and not any more once it is somebody's.
#[derive(Clone)]
pub(crate) struct Leash(Arc<Mutex<Option<OwnedFd>>>);

impl Leash {
    pub fn new(handle: OwnedFd) -> Self {
        Self(Arc::new(Mutex::new(Some(handle))))
    }

    fn handle(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The greeting is over.
    pub fn drop_it(&self) {
        self.handle().take();
    }

    fn pull(&self) {
        if let Some(handle) = &*self.handle() {
            // The greeting's thread learns of it. A peer that is gone already needs nothing.
            let _ = shutdown(handle, Shutdown::Both);
        }
    }
}

/// See the module. Both lists are in the order of their times.
#[derive(Default)]
pub(crate) struct Door {
    silent: VecDeque<Caller>,
    greeted: Vec<Greeted>,
}

impl Door {
    /// Forgets greetings that are over. Ends the oldest if all places are taken, and it had its
    /// time.
    pub fn tidy(&mut self, now: Instant) {
        self.greeted.retain(|greeted| !greeted.thread.is_finished());
        if let Some(oldest) = self.greeted.first()
            && !self.may_greet()
            && now.duration_since(oldest.since) >= GRACE
        {
            oldest.leash.pull();
        }
    }

    /// The oldest of those that say nothing, if it is to go: all have their time, and where there
    /// is no room, a shorter one.
    pub fn silent_too_long(&mut self, now: Instant, patience: Duration) -> Option<Caller> {
        let patience = self.patience(patience);
        let late = |caller: &mut Caller| now.duration_since(caller.since) >= patience;
        self.silent.pop_front_if(late)
    }

    fn patience(&self, patience: Duration) -> Duration {
        if self.has_room() { patience } else { patience.min(GRACE) }
    }

    /// How long until a peer's time is over, at most.
    pub fn next_change(&self, now: Instant, patience: Duration) -> Duration {
        let left = |since: Instant, all: Duration| all.saturating_sub(now.duration_since(since));
        let silent = self.silent.front().map(|c| left(c.since, self.patience(patience)));
        let greeted = self.greeted.first().filter(|_| !self.may_greet());
        let greeted = greeted.map(|g| left(g.since, GRACE));
        let soon = silent.into_iter().chain(greeted).min();
        // An ended greeting's thread takes a moment to end.
        soon.map_or(Duration::MAX, |soon| soon.max(Duration::from_millis(5)))
    }

    /// May one more come in?
    pub fn has_room(&self) -> bool {
        self.silent.len() < SILENT
    }

    /// May one more be greeted?
    pub fn may_greet(&self) -> bool {
        self.greeted.len() < GREETED
    }

    /// Those that have said nothing, the oldest first.
    pub fn silent(&self) -> impl Iterator<Item = &Caller> {
        self.silent.iter()
    }

    pub fn let_in(&mut self, caller: Caller) {
        self.silent.push_back(caller);
    }

    /// Takes the one at this place of [`Door::silent`], which has said something.
    pub fn take(&mut self, at: usize) -> Option<Caller> {
        self.silent.remove(at)
    }

    pub fn drop_oldest(&mut self) -> Option<Caller> {
        self.silent.pop_front()
    }

    pub fn greets(&mut self, greeted: Greeted) {
        self.greeted.push(greeted);
    }

    /// Ends all of them, and waits for the threads.
    pub fn close(&mut self) {
        self.silent.clear();
        for greeted in self.greeted.drain(..) {
            greeted.leash.pull();
            // A failed assertion there has said what happened.
            let _ = greeted.thread.join();
        }
    }
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
