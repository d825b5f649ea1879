//! The sessions that cache, and what they are told of each other's changes; and the sessions that
//! lend, which are told how many things were done that no later fsync(2) may overtake.

use crate::state::changes::Noted;
use crate::state::leases::Ended;
use crate::state::tree::references::SessionId;
use crate::state::{Inodes, State};
use ahash::HashMap;
use siftfs_base::InodeNr;
use siftfs_proto::{Cache, Holder, Notice, Owed, ROOT_INO};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The open sessions that cache, and the others that may change files.
#[derive(Default)]
pub struct Sharing {
    caches: Vec<(SessionId, Arc<dyn Cache>)>,
    /// The other sessions that may change files by themselves.
    changers: Vec<SessionId>,
    /// The sessions that lend.
    pub order: Order,
}

/// The count of what a later fsync(2) must not overtake (rules R38 and R46): renames, links and
/// exchanges; changes of what a directory lets others do; tickets, commits of sections and
/// compounds. A session that lends makes bytes durable by a log of its own, and looks at the count
/// before it says so (`docs/design/private-logs.md`, "The file log").
pub struct Order {
    count: u64,
    lenders: HashMap<SessionId, Arc<dyn Holder>>,
    /// How many those are.
    live: Arc<AtomicUsize>,
}

impl Default for Order {
    fn default() -> Self {
        Self { count: 1, lenders: HashMap::default(), live: Arc::default() }
    }
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
    /// What is owed for them.
    pub fn owed(&self) -> Owed {
        self.owed.clone()
    }

    /// Sends them. What is returned is owed before the change is answered.
    pub fn send(self) -> Owed {
        self.of.into_iter().for_each(|(cache, notice)| cache.take_back(notice));
        self.owed
    }
}

impl Sharing {
    /// A session begins, which may cache. Returns those that were alone until now: what their
    /// kernels were told does not run out.
    pub fn begin(
        &mut self,
        session: SessionId,
        cache: Option<Arc<dyn Cache>>,
    ) -> Vec<(SessionId, Arc<dyn Cache>)> {
        let alone = self.caches.len() == 1 && self.changers.is_empty();
        let before = if alone { self.caches.clone() } else { Vec::new() };
        match cache {
            Some(cache) => self.caches.push((session, cache)),
            None => self.changers.push(session),
        }
        self.tell();
        before
    }

    /// A session ends, whether it cached or not.
    pub fn end(&mut self, session: SessionId) {
        self.caches.retain(|(own, _)| *own != session);
        self.changers.retain(|own| *own != session);
        self.order.end(session);
        self.tell();
    }

    fn tell(&self) {
        let others = self.caches.len() + self.changers.len() > 1;
        self.caches.iter().for_each(|(_, cache)| cache.shares(others));
    }

    /// May sessions other than this one change files?
    pub fn has_others(&self, session: SessionId) -> bool {
        let caches = self.caches.iter().map(|(own, _)| own);
        caches.chain(&self.changers).any(|own| *own != session)
    }

    /// Is a change of `by` to be noted?
    fn is_wanted(&self, by: By) -> bool {
        let other = |(own, _): &(SessionId, _)| Some(*own) != by.session;
        by.untold || self.caches.iter().any(other)
    }
}

impl Sharing {
    /// The notices of a change, of inodes that the other sessions have looked up, and the ends in
    /// which their kernels may believe still.
    fn notices(&self, by: By, noted: &Noted, inodes: &mut Inodes) -> Notices {
        let resized = noted
            .sizes
            .iter()
            .filter(|(ino, before)| inodes.get(ino).is_some_and(|node| node.size != **before));
        let resized: BTreeMap<InodeNr, u64> = resized.map(|(ino, size)| (*ino, *size)).collect();
        let mut notices = Notices { of: Vec::new(), owed: Owed::default() };
        if by.untold
            && let Some(own) = by.session
        {
            note_ends(own, &resized, inodes);
        }
        for (session, cache) in &self.caches {
            if Some(*session) == by.session {
                continue;
            }
            note_ends(*session, &resized, inodes);
            let references = &inodes.references;
            let known =
                |ino: &InodeNr| *ino == ROOT_INO || references.has_looked_up(*session, *ino);
            let mut touched =
                noted.attributes.iter().chain(noted.data.keys()).chain(resized.keys());
            if !touched.any(known) && !noted.names.iter().any(|(dir, _)| known(dir)) {
                continue;
            }
            let mut notice = Notice::new(&mut notices.owed);
            notice.attributes.extend(noted.attributes.iter().filter(|ino| known(ino)));
            let data = noted.data.iter().filter(|(ino, _)| known(ino));
            notice.data.extend(data.map(|(ino, (start, end))| (*ino, *start, *end)));
            notice.sizes.extend(resized.keys().filter(|ino| known(ino)));
            notice.names.extend(noted.names.iter().filter(|(dir, _)| known(dir)).cloned());
            notices.of.push((cache.clone(), notice));
        }
        notices
    }
}

