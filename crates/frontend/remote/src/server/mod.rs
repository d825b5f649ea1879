//! The server's side: which clients may connect, and a session for each connection.

mod answers;
mod bounds;
mod carry;
mod identity;
mod lends;
mod notices;
mod outbox;
mod places;
mod process;
mod proofs;
mod reception;
mod returning;
pub(crate) use returning::draw;
mod secret;
mod session;
mod slots;
mod standby;
mod tenure;

pub use bounds::{bounded, bounded_machine};
pub use places::MOST_VOLUMES;
pub use reception::{Directory, Reception, Visit};
pub use returning::{Before, Begins, BookFile, BookStore, VolumeEpoch, note_epoch};
pub use secret::Secret;
pub use standby::turn_away;
pub use tenure::Tenure;

use crate::Listener;
use crate::desk::Clerk;
use crate::executors::{Execution, Executors};
use notices::Terms;
use returning::{Clients, Keeper, Over};
use siftfs_base::{Error, Result};
use siftfs_calls::FileProtocol;
use siftfs_keys::Seals;
use siftfs_proto::{Cache, Credentials, FileService, Holder, Opening, Request};
use siftfs_transport::{Repeats, ServerEnd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Connections at a time.
const CONNECTIONS: usize = 256;
/// How long a client waits for a session of a server that does not know whether it has its volume.
const HELD: Duration = Duration::from_secs(2);
/// How often a server without a connection looks whether it is to end.
const POLL: Duration = Duration::from_millis(100);

/// A volume that is served.
pub trait Served: Send + Sync {
    /// Its UUID.
    fn uuid(&self) -> [u8; 16];

    /// Is this what clients may call it, besides the empty name?
    fn is_called(&self, name: &str) -> bool;

    /// A client that came back does so no more: what is noted of its calls is forgotten.
    fn forget_client(&self, client: u64) {
        let _ = client;
    }

    /// Knows whether this process still has the volume; `None` where nobody can take it away while
    /// this process lives.
    fn tenure(&self) -> Option<Arc<dyn Tenure>> {
        None
    }

    /// Opens a session. With a cache it is told of what other sessions change.
    ///
    /// # Errors
    /// There are too many sessions.
    fn open(&self, opening: Opening, cache: Option<Arc<dyn Cache>>)
    -> Result<Arc<dyn FileService>>;

    /// Opens a session that lends: `holder` is told which leases to return, and it changes nothing
    /// but the files that are leased to it.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a volume that lends nothing, `ENFILE` if there are too many sessions.
    fn lend(&self, opening: Opening, holder: Arc<dyn Holder>) -> Result<Arc<dyn FileService>> {
        let _ = (opening, holder);
        Err(siftfs_base::errno(libc::EOPNOTSUPP))
    }

    /// Opens a session that may hold leases for itself, and do all that others may: `holder` is
    /// told which to return.
    ///
    /// # Errors
    /// As [`Served::lend`].
    fn hold(&self, opening: Opening, holder: Arc<dyn Holder>) -> Result<Arc<dyn FileService>> {
        let _ = (opening, holder);
        Err(siftfs_base::errno(libc::EOPNOTSUPP))
    }
}

/// What a server has counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that were opened.
    pub opened: u64,
    /// Connections that got no session.
    pub refused: u64,
    /// Calls that were carried out.
    pub calls: u64,
    /// Sessions that were ended because their client broke a rule or took a notice back too late.
    pub ended: u64,
    /// Calls that waited for an executor.
    pub waited: u64,
    /// Calls that lent theirs, because they waited for something else than a processor.
    pub lent: u64,
}

#[derive(Debug, Default)]
struct Counters {
    opened: AtomicU64,
    refused: AtomicU64,
    calls: AtomicU64,
    ended: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What clients have said of them in the log as often as they like.
#[derive(Default)]
struct Logged {
    turned_away: Repeats,
    ended: Repeats,
}

impl Logged {
    fn turned_away(lines: Vec<String>) {
        for error in lines {
            tracing::warn!(error, "a client was turned away");
        }
    }

    fn ended(lines: Vec<String>) {
        for why in lines {
            tracing::warn!(why, "a client's session was ended");
        }
    }

