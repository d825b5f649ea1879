//! Calls whose answer waits until the kernel has done something for which it sends requests of its
//! own: compounds, publishes, renames of files that are being written.
//!
//! A ring's request keeps its entry until it is answered (`kernel/ring`). So the calls that wait
//! are bounded before they change anything, and the queues have more entries than that: a request
//! that such a call waits for always finds one. A user gets a place only while more places are free
//! than the user has. So a user whose own calls wait for ever leaves places for all other users.

use siftfs_base::{Result, errno};
use siftfs_proto::Completion;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The calls of a mount that may wait, by their users.
pub(crate) struct Calls {
    most: usize,
    users: Mutex<HashMap<u32, usize>>,
}

/// A place for one call, given back when this is dropped.
pub(crate) struct Place {
    calls: Arc<Calls>,
    user: u32,
}

impl Calls {
    /// At most this many at a time.
    pub(crate) fn of(most: usize) -> Self {
        Self { most, users: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a call of `user`.
    ///
    /// # Errors
    /// `EAGAIN` if the user has no fewer places than are free.
    pub(crate) fn enter(self: &Arc<Self>, user: u32) -> Result<Place> {
        let mut users = self.lock();
        let free = self.most.saturating_sub(users.values().sum());
        let own = users.get(&user).copied().unwrap_or(0);
        if own >= free {
            return Err(errno(libc::EAGAIN));
        }
        users.insert(user, own + 1);
        Ok(Place { calls: self.clone(), user })
    }
}

impl Place {
    /// The place is given back when `answer` has been called.
    pub(crate) fn until(self, answer: Completion) -> Completion {
        Box::new(move |result| {
            answer(result);
            drop(self);
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.calls.lock();
        let left = users.get(&self.user).map_or(0, |own| own.saturating_sub(1));
        match left {
            0 => users.remove(&self.user),
            _ => users.insert(self.user, left),
        };
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
