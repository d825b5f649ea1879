//! All locks and waits of a volume. Nothing here waits or calls anybody: each step returns the
//! answers that are to be given once the table's mutex is free.

use super::circles::reaches;
use super::owned::{Change, Lock, Owned, OwnerId};
use super::room::{OF_ONE_FILE, Room, User};
use super::space::{Serial, Space, SpaceId};
use crate::state::tree::references::SessionId;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::{
    Completion, HeldLock, LockAsk, LockKind, LockPlace, LockRange, LockWait, WaitUntil,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What a session asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) session: SessionId,
    /// The user that it is counted to.
    pub(crate) user: u32,
    pub(crate) ino: InodeNr,
    /// The handle with which the lock ends.
    pub(crate) handle: u64,
    pub(crate) ask: LockAsk,
}

impl Ask {
    fn owner(&self) -> OwnerId {
        OwnerId { session: self.session, number: self.ask.owner }
    }

    fn space(&self) -> SpaceId {
        SpaceId { ino: self.ino, whole: self.ask.place == LockPlace::Whole }
    }

    fn range(&self) -> LockRange {
        match self.ask.place {
            LockPlace::Range(range) => range,
            LockPlace::Whole => LockRange::ALL,
        }
    }

    fn payer(&self) -> User {
        (self.session, self.user)
    }

    /// The wait, if it may be part of a circle.
    fn detects(&self) -> bool {
        self.ask.place != LockPlace::Whole && self.waits_until(WaitUntil::Process)
    }

    fn waits_until(&self, until: WaitUntil) -> bool {
        self.ask.wait.is_some_and(|wait| wait.until == until)
    }
}

/// A request that waits for its lock.
struct Wait {
    ask: Ask,
    kind: LockKind,
    number: u64,
    done: Completion,
}

/// Requests and what they are to be answered with.
pub(super) type Answers = Vec<(Completion, Result<()>)>;

/// What came of a request at once.
enum Tried {
    Done,
    /// Somebody is in the way.
    Blocked(LockKind, OwnerId),
}

/// What a session has.
#[derive(Default)]
struct Held {
    /// Its waits, by the numbers that it gave them.
    waits: HashMap<u64, Serial>,
    /// What was taken through each handle: where, by whom, and how many parts.
    through: HashMap<u64, BTreeMap<(SpaceId, OwnerId), u64>>,
    /// Those of these handles that may be about to be closed.
    closing: HashSet<u64>,
    /// Whose session it is, if that client comes back.
    client: Option<u64>,
}

/// The locks of a volume.
#[derive(Default)]
pub(super) struct Table {
    sessions: HashMap<SessionId, Held>,
    /// The sessions of each client that comes back: more than one while it does.
    clients: HashMap<u64, Vec<SessionId>>,
    spaces: HashMap<SpaceId, Space>,
    /// Waits, in the order in which they came.
    waits: BTreeMap<Serial, Wait>,
    /// Those among them that may be part of a circle, by owner.
    waiting: HashMap<OwnerId, Vec<Serial>>,
    last: Serial,
    room: Room,
}

impl Table {
    /// A session of `client` that may have `most` locks and waits.
    pub(super) fn begin(&mut self, session: SessionId, most: u64, client: Option<u64>) {
        self.sessions.insert(session, Held { client, ..Held::default() });
        if let Some(client) = client {
            self.clients.entry(client).or_default().push(session);
        }
        self.room.begin(session, most);
    }

    /// Parts of locks, and waits.
    pub(super) fn count(&self) -> (u64, u64) {
        let waits = self.waits.len() as u64;
        (self.room.used() - waits, waits)
    }