    /// What has happened again, and was not said yet.
    fn look(&self) {
        let now = Instant::now();
        Self::turned_away(self.turned_away.due(now));
        Self::ended(self.ended.due(now));
    }
}

/// Serves a volume to clients.
pub struct Server {
    volume: Arc<dyn Served>,
    counters: Counters,
    logged: Logged,
    /// Bytes of data in the calls of all sessions whose answers have not left.
    data: Arc<AtomicU64>,
    executors: Executors,
    /// Sees to it that each session is listened to.
    clerk: Clerk,
    /// Sessions that lend.
    lending: Arc<AtomicUsize>,
    ending: AtomicBool,
    /// Listeners that are served.
    serving: AtomicUsize,
    /// Connections that came by another door, and are there or on their way.
    visits: AtomicUsize,
    clients: Arc<Clients>,
    keeper: Arc<Keeper>,
    /// Of clients that are away.
    terms: Arc<Terms>,
    /// Makes the codes that clients show again whose callers are checked.
    seals: Arc<Seals>,
    /// Says whether answers still count.
    tenure: Option<Arc<dyn Tenure>>,
    keeps: Mutex<Option<JoinHandle<()>>>,
    /// By what the server itself syncs; opened when it is needed.
    own: OnceLock<Arc<dyn FileService>>,
}

impl Server {
    /// A server of `volume` that has no clients yet.
    pub fn new(volume: Arc<dyn Served>) -> Arc<Self> {
        Self::with(volume, Execution::default())
    }

    /// As [`Server::new`], which carries calls out in this way.
    pub fn with(volume: Arc<dyn Served>, execution: Execution) -> Arc<Self> {
        let nothing = Before::default();
        Self::after(volume, execution, nothing).expect("a server without a book writes no file")
    }

    /// As [`Server::with`], after another server of the volume: clients of that one come back.
    ///
    /// # Errors
    /// The book cannot be written.
    pub fn after(
        volume: Arc<dyn Served>,
        execution: Execution,
        before: Before,
    ) -> Result<Arc<Self>> {
        let (counters, logged, data, lending, ending, serving, own) = Default::default();
        let (keeper, terms, visits) = Default::default();
        let executors = Executors::new(execution);
        let seals = Arc::new(secret::seals(before.secret.as_ref())?);
        let clients = Arc::new(Clients::new(volume.uuid(), before)?);
        let (keeps, clerk, tenure) = (Mutex::new(None), Clerk::new(), volume.tenure());
        let server = Self {
            volume,
            counters,
            logged,
            data,
            executors,
            clerk,
            lending,
            ending,
            serving,
            visits,
            clients,
            keeper,
            terms,
            seals,
            tenure,
            keeps,
            own,
        };
        Ok(Arc::new(server))
    }

    /// Everything durable.
    fn sync(&self) -> Result<()> {
        let own = match self.own.get() {
            Some(own) => own,
            // A kernel's session without a cache is no front end.
            None => {
                let opened = self.volume.open(Opening::kernel(), None)?;
                self.own.get_or_init(|| opened)
            }
        };
        own.call(&Credentials::default(), Request::SyncAll).map(drop)
    }

    /// Has a thread make durable what clients keep.
    fn keep(self: &Arc<Self>) {
        let mut keeps = self.keeps.lock().unwrap_or_else(PoisonError::into_inner);
        if keeps.is_some() {
            return;
        }
        self.clients.listens();
        let (server, keeper) = (Arc::downgrade(self), self.keeper.clone());
        let clients = self.clients.clone();
        let sync = move || match server.upgrade() {
            Some(server) => server.sync(),
            None => Ok(()),
        };
        let volume = self.volume.clone();
        let forget = move |client| volume.forget_client(client);
        let thread = Builder::new().name("siftfs-keeper".into());
        let tenure = self.tenure.clone();
        let held = move || tenure.as_ref().is_some_and(|tenure| !tenure.counts_now());
        match thread.spawn(move || keeper.run(&clients, held, sync, forget, end_sessions)) {
            Ok(thread) => *keeps = Some(thread),
            Err(error) => tracing::error!(%error, "no thread for what clients keep"),
        }
    }

    /// What was counted since the server began.
    pub fn counts(&self) -> Counts {
        let Counters { opened, refused, calls, ended } = &self.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (waited, lent) = self.executors.counts();
        let (opened, refused, calls, ended) = (of(opened), of(refused), of(calls), of(ended));
        Counts { opened, refused, calls, ended, waited, lent }
    }

    /// Waits until no client comes back any more that a server before this one knew: what changes
    /// the volume by another way than this server has to wait for that.
    pub fn wait_for_clients(&self) {
        self.clients.wait_for_all(|| self.is_ending());
    }

