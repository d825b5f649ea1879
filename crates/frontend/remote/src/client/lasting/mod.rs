//! A client that waits for its server when that is lost, finds it again, and goes on
//! (`docs/design/lost-server.md`).
//!
//! Each connection is a [`Client`] of its own. What outlives it is here: the numbers of what is
//! open, what the kernel refers to, and the changes that nobody knows to be durable.

mod again;
mod call;
mod certain;
mod finals;
mod kept;
mod kind;
mod lender;
mod numbers;
mod opens;
mod places;
mod returning;
mod waits;
mod ways;

use super::looked::LookedUp;
use super::{Client, Watch};
use crate::server::draw;
use certain::Certain;
use kept::Kept;
pub use lender::Lender;
use numbers::Numbers;
use opens::Opens;
use places::Places;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_calls::{Leases, Opening, ToServer};
use siftfs_proto::{Cache, Completion, Credentials, FileService, Holder, Owed, Reply, Request};
use siftfs_transport::{Address, TransportOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub use ways::{DIAL, Dial, Ways};

/// How long calls wait for a server that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Until it is there again.
    Hard,
    /// That long, from the loss on; then they fail with `EIO`.
    Soft(Duration),
}

/// How long a client that leaves waits until what it keeps is durable.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long it waits before it looks whether the server is lost.
const MOMENT: Duration = Duration::from_millis(100);