/// What others are told of write leases.
impl Sharing {
    /// Before a lease is granted: the other sessions lose what they cache of the file, its pages
    /// included or not.
    pub fn before_lease(
        &self,
        session: SessionId,
        (ino, pages): (InodeNr, bool),
        inodes: &mut Inodes,
    ) -> Notices {
        let mut noted = Noted::default();
        noted.attributes.insert(ino);
        if pages {
            noted.data.insert(ino, (0, u64::MAX));
        }
        self.notices(By { session: Some(session), untold: false }, &noted, inodes)
    }

    /// A lease has ended: how long the file is that its holder changed, if others may believe
    /// anything else. They have nothing of it in their caches but the size that their kernels work
    /// with. They are not told that attributes changed: that would make a kernel drop the answer to
    /// a request that waited for the end.
    pub fn after_lease(&self, ended: Ended, inodes: &mut Inodes) -> Notices {
        let Ended { ino, session, told: (least, most) } = ended;
        let mut noted = Noted::default();
        let size = inodes.get(&ino).map_or(most, |node| node.size);
        // One kernel may have been told the one, and another one the other (rule R50).
        for end in [least, most].into_iter().filter(|end| *end != size) {
            let end = BTreeMap::from([(ino, end)]);
            let others = self.caches.iter().filter(|(other, _)| *other != session);
            others.for_each(|(other, _)| note_ends(*other, &end, inodes));
        }
        noted.sizes.insert(ino, if size == most { least } else { most });
        self.notices(By { session: Some(session), untold: false }, &noted, inodes)
    }
}

/// The session's kernel may append at the ends that were.
fn note_ends(session: SessionId, resized: &BTreeMap<InodeNr, u64>, inodes: &mut Inodes) {
    for (ino, before) in resized {
        if inodes.references.has_looked_up(session, *ino) {
            inodes.ends.changed(session, *ino, *before);
        }
    }
}

impl Order {
    /// How many sessions are told, to be looked at without the state lock.
    pub fn live(&self) -> Arc<AtomicUsize> {
        self.live.clone()
    }

    /// A session that lends is told the count from now on.
    pub fn begin(&mut self, session: SessionId, holder: Arc<dyn Holder>) {
        holder.ordered(self.count);
        self.lenders.insert(session, holder);
        self.live.store(self.lenders.len(), Ordering::SeqCst);
    }

    /// A session ends, whether it lent or not.
    pub fn end(&mut self, session: SessionId) {
        self.lenders.remove(&session);
        self.live.store(self.lenders.len(), Ordering::SeqCst);
    }

    /// Something was carried out that a later fsync(2) must not overtake, and is not answered yet.
    /// What an fsync must take along for it stands in the state already. Every session is told
    /// under the same hold of the lock, so no number comes after a larger one.
    pub fn advance(&mut self) {
        self.count += 1;
        self.lenders.values().for_each(|holder| holder.ordered(self.count));
    }
}

impl State {
    /// An operation begins.
    pub fn begin_changes(&mut self, by: By) {
        let wanted = self.sharing.is_wanted(by);
        self.metadata.log.changes.begin(wanted);
    }

    /// The operation has ended, also if it failed half-way: what other sessions are to be told.
    pub fn end_changes(&mut self, by: By) -> Option<Notices> {
        if self.metadata.log.changes.is_ordered() {
            self.sharing.order.advance();
        }
        let mut noted = self.metadata.log.changes.take()?;
        if let Some(session) = by.session {
            self.leases.withhold(session, &mut noted);
        }
        Some(self.sharing.notices(by, &noted, &mut self.metadata.tree.inodes))
    }
}
