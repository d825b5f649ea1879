//! Clients that come back: what a server knows of each of them, and which calls wait after a death
//! (`docs/design/lost-server.md`).

mod book;
mod book_store;
mod calls;
mod client;
mod epochs;
mod keeper;
mod sessions;
mod state;

pub use book_store::{BookFile, BookStore};
pub(super) use calls::{Promise, answer_again, comes_after_all, file_of, is_of_file, promise};
pub use epochs::{Begins, VolumeEpoch, note_epoch};
pub(super) use keeper::{Keeper, make_durable};

use super::Secret;
use super::identity::Whose;
use super::notices::Notices;
use super::outbox::Outbox;
use book::{Book, Part};
use client::{Client, Repeated};
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_calls::{Back, Change, Done, Kept, Returning, TRIES};
use siftfs_proto::{FileService, Owed, Reply};
use state::State;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long others wait for clients that do not come back, and for one that stands still while it
/// comes back: what waited is carried out and answered within five seconds.
const GRACE: Duration = Duration::from_secs(4);
/// How long a client is waited for at least whose connection is lost while it comes back; for
/// another grace time all together.
const ANEW: Duration = Duration::from_secs(2);
/// How often a call that waits looks whether its session is over.
const LOOK: Duration = Duration::from_millis(200);

/// Where a server has its book, and what it has to know of the volume. What a recovery found is in
/// the book by then ([`note_epoch`]).
#[derive(Debug, Default)]
pub struct Before {
    /// Where the book is; without one, nothing survives the server.
    pub book: Option<Arc<dyn BookStore>>,
    /// The secret by which the server knows again what it, or one before it, has granted to clients
    /// whose callers are checked.
    pub secret: Option<Secret>,
    /// The volume's epoch.
    pub epoch: VolumeEpoch,
    /// The volume had to be recovered: there may have been a server with clients.
    pub recovered: bool,
}

/// The clients of a server that come back.
pub(super) struct Clients {
    pub instance: u64,
    epoch: VolumeEpoch,
    volume: [u8; 16],
    /// Where the book is.
    store: Option<Arc<dyn BookStore>>,
    /// What servers before wrote down, the oldest first.
    past: Vec<(u64, Part)>,
    newest: AtomicU64,
    /// As in the state, once it is so.
    open: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// A connection of a client that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    pub client: u64,
    number: u64,
}

/// A client that comes, or comes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comes {
    pub returning: Returning,
    /// Whose it is; none of the server's own user, and of root.
    pub whose: Option<Whose>,
    /// It is a program, and not a kernel.
    pub is_program: bool,
}

/// How a connection ends.
pub(super) enum Leaving {
    /// Its client has left, and never comes back.
    ForGood,
    /// Its client may come back; what its session has has ended with it.
    Ended,
    /// It is lost, and its session has all that it had.
    Lost,
}

/// Sessions that keep nothing any more, and are to be ended.
pub(super) type Over = Vec<Arc<dyn FileService>>;

/// What is to be done with a call.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Carry it out.
    Run,
    /// It was carried out, and this is its answer, which counts when nothing is owed any more.
    Answered(Box<Result<Reply>>, Done, Owed),
    /// It was carried out by a server that died: the answer is to be found out again; the inode
    /// that it was about.
    There(InodeNr),
    /// It cannot be carried out.
    Refused(Error),
    /// Its session is over: nobody is to answer it.
    Over,
}