    /// All that the session has ends.
    pub(super) fn end(&mut self, session: SessionId) -> Answers {
        let Some(held) = self.sessions.remove(&session) else { return Answers::new() };
        if let Some(client) = held.client
            && let Some(own) = self.clients.get_mut(&client)
        {
            own.retain(|other| *other != session);
            if own.is_empty() {
                self.clients.remove(&client);
            }
        }
        let mut answers = Answers::new();
        for serial in held.waits.into_values() {
            let wait = self.stop(serial);
            answers.push((wait.done, Err(errno(libc::ESTALE))));
        }
        for place in held.through.into_values() {
            for (space, owner) in place.into_keys() {
                let all = |owned: &mut Owned| owned.set(LockRange::ALL, None);
                self.change(space, owner, 0, all);
                self.settle(space, owner, &mut answers);
            }
        }
        self.room.end(session);
        answers
    }

    /// The handle is closed, and all that was taken through it is given up. With `waits` requests
    /// may still wait through it.
    pub(super) fn close(&mut self, session: SessionId, handle: u64, waits: bool) -> Answers {
        let mut answers = Answers::new();
        let Some(held) = self.sessions.get_mut(&session) else { return answers };
        let through = held.through.remove(&handle).unwrap_or_default();
        held.closing.remove(&handle);
        let waits: Vec<Serial> = match waits {
            true => held.waits.values().copied().collect(),
            false => Vec::new(),
        };
        for serial in waits {
            if self.waits.get(&serial).is_some_and(|wait| wait.ask.handle == handle) {
                let wait = self.stop(serial);
                answers.push((wait.done, Err(errno(libc::EBADF))));
            }
        }
        for (space, owner) in through.into_keys() {
            self.change(space, owner, 0, |owned| owned.close(handle));
            self.settle(space, owner, &mut answers);
        }
        answers
    }

    /// A descriptor of the handle is closed, which may be the last one.
    pub(super) fn close_descriptor(&mut self, gives_up: &Ask) -> Answers {
        let answers = self.set(gives_up, Box::new(drop));
        if let Some(held) = self.sessions.get_mut(&gives_up.session)
            && held.through.contains_key(&gives_up.handle)
        {
            held.closing.insert(gives_up.handle);
        }
        answers
    }

    /// A lock of another owner that is in the way.
    pub(super) fn get(
        &self,
        ino: InodeNr,
        owner: OwnerId,
        range: LockRange,
        kind: LockKind,
    ) -> Option<HeldLock> {
        let space = self.spaces.get(&SpaceId { ino, whole: false })?;
        space.conflict(owner, range, kind).map(|(_, lock)| lock)
    }

    /// Takes a lock, gives it up, or begins to wait for it.
    pub(super) fn set(&mut self, ask: &Ask, done: Completion) -> Answers {
        let mut answers = Answers::new();
        let (space, owner) = (ask.space(), ask.owner());
        let before = self.take_over(ask);
        match (self.try_set(ask, &mut answers), ask.ask.wait) {
            (Ok(Tried::Done), _) => answers.push((done, Ok(()))),
            (Err(e), _) => answers.push((done, Err(e))),
            (Ok(Tried::Blocked(..)), None) => answers.push((done, Err(errno(libc::EAGAIN)))),
            (Ok(Tried::Blocked(kind, by)), Some(wait)) => match self.may_wait(ask, kind, wait) {
                Ok(()) => self.wait(Wait { ask: *ask, kind, number: wait.number, done }, by),
                Err(e) => answers.push((done, Err(e))),
            },
        }
        before.into_iter().for_each(|owner| self.settle(space, owner, &mut answers));
        self.settle(space, owner, &mut answers);
        answers
    }

