//! A client that waits for its server when that is lost, finds it again, and goes on
//! (`docs/design/lost-server.md`).
//!
//! Each connection is a [`Client`] of its own. What outlives it is here: the numbers of what is
//! open, what the kernel refers to, and the changes that nobody knows to be durable.

mod kept;
mod kind;
mod numbers;
mod opens;
mod places;
mod returning;
mod waits;

use super::looked::LookedUp;
use super::{Client, Watch};
use crate::server::draw;
use kept::Kept;
use kind::Kind;
use numbers::Numbers;
use opens::{How, Opens};
use places::{Place, Places};
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_calls::{Change, Done, FileProtocol, Opening, ToServer};
use siftfs_proto::{
    Cache, Completion, Credentials, FileService, Level, Owed, Reply, Request, Target, XattrMode,
};
use siftfs_transport::CallerEnd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Makes a connection to the server.
pub type Dial = Box<dyn Fn() -> Result<CallerEnd<FileProtocol>> + Send + Sync>;

/// How long calls wait for a server that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Until it is there again.
    Hard,
    /// That long, from the loss on; then they fail with `EIO`.
    Soft(Duration),
}

/// How long a change waits for room before it looks whether the server is lost.
const MOMENT: Duration = Duration::from_millis(100);

/// What a call does next when its server was lost.
enum Next {
    Again,
    Fail(Error),
}

struct Now {
    /// The connection that calls go by; none while the server is lost.
    client: Option<Arc<Client>>,
    /// Which connection that is, from 1 on.
    connection: u64,
    /// The server's number.
    instance: u64,
    /// How many calls have the connection.
    calls: usize,
    /// Since when it is lost, and why.
    lost: Option<(Instant, Error)>,
    /// All answers of the connection before had come when it was lost.
    had_answers: bool,
    leaving: bool,
    /// Nobody waits for a server that is lost.
    unwanted: bool,
    /// What was given back while the server was lost.
    given: Vec<(Credentials, Request)>,
}

struct Shared {
    dial: Dial,
    opening: Opening,
    cache: Option<Arc<dyn Cache>>,
    looked_up: Arc<LookedUp>,
    patience: Patience,
    id: u64,
    volume: OnceLock<[u8; 16]>,
    /// The server lets the session come back. One whose callers it checks ends with it.
    comes_back: OnceLock<bool>,
    now: Mutex<Now>,
    /// The connection is lost, or there again, or not used any more.
    changed: Condvar,
    kept: Kept,
    opens: Opens,
    places: Places,
    tickets: Numbers,
    sections: Numbers,
    waits: waits::Waits,
    peer: Mutex<String>,
    calls: AtomicU64,
}

/// A session that comes back. It ends when this is dropped.
pub struct Lasting {
    shared: Arc<Shared>,
    returns: Option<JoinHandle<()>>,
}

/// A call's use of a connection.
struct Using<'a> {
    shared: &'a Shared,
    client: Arc<Client>,
    connection: u64,
    instance: u64,
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        let mut now = self.shared.lock();
        now.calls -= 1;
        if now.calls == 0 {
            self.shared.changed.notify_all();
        }
    }
}

/// A connection tells what comes without a call.
struct Watcher {
    shared: Weak<Shared>,
    connection: u64,
    instance: OnceLock<u64>,
}

impl Watch for Watcher {
    fn durable(&self, order: u64) {
        if let (Some(shared), Some(instance)) = (self.shared.upgrade(), self.instance.get()) {
            shared.kept.durable(*instance, order);
        }
    }

    fn lost(&self, why: &Error) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lost(self.connection, why);
        }
    }
}

impl std::fmt::Debug for Lasting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a lasting session of {}", self.peer())
    }
}

impl Lasting {
    /// Opens a session that comes back. It is a kernel's.
    ///
    /// # Errors
    /// As [`Client::connect`]: the first time nothing is waited for.
    pub fn connect(
        dial: Dial,
        (volume, claim): (&str, siftfs_calls::Claim),
        cache: Option<Arc<dyn Cache>>,
        patience: Patience,
    ) -> Result<Self> {
        let volume = volume.into();
        let caches = cache.is_some();
        let opening = Opening { volume, claim, caches, lends: false, returning: None };
        let now = Now {
            client: None,
            connection: 0,
            instance: 0,
            calls: 0,
            lost: None,
            had_answers: false,
            leaving: false,
            unwanted: false,
            given: Vec::new(),
        };
        let shared = Arc::new(Shared {
            dial,
            opening,
            cache,
            looked_up: Arc::default(),
            patience,
            id: draw()?,
            volume: OnceLock::new(),
            comes_back: OnceLock::new(),
            now: Mutex::new(now),
            changed: Condvar::new(),
            kept: Kept::default(),
            opens: Opens::default(),
            places: Places::default(),
            tickets: Numbers::default(),
            sections: Numbers::default(),
            waits: waits::Waits::default(),
            peer: Mutex::default(),
            calls: AtomicU64::new(0),
        });
        shared.come_back()?;
        let theirs = shared.clone();
        let returns = std::thread::Builder::new()
            .name("siftfs-returns".into())
            .spawn(move || theirs.keep_coming_back())
            .map_err(|e| Error::Refused(format!("cannot start a session's thread: {e}")))?;
        Ok(Self { shared, returns: Some(returns) })
    }

