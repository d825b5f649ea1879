//! The host's end of a Service in another process: what was not answered is kept, and sent again to
//! the Service that takes over (`docs/design/device.md`).

use crate::device::replay::Replay;
use crate::link::connect::{Connector, HostEnd, Local, ReconnectProbe};
use crate::link::driver::Sink;
use crate::link::hint::Hints;
use crate::link::outbox::Outbox;
use siftfs_base::{Epoch, Error, Result, TxnSeq};
use siftfs_device::Role;
use siftfs_transport::{Received, Sender};
use siftfs_volume::Media;
use siftfs_wire::{
    EXPECT_URGENT_MAX_MS, FromService, PROTOCOL_VERSION, ServiceStatistics, ToService,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a thread that waits checks whether it shall stop.
const POLL: Duration = Duration::from_millis(100);
/// Pauses between tries to reach the device process: the first, and the longest.
const BACKOFF: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];
/// How long a takeover has to be refused before the other process counts as one that keeps its
/// place. One that was just killed gives its lock back when its last I/O has ended.
const DYING: Duration = Duration::from_secs(5);
/// How long a Service may take from Hello to the end of its report; it reads the journal meanwhile.
const GREETING: Duration = Duration::from_secs(120);
/// How long the role is waited for when the Service has said Bye.
const HANDOVER: Duration = Duration::from_secs(10);

/// Identity of the host.
#[derive(Clone, Copy)]
pub(crate) struct Identity {
    pub volume: [u8; 16],
    pub epoch: Epoch,
    /// Newest transaction at the start.
    pub txn_seq: TxnSeq,
}

/// Counts and state for the status report.
#[derive(Default)]
struct LinkCounts {
    connected: bool,
    peer: String,
    fallback: bool,
    greetings: u64,
    losses: u64,
    refusals: u64,
    objections: u64,
    takeovers: u64,
    waited: Duration,
    /// Last reason why no Service is connected.
    trouble: Option<String>,
}

struct State {
    outbox: Outbox,
    sender: Option<Arc<dyn Sender<ToService>>>,
    statistics: ServiceStatistics,
    story: LinkCounts,
    away_since: Option<Instant>,
    fallback: Option<Duration>,
    /// The volume is being closed.
    leaving: bool,
    /// The volume is being closed, and no process listened when that was last checked.
    absent: bool,
    /// Since when this process has wanted to take over and could not.
    refused: Option<Instant>,
    /// The thread has ended: no more messages are sent or delivered.
    ended: bool,
}

/// Does the other process keep its place, when takeovers have been refused `since`?
fn keeps_its_place(since: Option<Instant>, now: Instant) -> bool {
    since.is_some_and(|since| now.saturating_duration_since(since) >= DYING)
}

/// The host's end of a Service in another process.
pub(crate) struct Remote {
    state: Mutex<State>,
    changed: Condvar,
    /// Senders take turns, so that messages leave in the order in which they came.
    turn: Mutex<()>,
    sink: Arc<Sink>,
    who: Identity,
    connector: Arc<dyn Connector>,
    media: Media,
    /// How a Service in this process replays.
    replay: Replay,
    closing: AtomicBool,
    abandoned: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    messages: AtomicU64,
    hints: Hints,
    /// The device process has been away for as long as it may, and keeps its place.
    overdue: AtomicBool,
}

/// Why a connection ended.
enum End {
    /// The Service's Bye to our Goodbye.
    Parted,
    /// The volume has failed; nothing is sent any more.
    Failed,
    /// Anything else: the next one takes over.
    Lost(String),
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    /// A link that connects when it is started. `media` is the host's own, with the Host's role
    /// and without the Service's.
    pub fn new(
        sink: Arc<Sink>,
        who: Identity,
        connector: Arc<dyn Connector>,
        fallback: Option<Duration>,
        media: Media,
        replay: Replay,
    ) -> Self {
        let state = State {
            outbox: Outbox::new(who.txn_seq),
            sender: None,
            statistics: ServiceStatistics::default(),
            story: LinkCounts::default(),
            away_since: Some(Instant::now()),
            fallback,
            leaving: false,
            absent: false,
            refused: None,
            ended: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            turn: Mutex::new(()),
            sink,
            who,
            connector,
            media,
            replay,
            closing: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            thread: Mutex::new(None),
            messages: AtomicU64::new(0),
            hints: Hints::default(),
            overdue: AtomicBool::new(false),
        }
    }

