//! One connection and its session.
//!
//! Threads take turns to receive: one takes the receiver from the session's desk, and lays it down
//! before it carries out what came. One thread more than calls are under way waits at the desk, and
//! is called before a call waits, and by the server's clerk: so one receives whatever the others
//! wait for (rule R51).

use super::answers::Answers;
use super::bounds::Caller;
use super::identity::{self, BYTES, Channel};
use super::lends::{self, Lends};
use super::notices::Notices;
use super::outbox::Outbox;
use super::process::Process;
use super::proofs::{Power, Prover};
use super::returning::{Comes, Connection as Returned, Leaving, make_durable};
use super::{Server, count, end_sessions};
use crate::desk::{Desk, Held};
use crate::executors::{Commands, Entry};
use siftfs_base::{Error, Result};
use siftfs_calls::{
    Back, Change, Claim, FileProtocol, FromServer, Leases, Proven, SLOTS, ToServer,
};
use siftfs_proto::{Cache, Credentials, FileService, Identity, Request};
use siftfs_transport::{Connection, Received, Receiver, Sender, ServerEnd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

/// How long a client has to open its session.
const OPENING: Duration = Duration::from_secs(5);
/// How often a session without a call looks whether it is to end.
const LOOK: Duration = Duration::from_millis(500);
/// How long a client whose session is over may take to receive what it has coming.
const FAREWELL: Duration = Duration::from_secs(2);
const BRIEFLY: Duration = Duration::from_millis(5);
/// Threads that receive and carry out: one per slot, and one that receives.
const THREADS: usize = SLOTS as usize + 1;

/// Calls for which a client counts as one whose calls come side by side, after one that did.
const CROWD: u32 = 3;

type Inbox = Box<dyn Receiver<ToServer>>;

/// What the thread has that receives.
pub(super) struct Incoming {
    inbox: Inbox,
    /// When it was looked last whether the session is to end.
    looked: Instant,
    side_by_side: SideBySide,
}

/// Do a client's calls come side by side?
#[derive(Default)]
struct SideBySide {
    /// The slot of the last call.
    slot: u32,
    /// Calls for which they still count as such.
    left: u32,
}

impl SideBySide {
    /// A call came in a slot. A client gives a call the slot that became free last: where that is
    /// the one of the call before, that call had its answer when this one was sent.
    fn note(&mut self, slot: u32) -> bool {
        let same = std::mem::replace(&mut self.slot, slot) == slot;
        self.left = if same { self.left.saturating_sub(1) } else { CROWD };
        self.left > 0
    }
}

/// A session as it was opened.
pub(super) struct Opened {
    pub service: Arc<dyn FileService>,
    /// It is told of what others change, and waits itself until others have been told.
    pub caches: bool,
    /// It speaks for a kernel.
    pub kernel: bool,
    /// It lends.
    lends: Option<Arc<Lends>>,
    /// What the kernel's callers may do is checked here.
    checks: bool,
    /// The session without such checks.
    pub power: Power,
    /// Of a client that comes back and whose callers are checked.
    pub prover: Option<Arc<Prover>>,
    /// Its client comes back when it has lost its server.
    pub returned: Option<Returned>,
    /// Of a session that lends: the client that keeps what it changes.
    pub beside: Option<Returned>,
    back: Back,
}

/// A call while it is carried out.
pub(super) struct Call {
    pub slot: u32,
    pub number: u64,
    pub credentials: Credentials,
    pub request: Request,
    pub change: Option<Change>,
    pub proofs: Vec<Proven>,
    /// Its place in the order of arrival, if nothing else has to come before.
    pub entry: Option<Entry>,
}

pub(super) struct Session<'a> {
    pub server: &'a Server,
    sender: &'a dyn Sender<FromServer>,
    peer: &'a str,
    pub opened: Opened,
    pub answers: Arc<Answers>,
    notices: Arc<Notices>,
    pub commands: Commands,
    pub desk: Arc<Desk<Incoming>>,
    threads: AtomicUsize,
    /// Threads that carry out a call, and send its answer.
    busy: AtomicUsize,
    pub over: AtomicBool,
    /// The client has said that it leaves.
    left: AtomicBool,
    /// The session ends with all that it has, and not only its connection.
    told: AtomicBool,
    /// The process at the other end, if it is one of this machine.
    process: Option<Process>,
}

