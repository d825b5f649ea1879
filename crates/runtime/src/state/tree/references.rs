//! Which inodes each session refers to: by its lookups and by its open handles.
//!
//! All of a session's references end with it. An answer for a session that has ended meanwhile
//! leaves no reference behind.

use crate::state::tree::former::Former;
use crate::state::tree::nodes::give_back;
use ahash::{HashMap, HashSet};
use siftfs_base::InodeNr;
use siftfs_proto::compound::Access;

/// A session, by a number that was drawn at random.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SessionId(pub u64);

/// What an open handle stands for.
#[derive(Clone, Copy)]
pub struct Opened {
    /// Its inode.
    pub ino: InodeNr,
    /// What it may be used for; none if it only names the inode.
    pub access: Option<Access>,
    /// The session that it belongs to.
    session: SessionId,
}

impl Opened {
    fn writes(&self) -> bool {
        self.access.is_some_and(Access::writes)
    }
}

/// How much a session refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Open handles.
    pub handles: u64,
    /// Inodes that it has looked up, those that are gone since included.
    pub inodes: u64,
}

/// The inodes to which a session that has ended referred.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LetGo {
    /// One for each handle.
    pub handles: Vec<InodeNr>,
    /// Each inode that was looked up once.
    pub lookups: Vec<InodeNr>,
}

/// How many of something, lookups or handles of an inode, each session has.
enum Counts {
    One(SessionId, u64),
    More(Vec<(SessionId, u64)>),
}

impl Counts {
    fn of(&self, session: SessionId) -> u64 {
        match self {
            Self::One(own, count) if *own == session => *count,
            Self::One(..) => 0,
            Self::More(all) => all.iter().find(|(own, _)| *own == session).map_or(0, |(_, n)| *n),
        }
    }

    /// Those of all sessions but one.
    fn beside(&self, session: SessionId) -> u64 {
        let all = match self {
            Self::One(_, count) => *count,
            Self::More(all) => all.iter().map(|(_, count)| count).sum(),
        };
        all - self.of(session)
    }

    /// `more` of `session`; true if these are its first.
    fn add(&mut self, session: SessionId, more: u64) -> bool {
        match self {
            Self::One(own, count) if *own == session => {
                *count += more;
                false
            }
            Self::One(own, count) => {
                *self = Self::More(vec![(*own, *count), (session, more)]);
                true
            }
            Self::More(all) => match all.iter_mut().find(|(own, _)| *own == session) {
                Some((_, count)) => {
                    *count += more;
                    false
                }
                None => {
                    all.push((session, more));
                    true
                }
            },
        }
    }

    /// Those that are left without `count` of `session`.
    fn without(self, session: SessionId, count: u64) -> Option<Self> {
        match self {
            Self::One(own, held) if own == session => {
                let left = held.saturating_sub(count);
                (left > 0).then_some(Self::One(own, left))
            }
            Self::One(..) => Some(self),
            Self::More(mut all) => {
                for (own, held) in all.iter_mut() {
                    if *own == session {
                        *held = held.saturating_sub(count);
                    }
                }
                all.retain(|(_, held)| *held > 0);
                match all.as_slice() {
                    [] => None,
                    [(own, held)] => Some(Self::One(*own, *held)),
                    _ => Some(Self::More(all)),
                }
            }
        }
    }
}

/// The open sessions, and what each refers to.
#[derive(Default)]
pub struct References {
    sessions: HashMap<SessionId, Held>,
    /// Those of them that change nothing but what is leased to them.
    lending: HashSet<SessionId>,
    /// Of sessions of other machines' kernels, and of programs that come back: for what each has
    /// had an inode open since it looked the inode up. A kernel's pages outlive the descriptor.
    machines: HashMap<SessionId, HashMap<InodeNr, Access>>,
    lookups: HashMap<InodeNr, Counts>,
    /// Lookups of inodes that are gone: they name nothing.
    former: Former,
    handles: HashMap<u64, Opened>,
    /// The handles through which each inode may be written.
    writers: HashMap<InodeNr, Counts>,
    /// Number of the handle that was opened last.
    last: u64,
}

impl References {
    /// A session begins, without a reference.
    pub fn begin(&mut self, session: SessionId) {
        let before = self.sessions.insert(session, Held::default());
        assert!(before.is_none(), "a session's number is drawn until it is new");
    }