impl Clients {
    /// Those of a new server of a volume. It writes the book anew.
    ///
    /// # Errors
    /// The book cannot be written.
    pub fn new(volume: [u8; 16], before: Before) -> Result<Self> {
        let instance = draw()?;
        let Before { book: store, epoch, recovered, .. } = before;
        let mut parts = store.as_deref().map_or_else(Vec::new, |store| Book::read(store, volume));
        let mut is_unknown = parts.is_empty() && store.is_some() && recovered;
        if let Some((_, newest)) = parts.last_mut() {
            match newest.fits(epoch) {
                true => {
                    newest.epochs.clear();
                    // A server that waited for them did not come to the end of that.
                    is_unknown = newest.blind;
                }
                // The volume was served, or recovered, elsewhere since: nothing is known of what
                // clients have kept.
                false => {
                    parts.clear();
                    is_unknown = true;
                }
            }
        }
        // Two deaths in a row may leave clients of both; older ones had their grace time.
        let keep = parts.len().saturating_sub(4);
        parts.drain(..keep);
        let expected: HashSet<u64> =
            parts.last().iter().flat_map(|(_, p)| &p.clients).copied().collect();
        let clients = expected.iter().copied().collect();
        let own = Part { clients, epoch, blind: is_unknown, ..Part::default() };
        parts.push((instance, own));
        // One for nobody is not written before there is somebody.
        let book = match &store {
            Some(store) if parts.len() > 1 => Some(Book::write(store.clone(), volume, &parts)?),
            _ => None,
        };
        parts.pop();
        let state = State {
            clients: HashMap::new(),
            open: expected.is_empty() && !is_unknown,
            expected,
            is_unknown,
            until: Instant::now() + GRACE,
            latest: Instant::now() + 2 * GRACE,
            durable: 0,
            marks: HashMap::new(),
            book,
            connections: 0,
            gone: Vec::new(),
        };
        let (newest, changed) = Default::default();
        let open = AtomicBool::new(state.open);
        Ok(Self {
            instance,
            epoch,
            volume,
            store,
            past: parts,
            newest,
            open,
            state: Mutex::new(state),
            changed,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server begins to listen: from now on clients can come back.
    pub fn listens(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        (state.until, state.latest) = (now + GRACE, now + 2 * GRACE);
        // Also for nobody: a server that finds none knows that there may have been clients.
        if state.book.is_none()
            && let Some(store) = &self.store
        {
            let (epoch, blind) = (self.epoch, state.is_unknown);
            let part = Part { epoch, blind, ..Part::default() };
            match Book::write(store.clone(), self.volume, &[(self.instance, part)]) {
                Ok(book) => state.book = Some(book),
                Err(error) => tracing::warn!(%error, "the book of clients cannot be written yet"),
            }
        }
    }

    /// A client opens a session.
    ///
    /// # Errors
    /// There are too many, or the book cannot be written.
    pub fn arrive(
        &self,
        comes: Comes,
        (outbox, notices): (&Arc<Outbox>, &Arc<Notices>),
    ) -> Result<(Back, Connection)> {
        let Comes { returning: Returning { client: id, instance }, whose, is_program } = comes;
        let mut state = self.lock();
        let now = Instant::now();
        state.forget(now);
        if !state.clients.contains_key(&id) {
            state.make_room(whose)?;
        }
        state.connections += 1;
        let number = state.connections;
        let expected = state.expected.remove(&id);
        state.gone.retain(|gone| *gone != id);
        // Its connection before is lost, and the server has not seen that.
        let returns = state.clients.get(&id).is_some_and(|client| client.returning.is_some());
        let back = match instance {
            0 => Back::New,
            same if same == self.instance => match state.clients.get(&id) {
                Some(client) if !client.anew => Back::Same,
                // It was away for so long that its calls are forgotten, which it may not have heard
                // if the connection by which it was told is lost, too.
                _ => Back::Unknown,
            },
            other => match self.part(other) {
                Some(part) if part.ended => Back::Clean,
                Some(_) if expected || returns => Back::Again,
                // It was not waited for any longer, and others may have changed what it keeps.
                _ => Back::Unknown,
            },
        };
        let known = expected || state.clients.contains_key(&id);
        if !known || back == Back::Unknown {
            self.write_down(&mut state, id)?;
        }
        let client = state.clients.entry(id).or_default();
        let returns = known && !matches!(back, Back::New | Back::Unknown);
        (client.whose, client.is_program) = (whose, is_program);
        client.connects((number, outbox.clone(), notices.clone()), now, returns);
        client.forfeits |= back == Back::Unknown;
        client.anew |= back == Back::Unknown;
        // One that has nothing to bring back keeps nobody waiting.
        if back == Back::New {
            state.returned();
        }
        self.changed.notify_all();
        Ok((back, Connection { client: id, number }))
    }

    fn write_down(&self, state: &mut State, client: u64) -> Result<()> {
        match (&mut state.book, &self.store) {
            (Some(book), _) => book.client(client),
            (None, Some(store)) => {
                let part = Part {
                    clients: [client].into(),
                    durable: state.durable,
                    epoch: self.epoch,
                    blind: state.is_unknown,
                    ..Part::default()
                };
                let parts = [(self.instance, part)];
                state.book = Some(Book::write(store.clone(), self.volume, &parts)?);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// A client has brought back all that it wanted to. What its earlier sessions have beyond that
    /// is nobody's.
    #[must_use]
    pub fn returned(&self, connection: Connection) -> Over {
        let mut state = self.lock();
        let order = state.durable;
        let over = state.of(connection).map(|client| {
            client.returning = None;
            (client.forfeits, client.anew) = (false, false);
            // It may have been told by a connection that did not bring it any more.
            client.tell_durable(order);
            client.take_earlier()
        });
        state.returned();
        self.changed.notify_all();
        over.unwrap_or_default()
    }

    /// Waits until the call may be carried out, or is known to have been. `over` says that its
    /// session is.
    pub fn admit(
        &self,
        connection: Option<Connection>,
        (change, file): (Option<&Change>, Option<InodeNr>),
        over: impl Fn() -> bool,
    ) -> Verdict {
        // What an older connection brought is over before anything else changes.
        if let (Some(connection), Some(_)) = (connection, change)
            && !self.wait_quiet(connection, &over)
        {
            return Verdict::Over;
        }
        match (connection, change) {
            (Some(connection), Some(Change::Kept(kept))) => {
                self.repeat(connection, (kept, file), over)
            }
            (Some(connection), Some(Change::Reclaim)) => self.reclaim(connection, over),
            (None, Some(_)) => Verdict::Refused(errno(libc::EINVAL)),
            (
                Some(connection),
                Some(Change::Once { place, number } | Change::Absolute { place, number }),
            ) => match self.wait_open(&over) {
                true => self.once(connection, (*place, *number, first_of(*number)), over),
                false => Verdict::Over,
            },
            (_, None | Some(Change::Loose)) => match self.wait_open(&over) {
                true => Verdict::Run,
                false => Verdict::Over,
            },
        }
    }

    /// Does nobody return any more? Then calls go on at once.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Waits until nobody returns any more; false if the session is over before.
    fn wait_open(&self, over: &impl Fn() -> bool) -> bool {
        if self.is_open() {
            return true;
        }
        let mut state = self.lock();
        while !state.open {
            if over() {
                return false;
            }
            state.look();
            if !state.open {
                state = self.wait(state);
            }
        }
        self.open.store(true, Ordering::Release);
        true
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let left = state.until.saturating_duration_since(Instant::now());
        let look = if left.is_zero() { LOOK } else { LOOK.min(left) };
        self.changed.wait_timeout(state, look).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Something that a client had: it may be another client's to make again first, so all have to
    /// have repeated what they keep.
    fn reclaim(&self, connection: Connection, over: impl Fn() -> bool) -> Verdict {
        let mut state = self.lock();
        loop {
            match state.of(connection) {
                Some(client) => client.has_repeated(),
                None => return Verdict::Over,
            }
            self.changed.notify_all();
            state.look();
            if state.have_repeated() {
                return Verdict::Run;
            }
            if over() {
                return Verdict::Over;
            }
            state = self.wait(state);
        }
    }

    fn part(&self, instance: u64) -> Option<&Part> {
        self.past.iter().find(|(of, _)| *of == instance).map(|(_, part)| part)
    }

    /// The place of a kept change among those of all clients. Where servers have died one after the
    /// other, what the later one has repeated comes before what it had not come to.
    fn place(&self, kept: &Kept) -> (usize, u64) {
        let later = self.past.iter().rev().position(|(of, _)| *of == kept.instance);
        (later.unwrap_or_default(), kept.order)
    }

    /// A change that was answered by a server that died: in its order among those of all clients.
    fn repeat(
        &self,
        connection: Connection,
        (kept, file): (&Kept, Option<InodeNr>),
        over: impl Fn() -> bool,
    ) -> Verdict {
        let mut state = self.lock();
        let at = self.place(kept);
        loop {
            match state.of(connection).and_then(|client| client.returning.as_mut()) {
                Some(returning) => {
                    if returning.at.replace(at) != Some(at) {
                        // Others have waited to learn where this one is.
                        self.changed.notify_all();
                    }
                }
                None => return Verdict::Refused(errno(libc::EIO)),
            }
            state.look();
            if state.is_first(connection.client, at) {
                break;
            }
            if over() {
                return Verdict::Over;
            }
            state = self.wait(state);
        }
        if let Some(client) = state.of(connection) {
            client.moves();
        }
        drop(state);
        self.changed.notify_all();
        let Some(part) = self.part(kept.instance) else {
            return Verdict::Refused(errno(libc::EIO));
        };
        match part.has(kept, file) {
            true => Verdict::There(kept.inode.map_or(0, |(ino, _)| ino)),
            // It may have been repeated at a server that died, too.
            false => self.once(connection, (kept.place, kept.number, kept.tried), over),
        }
    }

    /// A change that must not be carried out twice.
    fn once(
        &self,
        connection: Connection,
        (place, number, tried): (u32, u64, [u64; TRIES]),
        over: impl Fn() -> bool,
    ) -> Verdict {
        let found = self.past.iter().filter_map(|(_, part)| part.found.as_ref());
        let survived = found.flat_map(|found| tried.map(|number| (found, number))).find_map(
            |(found, number)| {
                let carried = found.reply(connection.client, place, number)?;
                Some(carried.ino)
            },
        );
        let mut state = self.lock();
        loop {
            let Some(client) = state.of(connection) else {
                return Verdict::Over;
            };
            match client.begin(place, number, survived) {
                Repeated::New => return Verdict::Run,
                Repeated::Done(result, done, owed) => {
                    return Verdict::Answered(result, done, owed);
                }
                Repeated::Survived(ino) => return Verdict::There(ino),
                Repeated::Wrong => return Verdict::Refused(errno(libc::EINVAL)),
                // An older connection's thread is at it.
                Repeated::Running if over() => return Verdict::Over,
                Repeated::Running => state = self.wait(state),
            }
        }
    }

    /// A call was carried out: its answer is kept if it cannot be repeated blindly, and its client
    /// keeps it if it changed something.
    pub fn done(
        &self,
        connection: Connection,
        change: &Change,
        (file, done): (Option<InodeNr>, Done),
        (result, owed): (&Result<Reply>, Owed),
    ) {
        self.newest.fetch_max(done.order, Ordering::SeqCst);
        let mut state = self.lock();
        // Also for a connection that was lost meanwhile: its client asks again.
        let Some(client) = state.clients.get_mut(&connection.client) else { return };
        match change {
            Change::Once { place, number }
            | Change::Absolute { place, number }
            | Change::Kept(Kept { place, number, .. }) => {
                client.end((*place, *number), (result, owed), done);
            }
            Change::Reclaim | Change::Loose => {}
        }
        if done.order != 0 {
            client.keeps(file, done.order);
        }
        self.changed.notify_all();
    }

    /// A call that was to be carried out is not: its session is over, or it was refused before it
    /// changed anything.
    pub fn not_carried_out(&self, connection: Option<Connection>, change: Option<&Change>) {
        let (Some(connection), Some(change)) = (connection, change) else { return };
        if let Change::Once { place, number }
        | Change::Absolute { place, number }
        | Change::Kept(Kept { place, number, .. }) = change
        {
            if let Some(client) = self.lock().clients.get_mut(&connection.client) {
                client.take_back(*place, *number);
            }
            self.changed.notify_all();
        }
    }

    /// Clients that have gone for good since the last time.
    pub fn take_gone(&self) -> Vec<u64> {
        let mut state = self.lock();
        state.forget(Instant::now());
        std::mem::take(&mut state.gone)
    }

    /// Is no client known that may come back: is each of them forgotten, and none waited for?
    pub fn are_none(&self) -> bool {
        let mut state = self.lock();
        state.look();
        state.forget(Instant::now());
        state.clients.is_empty() && state.expected.is_empty()
    }

    /// Waits until nobody comes back any more, or until `over`.
    pub fn wait_for_all(&self, over: impl Fn() -> bool) {
        self.wait_open(&over);
    }

    /// The newest change: all before it have been carried out.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::SeqCst)
    }

    /// All changes of a file up to `order` are durable, and a session is about to be told so.
    ///
    /// # Errors
    /// The book cannot be written: it must not be told so.
    pub fn synced(&self, own: Option<u64>, file: InodeNr, order: u64) -> Result<()> {
        let mut state = self.lock();
        let State { clients, marks, book, .. } = &mut *state;
        let mut others = false;
        for (id, client) in clients.iter_mut() {
            let keeps = client.keeps_of(file);
            match Some(*id) == own {
                true if keeps.is_some_and(|newest| newest <= order) => client.keeps_not(file),
                true => {}
                false => others |= keeps > Some(marks.get(&file).copied().unwrap_or_default()),
            }
        }
        if others {
            if let Some(book) = book {
                book.mark(file, order)?;
            }
            marks.insert(file, order);
        }
        Ok(())
    }

    /// Does a client other than this one keep changes that are not durable by themselves?
    pub fn keeps(&self, but: Option<u64>) -> bool {
        self.lock().clients.iter().any(|(id, client)| Some(*id) != but && client.keeps_any())
    }

    /// Does a client keep changes that are to be made durable now and then?
    pub fn wants_durable(&self) -> bool {
        self.lock().clients.values().any(Client::wants_durable)
    }

    /// The server ends in order: nothing is carried out any more, and all is durable.
    ///
    /// # Errors
    /// The book cannot be written.
    pub fn ended(&self) -> Result<()> {
        self.all_durable(self.newest())?;
        let mut state = self.lock();
        match state.book.take() {
            // Nobody comes back.
            Some(book) if state.clients.is_empty() && state.expected.is_empty() => book.remove(),
            Some(mut book) => {
                let replies = state.replies(self.epoch.number);
                book.ended(&replies)
            }
            None => Ok(()),
        }
    }

    /// All changes up to this one are durable: it is written down, and then the clients are told.
    ///
    /// # Errors
    /// The book cannot be written: nobody is to be told.
    pub fn all_durable(&self, order: u64) -> Result<()> {
        let mut state = self.lock();
        state.forget(Instant::now());
        let State { clients, marks, book, durable, open, .. } = &mut *state;
        if let Some(book) = book {
            book.durable(order)?;
            if *open && book.is_long() {
                let clients = clients.keys().copied().collect();
                let epoch = self.epoch;
                let part = Part { clients, durable: order, epoch, ..Part::default() };
                book.rewrite(&[(self.instance, part)])?;
            }
        }
        *durable = order;
        marks.retain(|_, mark| *mark > order);
        for client in clients.values_mut() {
            client.durable(order);
            client.tell_durable(order);
        }
        Ok(())
    }
}

/// A number that no other server or client has.
pub(crate) fn draw() -> Result<u64> {
    let drawn = getrandom::u64();
    drawn.map(|n| n.max(1)).map_err(|e| Error::Refused(format!("no random numbers: {e}")))
}

/// One number by which a call may have been carried out before.
fn first_of(number: u64) -> [u64; TRIES] {
    let mut numbers = [0; TRIES];
    let [first, ..] = &mut numbers;
    *first = number;
    numbers
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
