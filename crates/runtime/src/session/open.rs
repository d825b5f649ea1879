//! The open sessions.

use crate::locks::relock;
use crate::namespace::access::Caller;
use crate::session::life::Life;
use crate::session::ticket_table::Tickets;
use crate::state::tree::references::SessionId;
use siftfs_base::{Result, errno};
use siftfs_proto::{Credentials, Identity, Opening, Rights};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

static NO_RIGHTS: Rights = Rights::NONE;

/// Sessions at a time.
pub const MOST_SESSIONS: usize = 16_384;

/// One session, for as long as it is open.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// For whom it speaks, and how much it may have.
    pub(crate) opening: Opening,
    /// It changes nothing but what is leased to it.
    pub(crate) lends: bool,
    pub(crate) tickets: Tickets,
    /// Bytes of data in its requests that are being carried out.
    bytes: AtomicU64,
    /// Its end, and the requests that keep it from forgetting.
    pub(crate) life: Life,
}

/// Bytes of a request's data, while it is carried out.
pub(crate) struct InFlight<'a> {
    session: &'a Session,
    bytes: u64,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.session.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Session {
    /// Is this the local kernel, which has checked what its callers may do?
    pub(crate) fn is_kernel(&self) -> bool {
        self.opening.identity == Identity::Kernel
    }

    /// Is this a kernel, of this machine or another? Its pages outlive the descriptors.
    pub(crate) fn has_pages(&self) -> bool {
        matches!(self.opening.identity, Identity::Kernel | Identity::Machine)
    }

    /// May it name a file by its number instead of a handle, if it has looked it up and opened it?
    pub(crate) fn names_files(&self) -> bool {
        !matches!(self.opening.identity, Identity::User { .. })
    }

    /// Is this another machine's kernel, whose callers are checked here?
    pub(crate) fn is_machine(&self) -> bool {
        self.opening.identity == Identity::Machine
    }

    /// With which ids and rights a request acts that carries `cred`, if that is to be checked.
    pub(crate) fn checked<'a>(&'a self, cred: &'a Credentials) -> Option<Caller<'a>> {
        let rights = match &self.opening.identity {
            Identity::Kernel => return None,
            Identity::Machine | Identity::Program => cred.rights.as_deref().unwrap_or(&NO_RIGHTS),
            Identity::User { rights, .. } => rights,
        };
        Some(Caller { cred, rights })
    }

    /// With which ids a request acts that carries these.
    pub(crate) fn acting<'a>(&self, cred: &'a Credentials) -> Cow<'a, Credentials> {
        match self.opening.identity {
            Identity::Kernel | Identity::Machine | Identity::Program => Cow::Borrowed(cred),
            Identity::User { uid, gid, .. } => Cow::Owned(Credentials { uid, gid, ..cred.clone() }),
        }
    }

    /// With which rights a request acts that carries these.
    pub(crate) fn rights<'a>(&'a self, carried: &'a Rights) -> &'a Rights {
        match &self.opening.identity {
            Identity::Kernel | Identity::Machine | Identity::Program => carried,
            Identity::User { rights, .. } => rights,
        }
    }

    /// A request with this much data is carried out until what is returned is dropped.
    ///
    /// # Errors
    /// `EAGAIN` if the session's requests have too much together.
    pub(crate) fn in_flight(&self, bytes: u64) -> Result<InFlight<'_>> {
        let most = self.opening.limits.bytes;
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let place = InFlight { session: self, bytes };
        match before.checked_add(bytes) {
            Some(sum) if sum <= most => Ok(place),
            _ => Err(errno(libc::EAGAIN)),
        }
    }
}

/// The open sessions by number. Its lock is taken alone.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// Held while a kernel that was alone forgets what it knows: until then no other session that
    /// changes files is open. Taken before all other locks.
    pub(crate) joining: Mutex<()>,
}

impl Sessions {
    /// Opens a session with a number that no open one has; one that `lends` changes nothing but
    /// what is leased to it.
    ///
    /// # Errors
    /// `ENFILE` if there are [`MOST_SESSIONS`].
    pub(crate) fn begin(&self, opening: Opening, lends: bool) -> Result<Arc<Session>> {
        let mut open = relock(self.open.lock());
        if open.len() >= MOST_SESSIONS {
            return Err(errno(libc::ENFILE));
        }
        let (seed, mut turn) = (RandomState::new(), 0u64);
        let id = loop {
            let id = SessionId(seed.hash_one(turn));
            if !open.contains_key(&id) {
                break id;
            }
            turn += 1;
        };
        let tickets = Tickets::new(seed.hash_one(id.0), opening.limits.tickets);
        let (bytes, life) = (AtomicU64::new(0), Life::default());
        let session = Arc::new(Session { id, opening, lends, tickets, bytes, life });
        open.insert(id, session.clone());
        Ok(session)
    }

    /// Takes a session out; false if it has ended already.
    pub(crate) fn end(&self, id: SessionId) -> bool {
        relock(self.open.lock()).remove(&id).is_some()
    }

    /// How many tickets of all sessions are not durable, if everything up to `durable` is.
    pub(crate) fn open_tickets(&self, durable: siftfs_base::Lsn) -> usize {
        let all: Vec<_> = relock(self.open.lock()).values().cloned().collect();
        all.iter().map(|session| session.tickets.open(durable)).sum()
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