    /// The volume's UUID.
    pub fn volume(&self) -> [u8; 16] {
        self.shared.volume.get().copied().unwrap_or_default()
    }

    /// The server, in words for messages.
    pub fn peer(&self) -> String {
        self.shared.peer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The server checks what the callers of this kernel may do: calls are to carry their rights.
    pub fn checks(&self) -> bool {
        !self.shared.may_come_back()
    }

    /// Calls that were sent.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Changes that were answered and that nobody knows to be durable.
    pub fn kept(&self) -> usize {
        self.shared.kept.len()
    }

    /// Why the server is not there just now, if it is lost.
    pub fn lost(&self) -> Option<Error> {
        self.shared.lock().lost.as_ref().map(|(_, error)| error.clone())
    }

    /// Ends the session in order, also while others have this, and while the server is lost. Later
    /// calls are errors, and so are those that wait.
    pub fn leave(&self) {
        let client = {
            let mut now = self.shared.lock();
            now.leaving = true;
            self.shared.changed.notify_all();
            now.client.clone()
        };
        client.iter().for_each(|client| client.leave());
        self.shared.waits.end();
    }

    /// As [`FileService::call`], of a command: where the server is lost it is an error at once.
    ///
    /// # Errors
    /// Those of the call, and that the server is lost.
    pub fn call_now(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        match self.lost() {
            Some(error) => Err(error),
            None => self.call(cred, req),
        }
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        self.leave();
        if let Some(thread) = self.returns.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl FileService for Lasting {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        let (result, owed) = self.call_owing(cred, req);
        owed.wait();
        result
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        match self.shared.call(cred, req) {
            Ok((reply, owed)) => (Ok(reply), owed),
            Err(error) => (Err(error), Owed::default()),
        }
    }

    fn has_looked_up(&self, ino: InodeNr) -> bool {
        self.shared.looked_up.has(ino)
    }

    fn give_up(&self) {
        let error = {
            let mut now = self.shared.lock();
            now.unwanted = true;
            self.shared.changed.notify_all();
            now.lost.as_ref().map(|(_, error)| error.clone())
        };
        error.iter().for_each(|error| self.shared.waits.fail(error));
    }

    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        match waits::waits(&req) {
            true => waits::submit(&self.shared, cred, req, done),
            false => done(self.call(cred, req)),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection is lost.
    fn lost(&self, connection: u64, why: &Error) {
        let mut now = self.lock();
        if now.connection != connection || now.client.is_none() {
            return;
        }
        now.had_answers = now.client.take().is_some_and(|client| client.has_all_answers());
        if !now.leaving {
            let waits = self.may_come_back();
            tracing::warn!(server = self.peer_name(), %why, waits, "the server is lost");
        }
        now.lost.get_or_insert_with(|| (Instant::now(), why.clone()));
        now.leaving |= !self.may_come_back();
        self.changed.notify_all();
    }

    fn may_come_back(&self) -> bool {
        self.comes_back.get().copied().unwrap_or_default()
    }

    fn peer_name(&self) -> String {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// The session ends, or the server is lost for too long.
    fn using(&self) -> Result<Using<'_>> {
        let mut now = self.lock();
        loop {
            if now.leaving {
                return Err(errno(libc::EIO));
            }
            if let Some(client) = &now.client {
                let client = client.clone();
                now.calls += 1;
                let (connection, instance) = (now.connection, now.instance);
                return Ok(Using { shared: self, client, connection, instance });
            }
            if now.unwanted {
                return Err(errno(libc::EIO));
            }
            now = match (self.patience, &now.lost) {
                (Patience::Soft(limit), Some((since, error))) => {
                    let left = limit.saturating_sub(since.elapsed());
                    if left.is_zero() {
                        return Err(error.clone());
                    }
                    self.changed.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0
                }
                _ => self.changed.wait(now).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Makes a call until it is answered.
    fn call(&self, cred: &Credentials, mut req: Request) -> Result<(Reply, Owed)> {
        let kind = Kind::of(&req);
        if self.may_come_back() {
            make_final(&mut req);
        }
        let place = match kind {
            Kind::Once | Kind::Appends => Some(self.places.take()),
            _ => None,
        };
        let change = change_of(kind, place.as_ref()).filter(|_| self.may_come_back());
        let mut before: Option<u64> = None;
        loop {
            if kind == Kind::GivesBack && !self.give_back(cred, &req) {
                return Ok((Reply::Done, Owed::default()));
            }
            if change.is_some() {
                self.make_room()?;
            }
            let using = self.using()?;
            if let Some(instance) = before
                && let Next::Fail(error) = self.may_repeat(&using, instance, (kind, cred), &mut req)
            {
                return Err(error);
            }
            let said = self.call_once(&using, cred, &req, change);
            let ((result, done), owed) = said?;
            match result {
                Err(Error::Link(_)) if using.client.lost().is_some() => {
                    if kind == Kind::GivesBack {
                        return Ok((Reply::Done, Owed::default()));
                    }
                    before = Some(using.instance);
                }
                Err(error) if before.is_some() && was_done(&req, &error) => {
                    return Ok((Reply::Done, owed));
                }
                result => {
                    let reply = self.answered(&using, (cred, req), result, done)?;
                    return Ok((reply, owed));
                }
            }
        }
    }

    /// One attempt, by a connection.
    #[allow(clippy::type_complexity)]
    fn call_once(
        &self,
        using: &Using<'_>,
        cred: &Credentials,
        req: &Request,
        change: Option<Change>,
    ) -> Result<((Result<Reply>, Option<Done>), Owed)> {
        let mut sent = req.clone();
        if kind::inodes(req).into_iter().flatten().any(|ino| self.opens.is_gone(ino)) {
            return Err(errno(libc::ESTALE));
        }
        if let Request::Fsync { file, .. } = req
            && self.opens.take_failed(*file)
        {
            return Err(errno(libc::EIO));
        }
        kind::exchange(&mut sent, |own| self.opens.server(own))?;
        if let Request::Release { handle } = req {
            self.opens.closed(*handle);
        }
        self.own_numbers(&mut sent, using.connection)?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let next = self.kept.next();
        let (said, owed) = using.client.call_change(cred, sent, change);
        if said.0.is_ok() {
            match req {
                Request::Fsync { file, .. } => {
                    let ino = self.opens.ino(*file);
                    ino.iter().for_each(|ino| self.kept.synced(*ino, next));
                }
                Request::SyncAll | Request::Checkpoint => self.kept.all_synced(next),
                _ => {}
            }
        }
        Ok((said, owed))
    }

    /// Puts the server's numbers of tickets and sections in place of the client's.
    fn own_numbers(&self, req: &mut Request, connection: u64) -> Result<()> {
        match req {
            Request::Poll { ticket } | Request::Wait { ticket, .. } => {
                ticket.0 = self.tickets.server(ticket.0, connection)?;
            }
            Request::SectionWrite { section, .. }
            | Request::SectionRead { section, .. }
            | Request::SectionAbort { section } => {
                section.0 = self.sections.server(section.0, connection)?;
            }
            Request::SectionCommit { sections, .. } => {
                for section in sections {
                    section.0 = self.sections.server(section.0, connection)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A call was answered: notes what has to outlive its server.
    fn answered(
        &self,
        using: &Using<'_>,
        (cred, req): (&Credentials, Request),
        result: Result<Reply>,
        done: Option<Done>,
    ) -> Result<Reply> {
        let mut reply = result?;
        match &mut reply {
            Reply::Entry(attr) => self.opens.is_not_gone(attr.ino),
            Reply::Created { attr, handle } => {
                self.opens.is_not_gone(attr.ino);
                let how = How::File(siftfs_proto::compound::Access::Both);
                *handle = self.opens.opened(attr.ino, how, *handle);
            }
            Reply::Opened { handle } => {
                if let Some((ino, how)) = How::of(&req) {
                    *handle = self.opens.opened(ino, how, *handle);
                }
            }
            Reply::Ticket(ticket) => ticket.0 = self.tickets.add(ticket.0, using.connection),
            Reply::Section(section) => section.0 = self.sections.add(section.0, using.connection),
            _ => {}
        }
        if let Request::SetLock { file: Target::Open(own), ask } = &req {
            self.opens.locked(*own, *ask);
        }
        if let Some(done) = done
            && done.order != 0
        {
            let ino = file_of(&req).and_then(|file| self.opens.ino(file));
            if let Some((request, file, made)) = kept::repeatable(req, ino, &reply, &done) {
                let changed =
                    |ino| self.looked_up.generation(ino).map(|generation| (ino, generation));
                let inode = made.or_else(|| file.and_then(changed));
                let (credentials, instance, tried) = (cred.clone(), using.instance, None);
                let change =
                    kept::Change { request, credentials, file, inode, instance, done, tried };
                self.kept.add(change);
            }
        }
        Ok(reply)
    }

    /// What a request gives back is given back here. Must the server know now? A program that ends
    /// or closes something while the server is lost does not wait for it.
    fn give_back(&self, cred: &Credentials, req: &Request) -> bool {
        {
            let mut now = self.lock();
            if now.client.is_none() && !now.leaving {
                now.given.push((cred.clone(), req.clone()));
                drop(now);
                if let Request::CancelLock { number } = req {
                    self.waits.cancel(*number);
                }
                return false;
            }
        }
        match req {
            Request::Release { handle } => {
                let is_open = self.opens.server(*handle).is_ok();
                if !is_open {
                    self.opens.closed(*handle);
                }
                is_open
            }
            Request::Forget { ino, .. } if self.opens.is_gone(*ino) => {
                self.looked_up.asks(req);
                if !self.looked_up.counts(*ino) {
                    self.opens.is_not_gone(*ino);
                }
                false
            }
            Request::CloseLocks { ino, owner, .. } => {
                self.opens.close_locks(*ino, *owner);
                true
            }
            _ => true,
        }
    }

    /// Waits until another change may be kept.
    fn make_room(&self) -> Result<()> {
        while self.kept.is_full() {
            let using = self.using()?;
            using.client.say(ToServer::Full);
            drop(using);
            self.kept.wait_for_room(MOMENT);
        }
        Ok(())
    }

    /// The server was lost before it answered a call: may that be made again, at the one that is
    /// there now?
    fn may_repeat(
        &self,
        using: &Using<'_>,
        before: u64,
        (kind, cred): (Kind, &Credentials),
        req: &mut Request,
    ) -> Next {
        let same = using.instance == before;
        let knows =
            same || self.lock().had_answers || using.client.terms.back == siftfs_calls::Back::Again;
        match kind {
            Kind::Reads | Kind::Absolute | Kind::GivesBack => {}
            Kind::Once if knows => {}
            Kind::Appends if same || self.lock().had_answers => {}
            Kind::Appends => return self.may_append_again(using, cred, req),
            Kind::Bound => return Next::Fail(errno(libc::EIO)),
            Kind::Once | Kind::Final => {
                tracing::error!(
                    request = name(req),
                    "nobody can say whether a change was made: its server died before it answered"
                );
                return Next::Fail(errno(libc::EIO));
            }
        }
        Next::Again
    }

    /// Bytes at the end of a file: if the file is no longer than the kernel believed, they are not
    /// there.
    fn may_append_again(&self, using: &Using<'_>, cred: &Credentials, req: &Request) -> Next {
        let Request::Append { file, end, .. } = req else { return Next::Fail(errno(libc::EIO)) };
        let mut ask = Request::GetAttr { file: *file };
        let attr = kind::exchange(&mut ask, |own| self.opens.server(own))
            .and_then(|()| using.client.call(cred, ask))
            .and_then(Reply::attr);
        match attr {
            Ok(attr) if attr.size <= *end => Next::Again,
            // The connection is lost once more: the call says so.
            Err(Error::Link(_)) => Next::Again,
            Ok(_) => {
                tracing::error!(?file, "nobody can say whether bytes were appended to a file");
                Next::Fail(errno(libc::EIO))
            }
            Err(error) => Next::Fail(error),
        }
    }
}

/// The file that a request names.
fn file_of(req: &Request) -> Option<Target> {
    match req {
        Request::SetAttr { file, .. }
        | Request::Write { file, .. }
        | Request::Append { file, .. }
        | Request::WriteBack { file, .. }
        | Request::Allocate { file, .. }
        | Request::SetXattr { file, .. }
        | Request::RemoveXattr { file, .. } => Some(*file),
        _ => None,
    }
}

/// A change that was made twice finds that it is there.
fn was_done(req: &Request, error: &Error) -> bool {
    let is = |number| *error == errno(number);
    match req {
        Request::RemoveXattr { .. } => is(libc::ENODATA),
        Request::SetXattr { mode: XattrMode::Create, .. } => is(libc::EEXIST),
        _ => false,
    }
}

/// What several files share cannot be repeated: it is durable when it is answered.
fn make_final(req: &mut Request) {
    match req {
        Request::Publish { level, .. } => *level = Level::Durable,
        Request::SectionCommit { durable, .. } => *durable = true,
        Request::Compound(compound) => compound.level = Level::Durable,
        _ => {}
    }
}

fn change_of(kind: Kind, place: Option<&Place<'_>>) -> Option<Change> {
    match (kind, place) {
        (Kind::Once | Kind::Appends, Some(place)) => {
            Some(Change::Once { place: place.place, number: place.number })
        }
        (Kind::Absolute, _) => Some(Change::Absolute),
        _ => None,
    }
}

/// A request in a word, for the log.
fn name(req: &Request) -> String {
    let text = format!("{req:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().into()
}
