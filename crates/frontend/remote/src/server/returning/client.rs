//! One client that comes back, as its server knows it.

use crate::server::identity::Whose;
use crate::server::notices::Notices;
use crate::server::outbox::Outbox;
use siftfs_base::{InodeNr, Lsn, Result};
use siftfs_calls::{Done, FromServer, SLOTS};
use siftfs_proto::{Carried, FileService, Owed, Reply};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the session of a lost connection keeps what it has.
const TERM: Duration = Duration::from_secs(10);
/// How long a mount may be away from a server that lives before it is forgotten.
const AWAY: Duration = Duration::from_secs(60);
/// Sessions of lost connections that are kept of a client: one more ends the oldest one.
const EARLIER: usize = 2;

/// A call that must not be carried out twice, and its answer when there is one.
struct Place {
    number: u64,
    answer: Option<(Box<Result<Reply>>, Done, Owed)>,
}

/// Where a client is while it comes back.
pub(super) struct Progress {
    /// The change that it wants to repeat next: how many servers have died since its own, and its
    /// place in that one's order.
    pub at: Option<(usize, u64)>,
    /// It has repeated all.
    pub repeated: bool,
    /// When it was heard of last.
    pub since: Instant,
    /// When it began.
    pub begun: Instant,
}

/// Files that a client has synced and whose changes it may keep still, before that is written down.
const SYNCED: usize = 1024;

/// The session of a connection that is lost.
struct Earlier {
    service: Arc<dyn FileService>,
    since: Instant,
}

/// What is known of a client.
pub(super) struct Client {
    /// Its connection, if it has one, and how it is told something.
    pub connection: Option<(u64, Arc<Outbox>)>,
    /// Whose it is; none of the server's own user, and of root.
    pub whose: Option<Whose>,
    /// It is a program, and not a kernel.
    pub is_program: bool,
    /// How its kernel is told what others change, by its last connection.
    notices: Option<Arc<Notices>>,
    /// It may repeat and reclaim.
    pub returning: Option<Progress>,
    /// When it came or went last.
    pub since: Instant,
    /// Its locks may have been another client's: it does not have them again.
    pub forfeits: bool,
    /// It was told that its session was ended, and has not come back since.
    pub anew: bool,
    /// Connections whose calls may still be carried out.
    busy: BTreeSet<u64>,
    /// They keep what they have until the client has taken it back.
    earlier: Vec<Earlier>,
    places: HashMap<u32, Place>,
    /// Files of which it keeps changes, and the newest one of each; changes of no file are of 0.
    keeps: HashMap<InodeNr, u64>,
    /// The same of files that it has synced: it keeps them until it has that answer.
    synced: HashMap<InodeNr, u64>,
}

/// A call that may have come before.
#[derive(Debug)]
pub(in crate::server) enum Repeated {
    /// It has not.
    New,
    /// It is being carried out.
    Running,
    /// It has been, with this answer, which its client may act on when nothing is owed any more.
    Done(Box<Result<Reply>>, Done, Owed),
    /// A server that died has carried it out, and it is there. The inode that it was about.
    Survived(InodeNr),
    /// Its number is not its place's next one.
    Wrong,
}

impl Default for Client {
    fn default() -> Self {
        let (connection, whose, notices, returning, busy, earlier, places) = Default::default();
        let (forfeits, keeps, synced) = (false, HashMap::new(), HashMap::new());
        Self {
            connection,
            whose,
            is_program: false,
            notices,
            returning,
            since: Instant::now(),
            forfeits,
            anew: false,
            busy,
            earlier,
            places,
            keeps,
            synced,
        }
    }
}

impl Client {
    /// A connection of it. An older one has no say any more, and ends; what its kernel was to be
    /// told by that it is told by this one.
    pub fn connects(
        &mut self,
        (number, outbox, notices): (u64, Arc<Outbox>, Arc<Notices>),
        now: Instant,
        returns: bool,
    ) {
        self.busy.insert(number);
        if let Some((_, older)) = self.connection.replace((number, outbox)) {
            older.cut();
        }
        if let Some(older) = self.notices.replace(notices.clone()) {
            older.go_on(&notices);
        }
        self.since = now;
        self.returning =
            returns.then_some(Progress { at: None, repeated: false, since: now, begun: now });
    }

    /// Nothing that came by this connection is carried out any more.
    pub fn is_quiet(&mut self, connection: u64) {
        self.busy.remove(&connection);
    }

    /// May what came by an older connection than this one still be carried out?
    pub fn has_older_calls(&self, connection: u64) -> bool {
        self.busy.first().is_some_and(|oldest| *oldest < connection)
    }

    /// A connection is lost: its session keeps what it has. Which session is to be ended instead:
    /// the oldest one knows what the kernel knows.
    pub fn keeps_session(&mut self, service: Arc<dyn FileService>) -> Option<Arc<dyn FileService>> {
        self.earlier.push(Earlier { service, since: Instant::now() });
        let more = self.earlier.len() > EARLIER;
        self.forfeits |= more;
        more.then(|| self.earlier.remove(1).service)
    }

    /// Sessions of lost connections whose term is over are not kept any more.
    pub fn take_late(&mut self, now: Instant) -> Vec<Arc<dyn FileService>> {
        let late = |earlier: &mut Earlier| now.duration_since(earlier.since) >= TERM;
        let late = self.earlier.extract_if(.., late).map(|earlier| earlier.service);
        let late: Vec<_> = late.collect();
        self.forfeits |= !late.is_empty();
        late
    }

