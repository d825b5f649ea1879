//! The Service for a Runtime behind a connection: greeting a host, serving it, and what is done
//! when it is gone. The same code is a device process and a mount that takes the Service's part
//! itself.

use crate::device::calls::{self, Answers, DeviceEnd, Refusals, SessionEnd};
use crate::device::counts::Tally;
use crate::device::member::{MemberSession, NO_VOLUME};
use crate::device::programs::Tokens;
use crate::device::replay::Replay;
use crate::device::storage::{OpenStorage, StorageSession};
use crate::device::workers::{WorkerOptions, Workers};
use siftfs_base::{Clock, Epoch, Error, Result, SystemClock, TxnSeq};
use siftfs_device::{Counters, Role};
use siftfs_device_target::Waits;
use siftfs_keys::Use;
use siftfs_log::{HostState, show_uuid};
use siftfs_service::{Service, ServiceParts};
use siftfs_transport::Received;
use siftfs_volume::{HeaderView, Media};
use siftfs_wire::{
    Access, BlockProtocol, FromService, PROTOCOL_VERSION, StorageAnswer, StorageCall, ToService,
    Urgency,
};
use std::env;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a server that waits checks whether it shall stop.
const POLL: Duration = Duration::from_millis(100);
/// How long a connection may be there without a Hello.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a program's may be there without its token.
const FIRST: Duration = Duration::from_secs(5);

/// Opens the volume's devices, without any role. Called for every host anew, so that a server
/// without a host has nothing open.
pub type OpenMedia = Box<dyn Fn() -> Result<Media> + Send + Sync>;

/// Listens for Runtimes.
pub type Listener = siftfs_transport::Listener<BlockProtocol>;

/// How a server serves.
#[derive(Clone)]
pub struct ServerOptions {
    /// How long the Service's role is waited for when a host is greeted.
    pub patience: Duration,
    /// How checkpoints replay.
    pub replay: Replay,
    /// Time source.
    pub clock: Arc<dyn Clock>,
    /// What the volume is called: where keys are admitted for some volumes alone, and by hosts
    /// whose storage this process is.
    pub names: Vec<String>,
    /// How the storage is opened for such hosts; none are served without.
    pub storage: Option<OpenStorage>,
    /// Where programs reach this process ([`Server::program`]), as hosts tell them; without it,
    /// where hosts do.
    pub programs: Option<String>,
    /// A folder for scratch files without names: of the table of grants, what does not fit into
    /// memory.
    pub scratch: PathBuf,
    /// How programs are served.
    pub workers: WorkerOptions,
    /// What `storage` opens is a member of a striped volume, and no volume: nothing but storage is
    /// served.
    pub member: bool,
    /// Ended by [`Server::stop`]: calls on devices of other targets that were opened with this wait
    /// no longer for one that is lost.
    pub waits: Waits,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let clock = Arc::new(SystemClock::default());
        let (replay, names, storage, programs) = Default::default();
        let (patience, scratch) = (Duration::from_secs(5), env::temp_dir());
        let (workers, member, waits) = Default::default();
        Self { patience, replay, clock, names, storage, programs, scratch, workers, member, waits }
    }
}

/// Serves a volume's hosts, one at a time.
pub struct Server {
    media: OpenMedia,
    options: ServerOptions,
    tally: Arc<Tally>,
    stopping: AtomicBool,
    /// Connections that have not been greeted.
    waiting: AtomicU64,
    /// Hosts whose storage is here, in words for people.
    hosts: Mutex<Vec<String>>,
    /// What those have granted to programs.
    tokens: Arc<Tokens>,
    /// What serves those.
    workers: Workers,
}

/// A Service in the hands of a session; gives the role back when it goes.
struct Held {
    service: Service,
    counters: Arc<Counters>,
    media: Media,
}

/// Why a host was not greeted.
struct Denied {
    error: Error,
    /// The volume is damaged or its storage fails: the host must stop, not ask again.
    fatal: bool,
}

impl From<Error> for Denied {
    fn from(error: Error) -> Self {
        let fatal = matches!(error, Error::Corrupt { .. } | Error::Io { .. });
        Self { error, fatal }
    }
}

