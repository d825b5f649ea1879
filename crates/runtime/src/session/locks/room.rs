//! How many locks and waits there may be: together, for each session, and for each user.

use crate::state::tree::references::SessionId;
use std::collections::HashMap;

/// Parts of locks, and waits, of all sessions together. A part takes about 100 bytes, and 400 if it
/// is its owner's only one of the file; a wait takes as much. So all together take 100 MiB at most.
pub(super) const MOST: u64 = 256 << 10;
/// Owners that have locks of one file, and waits for locks of one file. A request for a lock
/// is compared with each of them.
pub(super) const OF_ONE_FILE: usize = 16 << 10;

/// A user of one session.
pub(super) type User = (SessionId, u32);

/// What is taken of it.
#[derive(Default)]
pub(super) struct Room {
    users: HashMap<User, u64>,
    sessions: HashMap<SessionId, Share>,
    used: u64,
}

struct Share {
    used: u64,
    most: u64,
}

impl Room {
    /// The session may have `most`.
    pub(super) fn begin(&mut self, session: SessionId, most: u64) {
        self.sessions.insert(session, Share { used: 0, most });
    }

    /// The session has given everything back.
    pub(super) fn end(&mut self, session: SessionId) {
        let share = self.sessions.remove(&session);
        assert!(share.is_some_and(|share| share.used == 0), "an ended session has no locks");
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn is_open(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// May the user have `more`? Only while at least as much stays free for the others as it has
    /// itself.
    pub(super) fn has(&self, user: User, more: u64) -> bool {
        let own = self.users.get(&user).copied().unwrap_or(0) + more;
        let of_session = self.sessions.get(&user.0).is_some_and(|s| s.used + more <= s.most);
        of_session && own <= MOST.saturating_sub(self.used)
    }

    pub(super) fn take(&mut self, user: User, more: u64) {
        if more > 0 {
            *self.users.entry(user).or_default() += more;
            self.used += more;
            self.share(user).used += more;
        }
    }

    pub(super) fn give_back(&mut self, user: User, less: u64) {
        if less == 0 {
            return;
        }
        let own = self.users.get_mut(&user).expect("only what was taken is given back");
        *own -= less;
        if *own == 0 {
            self.users.remove(&user);
        }
        self.used -= less;
        self.share(user).used -= less;
    }

    fn share(&mut self, user: User) -> &mut Share {
        self.sessions.get_mut(&user.0).expect("a session with locks is open")
    }
}