struct Now {
    /// The connection that calls go by; none while the server is lost.
    client: Option<Arc<Client>>,
    /// Which connection that is, from 1 on.
    connection: u64,
    /// The server's number.
    instance: u64,
    /// How often a server has said that it knows nothing of what this session had.
    forgotten: u64,
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
    ways: Ways,
    opening: Opening,
    cache: Option<Arc<dyn Cache>>,
    looked_up: Arc<LookedUp>,
    patience: Patience,
    /// It is a program's session, and not a kernel's.
    is_program: bool,
    id: u64,
    volume: OnceLock<[u8; 16]>,
    /// The server checks what the callers of this kernel may do.
    checks: OnceLock<bool>,
    now: Mutex<Now>,
    /// The connection is lost, or there again, or not used any more.
    changed: Condvar,
    kept: Kept,
    opens: Opens,
    places: Places,
    tickets: Numbers,
    sections: Numbers,
    waits: waits::Waits,
    /// Sessions for private logs of this mount's programs.
    lenders: Mutex<Vec<Weak<Lender>>>,
    /// What these programs had published when the server died.
    late: Mutex<Vec<lender::Late>>,
    certain: Certain,
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
    forgotten: u64,
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        let mut now = self.shared.lock();
        now.calls -= 1;
        // The way back begins when no call has the lost connection any more. While it is there
        // nobody waits for that: each call would wake a thread that has nothing to do.
        if now.calls == 0 && now.client.is_none() {
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

    fn answered(&self, question: u64) {
        if let Some(shared) = self.shared.upgrade() {
            shared.certain.answered(self.connection, question, &shared.cache);
        }
    }

    fn lost(&self, why: &Error) {
        if let Some(shared) = self.shared.upgrade() {
            shared.certain.lost(self.connection, &shared.cache);
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
    /// Opens a session that comes back: a kernel's, or a program's. The addresses are tried in
    /// turn, each time from the one on that answered last.
    ///
    /// # Errors
    /// As [`Client::connect`]: the first time nothing is waited for. Where several addresses do not
    /// answer for the volume, the message names each with its reason.
    pub fn connect(
        ways: Ways,
        (volume, claim): (&str, siftfs_calls::Claim),
        cache: Option<Arc<dyn Cache>>,
        patience: Patience,
    ) -> Result<Self> {
        let volume = volume.into();
        let (caches, is_program) = (cache.is_some(), claim != siftfs_calls::Claim::Kernel);
        let opening = Opening { volume, claim, caches, leases: Leases::None, returning: None };
        let now = Now {
            client: None,
            connection: 0,
            instance: 0,
            forgotten: 0,
            calls: 0,
            lost: None,
            had_answers: false,
            leaving: false,
            unwanted: false,
            given: Vec::new(),
        };
        let certain = Certain::new(cache.is_some() || ways.addresses().are_several());
        let shared = Arc::new(Shared {
            ways,
            opening,
            cache,
            looked_up: Arc::default(),
            patience,
            is_program,
            id: draw()?,
            volume: OnceLock::new(),
            checks: OnceLock::new(),
            now: Mutex::new(now),
            changed: Condvar::new(),
            kept: Kept::default(),
            opens: Opens::default(),
            places: Places::default(),
            tickets: Numbers::after(draw()? >> 1),
            sections: Numbers::after(draw()? >> 1),
            waits: waits::Waits::default(),
            lenders: Mutex::default(),
            late: Mutex::default(),
            certain,
            peer: Mutex::default(),
            calls: AtomicU64::new(0),
        });
        if shared.certain.asks() {
            certain::start(&shared)?;
        }
        shared.come_back()?;
        let theirs = shared.clone();
        let returns = std::thread::Builder::new()
            .name("siftfs-returns".into())
            .spawn(move || theirs.keep_coming_back())
            .map_err(|e| Error::Refused(format!("cannot start a session's thread: {e}")))?;
        Ok(Self { shared, returns: Some(returns) })
    }

    /// Where the server is that answers, or that answered last.
    pub fn address(&self) -> &Address {
        self.shared.ways.address()
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
        self.shared.checks.get().copied().unwrap_or_default()
    }

    /// Opens a session for the private log of a program of this mount: what is written by it this
    /// session keeps. `holder` is told which leases to return. Where this session has several
    /// addresses, that one goes where this one is, and `address` only says how.
    ///
    /// # Errors
    /// As [`Client::lend`].
    pub fn lend(
        &self,
        address: &Address,
        options: &TransportOptions,
        holder: Arc<dyn Holder>,
    ) -> Result<Arc<Lender>> {
        let (given, options) = (address.clone(), options.clone());
        let several = self.shared.ways.addresses().are_several();
        let dial =
            move |now: &Address| super::lends::dial(if several { now } else { &given }, &options);
        Lender::open(&self.shared, Box::new(dial), holder)
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

    /// Ends the session in order, also while others have this, and while the server is lost. What
    /// was answered is durable then, if the server is there: nobody keeps it any more. Later calls
    /// are errors, and so are those that wait.
    pub fn leave(&self) {
        self.shared.make_durable();
        let client = {
            let mut now = self.shared.lock();
            now.leaving = true;
            self.shared.changed.notify_all();
            now.client.clone()
        };
        client.iter().for_each(|client| client.leave());
        for late in self.shared.late().drain(..) {
            tracing::error!(ino = late.ino, "what a program had written by a private log is lost");
        }
        self.shared.waits.end();
    }

    /// As [`Lasting::leave`], of a program: where it has changed something that is not durable, it
    /// waits for a server that is lost as calls do.
    ///
    /// # Errors
    /// The server is lost for too long, or did not make durable in time what was answered.
    pub fn close(&self) -> Result<()> {
        while self.kept() > 0 {
            drop(self.shared.using()?);
            self.shared.make_durable();
            if self.kept() > 0 && self.lost().is_none() {
                break;
            }
        }
        let kept = self.kept();
        self.abandon();
        if kept == 0 { Ok(()) } else { Err(errno(libc::EIO)) }
    }

    /// Ends the session as the death of this process would: nothing is made durable.
    pub fn abandon(&self) {
        self.shared.lock().leaving = true;
        self.leave();
    }

    /// As [`FileService::call`], of a command: where the server is lost, or is lost before it has
    /// answered, it is an error at once.
    ///
    /// # Errors
    /// Those of the call, and that the server is lost.
    ///
    /// # Panics
    /// If the request changes something: only [`FileService::call`] can say what became of that.
    pub fn call_now(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        let (reply, owed) = self.shared.call_now(cred, req)?;
        owed.wait();
        Ok(reply)
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
            tracing::warn!(server = self.peer_name(), %why, "the server is lost");
        }
        now.lost.get_or_insert_with(|| (Instant::now(), why.clone()));
        self.changed.notify_all();
    }

    /// Waits until nothing is kept any more, the server is lost, or it takes too long.
    fn make_durable(&self) {
        let begun = Instant::now();
        while self.kept.len() > 0 && begun.elapsed() < FAREWELL {
            let client = {
                let now = self.lock();
                now.client.clone().filter(|_| !now.leaving)
            };
            let Some(client) = client else { return };
            client.say(ToServer::Full);
            self.kept.wait_for_less(MOMENT);
        }
    }

    fn peer_name(&self) -> String {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The connection, if there is one that is not lost.
    fn use_now(&self, now: &mut Now) -> Option<Using<'_>> {
        let client = now.client.as_ref().filter(|client| client.lost().is_none())?.clone();
        now.calls += 1;
        let (connection, instance, forgotten) = (now.connection, now.instance, now.forgotten);
        Some(Using { shared: self, client, connection, instance, forgotten })
    }

    /// As [`Shared::using`], without a wait.
    ///
    /// # Errors
    /// The session ends, or the server is lost.
    fn using_now(&self) -> Result<Using<'_>> {
        let mut now = self.lock();
        if now.leaving {
            return Err(errno(libc::EIO));
        }
        match self.use_now(&mut now) {
            Some(using) => Ok(using),
            None => {
                let (known, found) = (now.lost.as_ref(), now.client.as_ref());
                let why = known.map(|(_, error)| error.clone()).or_else(|| found?.lost());
                Err(why.unwrap_or_else(|| errno(libc::EIO)))
            }
        }
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
            // One that is lost is about to say so, and how.
            if let Some(using) = self.use_now(&mut now) {
                return Ok(using);
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
}
