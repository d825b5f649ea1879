//! The tickets of each session: which position in the order of records each stands for.
//!
//! What is durable needs no entry: a ticket that its session drew, and that has none, is durable.
//! So a ticket may be asked for as often as its caller likes, and what a program leaves behind that
//! was killed costs nothing once the storage has taken it.

use crate::locks::relock;
use siftfs_base::{Lsn, Result, errno};
use siftfs_proto::{SessionId, Ticket};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard};

/// Tickets of one session that are not durable, at most.
const MOST: usize = 65_536;

/// Everything up to here is durable from the start.
pub const DURABLE: Lsn = Lsn(0);

/// The sessions that have drawn a ticket. Its lock is taken alone, and nothing is done under it.
#[derive(Default)]
pub struct Sessions {
    sessions: Mutex<HashMap<SessionId, Session>>,
}

/// The tickets of one session. Its `n`th ticket has the number `base + n`.
struct Session {
    /// Drawn at random, so that another session's numbers, and those of this one's predecessor in
    /// an earlier mount, are not taken for its own.
    base: u64,
    drawn: u64,
    /// Tickets that are being drawn.
    coming: usize,
    /// Those that were not durable when that was last looked at, in order: which it is, and its
    /// position.
    open: VecDeque<(u64, Lsn)>,
}

impl Session {
    fn new(base: u64) -> Self {
        Self { base, drawn: 0, coming: 0, open: VecDeque::new() }
    }

    /// Begins to draw a ticket.
    ///
    /// # Errors
    /// `EAGAIN` if too many are not `durable`.
    fn begin(&mut self, durable: Lsn) -> Result<()> {
        while self.open.front().is_some_and(|(_, lsn)| *lsn <= durable) {
            self.open.pop_front();
        }
        if self.open.len() + self.coming >= MOST {
            self.open.retain(|(_, lsn)| *lsn > durable);
        }
        if self.open.len() + self.coming >= MOST {
            return Err(errno(libc::EAGAIN));
        }
        self.coming += 1;
        Ok(())
    }

    /// Draws a ticket for `lsn`.
    fn draw(&mut self, lsn: Lsn) -> Ticket {
        self.drawn += 1;
        if lsn > DURABLE {
            self.open.push_back((self.drawn, lsn));
        }
        Ticket(self.base.wrapping_add(self.drawn))
    }

    /// The position of one of its tickets.
    fn position(&self, ticket: Ticket) -> Option<Lsn> {
        let which = ticket.0.wrapping_sub(self.base);
        if which == 0 || which > self.drawn {
            return None;
        }
        let open = self.open.binary_search_by_key(&which, |(which, _)| *which);
        Some(open.map_or(DURABLE, |at| self.open[at].1))
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        relock(self.sessions.lock())
    }

    /// Draws a ticket for the position that `stage` answers with. Everything up to `durable` is
    /// durable. Also returns whether half of what a session may have open is open.
    ///
    /// # Errors
    /// `EAGAIN` if too many of the session's tickets are not durable: `stage` has not been called
    /// then. `EINVAL` if the session has ended meanwhile. Those of `stage`.
    pub fn draw(
        &self,
        session: SessionId,
        durable: Lsn,
        stage: impl FnOnce() -> Result<Lsn>,
    ) -> Result<(Ticket, bool)> {
        let new = || Session::new(RandomState::new().hash_one(session.0));
        let base = {
            let mut sessions = self.lock();
            let own = sessions.entry(session).or_insert_with(new);
            own.begin(durable)?;
            own.base
        };
        let staged = stage();
        let mut sessions = self.lock();
        // Another one may have begun under this number meanwhile.
        let own = sessions.get_mut(&session).filter(|own| own.base == base);
        let own = own.ok_or_else(|| errno(libc::EINVAL))?;
        own.coming -= 1;
        let ticket = own.draw(staged?);
        Ok((ticket, own.open.len() >= MOST / 2))
    }

    /// The position of a session's ticket, [`DURABLE`] for one that is durable.
    ///
    /// # Errors
    /// `EINVAL`: the session has not drawn it (rule R31).
    pub fn position(&self, session: SessionId, ticket: Ticket) -> Result<Lsn> {
        let position = self.lock().get(&session).and_then(|own| own.position(ticket));
        position.ok_or_else(|| errno(libc::EINVAL))
    }

    /// How many tickets of all sessions are not durable, if everything up to `durable` is.
    pub fn open(&self, durable: Lsn) -> usize {
        let sessions = self.lock();
        let tickets = sessions.values().flat_map(|own| &own.open);
        tickets.filter(|(_, lsn)| *lsn > durable).count()
    }

    /// The session's tickets mean nothing any more.
    pub fn end(&self, session: SessionId) {
        self.lock().remove(&session);
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
