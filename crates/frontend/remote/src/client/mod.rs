//! The client's side: a session of a volume that another process serves.

mod aside;
mod lasting;
mod lends;
mod looked;
mod owing;
mod receive;
mod slots;

use crate::desk::Desk;
use crate::{Address, FileProtocol, Opening, TransportOptions};
pub use lasting::{DIAL, Dial, Lasting, Lender, Patience, Ways};

use aside::Aside;
use looked::LookedUp;
use owing::Owing;
use receive::Incoming;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_calls::{Back, Change, FromServer, Leases, Proven, Returning, SLOTS, ToServer, data_of};
use siftfs_proto::{Cache, Completion, Credentials, FileService, Holder, Owed, Reply, Request};
use siftfs_transport::{Connection, Crossed, Received, Receiver, Secured, Sender, reach};
use slots::{Noted, Said, Slots, Then};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a server may take to open a session: kernels that were alone until now forget what they
/// know before it is there.
const OPENING: Duration = Duration::from_secs(30);

/// A session over a wire. It ends when this is dropped.
pub struct Client {
    link: Arc<Link>,
    terms: Terms,
    receives: Option<JoinHandle<()>>,
}

/// What callers and the thread that receives share.
struct Link {
    sender: Arc<dyn Sender<ToServer>>,
    desk: Desk<Incoming>,
    slots: Slots,
    cache: Option<Caching>,
    /// What it has looked up, in a session that caches or comes back.
    looked_up: Option<Arc<LookedUp>>,
    /// Whose leases they are, in a session that has some.
    holder: Option<Arc<dyn Holder>>,
    /// Does what follows the answers of calls that no thread waits for.
    answers: Arc<Aside>,
    peer: String,
    calls: AtomicU64,
    /// The session ends because its client wants it to.
    leaving: AtomicBool,
    /// The server has ended in order: what it has not answered it has not carried out.
    all_answered: AtomicBool,
    /// What comes back when the server is lost.
    watch: Option<Arc<dyn Watch>>,
}

/// What is told of a session that is to come back when its server is lost.
trait Watch: Send + Sync {
    /// All changes up to this one in the server's order are durable.
    fn durable(&self, order: u64);

    /// The server has answered the question with this number.
    fn answered(&self, question: u64);

    /// Nothing comes any more, and every call was answered with an error.
    fn lost(&self, why: &Error);
}

/// What is told of what others change, and which leases to return.
type Told = (Option<Arc<dyn Cache>>, Option<Arc<dyn Holder>>);

/// Of a session that comes back: who it is, what it has looked up, and what is told of it.
struct Again {
    returning: Returning,
    looked_up: Arc<LookedUp>,
    watch: Arc<dyn Watch>,
}

/// What there is for a session that caches.
struct Caching {
    cache: Arc<dyn Cache>,
    looked_up: Arc<LookedUp>,
    owing: Owing,
    /// Has the cache take notices back, which may wait for the kernel.
    notices: Aside,
    /// Notices that are not taken back.
    open: Arc<AtomicUsize>,
}

impl Caching {
    fn new(cache: Arc<dyn Cache>, looked_up: Arc<LookedUp>) -> Result<Self> {
        let notices = Aside::start("siftfs-notices")?;
        let (owing, open) = Default::default();
        Ok(Self { cache, looked_up, owing, notices, open })
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a session of {}", self.link.peer)
    }
}

impl Client {
    /// Opens a session at `address`, with keys over TCP. With a cache it is told of what other
    /// sessions change.
    ///
    /// # Errors
    /// No server listens there, or one of another version; it refuses the session, or does not
    /// answer. The message names the address and the reason.
    pub fn connect(
        address: &Address,
        (options, secured): (&TransportOptions, Option<&Secured>),
        volume: &str,
        claim: siftfs_calls::Claim,
        cache: Option<Arc<dyn Cache>>,
    ) -> Result<Self> {
        let end = reach::<FileProtocol>(address, options, secured)?;
        let (volume, caches) = (volume.into(), cache.is_some());
        Self::open(
            end,
            Opening { volume, claim, caches, leases: Leases::None, returning: None },
            cache,
        )
    }

