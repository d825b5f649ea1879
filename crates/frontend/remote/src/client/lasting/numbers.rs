//! Numbers of what ends with its server: tickets and sections.

use siftfs_base::{Result, errno};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers that are remembered; the oldest ones are forgotten.
const MOST: usize = 1 << 20;

#[derive(Default)]
struct State {
    next: u64,
    /// The connection that each came by, and its number there.
    known: BTreeMap<u64, (u64, u64)>,
}

/// A client's numbers of what servers have given.
#[derive(Default)]
pub(super) struct Numbers(Mutex<State>);

impl Numbers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None yet; the first one comes after `first`, so that those of another client are not known.
    pub fn after(first: u64) -> Self {
        Self(Mutex::new(State { next: first, ..State::default() }))
    }

    /// A server has given one. The client's own number of it.
    pub fn add(&self, server: u64, connection: u64) -> u64 {
        let mut state = self.lock();
        state.next += 1;
        let own = state.next;
        state.known.insert(own, (connection, server));
        if state.known.len() > MOST {
            state.known.pop_first();
        }
        own
    }

    /// The server's number.
    ///
    /// # Errors
    /// `EIO` if it went with another connection, `EINVAL` if it is not known.
    pub fn server(&self, own: u64, connection: u64) -> Result<u64> {
        match self.lock().known.get(&own) {
            Some((theirs, server)) if *theirs == connection => Ok(*server),
            Some(_) => Err(errno(libc::EIO)),
            None => Err(errno(libc::EINVAL)),
        }
    }
}
