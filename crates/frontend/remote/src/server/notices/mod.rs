//! Notices to a client that caches, until it says that it has taken them back (rule R32).

mod terms;

pub(super) use terms::Terms;

use super::outbox::Outbox;
use crate::term::TERM as CERTAIN;
use siftfs_calls::{FromServer, Told};
use siftfs_proto::{Cache, Notice};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A client that does not take a notice back within this time is ended. A kernel that it speaks for
/// may have to wait for a disk before it gives a page back.
pub(super) const TERM: Duration = Duration::from_secs(30);

/// What a client was told and has not taken back.
pub(super) struct Notices {
    outbox: Arc<Outbox>,
    open: Mutex<Open>,
}

struct Open {
    next: u64,
    /// In the order of their numbers, which is that of their times.
    notices: BTreeMap<u64, Noted>,
    /// When the client asked last whether the session is there, and was answered.
    asked: Instant,
    state: State,
}

/// A notice, since when it waits, and whether it is about all that the session may know.
struct Noted {
    since: Instant,
    notice: Notice,
    all: bool,
}

enum State {
    /// The client is told.
    Here,
    /// Its connection is lost, and its kernel may show what was: notices are held.
    Away,
    /// The client has another connection, by which it is told.
    On(Arc<Notices>),
    /// Its kernel shows nothing any more.
    Over,
}

impl Notices {
    /// Those of a new connection.
    pub fn new(outbox: Arc<Outbox>) -> Self {
        let (next, notices) = Default::default();
        let open = Open { next, notices, asked: Instant::now(), state: State::Here };
        Self { outbox, open: Mutex::new(open) }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, noted: Noted) {
        let mut open = self.lock();
        match &open.state {
            State::Here => {}
            State::Away => {
                let number = open.next;
                open.next += 1;
                open.notices.insert(number, noted);
                return;
            }
            State::On(next) => {
                let next = next.clone();
                drop(open);
                return next.tell(noted);
            }
            // Dropped without the lock: the change that waits for it goes on.
            State::Over => return drop(open),
        }
        let Noted { notice, all, .. } = &noted;
        let told = Told {
            attributes: notice.attributes.clone(),
            sizes: notice.sizes.clone(),
            data: notice.data.iter().map(|(ino, start, end)| (*ino, (*start, *end))).collect(),
            names: notice.names.clone(),
        };
        let (number, all) = (open.next, *all);
        open.next += 1;
        open.notices.insert(number, noted);
        drop(open);
        self.outbox.queue(FromServer::Notice { notice: number, all, told });
    }

    /// The client has taken it back. False if there is no such notice.
    pub fn taken(&self, number: u64) -> bool {
        let found = self.lock().notices.remove(&number);
        // Dropped without the lock: the change that waits for it goes on.
        found.is_some()
    }

    /// Is one older than the term?
    pub fn is_late(&self) -> bool {
        let open = self.lock();
        let oldest = open.notices.values().map(|noted| noted.since).min();
        oldest.is_some_and(|since| since.elapsed() > TERM)
    }

    /// The client asks whether the session is there. False if it is not: the client is not answered
    /// then.
    pub fn asks(&self) -> bool {
        let mut open = self.lock();
        open.asked = Instant::now();
        matches!(open.state, State::Here)
    }

    /// The connection is lost. Until the moment that is returned the client's kernel may show what
    /// it knows, and what is told is held; [`Notices::runs_out`] is to follow then.
    pub fn lost(&self) -> Instant {
        let mut open = self.lock();
        if matches!(open.state, State::Here) {
            open.state = State::Away;
        }
        open.asked + CERTAIN
    }

    /// The client has no other connection yet, and its kernel shows nothing any more.
    pub fn runs_out(&self) {
        let away = matches!(self.lock().state, State::Away);
        if away {
            self.end();
        }
    }

    /// The client has another connection: what is held is told by that, and so is what follows.
    pub fn go_on(&self, next: &Arc<Self>) {
        let mut open = self.lock();
        if !matches!(open.state, State::Here | State::Away) {
            return;
        }
        open.state = State::On(next.clone());
        let held = std::mem::take(&mut open.notices);
        drop(open);
        held.into_values().for_each(|noted| next.tell(noted));
    }

    /// The session is over: it shows nothing any more.
    pub fn end(&self) {
        let mut open = self.lock();
        if matches!(open.state, State::On(_)) {
            return;
        }
        open.state = State::Over;
        let all = std::mem::take(&mut open.notices);
        drop(open);
        drop(all);
    }
}

impl Cache for Notices {
    fn take_back(&self, notice: Notice) {
        self.tell(Noted { since: Instant::now(), notice, all: false });
    }

    fn shares(&self, others: bool) {
        self.outbox.queue(FromServer::Shares { others });
    }

    fn forget_all(&self, notice: Notice) {
        self.tell(Noted { since: Instant::now(), notice, all: true });
    }
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