/// Serves a connection to its end; `asked` is what it opens, if that was heard already.
pub(super) fn run(
    server: &Server,
    end: ServerEnd<FileProtocol>,
    asked: Option<Box<siftfs_calls::Opening>>,
) {
    let Connection { sender, mut receiver, peer, process, shares_memory, key } = end;
    let outbox = Arc::new(Outbox::under(sender.clone(), server.tenure.clone()));
    let notices = Arc::new(Notices::new(outbox.clone()));
    let channel = match (process, &key) {
        (Some(peer), _) => Channel::Process(peer),
        (None, Some(key)) => Channel::Key(&key.line),
        (None, None) => Channel::Nobody,
    };
    let channel = (channel, shares_memory);
    let opened = wait_for(asked, &mut receiver)
        .and_then(|opening| server.refuse_while_held().map(|()| opening))
        .and_then(|opening| open(server, *opening, channel, (&notices, &outbox)));
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            server.turned_away(&error);
            return refuse(&sender, &error);
        }
    };
    count(&server.counters.opened);
    tracing::debug!(peer, "a session was opened");
    let volume = server.volume.uuid();
    let (instance, back, checks) = (server.clients.instance, opened.back, opened.checks);
    let (slots, bytes) = (SLOTS, BYTES);
    outbox.begin(FromServer::Opened { volume, slots, bytes, checks, instance, back });
    let prover = opened.prover.clone();
    let (looked, side_by_side) = (Instant::now(), SideBySide::default());
    let incoming = Incoming { inbox: receiver, looked, side_by_side };
    let session = Session {
        server,
        sender: &*sender,
        peer: &peer,
        opened,
        answers: Arc::new(Answers::new(outbox, server.data.clone(), prover)),
        notices,
        commands: server.executors.open(),
        desk: Desk::new(incoming, &server.clerk),
        threads: AtomicUsize::new(1),
        busy: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        left: AtomicBool::new(false),
        told: AtomicBool::new(false),
        process: process.and_then(Process::of),
    };
    session.serve();
    if let Some(returned) = session.opened.returned {
        server.clients.is_quiet(returned);
    }
}

/// Tells a client why it gets no session, and ends the connection.
pub(super) fn refuse(sender: &Arc<dyn Sender<FromServer>>, error: &Error) {
    let outbox = Arc::new(Outbox::new(sender.clone()));
    outbox.begin(FromServer::Refused { reason: error.to_string() });
    sender.close();
}

/// What opens the session: what was heard already, or what comes.
fn wait_for(
    heard: Option<Box<siftfs_calls::Opening>>,
    inbox: &mut Inbox,
) -> Result<Box<siftfs_calls::Opening>> {
    heard.map_or_else(|| asked(inbox), Ok)
}

/// Waits for what opens the session.
pub(super) fn asked(inbox: &mut Inbox) -> Result<Box<siftfs_calls::Opening>> {
    let refused = |why: String| Err(Error::Refused(why));
    match inbox.recv(Some(OPENING))? {
        Received::Message(ToServer::Open(opening)) => Ok(opening),
        Received::Message(_) => refused("it opens no session".into()),
        Received::Timeout => refused(format!("it opened no session within {OPENING:?}")),
        Received::Closed => refused("it went before it had a session".into()),
    }
}

