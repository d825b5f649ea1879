//! One connection and its session.
//!
//! Threads take turns to receive: one has the receiver, and gives it to the next before it carries
//! out what came. There is one thread more than calls may be under way, so that one receives
//! whatever the others wait for (rule R51): a turn of the executors, for one, which each call needs
//! and nothing else does.

use super::identity::{self, BYTES, Channel};
use super::lends::{self, Lends};
use super::notices::Notices;
use super::outbox::Outbox;
use super::slots::Slots;
use super::{Server, count};
use crate::executors::{Commands, Entry};
use siftfs_base::{Error, Result, errno};
use siftfs_calls::{
    Claim, FileProtocol, FromServer, SLOTS, ToServer, check, check_kernels, data_of,
};
use siftfs_proto::{Cache, Credentials, FileService, Owed, Reply, Request};
use siftfs_transport::{Connection, Received, Receiver, Sender, ServerEnd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
/// Changes of a session that may be answered before other sessions have taken note of them.
const OWING: usize = 1024;

/// Bytes of data in the calls of a session whose answers have not left. What the client may have
/// under way is half of that: it sends the next call when it has the answer, which the thread that
/// has sent it may learn later.
const OWN_BYTES: u64 = 2 * BYTES;
/// Bytes of data in the calls of all sessions whose answers have not left.
const ALL_BYTES: u64 = 1 << 30;

type Inbox = Box<dyn Receiver<ToServer>>;

/// What threads of the Runtime need to answer a call.
struct Answers {
    outbox: Arc<Outbox>,
    slots: Slots,
    /// Bytes of data in calls whose answers have not left: of this session, and of all.
    data: AtomicU64,
    all_data: Arc<AtomicU64>,
    /// Changes that are answered and that other sessions have not taken note of.
    owing: AtomicUsize,
}

/// Data of a call, until its answer has left.
struct Data {
    answers: Arc<Answers>,
    bytes: u64,
}

impl Data {
    /// # Errors
    /// `EAGAIN`: the session, or all of them together, have as much as they may have.
    fn take(answers: &Arc<Answers>, bytes: u64) -> Result<Self> {
        let own = answers.data.fetch_add(bytes, Ordering::Relaxed);
        let all = answers.all_data.fetch_add(bytes, Ordering::Relaxed);
        let taken = Self { answers: answers.clone(), bytes };
        match own.saturating_add(bytes) <= OWN_BYTES && all.saturating_add(bytes) <= ALL_BYTES {
            true => Ok(taken),
            false => Err(errno(libc::EAGAIN)),
        }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        self.answers.data.fetch_sub(self.bytes, Ordering::Relaxed);
        self.answers.all_data.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A session as it was opened.
struct Opened {
    service: Arc<dyn FileService>,
    /// It is told of what others change, and waits itself until others have been told.
    caches: bool,
    /// It speaks for a kernel.
    kernel: bool,
    /// It lends.
    lends: Option<Arc<Lends>>,
}

struct Session<'a> {
    server: &'a Server,
    sender: &'a dyn Sender<FromServer>,
    peer: &'a str,
    opened: Opened,
    answers: Arc<Answers>,
    notices: Arc<Notices>,
    commands: Commands,
    /// What came is taken from there; and when it was looked last whether the session is to end.
    inbox: Mutex<(Inbox, Instant)>,
    /// Threads that wait for the receiver.
    idle: AtomicUsize,
    threads: AtomicUsize,
    /// Threads that carry out a call, and send its answer.
    busy: AtomicUsize,
    over: AtomicBool,
}

/// Serves a connection to its end.
pub(super) fn run(server: &Server, end: ServerEnd<FileProtocol>) {
    let Connection { sender, mut receiver, peer, process, shares_memory, key } = end;
    let outbox = Arc::new(Outbox::new(sender.clone()));
    let notices = Arc::new(Notices::new(outbox.clone()));
    let channel = match (process, &key) {
        (Some(peer), _) => Channel::Process(peer),
        (None, Some(key)) => Channel::Key(&key.line),
        (None, None) => Channel::Nobody,
    };
    let channel = (channel, shares_memory);
    let opened = match open(server, &mut receiver, channel, (&notices, &outbox)) {
        Ok(opened) => opened,
        Err(error) => {
            server.turned_away(&error);
            outbox.begin(FromServer::Refused { reason: error.to_string() });
            return sender.close();
        }
    };
    count(&server.counters.opened);
    tracing::debug!(peer, "a session was opened");
    let volume = server.volume.uuid();
    outbox.begin(FromServer::Opened { volume, slots: SLOTS, bytes: BYTES });
    let session = Session {
        server,
        sender: &*sender,
        peer: &peer,
        opened,
        answers: Arc::new(Answers {
            outbox,
            slots: Slots::default(),
            data: AtomicU64::new(0),
            all_data: server.data.clone(),
            owing: AtomicUsize::new(0),
        }),
        notices,
        commands: server.executors.open(),
        inbox: Mutex::new((receiver, Instant::now())),
        idle: AtomicUsize::new(0),
        threads: AtomicUsize::new(1),
        busy: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    };
    session.serve();
}

/// Waits for what opens the session, and opens it.
fn open(
    server: &Server,
    inbox: &mut Inbox,
    (channel, shares_memory): (Channel<'_>, bool),
    (notices, outbox): (&Arc<Notices>, &Arc<Outbox>),
) -> Result<Opened> {
    let opening = match inbox.recv(Some(OPENING))? {
        Received::Message(ToServer::Open(opening)) => opening,
        Received::Message(_) => return Err(Error::Refused("it opens no session".into())),
        Received::Timeout => {
            return Err(Error::Refused(format!("it opened no session within {OPENING:?}")));
        }
        Received::Closed => return Err(Error::Refused("it went before it had a session".into())),
    };
    if !opening.volume.is_empty() && !server.volume.is_called(&opening.volume) {
        return Err(Error::Refused(format!("no volume is called {:?} here", opening.volume)));
    }
    let (caches, lends) = (opening.caches, opening.lends);
    let kernel = opening.claim == Claim::Kernel;
    let cache = caches.then(|| notices.clone() as Arc<dyn Cache>);
    let is_called = |name: &str| server.volume.is_called(name);
    let opening = identity::judge(channel, opening.claim, is_called)?;
    if lends {
        let opening = (&opening, caches);
        let (service, lends) = lends::open(server, (channel, shares_memory), opening, outbox)?;
        return Ok(Opened { service, caches, kernel, lends: Some(lends) });
    }
    let open = |cache| server.volume.open(opening, cache);
    let service = match channel {
        Channel::Key(line) => super::bounded(line, cache, open)?,
        Channel::Process(_) | Channel::Nobody => open(cache)?,
    };
    Ok(Opened { service, caches, kernel, lends: None })
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
                tracing::info!(peer = self.peer, "a client that takes no answers is cut off");
                return self.sender.cut();
            }
            std::thread::sleep(BRIEFLY);
        }
    }

    /// Receives and carries out until the session is over.
    fn work<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        while let Some((message, entry)) = self.receive() {
            let (call, credentials, request, entry) = match (message, entry) {
                (ToServer::Call { slot, number, credentials, request }, Some(entry)) => {
                    ((slot, number), credentials, *request, entry)
                }
                (ToServer::Taken { notice }, _) => {
                    // At the session's end another thread has forgotten them.
                    if !self.notices.taken(notice) && !self.over.load(Ordering::Acquire) {
                        self.broke(&format!("it takes notice {notice} back, which it has not"));
                    }
                    continue;
                }
                (ToServer::Bye, _) => return self.end(),
                (_, entry) => {
                    drop(entry);
                    return self.broke("it opens a second session");
                }
            };
            if let Err(why) = self.answers.slots.begin(call.0, call.1) {
                // The end of a session may take a while, and needs no executor.
                drop(entry);
                return self.broke(&why);
            }
            self.have_another(scope);
            self.busy.fetch_add(1, Ordering::SeqCst);
            self.carry_out(call, &credentials, request, entry);
            self.busy.fetch_sub(1, Ordering::SeqCst);
        }
        self.end();
    }

    /// The next message; none when the session is over. A call has its place in the order of
    /// arrival, which it gets while this thread has the receiver.
    fn receive(&self) -> Option<(ToServer, Option<Entry>)> {
        self.idle.fetch_add(1, Ordering::SeqCst);
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let (inbox, looked) = &mut *inbox;
        self.idle.fetch_sub(1, Ordering::SeqCst);
        loop {
            // Also where a client always has something to say.
            if looked.elapsed() > LOOK {
                *looked = Instant::now();
                self.look();
            }
            if self.over.load(Ordering::Acquire) {
                return None;
            }
            match inbox.recv(Some(LOOK)) {
                Ok(Received::Message(message)) => {
                    let message = match self.unlend(message) {
                        Ok(message) => message,
                        Err(why) => {
                            self.broke(&why);
                            return None;
                        }
                    };
                    let entry = match &message {
                        ToServer::Call { request, .. } => Some(self.commands.arrive(request)),
                        _ => None,
                    };
                    return Some((message, entry));
                }
                Ok(Received::Timeout) => {}
                Ok(Received::Closed) => return None,
                Err(error) => {
                    tracing::info!(peer = self.peer, %error, "a client's session ends");
                    return None;
                }
            }
        }
    }

    /// A message of lent data, which a session that lends may send, as the call that it is.
    fn unlend(&self, message: ToServer) -> std::result::Result<ToServer, String> {
        match message {
            ToServer::Lent { .. } if self.opened.lends.is_none() => {
                Err("it lends data in a session that does not lend".into())
            }
            message => lends::as_call(message),
        }
    }

    /// Is there a reason to end the session?
    fn look(&self) {
        if self.server.is_ending() {
            // What programs were told is written comes in before that.
            if self.opened.lends.as_ref().is_some_and(|lends| lends.has_to_return()) {
                return;
            }
            self.told_end("the server ends");
        } else if self.notices.is_late() {
            count(&self.server.counters.ended);
            self.told_end("what others changed was not taken back in time");
        }
    }

    /// Somebody receives while this thread carries out.
    fn have_another<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        if self.idle.load(Ordering::SeqCst) > 0 {
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

    /// Carries a call out when it has an executor, and gives that back before the answer leaves.
    fn carry_out(
        &self,
        call: (u32, u64),
        credentials: &Credentials,
        request: Request,
        entry: Entry,
    ) {
        count(&self.server.counters.calls);
        let check = if self.opened.kernel { check_kernels } else { check };
        let data = check(&request).and_then(|()| Data::take(&self.answers, data_of(&request)));
        let data = match data {
            Ok(data) => data,
            Err(error) => {
                drop(entry);
                return self.answers.give(call, Err(error), true);
            }
        };
        let Some(turn) = entry.begin() else {
            return self.answers.give(call, Err(errno(libc::ESTALE)), true);
        };
        if self.opened.caches && !has_its_way(&request) && self.answers.may_owe() {
            let (result, owed) = self.opened.service.call_owing(credentials, request);
            turn.finish();
            self.answers.give_owing(call, result, owed);
            return drop(data);
        }
        let (answers, here) = (self.answers.clone(), std::thread::current().id());
        let theirs = turn.clone();
        let done = move |result| {
            // A thread that flushes for all sessions does not wait for this one's client, and has
            // not this one's turn.
            let own = std::thread::current().id() == here;
            if own {
                theirs.release();
            }
            answers.give(call, result, own);
            drop(data);
        };
        self.opened.service.submit(credentials, request, Box::new(done));
        turn.finish();
    }

    /// The client broke a rule.
    fn broke(&self, why: &str) {
        count(&self.server.counters.ended);
        tracing::warn!(peer = self.peer, why, "a client broke the protocol");
        self.told_end(why);
    }

    fn told_end(&self, why: &str) {
        self.answers.outbox.post(FromServer::Ended { reason: why.into() });
        self.end();
    }

    /// All that the session has ends, and with it what its calls wait for.
    fn end(&self) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.commands.end();
        self.notices.end();
        let ended = self.opened.service.call(&Credentials::default(), Request::EndSession);
        if let Err(error) = ended {
            tracing::debug!(%error, "the end of a session");
        }
        self.answers.outbox.end();
        self.leave();
    }
}

