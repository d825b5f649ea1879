//! Numbers of inodes that are gone while sessions' kernels still refer to them: a server has died,
//! and with it files without a name, or what nobody had synced (`docs/design/lost-server.md`).
//!
//! A kernel that refers to a number names it, in link(2) of a descriptor for one. So no other file
//! gets it until the kernel has forgotten it, or its session has ended.

use crate::state::tree::references::SessionId;
use ahash::HashMap;
use siftfs_base::InodeNr;

/// Which session refers to which number.
type Who = (SessionId, InodeNr);

/// What sessions refer to that is gone.
#[derive(Default)]
pub struct Former {
    /// References that are not given back. Less than none of them where the session has looked up
    /// another inode of that number: of which one a kernel gives references back, it does not say.
    left: HashMap<Who, i64>,
    /// How many sessions refer so to each number.
    sessions: HashMap<InodeNr, u32>,
    /// Numbers that may be given again.
    free: Vec<InodeNr>,
}

impl Former {
    /// The session refers `count` times more to a number whose inode is gone. True if it did not
    /// before.
    pub fn add(&mut self, who: Who, count: u32) -> bool {
        let first = !self.left.contains_key(&who);
        *self.left.entry(who).or_default() += i64::from(count);
        *self.sessions.entry(who.1).or_default() += u32::from(first);
        first
    }

    /// The session gives back `count` references to a number, beside `looked_up` that it has to an
    /// inode that is there. `None` if it refers to none that is gone; else whether all of both are
    /// given back.
    pub fn forget(&mut self, who: Who, count: u64, looked_up: u64) -> Option<bool> {
        let left = self.left.get_mut(&who)?;
        let signed = |count| i64::try_from(count).unwrap_or(i64::MAX);
        *left = left.saturating_sub(signed(count));
        let all = left.saturating_add(signed(looked_up)) <= 0;
        if all {
            self.let_go(who);
        }
        Some(all)
    }

    fn let_go(&mut self, who: Who) {
        let Some(sessions) = self.left.remove(&who).and_then(|_| self.sessions.get_mut(&who.1))
        else {
            return;
        };
        *sessions -= 1;
        if *sessions == 0 {
            self.sessions.remove(&who.1);
            self.free.push(who.1);
        }
    }

    /// The session has ended.
    pub fn end(&mut self, session: SessionId) {
        let own: Vec<Who> = self.left.keys().filter(|(of, _)| *of == session).copied().collect();
        own.into_iter().for_each(|who| self.let_go(who));
        self.left.shrink_to_fit();
    }

    /// Numbers that no session refers to any more, since the last time.
    pub fn take_free(&mut self) -> Vec<InodeNr> {
        let mut free = std::mem::take(&mut self.free);
        free.retain(|ino| !self.sessions.contains_key(ino));
        free
    }

    /// Bytes of the tables.
    pub fn bytes(&self) -> usize {
        self.left.capacity() * size_of::<(Who, i64)>()
            + self.sessions.capacity() * size_of::<(InodeNr, u32)>()
            + self.free.capacity() * size_of::<InodeNr>()
    }
}

#[cfg(test)]
#[path = "former_tests.rs"]
mod tests;