    /// Greets the Service and begins to deliver its answers. Without a fallback the first greeting
    /// must succeed.
    ///
    /// # Errors
    /// Why no Service is connected; nothing was sent but a Hello then.
    pub fn start(self: &Arc<Self>) -> Result<()> {
        let first = match self.connector.connect().and_then(|end| self.greet(end)) {
            Ok(end) => Some(end),
            Err(error) if lock(&self.state).fallback.is_some() => {
                self.note_away(&error.to_string());
                None
            }
            Err(error) => {
                lock(&self.state).ended = true;
                return Err(error);
            }
        };
        let this = self.clone();
        let thread = std::thread::Builder::new()
            .name("siftfs-link".into())
            .spawn(move || this.run(first))
            .map_err(|e| Error::Refused(format!("cannot start the link's thread: {e}")))?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    /// Hands a message over; it is kept until it is answered.
    pub fn send(&self, message: ToService) -> Result<()> {
        let known = {
            let mut state = lock(&self.state);
            match (&message, &state.sender) {
                // A caller that asks for the status must not wait for a Service that is away.
                (ToService::Statistics, None) => Some(state.statistics.clone()),
                _ if state.ended => {
                    return Err(Error::Latched("the connection to the Service has ended".into()));
                }
                _ => {
                    state.outbox.push(message);
                    None
                }
            }
        };
        match known {
            Some(statistics) => {
                let answer = FromService::Statistics(Box::new(statistics));
                self.sink.deliver(vec![answer]);
            }
            None => self.flush(),
        }
        Ok(())
    }

    /// Sends what has not been sent on this connection. Only errors of the connection stop it, and
    /// those are the receiving thread's business.
    fn flush(&self) {
        let _turn = lock(&self.turn);
        loop {
            let next = {
                let mut state = lock(&self.state);
                let Some(sender) = state.sender.clone() else { return };
                state.outbox.next().map(|message| (sender, message))
            };
            let Some((sender, message)) = next else { return };
            self.messages.fetch_add(1, Ordering::Relaxed);
            if sender.send(message).is_err() {
                return;
            }
        }
    }

    /// Tells the device process, if that is due, that small durable steps come. The hint passes by
    /// the outbox: it does no harm if it is lost, and no fsync waits for one that does not leave at
    /// once. A Service in this process sees the steps by itself. `now` is in nanoseconds, of the
    /// Runtime's clock.
    pub fn expect_urgent(&self, now: u64) {
        if !self.hints.is_due(now) || self.closing.load(Ordering::Acquire) {
            return;
        }
        let Ok(state) = self.state.try_lock() else { return };
        let sender = state.sender.clone().filter(|_| !state.story.fallback);
        drop(state);
        let hint = ToService::ExpectUrgent { ms: EXPECT_URGENT_MAX_MS };
        if sender.is_some_and(|sender| sender.try_send(hint)) {
            self.hints.count();
            self.messages.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn quitting(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    fn run(self: &Arc<Self>, first: Option<HostEnd>) {
        let mut connected = first.map(|end| (end, None));
        let mut pause = BACKOFF[0];
        while !self.quitting() && !self.sink.has_failed() {
            let (end, local) = match connected.take() {
                Some(found) => found,
                None => match self.find() {
                    Ok(found) => found,
                    Err(error) => {
                        self.note_away(&error.to_string());
                        self.note_overdue();
                        if self.closing.load(Ordering::Acquire) {
                            break;
                        }
                        self.pause(pause);
                        pause = (pause * 2).min(BACKOFF[1]);
                        continue;
                    }
                },
            };
            pause = BACKOFF[0];
            match self.converse(end, local) {
                End::Parted | End::Failed => break,
                End::Lost(why) if self.closing.load(Ordering::Acquire) => {
                    // Everything was settled before the Goodbye.
                    tracing::info!(why, "the Service is gone before it said Bye");
                    break;
                }
                End::Lost(why) => self.note_away(&why),
            }
        }
        let mut state = lock(&self.state);
        state.sender = None;
        state.ended = true;
        drop(state);
        self.changed.notify_all();
    }

    /// A greeted connection to the device process, or, when it has been away for too long, to a
    /// Service in this process.
    fn find(self: &Arc<Self>) -> Result<(HostEnd, Option<Local>)> {
        let remote = self.connector.connect().and_then(|end| self.greet(end));
        let error = match remote {
            Ok(end) => return Ok((end, None)),
            Err(error) => error,
        };
        if !self.is_due() {
            return Err(error);
        }
        let (end, local) = Local::start(self.media.clone(), self.replay)?;
        let end = self.greet(end).map_err(|own| {
            lock(&self.state).refused.get_or_insert_with(Instant::now);
            Error::Refused(format!("{error}; and this process cannot take over: {own}"))
        })?;
        tracing::warn!(%error, "the background work is done in this process now");
        Ok((end, Some(local)))
    }

    /// Is it this process's turn? Time is courtesy to a device process that may come back, and no
    /// proof: whether the old one has ended is the lock's to say. So a volume that is being closed
    /// does not wait for a process that does not exist, as far as the system can say.
    fn is_due(&self) -> bool {
        let (passed, leaving) = {
            let state = lock(&self.state);
            let away = state.away_since.map_or(Duration::ZERO, |since| since.elapsed());
            (state.fallback.is_some_and(|patience| away >= patience), state.leaving)
        };
        let absent = leaving && self.connector.nobody_listens();
        lock(&self.state).absent = absent;
        passed || absent
    }

    /// Hello, Welcome, and what is durable. Nothing else is sent before that has been heard: both
    /// sides would wait for each other with full queues.
    fn greet(&self, mut end: HostEnd) -> Result<HostEnd> {
        let Identity { volume, epoch, .. } = self.who;
        end.sender.send(ToService::Hello { version: PROTOCOL_VERSION, volume, epoch })?;
        let until = Instant::now() + GREETING;
        let mut welcomed = false;
        while Instant::now() < until && !self.quitting() {
            match end.receiver.recv(Some(POLL)).inspect_err(|e| self.note_garbage(e))? {
                Received::Timeout => {}
                Received::Closed => {
                    return Err(Error::Link(format!("{} closed the connection", end.peer)));
                }
                Received::Message(FromService::Welcome { version, .. })
                    if version != PROTOCOL_VERSION =>
                {
                    return Err(self.object(
                        &end,
                        &format!(
                            "it speaks version {version} of the block protocol, this host version \
                             {PROTOCOL_VERSION}: use the same siftfs on both sides"
                        ),
                    ));
                }
                Received::Message(FromService::Welcome { journaled, checkpointed, .. }) => {
                    let sent = lock(&self.state).outbox.sent_upto();
                    if journaled > sent || checkpointed > journaled {
                        return Err(self.object(
                            &end,
                            &format!(
                                "it has journaled transaction {}, the newest sent is {}",
                                journaled.0, sent.0
                            ),
                        ));
                    }
                    welcomed = true;
                }
                Received::Message(FromService::Refused { reason }) => {
                    lock(&self.state).story.refusals += 1;
                    return Err(Error::Refused(format!("{} refused: {reason}", end.peer)));
                }
                Received::Message(FromService::Failed { error }) => {
                    self.sink.deliver(vec![FromService::Failed { error: error.clone() }]);
                    return Err(error);
                }
                Received::Message(message) if welcomed => {
                    let last = matches!(message, FromService::Reclaimed { .. });
                    self.deliver(message).map_err(|e| self.object(&end, &e.to_string()))?;
                    if last {
                        return Ok(end);
                    }
                }
                Received::Message(_) => {
                    return Err(self.object(&end, "its first answer is no Welcome"));
                }
            }
        }
        Err(Error::Link(format!("{} did not answer", end.peer)))
    }

    /// Bytes that are no messages count as refused answers.
    fn note_garbage(&self, error: &Error) {
        if matches!(error, Error::Corrupt { .. }) {
            lock(&self.state).story.objections += 1;
            tracing::error!(%error, "what the Service sent was refused");
        }
    }

    fn object(&self, end: &HostEnd, reason: &str) -> Error {
        lock(&self.state).story.objections += 1;
        tracing::error!(peer = end.peer, reason, "an answer of the Service was refused");
        // The peer may have gone: then it is not to be told.
        let _ = end.sender.send(ToService::Objection { reason: reason.to_owned() });
        end.sender.close();
        Error::Refused(format!("{} broke the protocol: {reason}", end.peer))
    }

    /// One connection, from its greeting to its end.
    fn converse(self: &Arc<Self>, mut end: HostEnd, local: Option<Local>) -> End {
        self.note_here(&end, local.is_some());
        let resend = {
            let this = self.clone();
            // Not on this thread: the Service may wait for its answers to be heard.
            let spawned = std::thread::Builder::new().name("siftfs-resend".into());
            spawned.spawn(move || this.flush())
        };
        let probe = local.as_ref().map(|_| ReconnectProbe::watch(self.connector.clone()));
        let ended = loop {
            if self.quitting() {
                break End::Lost("abandoned".into());
            }
            if let (Some(probe), Some(local)) = (&probe, &local)
                && probe.is_back()
                && !self.closing.load(Ordering::Acquire)
            {
                local.stop();
            }
            match end.receiver.recv(Some(POLL)) {
                Ok(Received::Timeout) => {}
                Ok(Received::Message(FromService::Bye)) => {
                    break match self.closing.load(Ordering::Acquire) {
                        true => End::Parted,
                        false => End::Lost("it ended in order".into()),
                    };
                }
                Ok(Received::Message(FromService::Failed { error })) => {
                    self.sink.deliver(vec![FromService::Failed { error }]);
                    break End::Failed;
                }
                Ok(Received::Message(message)) => {
                    if let Err(error) = self.deliver(message) {
                        break End::Lost(self.object(&end, &error.to_string()).to_string());
                    }
                }
                Ok(Received::Closed) => break End::Lost("it closed the connection".into()),
                Err(error) => {
                    self.note_garbage(&error);
                    break End::Lost(error.to_string());
                }
            }
        };
        self.hang_up(&end);
        drop(end);
        // It ends at once: its connection has.
        let _ = resend.map(JoinHandle::join);
        drop(local);
        drop(probe);
        ended
    }

    /// Sends nothing more on this connection; a caller that asked for statistics gets the last
    /// ones.
    fn hang_up(&self, end: &HostEnd) {
        let mut state = lock(&self.state);
        state.sender = None;
        let asked = state.outbox.rewind();
        let statistics = state.statistics.clone();
        drop(state);
        end.sender.close();
        if asked {
            self.sink.deliver(vec![FromService::Statistics(Box::new(statistics))]);
        }
    }

    /// Delivers an answer: checks it against what was sent, gives it to the Runtime, and forgets
    /// what it answers.
    fn deliver(&self, message: FromService) -> Result<()> {
        let wanted = {
            let mut state = lock(&self.state);
            let wanted = state.outbox.check(message)?;
            if let Some(answer @ FromService::Statistics(statistics)) = &wanted {
                state.statistics = (**statistics).clone();
                // First forgotten, then given: the caller may ask again at once, and what comes
                // then answers another question.
                state.outbox.answered(answer);
            }
            wanted
        };
        let Some(message) = wanted else { return Ok(()) };
        let told = matches!(message, FromService::Statistics(_));
        let answered = message.clone();
        self.sink.try_deliver(message)?;
        if !told {
            lock(&self.state).outbox.answered(&answered);
        }
        Ok(())
    }

    fn note_here(&self, end: &HostEnd, fallback: bool) {
        let mut state = lock(&self.state);
        state.refused = None;
        self.overdue.store(false, Ordering::Release);
        let waited = state.away_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        state.sender = Some(end.sender.clone());
        let story = &mut state.story;
        story.connected = true;
        story.peer = end.peer.clone();
        story.fallback = fallback;
        story.greetings += 1;
        story.takeovers += u64::from(fallback);
        story.waited += waited;
        story.trouble = None;
        drop(state);
        tracing::info!(peer = end.peer, ?waited, "the Service is here");
    }

    /// Says once per cause that no Service is connected.
    fn note_away(&self, why: &str) {
        let mut state = lock(&self.state);
        let story = &mut state.story;
        if story.connected {
            story.connected = false;
            story.losses += 1;
        }
        let news = story.trouble.as_deref() != Some(why);
        story.trouble = Some(why.to_owned());
        state.away_since.get_or_insert_with(Instant::now);
        drop(state);
        if news {
            tracing::warn!(
                address = self.connector.address(),
                why,
                "no device process serves the volume; fsync goes on while the log has room, then waits"
            );
        }
    }

    /// Callers that wait are told once this process has wanted to take over for a while and could
    /// not. A volume that is being closed waits all the same: there is nobody to tell.
    fn note_overdue(&self) {
        let state = lock(&self.state);
        let overdue = keeps_its_place(state.refused, Instant::now()) && !state.leaving;
        drop(state);
        if self.overdue.swap(overdue, Ordering::AcqRel) != overdue {
            self.sink.look_again();
        }
    }

    /// See [`siftfs_runtime::ServiceLink::is_overdue`].
    pub fn is_overdue(&self) -> bool {
        self.overdue.load(Ordering::Acquire)
    }

    fn pause(&self, time: Duration) {
        let state = lock(&self.state);
        if !self.quitting() && !self.closing.load(Ordering::Acquire) {
            let _ = self.changed.wait_timeout(state, time);
        }
    }

    /// From now on a device process that is away this long is replaced by this process: a volume
    /// that is being closed does not wait for ever.
    pub fn fall_back_within(&self, patience: Duration) {
        let absent = self.connector.nobody_listens();
        let mut state = lock(&self.state);
        state.fallback = Some(state.fallback.map_or(patience, |f| f.min(patience)));
        (state.leaving, state.absent) = (true, absent);
        drop(state);
        self.overdue.store(false, Ordering::Release);
        self.changed.notify_all();
        if let Some(text) = self.waiting() {
            tracing::warn!("{text}");
        }
    }

    /// What a volume that is being closed waits for and for how long, in words for people; `None`
    /// while a Service is connected.
    pub fn waiting(&self) -> Option<String> {
        let state = lock(&self.state);
        let (since, patience) = (state.away_since?, state.fallback?);
        if !state.leaving || state.ended {
            return None;
        }
        let (address, left) = (self.connector.address(), patience.saturating_sub(since.elapsed()));
        if state.absent && state.refused.is_none() {
            // This process does it now.
            return None;
        }
        if !left.is_zero() && state.refused.is_none() {
            let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
            return Some(format!("waiting up to {seconds} s for the device process at {address}"));
        }
        let why = state.story.trouble.as_deref().unwrap_or("it does not answer");
        Some(format!("waiting for the device process at {address}: {why}"))
    }

    /// Goodbye, Bye, and the Service's role for the host. Everything submitted is checkpointed.
    ///
    /// # Errors
    /// Refused if the Service's process does not give the role up.
    pub fn stop(&self) -> Result<()> {
        self.closing.store(true, Ordering::Release);
        if self.send(ToService::Goodbye).is_ok() {
            self.changed.notify_all();
        }
        self.join();
        self.media.claim(Role::Service, HANDOVER)
    }

    /// Ends as a process does that is killed (tests).
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.changed.notify_all();
        self.join();
    }

    fn join(&self) {
        if let Some(thread) = lock(&self.thread).take()
            && thread.join().is_err()
        {
            tracing::error!("the link's thread ended with a failed assertion");
        }
    }

    /// For the status report.
    pub fn describe(&self) -> siftfs_status::Remote {
        let state = lock(&self.state);
        let story = &state.story;
        siftfs_status::Remote {
            address: self.connector.address().to_string(),
            peer: story.peer.clone(),
            connected: story.connected,
            fallback: story.connected && story.fallback,
            fallback_after_s: state.fallback.map(|patience| patience.as_secs_f64()),
            overdue: self.is_overdue(),
            away_s: state.away_since.map(|since| since.elapsed().as_secs_f64()),
            trouble: story.trouble.clone(),
            greetings: story.greetings,
            losses: story.losses,
            takeovers: story.takeovers,
            refusals: story.refusals,
            objections: story.objections,
            waited_s: story.waited.as_secs_f64(),
            hints: self.hints.sent(),
            messages: self.messages.load(Ordering::Relaxed),
            unanswered: state.outbox.len() as u64,
        }
    }
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