    /// What earlier sessions of the same client have of this is given up in the same step in which
    /// the session takes it: nobody else gets it in between. Whose it was.
    fn take_over(&mut self, ask: &Ask) -> Vec<OwnerId> {
        let client = self.sessions.get(&ask.session).and_then(|held| held.client);
        let sessions = client.and_then(|client| self.clients.get(&client));
        let Some(sessions) = sessions.filter(|all| all.len() > 1) else { return Vec::new() };
        let (id, number) = (ask.space(), ask.ask.owner);
        let earlier = sessions.iter().filter(|other| **other != ask.session);
        let owners = earlier.map(|session| OwnerId { session: *session, number });
        let has =
            |owner: &OwnerId| self.spaces.get(&id).is_some_and(|s| s.owners.contains_key(owner));
        let owners: Vec<OwnerId> = owners.filter(has).collect();
        for owner in &owners {
            self.change(id, *owner, 0, |owned| owned.set(ask.range(), None));
        }
        owners
    }

    /// Ends a wait.
    pub(super) fn cancel(&mut self, session: SessionId, number: u64) -> Answers {
        let held = self.sessions.get_mut(&session);
        let Some(serial) = held.and_then(|held| held.waits.get(&number).copied()) else {
            return Answers::new();
        };
        let wait = self.stop(serial);
        if wait.ask.waits_until(WaitUntil::Closed) {
            for (session, handle) in self.handles_in_the_way(&wait.ask, wait.kind) {
                if let Some(held) = self.sessions.get_mut(&session) {
                    held.closing.remove(&handle);
                }
            }
        }
        vec![(wait.done, Err(errno(libc::EINTR)))]
    }

    /// Through which handles what is in the way was taken.
    fn handles_in_the_way(&self, ask: &Ask, kind: LockKind) -> Vec<(SessionId, u64)> {
        let Some(space) = self.spaces.get(&ask.space()) else { return Vec::new() };
        let (me, range) = (ask.owner(), ask.range());
        let others = space.owners.iter().filter(|(other, _)| **other != me);
        let handles = others.flat_map(|(other, owned)| {
            owned.handles(range, kind).map(|handle| (other.session, handle))
        });
        handles.collect()
    }

    /// May everything that is in the way be about to end?
    fn may_end(&self, ask: &Ask, kind: LockKind) -> bool {
        let closing = |(session, handle): (SessionId, u64)| {
            self.sessions.get(&session).is_some_and(|held| held.closing.contains(&handle))
        };
        self.handles_in_the_way(ask, kind).into_iter().all(closing)
    }

    fn try_set(&mut self, ask: &Ask, answers: &mut Answers) -> Result<Tried> {
        if !self.room.is_open(ask.session) {
            return Err(errno(libc::ESTALE));
        }
        let (id, owner, range) = (ask.space(), ask.owner(), ask.range());
        let Some(kind) = ask.ask.kind else {
            return self.give_up(ask).map(|()| Tried::Done);
        };
        let space = self.spaces.entry(id).or_default();
        if id.whole
            && let Some(own) = space.owners.get(&owner)
        {
            if own.has_all(range, kind) {
                return Ok(Tried::Done);
            }
            self.change(id, owner, ask.user, |owned| owned.set(range, None));
        }
        let space = self.spaces.entry(id).or_default();
        match space.conflict(owner, range, kind) {
            Some((by, _)) => Ok(Tried::Blocked(kind, by)),
            None => self.take(ask, kind, answers).map(|()| Tried::Done),
        }
    }

    fn give_up(&mut self, ask: &Ask) -> Result<()> {
        let (space, owner, range) = (ask.space(), ask.owner(), ask.range());
        let Some(owned) = self.spaces.get(&space).and_then(|s| s.owners.get(&owner)) else {
            return Ok(());
        };
        let grows = owned.grows(range, false);
        if grows > 0 && !self.room.has((ask.session, owned.user), grows) {
            return Err(errno(libc::ENOLCK));
        }
        self.change(space, owner, ask.user, |owned| owned.set(range, None));
        Ok(())
    }