    /// As [`Client::connect`], of a session that may hold write leases: `holder` is told which to
    /// return, and that the session is lost.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_to_hold(
        address: &Address,
        (options, secured): (&TransportOptions, Option<&Secured>),
        volume: &str,
        claim: siftfs_calls::Claim,
        holder: Arc<dyn Holder>,
    ) -> Result<Self> {
        let end = reach::<FileProtocol>(address, options, secured)?;
        let (volume, leases) = (volume.into(), Leases::Held);
        let opening = Opening { volume, claim, caches: false, leases, returning: None };
        Self::open_beside(end, opening, (None, Some(holder)))
    }

    /// Opens a session on a new connection.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn open(
        end: siftfs_transport::CallerEnd<FileProtocol>,
        opening: Opening,
        cache: Option<Arc<dyn Cache>>,
    ) -> Result<Self> {
        Self::open_beside(end, Opening { returning: None, ..opening }, (cache, None))
    }

    /// As [`Client::open`]; what the opening says of a client that comes back is of another one,
    /// whose changes those of this session are.
    fn open_beside(
        end: siftfs_transport::CallerEnd<FileProtocol>,
        opening: Opening,
        told: Told,
    ) -> Result<Self> {
        Self::open_again(end, opening, told, None)
    }

    fn open_again(
        end: siftfs_transport::CallerEnd<FileProtocol>,
        mut opening: Opening,
        (cache, holder): Told,
        again: Option<Again>,
    ) -> Result<Self> {
        let Connection { sender, mut receiver, peer, .. } = end;
        if let Some(again) = &again {
            opening.returning = Some(again.returning);
        }
        sender.send(ToServer::Open(Box::new(opening)))?;
        let terms = opened(&mut *receiver, &peer)?;
        let (looked_up, watch) = match again {
            Some(again) => (Some(again.looked_up), Some(again.watch)),
            None => (cache.is_some().then(Arc::default), None),
        };
        let caching = |cache| Caching::new(cache, looked_up.clone().unwrap_or_default());
        let link = Arc::new(Link {
            sender,
            desk: Desk::attended(Incoming::new(receiver)),
            slots: Slots::new(terms.slots, terms.bytes),
            cache: cache.map(caching).transpose()?,
            looked_up,
            holder,
            answers: Arc::new(Aside::start("siftfs-answers")?),
            peer,
            calls: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
            all_answered: AtomicBool::new(false),
            watch,
        });
        let theirs = link.clone();
        let receives = std::thread::Builder::new()
            .name("siftfs-client".into())
            .spawn(move || theirs.attend())
            .map_err(|e| Error::Refused(format!("cannot start a session's thread: {e}")))?;
        Ok(Self { link, terms, receives: Some(receives) })
    }

    /// The volume's UUID.
    pub fn volume(&self) -> [u8; 16] {
        self.terms.volume
    }

    /// The server checks what the callers of this kernel may do: calls are to carry their rights.
    pub fn checks(&self) -> bool {
        self.terms.checks
    }

    /// The server, in words for messages.
    pub fn peer(&self) -> &str {
        &self.link.peer
    }

    /// Calls that were sent.
    pub fn calls(&self) -> u64 {
        self.link.calls.load(Ordering::Relaxed)
    }

    /// What has crossed its connection.
    pub fn crossed(&self) -> Crossed {
        self.link.sender.crossed()
    }

    /// Ends the session in order, also while others have this. Later calls are errors.
    pub fn leave(&self) {
        self.link.leaving.store(true, Ordering::SeqCst);
        // One that is gone needs to know nothing.
        let _ = self.link.sender.send(ToServer::Bye);
        self.link.sender.close();
        self.link.desk.call();
    }

    /// Why nothing can be called any more, if it is so.
    pub fn lost(&self) -> Option<Error> {
        self.link.slots.broken()
    }
}

impl Client {
    /// As [`FileService::call_owing`], of a call that is a change of a client that comes back.
    fn call_change(
        &self,
        cred: &Credentials,
        (req, proofs): (Request, Vec<Proven>),
        change: Option<Change>,
    ) -> (Said, Owed) {
        let link = &*self.link;
        let entry = match waits_for_others(&req) {
            Some(beyond) => link.slots.enter_long(beyond),
            None => link.slots.enter(data_of(&req)),
        };
        let call = match entry.begin(Then::Wake) {
            Ok(call) => call,
            Err(error) => return ((Err(error), Noted::default()), Owed::default()),
        };
        // What comes back is counted already.
        let counts = !matches!(change, Some(Change::Kept(_) | Change::Reclaim));
        let counting = link.looked_up.as_ref().filter(|_| counts);
        let asked = counting.and_then(|looked_up| looked_up.asks(&req));
        link.transmit(call, cred, (req, change, proofs));
        let said = link.answer_of(&entry, call.0);
        link.looked_up.iter().for_each(|looked_up| looked_up.answered(asked, &said));
        let Some(caching) = &link.cache else { return (said, Owed::default()) };
        (said, caching.owing.take(call))
    }