/// Is it answered by another thread than its own, or does its thread go on after the answer?
fn has_its_way(request: &Request) -> bool {
    use Request as R;
    matches!(request, R::Fsync { .. } | R::Wait { .. } | R::SetLock { .. } | R::Read { .. })
}

impl Answers {
    /// May one more change be answered before other sessions have taken note of it?
    fn may_owe(&self) -> bool {
        self.owing.load(Ordering::SeqCst) < OWING
    }

    /// Answers a change, and says when other sessions have taken note of it. No thread waits for
    /// these.
    fn give_owing(self: &Arc<Self>, call: (u32, u64), result: Result<Reply>, owed: Owed) {
        if owed.is_settled() {
            return self.give(call, result, true);
        }
        let (slot, number) = call;
        self.slots.end(slot);
        self.owing.fetch_add(1, Ordering::SeqCst);
        self.outbox.send(FromServer::Owing { slot, number, result: result.map(Box::new) });
        let answers = self.clone();
        owed.then(Box::new(move || {
            answers.owing.fetch_sub(1, Ordering::SeqCst);
            answers.outbox.post(FromServer::Settled { slot, number });
        }));
    }

    fn give(&self, (slot, number): (u32, u64), result: Result<Reply>, may_wait: bool) {
        self.slots.end(slot);
        let answer = FromServer::Answer { slot, number, result: result.map(Box::new) };
        match may_wait {
            true => self.outbox.send(answer),
            false => self.outbox.post(answer),
        }
    }
}