    /// Takes a lock that nobody is in the way of.
    fn take(&mut self, ask: &Ask, kind: LockKind, answers: &mut Answers) -> Result<()> {
        let (id, owner, range) = (ask.space(), ask.owner(), ask.range());
        let space = self.spaces.entry(id).or_default();
        let (user, grows) = match space.owners.get(&owner) {
            Some(owned) => (owned.user, owned.grows(range, true)),
            None if space.owners.len() >= OF_ONE_FILE => return Err(errno(libc::ENOLCK)),
            None => (ask.user, 1),
        };
        if !self.room.has((ask.session, user), grows) {
            return Err(errno(libc::ENOLCK));
        }
        let lock = Lock { kind, pid: ask.ask.pid, handle: ask.handle };
        self.change(id, owner, user, |owned| owned.set(range, Some(lock)));
        self.break_circles(ask, kind, answers);
        Ok(())
    }

    /// Changes what an owner has, and counts it.
    fn change(
        &mut self,
        id: SpaceId,
        owner: OwnerId,
        user: u32,
        act: impl FnOnce(&mut Owned) -> Change,
    ) {
        let space = self.spaces.entry(id).or_default();
        let owned = space.owners.entry(owner).or_insert_with(|| Owned::of(user));
        let (payer, before) = ((owner.session, owned.user), owned.len() as u64);
        let change = act(owned);
        let after = owned.len() as u64;
        if owned.is_empty() {
            space.owners.remove(&owner);
        }
        self.room.take(payer, after.saturating_sub(before));
        self.room.give_back(payer, before.saturating_sub(after));
        // A session that has ended is not in the table any more, nor is a handle that is closed.
        let Some(held) = self.sessions.get_mut(&owner.session) else { return };
        for handle in change.new {
            *held.through.entry(handle).or_default().entry((id, owner)).or_default() += 1;
        }
        for handle in change.gone {
            let Some(places) = held.through.get_mut(&handle) else { continue };
            let left = places.get_mut(&(id, owner)).expect("each part is counted");
            *left -= 1;
            if *left == 0 {
                places.remove(&(id, owner));
            }
            if places.is_empty() {
                held.through.remove(&handle);
                held.closing.remove(&handle);
            }
        }
    }
}

/// Waits.
impl Table {
    /// May the request begin to wait?
    fn may_wait(&self, ask: &Ask, kind: LockKind, wait: LockWait) -> Result<()> {
        let held = self.sessions.get(&ask.session).ok_or_else(|| errno(libc::ESTALE))?;
        if held.waits.contains_key(&wait.number) {
            return Err(errno(libc::EINVAL));
        }
        let space = self.spaces.get(&ask.space()).expect("somebody is in the way there");
        if ask.waits_until(WaitUntil::Closed) && !self.may_end(ask, kind) {
            return Err(errno(libc::EAGAIN));
        }
        if ask.detects() {
            let from = space.in_the_way(ask.owner(), ask.range(), kind);
            if reaches(from, ask.owner(), |owner| self.waits_for(owner)) {
                return Err(errno(libc::EDEADLK));
            }
        }
        match space.queue.len() < OF_ONE_FILE && self.room.has(ask.payer(), 1) {
            true => Ok(()),
            false => Err(errno(libc::ENOLCK)),
        }
    }

    /// For whom this owner waits, as far as that may be part of a circle.
    fn waits_for(&self, owner: OwnerId) -> Vec<OwnerId> {
        let mut all = Vec::new();
        for serial in self.waiting.get(&owner).into_iter().flatten() {
            let Wait { ask, kind, .. } = self.waits.get(serial).expect("a wait that is counted");
            let space = self.spaces.get(&ask.space()).expect("it waits there");
            all.extend(space.in_the_way(owner, ask.range(), *kind));
        }
        all
    }

    /// Begins a wait behind `by`.
    fn wait(&mut self, wait: Wait, by: OwnerId) {
        let Wait { ask, number, .. } = wait;
        self.last += 1;
        let serial = self.last;
        self.room.take(ask.payer(), 1);
        let space = self.spaces.entry(ask.space()).or_default();
        space.queue.insert(serial, by);
        if ask.detects() {
            self.waiting.entry(ask.owner()).or_default().push(serial);
        }
        let held = self.sessions.get_mut(&ask.session).expect("it may wait");
        held.waits.insert(number, serial);
        self.waits.insert(serial, wait);
    }

