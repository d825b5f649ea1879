//! The connections that there are, and how many of them a user may have.

use crate::session::Session;
use ahash::HashMap;
use siftfs_lease::Packets;
use std::sync::Arc;

struct Entry {
    uid: u32,
    socket: Arc<Packets>,
    session: Option<Arc<Session>>,
}

/// Connections by their numbers.
#[derive(Default)]
pub(crate) struct Table {
    entries: HashMap<u64, Entry>,
    drawn: u64,
    closed: bool,
}

impl Table {
    /// A connection of a user; none, if that user has too many, or all together have.
    pub fn admit(&mut self, uid: u32, socket: &Arc<Packets>, most: usize) -> Option<u64> {
        let own = self.entries.values().filter(|entry| entry.uid == uid).count();
        let others = self.entries.len() - own;
        let room = most.saturating_sub(others);
        if self.closed || self.entries.len() >= most || own >= (room / 2).max(1) {
            return None;
        }
        self.drawn += 1;
        let socket = socket.clone();
        self.entries.insert(self.drawn, Entry { uid, socket, session: None });
        Some(self.drawn)
    }

    /// The connection has become a session. False: it is to end at once.
    pub fn enter(&mut self, number: u64, session: &Arc<Session>) -> bool {
        match self.entries.get_mut(&number) {
            Some(entry) if !self.closed => {
                entry.session = Some(session.clone());
                true
            }
            _ => false,
        }
    }

    /// The connection has ended.
    pub fn leave(&mut self, number: u64) {
        self.entries.remove(&number);
    }

    /// All sessions.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.entries.values().filter_map(|entry| entry.session.clone()).collect()
    }

    /// Connections, with those that are no sessions yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Lets nobody in any more, and has the connections that there are end.
    pub fn close(&mut self) {
        self.closed = true;
        self.entries.values().for_each(|entry| entry.socket.stop_receiving());
    }

    /// Is nobody let in any more?
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