fn denied(why: String) -> Denied {
    Denied { error: Error::Refused(why), fatal: false }
}

/// How a session ended.
enum Ended {
    /// The host said goodbye: nothing is left to do.
    Goodbye,
    /// The connection ended or broke, or the host broke the protocol.
    Lost(String),
    /// [`Server::stop`].
    Stopped,
    /// The Service latched a failure, which the host was told.
    Failed,
}

impl Server {
    /// A server for the volume on what `media` opens.
    pub fn new(media: OpenMedia, options: ServerOptions) -> Self {
        let (stopping, waiting, hosts) = Default::default();
        let tally = Arc::<Tally>::default();
        let tokens = Tokens::new(options.programs.clone(), options.scratch.clone()).into();
        let own = tally.clone();
        let broke = Box::new(move |error: &Error| {
            if matches!(error, Error::Corrupt { .. }) {
                own.refused(&format!("what it sent: {error}"));
            }
            tracing::debug!(%error, "a program's connection broke");
        });
        let workers = Workers::new(options.workers, &tokens, broke);
        Self { media, options, tally, stopping, waiting, hosts, tokens, workers }
    }

    /// Sessions end at the next boundary of a step; their hosts are told.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.options.waits.end();
        self.workers.stop();
    }

    fn stopped(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Serves one host, from its Hello to its end, and finishes what it left. When this returns,
    /// the Service's role is given back.
    pub fn session(&self, mut end: DeviceEnd) {
        let peer = end.peer.clone();
        if let Err(why) = self.allow(&end, Use::BlockProtocol) {
            return self.deny(&end, denied(why));
        }
        // From its first sign on, not from its Hello: it may want both roles first, to recover.
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let first = self.await_hello(&mut end);
        if self.options.member {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return self.serve_member(end, first);
        }
        let greeted = match first {
            Some(ToService::Inquire { version, volume }) => {
                self.answer_inquiry(&end, version, &volume);
                None
            }
            Some(ToService::Storage { id, call: call @ StorageCall::Attach { .. } }) => {
                self.waiting.fetch_sub(1, Ordering::AcqRel);
                return self.attach(end, Some((id, call)));
            }
            Some(ToService::Storage { id, call }) => {
                let opened = self.open_storage(call, |open, access| {
                    StorageSession::open(open, access, &self.tokens)
                });
                self.waiting.fetch_sub(1, Ordering::AcqRel);
                return self.serve_storage(end, id, opened);
            }
            hello => hello.map(|h| (self.greet(&h), h)),
        };
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        let (mut held, hello) = match greeted {
            Some((Ok(held), hello)) => (held, hello),
            Some((Err(denied), _)) => return self.deny(&end, denied),
            None => return,
        };
        self.tally.counts.host();
        tracing::info!(peer, "serving a host");
        held.service.handle(hello);
        let ended = self.serve(&mut held, &mut end);
        self.end(held, &end, ended);
    }

    /// Serves the process that puts the members of a striped volume together: storage alone.
    fn serve_member(&self, end: DeviceEnd, first: Option<ToService>) {
        match first {
            Some(ToService::Storage { id, call: call @ StorageCall::Open { .. } }) => {
                self.serve_storage(end, id, self.open_storage(call, MemberSession::open));
            }
            Some(_) => self.deny(&end, denied(NO_VOLUME.into())),
            None => {}
        }
    }

    /// Serves one program, which has a token or is turned away: by a door for those alone, that no
    /// host comes through. Its machine's key may be that of any line with the volume. Returns when
    /// a worker has it.
    pub fn program(&self, end: DeviceEnd) {
        match self.allow(&end, Use::DirectPlane) {
            Ok(()) => self.attach(end, None),
            Err(why) => self.deny_a("program", &end, denied(why)),
        }
    }

    /// Serves a program to which a host has granted blocks: `first` names the first grant.
    fn attach(&self, end: DeviceEnd, first: Option<(u64, StorageCall)>) {
        let refused = self.refusals(format!("{}: a program", end.peer));
        if let Err(error) = self.workers.admit(end, first, (FIRST, refused)) {
            self.refused(&error.to_string());
        }
    }

    /// May a machine that has a key have this of the volume (rule R52)?
    fn allow(&self, end: &DeviceEnd, what: Use) -> std::result::Result<(), String> {
        let Some(key) = &end.key else { return Ok(()) };
        let is_called = |name: &str| self.options.names.iter().any(|own| own == name);
        key.line.allow(what, is_called)
    }

    fn await_hello(&self, end: &mut DeviceEnd) -> Option<ToService> {
        let until = Instant::now() + SILENCE;
        let nobody = loop {
            if self.stopped() || Instant::now() >= until {
                break "it said nothing".to_owned();
            }
            match end.receiver.recv(Some(POLL)) {
                Ok(Received::Message(
                    first @ (ToService::Hello { .. }
                    | ToService::Inquire { .. }
                    | ToService::Storage { .. }),
                )) => return Some(first),
                Ok(Received::Message(_)) => {
                    self.deny(end, denied("its first message is no Hello".into()));
                    return None;
                }
                Ok(Received::Timeout) => {}
                Ok(Received::Closed) => break "it closed".to_owned(),
                Err(error) => break self.broke(&error),
            }
        };
        tracing::debug!(peer = end.peer, why = nobody, "a connection without a host");
        end.sender.close();
        None
    }

    /// A connection was refused before its host could speak: of another version or role, or not of
    /// this protocol at all. It was told where that was possible; here it is logged and counted.
    pub fn turned_away(&self, error: &Error) {
        self.refused(&error.to_string());
    }

    fn refused(&self, why: &str) {
        self.tally.refused(why);
    }

    /// Takes what a connection's calls may not ask. `whose` they are is said with it.
    fn refusals(&self, whose: String) -> Refusals {
        let tally = self.tally.clone();
        Box::new(move |error| tally.refused(&format!("{whose}: {error}")))
    }

    /// Says what was refused again and again, and is not in the log yet.
    pub fn look(&self) {
        self.tally.look();
    }

    /// Opens the storage for a host that asks for it.
    fn open_storage<S>(
        &self,
        call: StorageCall,
        session: impl FnOnce(&OpenStorage, Access) -> Result<(S, StorageAnswer)>,
    ) -> Result<(S, StorageAnswer)> {
        let StorageCall::Open { version, volume, access } = call else {
            return Err(Error::Refused("its first call opens nothing".into()));
        };
        check_version(version).map_err(|denied| denied.error)?;
        let Some(open) = &self.options.storage else {
            return Err(Error::Refused("this process serves no storage".into()));
        };
        if !self.options.names.contains(&volume) {
            let names = self.options.names.join(", ");
            let what = format!("no volume '{volume}' is here: it is called {names}");
            return Err(Error::Refused(what));
        }
        session(open, access).map_err(|error| {
            let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner).join(", ");
            match error {
                Error::Refused(why) if !hosts.is_empty() => Error::Refused(format!(
                    "in use by another host, {hosts}: unmount it there ({why})"
                )),
                other => other,
            }
        })
    }

    /// Serves a host whose storage is here, from its first call to its end.
    fn serve_storage<S: Answers>(
        &self,
        mut end: DeviceEnd,
        id: u64,
        opened: Result<(S, StorageAnswer)>,
    ) {
        let peer = end.peer.clone();
        let (session, answer) = match opened {
            Ok((session, answer)) => (Some(session), answer),
            Err(error) => {
                self.refused(&format!("{peer}: it does not get the storage: {error}"));
                (None, StorageAnswer::Failed { error })
            }
        };
        let sent = end.sender.send(FromService::Storage { id, answer });
        if let (Some(session), Ok(())) = (session, sent) {
            tracing::info!(peer, "a host has its storage here");
            let refused = self.refusals(peer.clone());
            self.hosts.lock().unwrap_or_else(PoisonError::into_inner).push(peer.clone());
            let ended = calls::serve(&session, &mut end, &|| self.stopped(), &refused);
            let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            hosts.iter().position(|host| *host == peer).map(|at| hosts.remove(at));
            drop(hosts);
            drop(session);
            match ended {
                SessionEnd::Closed => tracing::info!(peer, "a host has closed its storage"),
                SessionEnd::Stopped => tracing::info!(peer, "ending: the host's storage is closed"),
                SessionEnd::Broke(error) => {
                    let why = self.broke(&error);
                    tracing::warn!(peer, why, "a host has lost its storage");
                }
            }
        }
        end.sender.close();
    }

    /// Why a connection broke; bytes that are no messages count as refused.
    fn broke(&self, error: &Error) -> String {
        if matches!(error, Error::Corrupt { .. }) {
            self.refused(&format!("what it sent: {error}"));
        }
        error.to_string()
    }

    /// Says whether a Hello of this volume would be heard. Nothing is locked, and nothing written.
    fn answer_inquiry(&self, end: &DeviceEnd, version: u32, volume: &[u8; 16]) {
        let looked = check_version(version)
            .and_then(|()| Ok((self.media)()?.read_to_write()?))
            .and_then(|view| check_volume(&view, volume));
        match looked {
            Ok(()) => {
                // A peer that has asked and gone does not need to know.
                let _ = end.sender.send(FromService::Bye);
                end.sender.close();
            }
            Err(Denied { error, .. }) => self.deny(end, Denied { error, fatal: false }),
        }
    }

    fn deny(&self, end: &DeviceEnd, denied: Denied) {
        self.deny_a("host", end, denied);
    }

    fn deny_a(&self, what: &str, end: &DeviceEnd, denied: Denied) {
        let error = denied.error;
        self.refused(&format!("{}: a {what} is not served: {error}", end.peer));
        let answer = match denied.fatal {
            true => FromService::Failed { error },
            false => FromService::Refused { reason: error.to_string() },
        };
        // It may have gone: then nobody is to be told.
        let _ = end.sender.send(answer);
        end.sender.close();
    }

    /// Takes the role, then reads everything: what another Service or an older host did has ended.
    fn greet(&self, hello: &ToService) -> std::result::Result<Held, Denied> {
        let ToService::Hello { version, volume, epoch } = hello else {
            return Err(denied("not a Hello".into()));
        };
        check_version(*version)?;
        let media = (self.media)()?;
        media.claim(Role::Service, self.options.patience)?;
        let resumed = self.resume(&media, volume, *epoch);
        if resumed.is_err() {
            // What is reported is why; the role is free at the latest when the devices are closed.
            let _ = media.unclaim(Role::Service);
        }
        let (service, counters) = resumed?;
        Ok(Held { service, counters, media })
    }

    fn resume(
        &self,
        media: &Media,
        volume: &[u8; 16],
        epoch: Epoch,
    ) -> std::result::Result<(Service, Arc<Counters>), Denied> {
        let view = media.read_to_write()?;
        check_hello(&view, volume, epoch)?;
        let storage = media.storage(&view)?;
        let options = self.options.replay.options(&storage, &view, &self.options.clock)?;
        let parts = ServiceParts::take(&storage, &view)?;
        let host = &view.host;
        let service = Service::resume(parts, options, host.journal_key, host.lane_key)?;
        Ok((service, storage.counters().clone()))
    }

    fn serve(&self, held: &mut Held, end: &mut DeviceEnd) -> Ended {
        loop {
            for answer in held.service.drain() {
                if let Err(error) = end.sender.send(answer) {
                    return Ended::Lost(self.last_word(end).unwrap_or_else(|| error.to_string()));
                }
            }
            if let Some(error) = held.service.failure() {
                tracing::error!(%error, "the Service has stopped");
                return Ended::Failed;
            }
            if self.stopped() {
                return Ended::Stopped;
            }
            let patience = if held.service.has_work() { Duration::ZERO } else { POLL };
            match end.receiver.recv(Some(patience)) {
                Ok(Received::Message(message)) => {
                    if let Some(ended) = self.take(held, message) {
                        return ended;
                    }
                }
                Ok(Received::Timeout) => held.service.step(),
                Ok(Received::Closed) => return Ended::Lost("it closed without a goodbye".into()),
                Err(error) => return Ended::Lost(self.broke(&error)),
            }
        }
    }

    /// Why a host that does not listen any more has gone, if it said so.
    fn last_word(&self, end: &mut DeviceEnd) -> Option<String> {
        while let Ok(Received::Message(message)) = end.receiver.recv(Some(Duration::ZERO)) {
            self.tally.counts.message();
            if let ToService::Objection { reason } = message {
                return Some(self.objected(&reason));
            }
        }
        None
    }

    fn objected(&self, reason: &str) -> String {
        self.tally.counts.refusal();
        format!("it refused an answer: {reason}")
    }

    /// One message; `Some` if it is the last.
    fn take(&self, held: &mut Held, message: ToService) -> Option<Ended> {
        self.tally.counts.message();
        if matches!(message, ToService::ExpectUrgent { .. }) {
            self.tally.counts.hint();
        }
        match message {
            ToService::Goodbye => return Some(Ended::Goodbye),
            ToService::Objection { reason } => {
                return Some(Ended::Lost(self.objected(&reason)));
            }
            message => held.service.handle(message),
        }
        if held.service.failure().is_some_and(|e| !matches!(e, Error::Io { .. })) {
            self.tally.counts.refusal();
        }
        let counters = held.counters.clone();
        let programs = (self.tokens.statistics(), self.workers.statistics());
        held.service.annotate(|statistics| {
            let device = self.tally.counts.statistics(counters.snapshot(), programs);
            statistics.device = Some(device);
        });
        None
    }

    fn end(&self, mut held: Held, end: &DeviceEnd, ended: Ended) {
        match &ended {
            Ended::Goodbye => tracing::info!(peer = end.peer, "the host has said goodbye"),
            Ended::Stopped => tracing::info!(peer = end.peer, "ending: the host is told"),
            Ended::Failed => {}
            Ended::Lost(why) => {
                tracing::warn!(peer = end.peer, why, "the host is gone; finishing what is durable");
                self.finish(&mut held.service);
            }
        }
        let Held { service, media, .. } = held;
        drop(service);
        if let Err(error) = media.unclaim(Role::Service) {
            tracing::error!(%error, "the volume stays locked until this process ends");
        }
        drop(media);
        if matches!(ended, Ended::Goodbye | Ended::Stopped) {
            // A host that has gone meanwhile finds the role free all the same.
            let _ = end.sender.send(FromService::Bye);
        }
        end.sender.close();
    }

    /// Checkpoints what is journaled, until it is done or another host wants the volume.
    fn finish(&self, service: &mut Service) {
        let upto = TxnSeq(u64::MAX);
        service.handle(ToService::Checkpoint { id: 0, upto, urgency: Urgency::Background });
        while service.has_work() && !self.stopped() && self.waiting.load(Ordering::Acquire) == 0 {
            service.step();
            service.drain();
        }
        match service.failure() {
            Some(error) => tracing::error!(%error, "the rest is left to the next host's recovery"),
            None if service.has_work() => tracing::info!("the rest is left to the next host"),
            None => tracing::info!("everything journaled is in the file system"),
        }
    }
}