    /// The server has ended in order: what it has not answered it has not carried out.
    fn has_all_answers(&self) -> bool {
        self.link.all_answered.load(Ordering::SeqCst)
    }

    /// Asks whether the session is there, without waiting for anything. False if nothing can be
    /// sent just now.
    fn asks(&self, number: u64) -> bool {
        self.link.sender.try_send(ToServer::Ping { number })
    }

    /// Ends the connection, without waiting for the server.
    fn cut(&self) {
        self.link.sender.cut();
    }

    /// What is no call.
    fn say(&self, message: ToServer) {
        // One that is gone has said so to all callers.
        let _ = self.link.sender.send(message);
        // What it answers no caller waits for.
        self.link.desk.call();
    }
}

/// What a server says when it opens a session.
#[derive(Clone, Copy, Debug)]
struct Terms {
    volume: [u8; 16],
    slots: u32,
    bytes: u64,
    checks: bool,
    instance: u64,
    back: Back,
}

/// Waits until the server has opened the session.
fn opened(receiver: &mut dyn Receiver<FromServer>, peer: &str) -> Result<Terms> {
    let refused = |why: &str| Err(Error::Refused(format!("{peer} opens no session: {why}")));
    match receiver.recv(Some(OPENING))? {
        Received::Message(FromServer::Opened { volume, slots, bytes, checks, instance, back }) => {
            match (1..=SLOTS).contains(&slots) {
                true => Ok(Terms { volume, slots, bytes, checks, instance, back }),
                false => refused(&format!("it has {slots} slots for calls")),
            }
        }
        Received::Message(FromServer::Refused { reason }) => refused(&reason),
        Received::Message(_) => refused("it says something else"),
        Received::Timeout => refused(&format!("it does not answer within {OPENING:?}")),
        Received::Closed => refused("it has closed the connection"),
    }
}

impl FileService for Client {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        let (result, owed) = self.call_owing(cred, req);
        owed.wait();
        result
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        let ((result, _), owed) = self.call_change(cred, (req, Vec::new()), None);
        (result, owed)
    }

    /// The server says what it knows of; what is on its way is asked for here.
    fn has_looked_up(&self, ino: InodeNr) -> bool {
        self.link.cache.as_ref().is_none_or(|caching| caching.looked_up.has(ino))
    }

    /// What waits for another program has no thread meanwhile. Everything else is answered on the
    /// caller's, which costs no hand-over.
    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        let Some(beyond) = waits_for_others(&req) else { return done(self.call(cred, req)) };
        // The thread that receives does not wait for what follows an answer (rule R51).
        let aside = self.link.answers.clone();
        let then: Completion = Box::new(move |result| aside.give(move || done(result)));
        match self.link.slots.enter_long(beyond).begin_then(then) {
            Ok(call) => {
                self.link.transmit(call, cred, (req, None, Vec::new()));
                self.link.desk.call();
            }
            Err((error, then)) => then(Err(error)),
        }
    }
}

/// Is it answered when another program has done something? Then the errno where too many such
/// wait.
fn waits_for_others(request: &Request) -> Option<i32> {
    match request {
        Request::SetLock { ask, .. } => ask.wait.is_some().then_some(libc::ENOLCK),
        Request::Wait { .. } => Some(libc::EAGAIN),
        _ => None,
    }
}

impl Link {
    /// Sends a call that has its slot. One that cannot be sent is answered here.
    fn transmit(
        &self,
        (slot, number): (u32, u64),
        cred: &Credentials,
        (req, change, proofs): (Request, Option<Change>, Vec<Proven>),
    ) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let message = match &self.holder {
            Some(_) => lends::message((slot, number), cred.clone(), req),
            None => {
                let (credentials, request) = (cred.clone(), Box::new(req));
                let proofs = (!proofs.is_empty()).then_some(proofs);
                ToServer::Call { slot, number, credentials, request, change, proofs }
            }
        };
        match self.sender.send(message) {
            Ok(()) => {}
            // The message is longer than a message may be. Nothing of it was sent.
            Err(Error::Refused(why)) => {
                tracing::warn!(peer = self.peer, why, "a call is too long");
                self.slots.unsent(slot, errno(libc::E2BIG));
            }
            // The connection is gone. The thread that receives answers all calls so when it has
            // taken what came before: a server that ended in order has said that, and a client
            // that comes back has to know. It learns of the end from the connection itself.
            Err(Error::Link(why)) => {
                tracing::debug!(peer = self.peer, why, "a call cannot be sent");
                self.sender.close();
            }
            Err(error) => drop(self.slots.answer(slot, number, (Err(error), Noted::default()))),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.leave();
        if let Some(thread) = self.receives.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