    /// The client has what it wanted of its earlier sessions.
    pub fn take_earlier(&mut self) -> Vec<Arc<dyn FileService>> {
        self.earlier.drain(..).map(|earlier| earlier.service).collect()
    }

    /// For this time it could not come back, because the server took nobody: it does not count.
    pub fn excuse(&mut self, time: Duration) {
        self.since += time;
        self.earlier.iter_mut().for_each(|earlier| earlier.since += time);
    }

    /// Is it away for so long that it is forgotten? That of a program that is away is longer away
    /// than its session.
    pub fn is_away(&self, now: Instant) -> bool {
        let limit = if self.is_program { TERM } else { AWAY };
        self.is_gone() && now - self.since > limit
    }

    /// Is it away, and its session has ended?
    pub fn is_gone(&self) -> bool {
        self.connection.is_none() && !self.has_earlier()
    }

    /// Is there a session of a lost connection that keeps something?
    pub fn has_earlier(&self) -> bool {
        !self.earlier.is_empty()
    }

    /// It does something while it comes back.
    pub fn moves(&mut self) {
        if let Some(returning) = &mut self.returning {
            (returning.at, returning.since) = (None, Instant::now());
        }
    }

    /// It wants back what it had, or waits until it may.
    pub fn has_repeated(&mut self) {
        if let Some(returning) = &mut self.returning {
            (returning.repeated, returning.since) = (true, Instant::now());
        }
    }

    /// A call in one of its places.
    pub fn begin(&mut self, place: u32, number: u64, survived: Option<InodeNr>) -> Repeated {
        if place >= SLOTS {
            return Repeated::Wrong;
        }
        match self.places.get(&place) {
            Some(known) if known.number == number => match &known.answer {
                Some((result, done, owed)) => Repeated::Done(result.clone(), *done, owed.clone()),
                None => Repeated::Running,
            },
            // A client may give a call up, and its place is free then.
            Some(known) if known.number > number => Repeated::Wrong,
            _ => match survived {
                Some(ino) => Repeated::Survived(ino),
                None => {
                    self.places.insert(place, Place { number, answer: None });
                    Repeated::New
                }
            },
        }
    }

    /// It has not been carried out, and nothing of it: it may come again.
    pub fn take_back(&mut self, place: u32, number: u64) {
        let begun = |known: &Place| known.number == number && known.answer.is_none();
        if self.places.get(&place).is_some_and(begun) {
            self.places.remove(&place);
        }
    }

    /// It has been carried out.
    pub fn end(
        &mut self,
        (place, number): (u32, u64),
        (result, owed): (&Result<Reply>, Owed),
        done: Done,
    ) {
        if let Some(known) = self.places.get_mut(&place)
            && known.number == number
        {
            known.answer = Some((Box::new(result.clone()), done, owed));
        }
    }

    /// The changes of names that were carried out last, one per place.
    pub fn carried(&self) -> impl Iterator<Item = (u32, Carried)> {
        self.places.iter().filter_map(|(place, known)| {
            let (result, done, _) = known.answer.as_ref()?;
            let ino = match &**result {
                Ok(Reply::Entry(attr) | Reply::Created { attr, .. }) => attr.ino,
                Ok(_) => 0,
                Err(_) => return None,
            };
            let carried = Carried { number: known.number, lsn: Lsn(done.lsn), ino };
            (done.lsn != 0).then_some((*place, carried))
        })
    }

    /// It keeps a change.
    pub fn keeps(&mut self, file: Option<InodeNr>, order: u64) {
        let newest = self.keeps.entry(file.unwrap_or_default()).or_default();
        *newest = order.max(*newest);
    }

    /// The newest change of a file that it keeps, or may keep because it may not have the answer of
    /// its sync.
    pub fn keeps_of(&self, file: InodeNr) -> Option<u64> {
        self.keeps.get(&file).max(self.synced.get(&file)).copied()
    }

    /// It keeps none of this file any more, once it has the answer of its sync.
    pub fn keeps_not(&mut self, file: InodeNr) {
        if let Some(newest) = self.keeps.remove(&file) {
            self.synced.insert(file, newest);
        }
    }

    /// May it keep any change?
    pub fn keeps_any(&self) -> bool {
        !self.keeps.is_empty() || !self.synced.is_empty()
    }

    /// Is what it keeps to be made durable? What it has synced is, but of very many files, or of a
    /// client that is away and may be forgotten, that is to be written down.
    pub fn wants_durable(&self) -> bool {
        let away = self.connection.is_none() && !self.synced.is_empty();
        !self.keeps.is_empty() || away || self.synced.len() > SYNCED
    }

    /// All up to this change is durable.
    pub fn durable(&mut self, order: u64) {
        self.keeps.retain(|_, newest| *newest > order);
        self.synced.retain(|_, newest| *newest > order);
    }

    /// It is told that all up to this change is durable, if it is there; 0 for none.
    pub fn tell_durable(&self, order: u64) {
        if let Some((_, outbox)) = &self.connection
            && order > 0
        {
            outbox.queue(FromServer::Durable { order });
        }
    }
}