    /// A session begins that changes nothing but what is leased to it: its handles are no writers.
    pub fn begin_lending(&mut self, session: SessionId) {
        self.begin(session);
        self.lending.insert(session);
    }

    /// A session of another machine's kernel begins: what it may read and write by an inode's
    /// number is counted.
    pub fn begin_machine(&mut self, session: SessionId) {
        self.begin(session);
        self.machines.insert(session, HashMap::default());
    }

    /// For what the session may use an inode by its number, if it is one of which that is counted.
    pub fn granted(&self, session: SessionId, ino: InodeNr) -> Option<Option<Access>> {
        self.machines.get(&session).map(|granted| granted.get(&ino).copied())
    }

    /// The session ends.
    pub fn end(&mut self, session: SessionId) -> LetGo {
        let mut let_go = LetGo::default();
        let Some(held) = self.sessions.remove(&session) else { return let_go };
        if held.handles > 0 {
            let mut writes = Vec::new();
            self.handles.retain(|_, opened| {
                let own = opened.session == session;
                if own {
                    let_go.handles.push(opened.ino);
                    writes.extend(opened.writes().then_some(opened.ino));
                }
                !own
            });
            writes.into_iter().for_each(|ino| self.writes_less(session, ino));
            give_back(&mut self.handles);
        }
        if held.inodes > 0 {
            let of_session = |(ino, held): (&InodeNr, &Counts)| {
                let count = held.of(session);
                (count > 0).then_some((*ino, count))
            };
            let own: Vec<_> = self.lookups.iter().filter_map(of_session).collect();
            for (ino, count) in own {
                self.take(session, ino, count);
                let_go.lookups.push(ino);
            }
            give_back(&mut self.lookups);
        }
        self.former.end(session);
        self.lending.remove(&session);
        self.machines.remove(&session);
        let_go
    }

    /// How much an open session refers to.
    pub fn held(&self, session: SessionId) -> Option<Held> {
        self.sessions.get(&session).copied()
    }

    /// An answer tells the session of the inode: one lookup more.
    pub fn looked_up(&mut self, session: SessionId, ino: InodeNr) {
        self.looked_up_often(session, ino, 1);
    }

    /// The session has looked the inode up `count` times, at least once.
    pub fn looked_up_often(&mut self, session: SessionId, ino: InodeNr, count: u64) {
        let Some(held) = self.sessions.get_mut(&session) else { return };
        let first = match self.lookups.get_mut(&ino) {
            Some(lookups) => lookups.add(session, count),
            None => {
                self.lookups.insert(ino, Counts::One(session, count));
                true
            }
        };
        held.inodes += u64::from(first);
    }

    /// The session has looked an inode up `count` times that is gone by now: until that is given
    /// back, its number is not to be given to another one. False if the session has ended, and
    /// refers to nothing.
    pub fn looked_up_before(&mut self, session: SessionId, ino: InodeNr, count: u32) -> bool {
        let Some(held) = self.sessions.get_mut(&session) else { return false };
        held.inodes += u64::from(self.former.add((session, ino), count));
        true
    }

    /// Numbers of such inodes that may be given again.
    pub fn take_free_numbers(&mut self) -> Vec<InodeNr> {
        self.former.take_free()
    }

    /// The session gives up `count` of its lookups of the inode.
    pub fn forget(&mut self, session: SessionId, ino: InodeNr, count: u64) {
        let looked_up = self.lookups.get(&ino).map_or(0, |lookups| lookups.of(session));
        let count = match self.former.forget((session, ino), count, looked_up) {
            None => count,
            Some(false) => return,
            Some(true) => {
                if let Some(held) = self.sessions.get_mut(&session) {
                    held.inodes -= 1;
                }
                looked_up
            }
        };
        self.take(session, ino, count);
        give_back(&mut self.lookups);
    }

    fn take(&mut self, session: SessionId, ino: InodeNr, count: u64) {
        let Some(lookups) = self.lookups.remove(&ino) else { return };
        let before = lookups.of(session);
        if let Some(left) = lookups.without(session, count) {
            self.lookups.insert(ino, left);
        }
        let last = before > 0 && before <= count;
        if let Some(held) = self.sessions.get_mut(&session).filter(|_| last) {
            held.inodes -= 1;
        }
        if let Some(granted) = self.machines.get_mut(&session).filter(|_| last) {
            granted.remove(&ino);
            give_back(granted);
        }
    }

