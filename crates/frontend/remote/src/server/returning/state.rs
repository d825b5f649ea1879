//! What a server knows of all clients that come back, and for which of them other calls wait.

use super::book::{Book, Part};
use super::client::{Client, Progress};
use super::{Connection, GRACE};
use crate::server::identity::Whose;
use siftfs_base::{Error, InodeNr, Lsn, Result};
use siftfs_calls::Kept;
use siftfs_proto::Recovered;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Clients that a server knows.
const CLIENTS: usize = 256;
/// Of those, clients of the same key or user.
const OF_ONE: usize = 64;
/// How long others wait for clients that go on coming back, but do not come to the end.
const ALL: Duration = Duration::from_secs(30);

pub(super) struct State {
    pub clients: HashMap<u64, Client>,
    /// Clients of which nothing was heard yet since the server before died.
    pub expected: HashSet<u64>,
    /// There may be clients of a server before of which nothing is known. They do not come back,
    /// but their kernels show what they know for a term.
    pub is_unknown: bool,
    /// Everybody goes on: all have returned, or the grace time is over.
    pub open: bool,
    pub until: Instant,
    /// It ends no later than that, whatever happens.
    pub latest: Instant,
    pub durable: u64,
    pub marks: HashMap<InodeNr, u64>,
    pub book: Option<Book>,
    /// Connections of returning clients so far.
    pub connections: u64,
    /// Clients that have gone for good, and that nobody else was told of.
    pub gone: Vec<u64>,
}

impl State {
    /// Makes room for one more client of this key or user: programs that have most likely ended are
    /// forgotten first.
    ///
    /// # Errors
    /// A message.
    pub fn make_room(&mut self, whose: Option<Whose>) -> Result<()> {
        if self.has_room(whose).is_err() {
            let ended = |client: &Client| client.is_program && client.is_gone();
            self.forget_those(ended);
        }
        self.has_room(whose)
    }

    fn has_room(&self, whose: Option<Whose>) -> Result<()> {
        let refuse = |why| Err(Error::Refused(why));
        if self.clients.len() >= CLIENTS {
            return refuse(format!("too many clients come back, at most {CLIENTS}"));
        }
        let own = self.clients.values().filter(|client| client.whose == whose).count();
        match whose.is_some() && own >= OF_ONE {
            true => {
                refuse(format!("too many clients of one key or user come back, at most {OF_ONE}"))
            }
            false => Ok(()),
        }
    }

    pub fn of(&mut self, connection: Connection) -> Option<&mut Client> {
        let client = self.clients.get_mut(&connection.client)?;
        let own =
            client.connection.as_ref().is_some_and(|(number, _)| *number == connection.number);
        own.then_some(client)
    }

    /// The replies of changes of names that clients may not have got.
    pub fn replies(&self, epoch: u64) -> Recovered {
        let mut replies = Recovered { epoch, ..Recovered::default() };
        for (id, client) in &self.clients {
            client.carried().for_each(|(place, carried)| replies.note(*id, place, carried));
        }
        replies
    }

    /// May a change at this place of the order be repeated: has nobody an older one?
    pub fn is_first(&self, client: u64, at: (usize, u64)) -> bool {
        self.expected.is_empty()
            && self.clients.iter().all(|(id, other)| {
                let later = |r: &Progress| r.repeated || r.at.is_some_and(|theirs| at < theirs);
                *id == client || other.returning.as_ref().is_none_or(later)
            })
    }

    /// Has every client repeated what it keeps?
    pub fn have_repeated(&self) -> bool {
        let repeated = |c: &Client| c.returning.as_ref().is_none_or(|r| r.repeated);
        self.expected.is_empty() && self.clients.values().all(repeated)
    }

    /// Has the time of a client that is waited for come to its end?
    pub fn look(&mut self) {
        let now = Instant::now();
        if now >= self.until {
            if std::mem::take(&mut self.is_unknown)
                && let Some(Err(error)) = self.book.as_mut().map(|book| book.waited())
            {
                tracing::warn!(%error, "the next server will wait for unknown clients, too");
            }
            let late: Vec<u64> = self.expected.drain().collect();
            for client in late {
                tracing::warn!(client, "a client has not come back: nobody waits for it any more");
                self.strike_out(client);
            }
        }
        for (id, client) in &mut self.clients {
            let Some(progress) = &client.returning else { continue };
            // One that waits for others is not the one that is waited for.
            let stands_still = progress.at.is_none() && now - progress.since > GRACE;
            if stands_still || now - progress.begun > ALL {
                tracing::warn!(client = id, "a client takes too long to come back");
                client.returning = None;
            }
        }
        self.returned();
    }

    /// Does anybody return still?
    pub fn returned(&mut self) {
        self.open |= !self.is_unknown
            && self.expected.is_empty()
            && self.clients.values().all(|client| client.returning.is_none());
    }

    /// Clients that are away for too long are not waited for after a death.
    pub fn forget(&mut self, now: Instant) {
        self.forget_those(|client| client.is_away(now));
    }

    fn forget_those(&mut self, which: impl Fn(&Client) -> bool) {
        let gone: Vec<u64> =
            self.clients.iter().filter(|(_, c)| which(c)).map(|(id, _)| *id).collect();
        for client in gone {
            self.clients.remove(&client);
            self.strike_out(client);
        }
    }

    pub fn strike_out(&mut self, client: u64) {
        self.gone.push(client);
        if let Some(book) = &mut self.book
            && let Err(error) = book.gone(client)
        {
            tracing::warn!(%error, "after a death a client will be waited for that has gone");
        }
    }
}

impl Part {
    /// Is a change there which this server answered?
    pub fn has(&self, kept: &Kept, file: Option<InodeNr>) -> bool {
        let found = self.found.as_ref();
        self.ended
            || kept.order <= self.durable
            || match (kept.lsn, file) {
                (0, Some(file)) => self.marks.get(&file).is_some_and(|mark| kept.order <= *mark),
                (0, None) => false,
                (lsn, _) => found.is_some_and(|found| found.holds(Lsn(lsn))),
            }
    }
}
