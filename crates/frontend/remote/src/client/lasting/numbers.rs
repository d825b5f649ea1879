//! Numbers of what ends with its server: tickets and sections.

use siftfs_base::{Result, errno};
use siftfs_proto::Target;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers that are remembered; the oldest ones are forgotten.
const MOST: usize = 1 << 20;

struct Number {
    /// The connection that it came by.
    connection: u64,
    /// The server's number.
    server: u64,
    /// The file that it is about, of a section.
    file: Option<Target>,
}

#[derive(Default)]
struct State {
    next: u64,
    known: BTreeMap<u64, Number>,
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

    /// A server has given one, about this file. The client's own number of it.
    pub fn add(&self, server: u64, connection: u64, file: Option<Target>) -> u64 {
        let mut state = self.lock();
        state.next += 1;
        let own = state.next;
        state.known.insert(own, Number { connection, server, file });
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
            Some(known) if known.connection == connection => Ok(known.server),
            Some(_) => Err(errno(libc::EIO)),
            None => Err(errno(libc::EINVAL)),
        }
    }

    /// The file that one is about, of a section.
    pub fn about(&self, own: u64) -> Option<Target> {
        self.lock().known.get(&own)?.file
    }
}