    /// Takes connections until [`Server::stop`]; all sessions have ended when this returns. Several
    /// listeners may be served at a time.
    pub fn serve(self: &Arc<Self>, listener: &Listener) {
        let mut sessions: Vec<JoinHandle<()>> = Vec::new();
        self.begin_serving();
        while !self.is_ending() {
            sessions.retain(|session| !session.is_finished());
            self.logged.look();
            match listener.accept(Some(POLL)) {
                Ok(Some(end)) => self.begin(end, &mut sessions),
                Ok(None) => {}
                Err(error) => self.turned_away(&error),
            }
        }
        for session in sessions {
            if session.join().is_err() {
                tracing::error!("a session ended with a failed assertion");
            }
        }
        self.end_serving();
    }

    /// Connections may come from now on by another door than a listener of this server
    /// ([`Reception`]), until [`Server::end_serving`].
    pub fn begin_serving(self: &Arc<Self>) {
        self.serving.fetch_add(1, Ordering::SeqCst);
        self.keep();
    }

    /// No connection comes any more, and all sessions have ended, for which the server has to be
    /// stopped: what clients need to know of it is written down.
    pub fn end_serving(&self) {
        // The last one of several listeners.
        if self.serving.fetch_sub(1, Ordering::SeqCst) == 1
            && let Err(error) = self.end_in_order()
        {
            tracing::warn!(%error, "clients that come back will find nothing of this server");
        }
    }

    /// Nothing is carried out any more.
    fn end_in_order(&self) -> Result<()> {
        self.stop();
        // What follows this server may change what kernels show that are away, and know nothing of
        // them. One that has taken the volume away knows them.
        if !self.has_lost_it() {
            self.terms.wait();
        }
        end_sessions(self.clients.take_earlier());
        self.sync()?;
        self.clients.ended()
    }

    /// Does nobody use the volume by this server, and does nobody come back who did? Connections of
    /// [`Server::serve`] and [`Server::attend`] do not count, those of a [`Reception`] do.
    pub fn is_unused(&self) -> bool {
        self.visits.load(Ordering::SeqCst) == 0 && self.clients.are_none()
    }

    /// Serves one connection in the calling thread, until its session is over. The connection may
    /// have come by another door than a listener that is served ([`Server::serve`]), which goes on
    /// beside it.
    pub fn attend(self: &Arc<Self>, end: ServerEnd<FileProtocol>) {
        session::run(self, end, None);
    }

    /// As [`Server::attend`], of a connection that has said what it wants.
    fn attend_to(&self, end: ServerEnd<FileProtocol>, opening: Box<siftfs_calls::Opening>) {
        session::run(self, end, Some(opening));
    }

    fn begin(self: &Arc<Self>, end: ServerEnd<FileProtocol>, sessions: &mut Vec<JoinHandle<()>>) {
        if sessions.len() >= CONNECTIONS {
            let why = format!("{}: too many connections, at most {CONNECTIONS}", end.peer);
            return self.turned_away(&Error::Refused(why));
        }
        let server = self.clone();
        let session = move || server.attend(end);
        match Builder::new().name("siftfs-session".into()).spawn(session) {
            Ok(session) => sessions.push(session),
            Err(error) => tracing::error!(%error, "no thread for a connection"),
        }
    }

    fn turned_away(&self, error: &Error) {
        count(&self.counters.refused);
        Logged::turned_away(self.logged.turned_away.note(&error.to_string(), Instant::now()));
    }

    /// A session is over before its client said so.
    fn session_ended(&self, peer: &str, why: &str) {
        Logged::ended(self.logged.ended.note(&format!("{peer}: {why}"), Instant::now()));
    }

    /// Ends all sessions, and takes no more connections.
    pub fn stop(&self) {
        self.ending.store(true, Ordering::Release);
        self.keeper.end();
        let keeps = self.keeps.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = keeps
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }

    /// Refuses whom it could not answer: the server that has the volume may be another one.
    fn refuse_while_held(&self) -> Result<()> {
        let (Some(tenure), begun) = (&self.tenure, Instant::now()) else { return Ok(()) };
        match tenure.wait(&|| begun.elapsed() > HELD) {
            true => Ok(()),
            false => Err(Error::Refused(
                "this server does not know whether it still has the volume: the cluster does not \
                 answer it, or another server has taken the volume over"
                    .into(),
            )),
        }
    }

    /// Is the volume another process's by now?
    fn has_lost_it(&self) -> bool {
        let asks_nobody = || true;
        self.tenure.as_ref().is_some_and(|tenure| !tenure.wait(&asks_nobody))
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }
}

/// Ends sessions, with all that they have.
fn end_sessions(over: Over) {
    for service in over {
        if let Err(error) = service.call(&Credentials::default(), Request::EndSession) {
            tracing::debug!(%error, "the end of a session");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