fn check_version(version: u32) -> std::result::Result<(), Denied> {
    if version == PROTOCOL_VERSION {
        return Ok(());
    }
    Err(denied(format!(
        "the host speaks version {version} of the block protocol, this device process version \
         {PROTOCOL_VERSION}: use the same siftfs on both sides"
    )))
}

fn check_volume(view: &HeaderView, volume: &[u8; 16]) -> std::result::Result<(), Denied> {
    let own = &view.header.volume;
    if own != volume {
        return Err(denied(format!(
            "the device process serves the volume {}, the host has mounted {}",
            show_uuid(own),
            show_uuid(volume)
        )));
    }
    Ok(())
}

/// Is this the host that the volume has now (rules R9, R16)?
fn check_hello(
    view: &HeaderView,
    volume: &[u8; 16],
    epoch: Epoch,
) -> std::result::Result<(), Denied> {
    check_volume(view, volume)?;
    let host = &view.host;
    if host.key.epoch != epoch || host.state != HostState::Mounted {
        return Err(denied(format!(
            "the host's epoch {} is not the volume's, which is {}{}: another host has had the \
             volume since",
            epoch.0,
            host.key.epoch.0,
            if host.state == HostState::Mounted { "" } else { " and ended" }
        )));
    }
    Ok(())
}
