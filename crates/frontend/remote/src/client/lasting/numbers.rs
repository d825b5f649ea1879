//! Numbers of what ends with its server: tickets and sections.

use siftfs_base::{InodeNr, Result, errno};
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

/// The changes of one file that were kept before this one was the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Covers {
    pub file: InodeNr,
    pub next: u64,
}

#[derive(Default)]
struct State {
    next: u64,
    known: BTreeMap<u64, Number>,
    /// What is durable when a ticket is: by connection, the server's number and the client's own.
    covers: BTreeMap<(u64, u64, u64), Covers>,
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

    /// A server has given a ticket, which covers this. The client's own number of it.
    pub fn add_ticket(&self, server: u64, connection: u64, covers: Option<Covers>) -> u64 {
        let own = self.add(server, connection, None);
        if let Some(covers) = covers {
            let mut state = self.lock();
            state.covers.insert((connection, server, own), covers);
            if state.covers.len() > MOST {
                state.covers.pop_first();
            }
        }
        own
    }

    /// A ticket is durable: what it covers, and those that the server gave before it.
    pub fn take_covered(&self, own: u64) -> Vec<Covers> {
        let mut state = self.lock();
        let State { known, covers, .. } = &mut *state;
        let Some(Number { connection, server, .. }) = known.get(&own) else { return Vec::new() };
        let (first, last) = ((*connection, 0, 0), (*connection, *server, u64::MAX));
        let covered: Vec<_> = covers.range(first..=last).map(|(at, it)| (*at, *it)).collect();
        for (at, _) in &covered {
            covers.remove(at);
        }
        covered.into_iter().map(|(_, covers)| covers).collect()
    }

    /// The file that one is about, of a section.
    pub fn about(&self, own: u64) -> Option<Target> {
        self.lock().known.get(&own)?.file
    }
}
