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
use super::returning::{
    Connection as Returned, Promise, Verdict, answer_again, file_of, is_of_file, make_durable,
    promise,
};
use super::slots::Slots;
use super::{Server, count};
use crate::executors::{Commands, Entry};
use siftfs_base::{Error, InodeNr, Result, errno};
use std::collections::HashMap;
use siftfs_calls::{
    Back, Change, Claim, Done, FileProtocol, FromServer, Kept, SLOTS, ToServer, check,
    check_kernels, data_of,
};
use siftfs_proto::{
    Cache, Credentials, FileService, Handle, Identity, NO_SLOT, Origin, Owed, Reply, Request,
};
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
    /// What the session has open.
    handles: Mutex<HashMap<Handle, InodeNr>>,
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
    /// What the kernel's callers may do is checked here.
    checks: bool,
    /// Its client comes back when it has lost its server.
    returned: Option<Returned>,
    back: Back,
}

/// A call while it is carried out.
struct Call {
    slot: u32,
    number: u64,
    credentials: Credentials,
    request: Request,
    change: Option<Change>,
    /// Its place in the order of arrival, if nothing else has to come before.
    entry: Option<Entry>,
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
    /// The client has said that it leaves.
    left: AtomicBool,
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
    let (instance, back, checks) = (server.clients.instance, opened.back, opened.checks);
    let (slots, bytes) = (SLOTS, BYTES);
    outbox.begin(FromServer::Opened { volume, slots, bytes, checks, instance, back });
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
            handles: Mutex::default(),
            owing: AtomicUsize::new(0),
        }),
        notices,
        commands: server.executors.open(),
        inbox: Mutex::new((receiver, Instant::now())),
        idle: AtomicUsize::new(0),
        threads: AtomicUsize::new(1),
        busy: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        left: AtomicBool::new(false),
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
    let returning = opening.returning;
    if returning.is_some() && (!kernel || lends) {
        return Err(Error::Refused("only a kernel comes back to a server that was lost".into()));
    }
    let cache = caches.then(|| notices.clone() as Arc<dyn Cache>);
    let is_called = |name: &str| server.volume.is_called(name);
    let opening = identity::judge(channel, opening.claim, is_called)?;
    let checks = opening.identity == Identity::Machine;
    if lends {
        let opening = (&opening, caches);
        let (service, lends) = lends::open(server, (channel, shares_memory), opening, outbox)?;
        let (lends, returned, back) = (Some(lends), None, Back::New);
        return Ok(Opened { service, caches, kernel, lends, checks, returned, back });
    }
    // What a session had whose callers are checked could not be told from what it may not have.
    let returning = returning.filter(|_| opening.identity == Identity::Kernel);
    let open = |cache| server.volume.open(opening, cache);
    let service = match channel {
        Channel::Key(line) if checks => super::bounded_machine(line, cache, open)?,
        Channel::Key(line) => super::bounded(line, cache, open)?,
        Channel::Process(_) | Channel::Nobody => open(cache)?,
    };
    // It is written down when nothing can refuse the session any more.
    let (back, returned) = match returning {
        Some(returning) => {
            let (back, returned) = server.clients.arrive(returning, outbox)?;
            (back, Some(returned))
        }
        None => (Back::New, None),
    };
    Ok(Opened { service, caches, kernel, lends: None, checks, returned, back })
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
            let call = match (message, entry) {
                (ToServer::Call { slot, number, credentials, request, change }, entry) => {
                    Call { slot, number, credentials, request: *request, change, entry }
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
                    self.opened.returned.iter().for_each(|it| self.server.clients.returned(*it));
                    continue;
                }
                (ToServer::Full, _) => {
                    self.server.keeper.ask();
                    continue;
                }
                (ToServer::Open(_) | ToServer::Lent { .. }, _) => {
                    return self.broke("it opens a second session");
                }
            };
            if let Err(why) = self.answers.slots.begin(call.slot, call.number) {
                // The end of a session may take a while, and needs no executor.
                drop(call);
                return self.broke(&why);
            }
            self.have_another(scope);
            self.busy.fetch_add(1, Ordering::SeqCst);
            self.admit(call);
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
            // What programs were told is written comes in before that.
            let returns = || self.opened.lends.as_ref().is_some_and(|lends| lends.has_to_return());
            if self.server.is_ending() && !returns() {
                self.end_in_order();
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
                        // One that may have to wait for others keeps no executor meanwhile.
                        ToServer::Call { request, .. } if self.server.clients.is_open() => {
                            Some(self.commands.arrive(request))
                        }
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
        if self.notices.is_late() {
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

    /// Finds out whether a call is to be carried out, and when.
    fn admit(&self, mut call: Call) {
        let own = (call.slot, call.number);
        let clients = &self.server.clients;
        let file = file_of(&call.request, |handle| self.answers.opened(handle));
        let over = || self.over.load(Ordering::Acquire);
        match clients.admit(self.opened.returned, (call.change.as_ref(), file), over) {
            Verdict::Run => {
                if let Some(Change::Kept(kept)) = &call.change
                    && !is_of_file(&*self.opened.service, file, kept)
                {
                    return self.answers.give(own, Err(errno(libc::ESTALE)), None, true);
                }
                let entry = call.entry.take();
                let entry = entry.unwrap_or_else(|| self.commands.arrive(&call.request));
                self.carry_out(call, file, entry);
            }
            Verdict::Answered(result, done) => self.answers.give(own, *result, Some(done), true),
            Verdict::There(ino) => {
                let result = match call.change {
                    Some(Change::Kept(_)) => Ok(Reply::Done),
                    _ => answer_again(
                        &*self.opened.service,
                        &call.credentials,
                        &call.request,
                        ino,
                    ),
                };
                self.answers.note_opened(&call.request, &result);
                self.answers.give(own, result, Some(Done::default()), true);
            }
            Verdict::Refused(error) => self.answers.give(own, Err(error), None, true),
            Verdict::Over => self.not_begun(own),
        }
    }

    /// The session is over before a call was begun. A client that comes back asks again.
    fn not_begun(&self, (slot, number): (u32, u64)) {
        match self.opened.returned {
            Some(_) => self.answers.slots.end(slot),
            None => self.answers.give((slot, number), Err(errno(libc::ESTALE)), None, true),
        }
    }

    /// Carries a call out when it has an executor, and gives that back before the answer leaves.
    fn carry_out(&self, call: Call, file: Option<InodeNr>, entry: Entry) {
        count(&self.server.counters.calls);
        let Call { slot, number, mut credentials, request, change, .. } = call;
        let own = (slot, number);
        let check = if self.opened.kernel { check_kernels } else { check };
        let data = check(&request).and_then(|()| Data::take(&self.answers, data_of(&request)));
        let data = match data {
            Ok(data) => data,
            Err(error) => {
                drop(entry);
                return self.answers.give(own, Err(error), None, true);
            }
        };
        let Some(turn) = entry.begin() else { return self.not_begun(own) };
        let origin = self.origin(change.as_ref());
        credentials.origin.clone_from(&origin);
        let clients = self.server.clients.clone();
        let before = clients.newest();
        let returned = self.opened.returned;
        let promise = promise(&request);
        let noted = request_of_handles(&request);
        let answers = self.answers.clone();
        // While conflicting calls are still kept away.
        let finish = move |mut result: Result<Reply>| {
            answers.note_opened(&noted, &result);
            if let (Promise::File, Some(file), Ok(_)) = (promise, file, &result)
                && let Err(error) = clients.synced(returned.map(|it| it.client), file, before)
            {
                tracing::error!(%error, file, "a sync is not answered as durable");
                result = Err(errno(libc::EIO));
            }
            let done = returned.zip(change).map(|(connection, change)| {
                let done = origin.as_ref().map_or_else(Done::default, |origin| Done {
                    order: origin.order(),
                    lsn: origin.lsn().0,
                    at: origin.at(),
                });
                clients.done(connection, &change, (file, done), &result);
                done
            });
            (result, done)
        };
        let keeps = || self.server.clients.keeps(returned.map(|it| it.client));
        if promise == Promise::More && keeps() {
            let result = self.opened.service.call(&credentials, request);
            turn.finish();
            let (result, done) = finish(result.and_then(|reply| {
                make_durable(&self.server.clients, || self.server.sync()).map(|()| reply)
            }));
            self.answers.give(own, result, done, true);
            return drop(data);
        }
        if matches!(change, Some(Change::Kept(_))) {
            // What is repeated other kernels have seen already, and each of them asks for
            // everything again when it has come back. Until then it may wait for this one.
            let (result, _) = self.opened.service.call_owing(&credentials, request);
            let (result, done) = finish(result);
            turn.finish();
            self.answers.give(own, result, done, true);
            return drop(data);
        }
        if self.opened.caches && !has_its_way(&request) && self.answers.may_owe() {
            let (result, owed) = self.opened.service.call_owing(&credentials, request);
            let (result, done) = finish(result);
            turn.finish();
            self.answers.give_owing(own, (result, done), owed);
            return drop(data);
        }
        let (answers, here) = (self.answers.clone(), std::thread::current().id());
        let theirs = turn.clone();
        let done = move |result| {
            let (result, done) = finish(result);
            // A thread that flushes for all sessions does not wait for this one's client, and has
            // not this one's turn.
            let own_thread = std::thread::current().id() == here;
            if own_thread {
                theirs.release();
            }
            answers.give(own, result, done, own_thread);
            drop(data);
        };
        self.opened.service.submit(&credentials, request, Box::new(done));
        turn.finish();
    }

    /// By what the Runtime knows a change again after a death.
    fn origin(&self, change: Option<&Change>) -> Option<Arc<Origin>> {
        let client = self.opened.returned?.client;
        let origin = match change? {
            Change::Once { place, number } => Origin::new(client, *place, *number),
            Change::Kept(Kept { place, number, inode, .. }) => {
                let origin = Origin::new(client, *place, *number);
                match inode {
                    Some((ino, generation)) => origin.again(*ino, *generation),
                    None => origin,
                }
            }
            Change::Absolute => Origin::new(client, NO_SLOT, 0),
            Change::Reclaim => return None,
        };
        Some(Arc::new(origin))
    }

    /// The client broke a rule.
    fn broke(&self, why: &str) {
        count(&self.server.counters.ended);
        tracing::warn!(peer = self.peer, why, "a client broke the protocol");
        self.told_end(why);
    }

    fn told_end(&self, why: &str) {
        let (reason, all_answered) = (why.into(), false);
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
        self.notices.end();
        let ended = self.opened.service.call(&Credentials::default(), Request::EndSession);
        if let Err(error) = ended {
            tracing::debug!(%error, "the end of a session");
        }
        if let Some(returned) = self.opened.returned {
            self.server.clients.leaves(returned, self.left.load(Ordering::Acquire));
        }
        self.answers.outbox.end();
        self.leave();
    }
}

/// Of a request what is needed to know what its answer opened.
fn request_of_handles(request: &Request) -> Request {
    match request {
        Request::Open { ino, .. } | Request::Hold { ino } | Request::OpenDir { ino } => {
            Request::Hold { ino: *ino }
        }
        Request::Release { handle } => Request::Release { handle: *handle },
        _ => Request::StatFs,
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

    /// The inode that is open there.
    fn opened(&self, handle: Handle) -> Option<InodeNr> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).get(&handle).copied()
    }

    /// Notes what a call has opened or closed.
    fn note_opened(&self, request: &Request, result: &Result<Reply>) {
        let note = |handle, ino| {
            let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
            handles.insert(handle, ino);
        };
        match (request, result) {
            (_, Ok(Reply::Created { attr, handle })) => note(*handle, attr.ino),
            (
                Request::Open { ino, .. } | Request::Hold { ino } | Request::OpenDir { ino },
                Ok(Reply::Opened { handle }),
            ) => note(*handle, *ino),
            (Request::Release { handle }, _) => {
                self.handles.lock().unwrap_or_else(PoisonError::into_inner).remove(handle);
            }
            _ => {}
        }
    }

    /// Answers a change, and says when other sessions have taken note of it. No thread waits for
    /// these.
    fn give_owing(
        self: &Arc<Self>,
        call: (u32, u64),
        (result, done): (Result<Reply>, Option<Done>),
        owed: Owed,
    ) {
        if owed.is_settled() {
            return self.give(call, result, done, true);
        }
        let (slot, number) = call;
        self.slots.end(slot);
        self.owing.fetch_add(1, Ordering::SeqCst);
        self.outbox.send(FromServer::Owing { slot, number, result: result.map(Box::new), done });
        let answers = self.clone();
        owed.then(Box::new(move || {
            answers.owing.fetch_sub(1, Ordering::SeqCst);
            answers.outbox.post(FromServer::Settled { slot, number });
        }));
    }

    fn give(
        &self,
        (slot, number): (u32, u64),
        result: Result<Reply>,
        done: Option<Done>,
        may_wait: bool,
    ) {
        self.slots.end(slot);
        let answer = FromServer::Answer { slot, number, result: result.map(Box::new), done };
        match may_wait {
            true => self.outbox.send(answer),
            false => self.outbox.post(answer),
        }
    }
}