    /// Has the session looked the inode up?
    pub fn has_looked_up(&self, session: SessionId, ino: InodeNr) -> bool {
        self.lookups.get(&ino).is_some_and(|lookups| lookups.of(session) > 0)
    }

    /// All that the session has looked up.
    pub fn looked_up_by(&self, session: SessionId) -> Vec<InodeNr> {
        let own = self.lookups.iter().filter(|(_, lookups)| lookups.of(session) > 0);
        own.map(|(ino, _)| *ino).collect()
    }

    /// Has any session looked the inode up?
    pub fn is_looked_up(&self, ino: InodeNr) -> bool {
        self.lookups.contains_key(&ino)
    }

    /// Opens a handle, whose number no other had in this mount; false if the session has ended, and
    /// the number stands for nothing.
    pub fn open(
        &mut self,
        session: SessionId,
        ino: InodeNr,
        access: Option<Access>,
    ) -> (u64, bool) {
        self.last += 1;
        let held = self.sessions.get_mut(&session);
        let open = held.is_some();
        if let Some(held) = held {
            held.handles += 1;
            let opened = Opened { ino, access, session };
            if let Some((granted, access)) = self.machines.get_mut(&session).zip(access) {
                let before = granted.entry(ino).or_insert(access);
                if *before != access {
                    *before = Access::Both;
                }
            }
            self.handles.insert(self.last, opened);
            if opened.writes() && !self.lending.contains(&session) {
                match self.writers.get_mut(&ino) {
                    Some(writers) => drop(writers.add(session, 1)),
                    None => drop(self.writers.insert(ino, Counts::One(session, 1))),
                }
            }
        }
        (self.last, open)
    }

    /// A handle of the session is closed that was open to write the inode.
    fn writes_less(&mut self, session: SessionId, ino: InodeNr) {
        let Some(writers) = self.writers.remove(&ino) else { return };
        if let Some(left) = writers.without(session, 1) {
            self.writers.insert(ino, left);
        }
        give_back(&mut self.writers);
    }

    /// The handles through which other sessions than this one may write the inode.
    pub fn writers_beside(&self, session: SessionId, ino: InodeNr) -> u64 {
        self.writers.get(&ino).map_or(0, |writers| writers.beside(session))
    }

    /// What a session's open handle stands for; none if it is another session's (rule R31).
    pub fn opened(&self, session: SessionId, handle: u64) -> Option<Opened> {
        self.handles.get(&handle).filter(|opened| opened.session == session).copied()
    }

    /// Closes a session's handle. Returns its inode.
    pub fn close(&mut self, session: SessionId, handle: u64) -> Option<InodeNr> {
        let opened = self.opened(session, handle)?;
        let ino = opened.ino;
        self.handles.remove(&handle);
        if opened.writes() {
            self.writes_less(session, ino);
        }
        if let Some(held) = self.sessions.get_mut(&session) {
            held.handles -= 1;
        }
        give_back(&mut self.handles);
        Some(ino)
    }

    /// The volume is being closed: no session has looked anything up any more.
    pub fn forget_all(&mut self) {
        self.lookups.clear();
        self.former = Former::default();
        self.sessions.values_mut().for_each(|held| held.inodes = 0);
        self.machines.values_mut().for_each(HashMap::clear);
    }

    /// Bytes of the tables: lookups, then handles.
    pub fn bytes(&self) -> (u64, u64) {
        let granted: usize = self.machines.values().map(HashMap::capacity).sum();
        let lookups = self.lookups.capacity() * size_of::<(InodeNr, Counts)>()
            + granted * size_of::<(InodeNr, Access)>();
        let lookups = lookups + self.former.bytes();
        let handles = self.handles.capacity() * size_of::<(u64, Opened)>()
            + self.writers.capacity() * size_of::<(InodeNr, Counts)>();
        (lookups as u64, handles as u64)
    }
}

#[cfg(test)]
#[path = "references_tests.rs"]
mod tests;
