//! Space that sessions which lend have set aside. What a program has put into its log is answered
//! before it is taken in, so there must be space for it then, however full the volume is
//! (`docs/design/private-logs.md`, "Space").
//!
//! A session has [`LENT_RESERVE`] blocks for as long as it has a lease. Only what it takes in may
//! use them, and only when there is no other space. Then all its leases are recalled: what a full
//! ring holds at that moment is what is left to come, and the reserve is as large as that. The sum
//! of what is left of all is free in the last durable state, and not promised: others find a volume
//! full that has no more than all reserves would have if they were whole.

use crate::state::room::{LENT_RESERVE, lent_cost};
use crate::state::tree::references::SessionId;
use ahash::HashMap;

/// The reserves of all sessions that have one.
#[derive(Default)]
pub struct Reserves {
    /// Blocks that are left of each.
    left: HashMap<SessionId, u64>,
    /// One of them was used, and is not whole again.
    used: bool,
    /// The session that takes something in, and whether it has used its reserve for that.
    taking_in: Option<(SessionId, bool)>,
}

impl Reserves {
    /// Blocks of all of them, if they are whole.
    pub fn kept(&self) -> u64 {
        self.left.len() as u64 * LENT_RESERVE
    }

    /// What is left of the session's, if it has one.
    pub fn left(&self, session: SessionId) -> Option<u64> {
        self.left.get(&session).copied()
    }

    /// The session has one from now on, for which there is space.
    pub fn set_aside(&mut self, session: SessionId) {
        self.left.entry(session).or_insert(LENT_RESERVE);
    }

    /// The session needs none any more, if it had one.
    pub fn give_back(&mut self, session: SessionId) {
        self.left.remove(&session);
    }

    /// There is space for all of them.
    pub fn fill_up(&mut self) {
        if std::mem::take(&mut self.used) {
            self.left.values_mut().for_each(|left| *left = LENT_RESERVE);
        }
    }

    /// The session begins to take something in.
    pub fn begin(&mut self, session: SessionId) {
        self.taking_in = Some((session, false));
    }

    /// It has ended. Did it use the reserve?
    pub fn end(&mut self) -> bool {
        self.taking_in.take().is_some_and(|(_, used)| used)
    }

    /// There is no other space for these blocks of data that an operation writes: uses the
    /// reserve, if the operation may. False if not.
    pub fn spend(&mut self, blocks: u64) -> bool {
        let Some((session, used)) = &mut self.taking_in else { return false };
        let left = self.left.get_mut(session);
        match left.and_then(|left| Some((left.checked_sub(lent_cost(blocks))?, left))) {
            Some((rest, left)) => {
                (*left, *used, self.used) = (rest, true, true);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
#[path = "reserves_tests.rs"]
mod tests;