    /// Takes a wait out.
    fn stop(&mut self, serial: Serial) -> Wait {
        let wait = self.waits.remove(&serial).expect("a wait that is there");
        let ask = &wait.ask;
        self.room.give_back(ask.payer(), 1);
        if let Some(held) = self.sessions.get_mut(&ask.session) {
            held.waits.remove(&wait.number);
        }
        if let Some(own) = self.waiting.get_mut(&ask.owner()) {
            own.retain(|other| *other != serial);
            if own.is_empty() {
                self.waiting.remove(&ask.owner());
            }
        }
        self.spaces.entry(ask.space()).or_default().queue.remove(&serial);
        self.tidy(ask.space());
        wait
    }

    /// `owner` may have given something up: those who waited for that get it, in the order of
    /// their waits, or go on waiting for another owner.
    fn settle(&mut self, id: SpaceId, owner: OwnerId, answers: &mut Answers) {
        let mut freed = vec![owner];
        while self.settle_once(id, &mut freed, answers) {}
        self.tidy(id);
    }

    /// True if somebody who got a lock gave another one up for it: then earlier waits may go on.
    fn settle_once(
        &mut self,
        id: SpaceId,
        freed: &mut Vec<OwnerId>,
        answers: &mut Answers,
    ) -> bool {
        let behind = self.spaces.get(&id).map(|space| space.behind(freed)).unwrap_or_default();
        for serial in behind {
            // It may have been ended: it would have closed a circle with one that went on.
            let Some(Wait { ask, kind, .. }) = self.waits.get(&serial) else { continue };
            let (owner, range, kind, ask) = (ask.owner(), ask.range(), *kind, *ask);
            let space = self.spaces.get_mut(&id).expect("somebody waits there");
            if let Some((by, _)) = space.conflict(owner, range, kind) {
                space.queue.insert(serial, by);
                if ask.waits_until(WaitUntil::Closed) && !self.may_end(&ask, kind) {
                    let wait = self.stop(serial);
                    answers.push((wait.done, Err(errno(libc::EAGAIN))));
                }
                continue;
            }
            let had = space.owners.get(&owner).is_some_and(|own| !own.is_empty());
            let wait = self.stop(serial);
            let taken = self.take(&ask, kind, answers);
            answers.push((wait.done, taken));
            if had {
                freed.push(owner);
                return true;
            }
        }
        false
    }

    /// Ends the waits for a lock that was just taken, where its new owner waits for the waiting
    /// one in turn.
    fn break_circles(&mut self, ask: &Ask, kind: LockKind, answers: &mut Answers) {
        let (id, owner, range) = (ask.space(), ask.owner(), ask.range());
        if id.whole || !self.waiting.contains_key(&owner) {
            return;
        }
        let space = self.spaces.get(&id).expect("a lock was taken there");
        let stands = |serial: &Serial| {
            let wait = self.waits.get(serial).expect("a wait that is counted");
            wait.ask.detects()
                && wait.ask.owner() != owner
                && wait.ask.range().overlaps(range)
                && wait.kind.conflicts(kind)
        };
        let behind: Vec<Serial> = space.queue.keys().copied().filter(stands).collect();
        for serial in behind {
            let waiter = self.waits.get(&serial).expect("it is there").ask.owner();
            if reaches([owner], waiter, |owner| self.waits_for(owner)) {
                let wait = self.stop(serial);
                answers.push((wait.done, Err(errno(libc::EDEADLK))));
            }
        }
    }

    fn tidy(&mut self, id: SpaceId) {
        if self.spaces.get(&id).is_some_and(Space::is_empty) {
            self.spaces.remove(&id);
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