/// Opens the session that was asked for.
fn open(
    server: &Server,
    opening: siftfs_calls::Opening,
    (channel, shares_memory): (Channel<'_>, bool),
    (notices, outbox): (&Arc<Notices>, &Arc<Outbox>),
) -> Result<Opened> {
    // As a question: what the client knows by this session counts from now on.
    notices.asks();
    if !opening.volume.is_empty() && !server.volume.is_called(&opening.volume) {
        return Err(Error::Refused(format!("no volume is called {:?} here", opening.volume)));
    }
    let (caches, leases) = (opening.caches, opening.leases);
    let kernel = opening.claim == Claim::Kernel;
    let returning = opening.returning;
    let cache = caches.then(|| notices.clone() as Arc<dyn Cache>);
    let is_called = |name: &str| server.volume.is_called(name);
    let whose = identity::whose(channel, &opening.claim);
    let mut opening = identity::judge(channel, opening.claim, is_called)?;
    let checks = opening.identity == Identity::Machine;
    if leases == Leases::Lent {
        let opening = (&opening, caches);
        let (service, lends) = lends::open(server, (channel, shares_memory), opening, outbox)?;
        let beside = returning.map(|returning| server.clients.beside(returning.client));
        let power = Power::of(service.clone());
        return Ok(Opened {
            lends: Some(lends),
            beside: beside.transpose()?,
            ..Opened::new((service, power), (caches, kernel, checks))
        });
    }
    let returning = returning.map(|returning| identity::own_number(whose.as_ref(), returning));
    opening.client = returning.map(|returning| returning.client);
    let program = returning.and_then(|_| identity::as_program(&mut opening));
    let is_checked = checks || program.is_some();
    let lends = match leases {
        Leases::Held => Some(lends::may_hold(server, (caches, returning.is_some()), outbox)?),
        Leases::None | Leases::Lent => None,
    };
    let open = |cache| match &lends {
        Some(lends) => lends::hold(server, opening, lends),
        None => server.volume.open(opening, cache),
    };
    let (service, power) = bounded(channel, (checks, program), cache, open)?;
    let prover = returning.filter(|_| is_checked).map(|_| {
        let (seals, volume) = (server.seals.clone(), server.volume.uuid());
        let subtree = match channel {
            Channel::Key(line) => &line.subtree,
            _ => "/",
        };
        Prover::new(seals, volume, (whose.unwrap_or_default(), subtree), power.clone())
    });
    // It is written down when nothing can refuse the session any more.
    let (back, returned) = match returning {
        Some(returning) => {
            let comes = Comes { returning, whose, is_program: !kernel };
            let (back, returned) = server.clients.arrive(comes, (outbox, notices))?;
            (back, Some(returned))
        }
        None => (Back::New, None),
    };
    let new = Opened::new((service, power), (caches, kernel, checks));
    Ok(Opened { lends, prover, returned, back, ..new })
}

impl Opened {
    /// Without what only some sessions have.
    fn new(
        (service, power): (Arc<dyn FileService>, Power),
        (caches, kernel, checks): (bool, bool, bool),
    ) -> Self {
        let (lends, prover, returned, beside, back) = (None, None, None, None, Back::New);
        Self { service, caches, kernel, lends, checks, power, prover, returned, beside, back }
    }
}

/// Opens a session within the bounds of its channel, and the same without checks of its callers.
fn bounded(
    channel: Channel<'_>,
    (checks, program): (bool, Option<Caller>),
    cache: Option<Arc<dyn Cache>>,
    open: impl FnOnce(Option<Arc<dyn Cache>>) -> Result<Arc<dyn FileService>>,
) -> Result<(Arc<dyn FileService>, Power)> {
    if let Some(caller) = program {
        let line = match channel {
            Channel::Key(line) => Some(line),
            Channel::Process(_) | Channel::Nobody => None,
        };
        let (service, power) = super::bounds::program(line, caller, cache, open)?;
        return Ok((service, Power::of(power)));
    }
    let service = match channel {
        Channel::Key(line) if checks => {
            let (service, power) = super::bounds::machine(line, cache, open)?;
            return Ok((service, Power::of(power)));
        }
        Channel::Key(line) => super::bounded(line, cache, open)?,
        Channel::Process(_) | Channel::Nobody => open(cache)?,
    };
    Ok((service.clone(), Power::of(service)))
}

impl Session<'_> {
    fn serve(&self) {
        std::thread::scope(|scope| {
            let outbox = self.answers.outbox.clone();
            let sends = Builder::new().name("siftfs-outbox".into());
            match sends.spawn_scoped(scope, move || outbox.run()) {
                Ok(_) => self.work(scope),
                Err(error) => tracing::error!(%error, "no thread for a session"),
            }
            self.end();
        });
        self.sender.close();
        tracing::debug!(peer = self.peer, "a session has ended");
    }

    /// Waits until all that is under way is answered. A client that takes no answers keeps no
    /// thread: it is cut off.
    fn leave(&self) {
        let since = Instant::now();
        while self.busy.load(Ordering::SeqCst) > 0 || !self.answers.outbox.is_done() {
            if since.elapsed() > FAREWELL {
                self.server.session_ended(self.peer, "it takes no answers, and is cut off");
                return self.answers.outbox.cut();
            }
            std::thread::sleep(BRIEFLY);
        }
    }

    /// Receives and carries out until the session is over.
    fn work<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        while let Some((message, entry)) = self.receive() {
            let call = match (message, entry) {
                (ToServer::Call { slot, number, credentials, request, change, proofs }, entry) => {
                    let (request, proofs) = (*request, proofs.unwrap_or_default());
                    Call { slot, number, credentials, request, change, proofs, entry }
                }
                (ToServer::Taken { notice }, _) => {
                    // At the session's end another thread has forgotten them.
                    if !self.notices.taken(notice) && !self.over.load(Ordering::Acquire) {
                        self.broke(&format!("it takes notice {notice} back, which it has not"));
                    }
                    continue;
                }
                (ToServer::Bye, _) => {
                    self.left.store(true, Ordering::Release);
                    return self.end();
                }
                (ToServer::Returned, _) => {
                    self.opened.returned.iter().for_each(|it| self.returned(*it));
                    continue;
                }
                (ToServer::Full, _) => {
                    self.server.keeper.ask();
                    continue;
                }
                (ToServer::Ping { number }, _) => {
                    if self.notices.asks() {
                        self.answers.outbox.answer(number);
                    }
                    continue;
                }
                (ToServer::Open(_) | ToServer::Lent { .. }, _) => {
                    return self.broke("it opens a second session");
                }
            };
            if let Err(why) = self.answers.slots.begin(call.slot, call.number) {
                // The end of a session may take a while, and needs no executor.
                drop(call);
                self.busy.fetch_sub(1, Ordering::SeqCst);
                return self.broke(&why);
            }
            self.have_another(scope);
            self.admit(call);
            self.busy.fetch_sub(1, Ordering::SeqCst);
        }
        self.end();
    }

    /// The client has repeated all that it keeps. Of that some was durable already, without that
    /// it knew: what comes with a rename, such as the bytes of the file. Until the last change is
    /// made again a file is as it was before, so that must not be what a power cut leaves.
    fn returned(&self, connection: Returned) {
        let clients = &self.server.clients;
        if clients.is_returning(connection)
            && clients.wants_durable()
            && let Err(error) = make_durable(clients, || self.server.sync())
        {
            tracing::warn!(%error, "what a client has repeated is not durable");
        }
        end_sessions(clients.returned(connection));
    }

    /// The next message; none when the session is over. A call has its place in the order of
    /// arrival, which it gets while this thread has the receiver.
    fn receive(&self) -> Option<(ToServer, Option<Entry>)> {
        let mut incoming = self.desk.take();
        loop {
            // Also where a client always has something to say.
            if incoming.looked.elapsed() > LOOK {
                incoming.looked = Instant::now();
                self.look();
            }
            if self.over.load(Ordering::Acquire) {
                return None;
            }
            // What programs were told is written comes in before that.
            let returns = || self.opened.lends.as_ref().is_some_and(|lends| lends.has_to_return());
            if self.server.is_ending() && !returns() {
                self.end_in_order();
                return None;
            }
            match incoming.inbox.recv(Some(LOOK)) {
                Ok(Received::Message(message)) => {
                    let message = match self.unlend(message) {
                        Ok(message) => message,
                        Err(why) => {
                            self.broke(&why);
                            return None;
                        }
                    };
                    let entry = self.note(&message);
                    Self::put_aside(incoming, &message);
                    return Some((message, entry));
                }
                Ok(Received::Timeout) => {}
                Ok(Received::Closed) => return None,
                Err(error) => {
                    self.server.session_ended(self.peer, &error.to_string());
                    return None;
                }
            }
        }
    }

    /// Notes a call while this thread has the receiver, also for a session that ends in order: it
    /// has seen every call that came.
    fn note(&self, message: &ToServer) -> Option<Entry> {
        let ToServer::Call { request, .. } = message else { return None };
        self.busy.fetch_add(1, Ordering::SeqCst);
        // One that may have to wait for others keeps no executor meanwhile.
        self.server.clients.is_open().then(|| self.commands.arrive(request))
    }

    /// Lays the receiver down. Another thread is called where the client has more to say than this
    /// one thing.
    fn put_aside(mut incoming: Held<'_, Incoming>, message: &ToServer) {
        match message {
            ToServer::Call { slot, .. } if incoming.side_by_side.note(*slot) => drop(incoming),
            _ => incoming.lay_down(),
        }
    }

    /// A message of lent data, which a session that has leases may send, as the call that it is.
    fn unlend(&self, message: ToServer) -> std::result::Result<ToServer, String> {
        match message {
            ToServer::Lent { .. } if self.opened.lends.is_none() => {
                Err("it lends data in a session that has no leases".into())
            }
            message => lends::as_call(message),
        }
    }

    /// Is there a reason to end the session?
    fn look(&self) {
        if self.notices.is_late() {
            count(&self.server.counters.ended);
            let why = "what others changed was not taken back in time";
            self.server.session_ended(self.peer, why);
            self.told_end(why);
        }
    }

    /// Another thread waits at the desk while this one carries out.
    fn have_another<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        if self.desk.waiting() > 0 {
            return;
        }
        let few = |n: usize| (n < THREADS).then_some(n + 1);
        if self.threads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, few).is_err() {
            return;
        }
        let thread = Builder::new().name("siftfs-call".into());
        if let Err(error) = thread.spawn_scoped(scope, || self.work(scope)) {
            self.threads.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!(%error, "no thread for a call");
        }
    }

    /// The client broke a rule.
    fn broke(&self, why: &str) {
        count(&self.server.counters.ended);
        self.server.session_ended(self.peer, &format!("it broke the protocol: {why}"));
        self.told_end(why);
    }

    fn told_end(&self, why: &str) {
        let (reason, all_answered) = (why.into(), false);
        self.told.store(true, Ordering::Release);
        self.answers.outbox.post(FromServer::Ended { reason, all_answered });
        self.end();
    }

    /// The server ends: what is begun is carried out and answered, and nothing else.
    fn end_in_order(&self) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.commands.end();
        let since = Instant::now();
        while self.busy.load(Ordering::SeqCst) > 0 && since.elapsed() < FAREWELL {
            std::thread::sleep(BRIEFLY);
        }
        let all_answered = self.busy.load(Ordering::SeqCst) == 0;
        let reason = "the server ends".into();
        self.answers.outbox.queue(FromServer::Ended { reason, all_answered });
        self.finish();
    }

    /// All that the session has ends, and with it what its calls wait for.
    fn end(&self) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.commands.end();
        self.finish();
    }

    fn finish(&self) {
        // The threads that wait for the receiver find out one after the other.
        self.desk.call();
        let how = self.leaving();
        match (self.opened.returned, &how) {
            // Its kernel may show what it knows for a while.
            (Some(_), Leaving::Lost) => {
                self.server.terms.hold(self.notices.lost(), self.notices.clone());
            }
            _ => self.notices.end(),
        }
        let service = self.opened.service.clone();
        end_sessions(match self.opened.returned {
            Some(returned) => self.server.clients.leaves(returned, service, how),
            None => vec![service],
        });
        self.answers.outbox.end();
        self.leave();
    }

    /// How the connection ends. A process that has ended does not come back.
    fn leaving(&self) -> Leaving {
        match (self.left.load(Ordering::Acquire), self.told.load(Ordering::Acquire)) {
            (true, _) => Leaving::ForGood,
            (_, true) => Leaving::Ended,
            _ if self.server.is_ending() => Leaving::Ended,
            _ if self.process.as_ref().is_some_and(Process::has_ended) => Leaving::Ended,
            _ => Leaving::Lost,
        }
    }
}
