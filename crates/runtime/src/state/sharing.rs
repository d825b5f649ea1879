//! The sessions that cache, and what they are told of each other's changes.

use crate::state::State;
use crate::state::changes::Noted;
use crate::state::tree::references::SessionId;
use siftfs_base::InodeNr;
use siftfs_proto::{Cache, Notice, Owed, ROOT_INO};
use std::sync::Arc;

/// The open sessions that cache, and how many of the others change something.
#[derive(Default)]
pub struct Sharing {
    caches: Vec<(SessionId, Arc<dyn Cache>)>,
}

/// Who makes a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// Its session; none for the background.
    pub session: Option<SessionId>,
    /// The session's own kernel does not know of the change by what it asked for: compounds,
    /// publishes and sections come as ioctl(2).
    pub untold: bool,
}

/// The notices of a change, to be sent without the lock.
#[must_use]
pub struct Notices {
    of: Vec<(Arc<dyn Cache>, Notice)>,
    owed: Owed,
}

impl Notices {
    /// Sends them. What is returned is owed before the change is answered.
    pub fn send(self) -> Owed {
        self.of.into_iter().for_each(|(cache, notice)| cache.take_back(notice));
        self.owed
    }
}

impl Sharing {
    /// A session begins that caches.
    pub fn begin(&mut self, session: SessionId, cache: Arc<dyn Cache>) {
        self.caches.push((session, cache));
    }

    /// A session ends, whether it cached or not.
    pub fn end(&mut self, session: SessionId) {
        self.caches.retain(|(own, _)| *own != session);
    }

    /// May sessions that cache other than this one change files?
    pub fn has_others(&self, session: SessionId) -> bool {
        self.caches.iter().any(|(own, _)| *own != session)
    }

    /// Is a change of `by` to be noted?
    fn is_wanted(&self, by: By) -> bool {
        let other = |(own, _): &(SessionId, _)| Some(*own) != by.session;
        by.untold || self.caches.iter().any(other)
    }
}

impl State {
    /// An operation begins.
    pub fn begin_changes(&mut self, by: By) {
        let wanted = self.sharing.is_wanted(by);
        self.metadata.log.changes.begin(wanted);
    }

    /// The operation has ended, also if it failed half-way: what other sessions are to be told, of
    /// inodes that they have looked up.
    pub fn end_changes(&mut self, by: By) -> Option<Notices> {
        let noted = self.metadata.log.changes.take()?;
        self.note_ends(by, &noted);
        let mut notices = Notices { of: Vec::new(), owed: Owed::default() };
        for (session, cache) in &self.sharing.caches {
            if Some(*session) == by.session {
                continue;
            }
            let notice = self.notice(*session, &noted, &mut notices.owed);
            if !notice.is_empty() {
                notices.of.push((cache.clone(), notice));
            }
        }
        Some(notices)
    }

    fn notice(&self, session: SessionId, noted: &Noted, owed: &mut Owed) -> Notice {
        let references = &self.metadata.tree.inodes.references;
        let known = |ino: InodeNr| ino == ROOT_INO || references.has_looked_up(session, ino);
        let mut notice = Notice::new(owed);
        notice.attributes.extend(noted.attributes.iter().filter(|ino| known(**ino)));
        let data = noted.data.iter().filter(|(ino, _)| known(**ino));
        notice.data.extend(data.map(|(ino, (start, end))| (*ino, *start, *end)));
        let resized = noted.sizes.iter().filter(|(ino, before)| self.is_resized(**ino, **before));
        notice.sizes.extend(resized.map(|(ino, _)| *ino).filter(|ino| known(*ino)));
        notice.names.extend(noted.names.iter().filter(|(dir, _)| known(*dir)).cloned());
        notice
    }

    /// Other kernels, and the own one if it was not told, may append at the end that was.
    fn note_ends(&mut self, by: By, noted: &Noted) {
        let resized = noted.sizes.iter().filter(|(ino, before)| self.is_resized(**ino, **before));
        let resized: Vec<_> = resized.map(|(ino, before)| (*ino, *before)).collect();
        for (ino, before) in resized {
            let own = by.session.filter(|_| by.untold);
            let others = self.sharing.caches.iter().map(|(session, _)| *session);
            let others = others.filter(|session| Some(*session) != by.session);
            let references = &self.metadata.tree.inodes.references;
            for session in own.into_iter().chain(others) {
                if references.has_looked_up(session, ino) {
                    self.metadata.tree.inodes.ends.changed(session, ino, before);
                }
            }
        }
    }

    fn is_resized(&self, ino: InodeNr, before: u64) -> bool {
        self.metadata.tree.inodes.get(&ino).is_some_and(|node| node.size != before)
    }
}
