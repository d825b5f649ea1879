//! The daemon's end of the control socket.

use crate::control::messages::{
    Answer, Ask, Change, Device, Gone, Left, Op, VERSION, receive, send,
};
use crate::daemon::asking::{Asking, SILENT, is_waited_for};
use crate::daemon::board::Board;
use crate::daemon::freeze;
use crate::daemon::mounts::attach;
use crate::daemon::mounts::live::Mounts;
use crate::daemon::mounts::mounted::Mounted;
use crate::daemon::mounts::settings::Settings;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde_json::Value;
use siftfs_base::{Error, Result as VolumeResult};
use siftfs_fuse::Traffic;
use siftfs_grantor::{Counts, IngestCounts, Program};
use siftfs_placement::Freezer;
use siftfs_proto::{Credentials, FileService, Reply, Request};
use siftfs_status::{
    DeviceInfo, Ingest, IngestSteps, LoggedProgram, Mount, PrivateLogs, RequestLoop, RuntimeStatus,
    Server, SpareInfo, State, Status,
};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Commands served at once.
const MAX_CLIENTS: usize = 16;
/// How long a client may take to say what it wants, and to take its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a client that waits for the end is told how much is left.
const TOLD: Duration = Duration::from_millis(250);

/// What is said of a reply that belongs to another request.
const ODD: &str = "the volume answered with something else";
const AFTER_A_LOSS: &str = "unmount it, and mount it again when the server is back";
const NO_TRIM: &str =
    "what the volume lies on cannot take space back, or the volume's blocks are reserved";

/// What the daemon knows of its volume.
pub struct Info {
    /// The volume.
    pub volume: PathBuf,
    /// The volume's log, if that lies elsewhere.
    pub log: Option<PathBuf>,
    /// The volume's options.
    pub settings: Settings,
    /// Holds the volume for snapshots, if it is this process's.
    pub freezer: Option<Arc<Freezer>>,
    /// What is not as it should be.
    pub warnings: Vec<String>,
    /// Bytes that are not in the area yet.
    pub backlog: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The process that closing the volume waits for.
    pub waiting: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// What the volume lies on, as far as this process has it open.
    pub devices: Box<dyn Fn() -> Vec<DeviceInfo> + Send + Sync>,
    /// What the process does with the volume.
    pub board: Arc<Board>,
    /// The spare log, if this process has one.
    pub spare_log: Box<dyn Fn() -> Option<SpareInfo> + Send + Sync>,
    /// The process that serves the volume, if it is another one.
    pub server: Box<dyn Fn() -> Option<Server> + Send + Sync>,
}

struct Shared {
    service: Arc<dyn FileService>,
    mounts: Arc<Mounts>,
    info: Info,
    asking: Asking,
    /// Commands that are served.
    clients: Mutex<usize>,
    changed: Condvar,
}

/// Answers commands until the daemon ends.
pub struct ControlServer {
    shared: Arc<Shared>,
}

impl ControlServer {
    /// Answers those that come to `listener`.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        listener: UnixListener,
        mounts: &Arc<Mounts>,
        service: Arc<dyn FileService>,
        info: Info,
    ) -> io::Result<Self> {
        let (clients, changed) = (Mutex::default(), Condvar::new());
        let (mounts, asking) = (mounts.clone(), Asking::default());
        let shared = Arc::new(Shared { service, mounts, info, asking, clients, changed });
        let server = Self { shared: shared.clone() };
        thread::Builder::new()
            .name("siftfs-control".into())
            .spawn(move || shared.accept(&listener))?;
        Ok(server)
    }

    /// The status document, for others in this process.
    pub fn status(&self) -> impl Fn() -> Result<Status, String> + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || shared.status(None)
    }

    /// Tells every client that waits how the daemon ended, and takes the socket away.
    pub fn finish(self, result: Result<(), String>) {
        self.shared.mounts.closed(result);
        let mut clients = self.shared.lock();
        let end = Instant::now() + Duration::from_secs(2);
        // A client that waits for the end was answered before the mount went: it is counted by now.
        while *clients > 0 && Instant::now() < end {
            let wait = self.shared.changed.wait_timeout(clients, Duration::from_millis(100));
            clients = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(_) => {
                    // Out of descriptors, most likely: try again a little later.
                    thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            if !self.enter() {
                continue;
            }
            let shared = self.clone();
            let started = thread::Builder::new().name("siftfs-client".into()).spawn(move || {
                if let Err(error) = shared.serve(stream) {
                    tracing::debug!(%error, "control client");
                }
                shared.leave();
            });
            if started.is_err() {
                self.leave();
            }
        }
    }

    /// Counts a client; false if there are too many.
    fn enter(&self) -> bool {
        let mut clients = self.lock();
        let room = *clients < MAX_CLIENTS;
        *clients += usize::from(room);
        room
    }

    fn leave(&self) {
        *self.lock() -= 1;
        self.changed.notify_all();
    }

    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let peer = getsockopt(&stream, PeerCredentials)?;
        let user = peer.uid();
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            return send(&mut stream, &refuse("only root and the mounting user may ask"));
        }
        let ask: Ask = receive(&mut stream)?;
        if ask.version != VERSION {
            let what = format!("message version {} instead of {VERSION}", ask.version);
            return send(&mut stream, &refuse(&what));
        }
        let front = ask.mount.and_then(|device| self.mounts.of(device));
        let answer = match ask.op {
            Op::WaitClosed => {
                let leaving = self.mounts.leaving(front.as_deref());
                let how = self.wait_closed(&mut stream, (ask.mount, front));
                drop(leaving);
                how?
            }
            Op::Watch => self.wait_closed(&mut stream, (ask.mount, front))?,
            Op::Attach(wanted) => {
                let caller = (&mut stream, peer.pid());
                attach::attach(&self.mounts, &self.info.settings, &wanted, caller)?
            }
            Op::Freeze(wanted) => {
                self.take_logs_in();
                freeze::freeze(self.info.freezer.as_ref(), &wanted, &mut stream)?
            }
            op => self.answer(front, &op),
        };
        send(&mut stream, &answer.map_or_else(|e| refuse(&e), accept))
    }

    /// How the mount, or the daemon, ended; says meanwhile how much is left.
    fn wait_closed(
        &self,
        stream: &mut UnixStream,
        (asked, front): (Option<Device>, Option<Arc<Mounted>>),
    ) -> io::Result<Result<Value, String>> {
        // A mount that had gone before the question came.
        let passed = asked.is_some() && front.is_none();
        loop {
            let mut now = self.mounts.now(front.as_deref());
            if passed && now.mounted {
                now.mounted = false;
                now.others = Some(places(&self.mounts)).filter(|places| !places.is_empty());
            }
            let left = Left {
                left_bytes: (self.info.backlog)(),
                waiting: (self.info.waiting)(),
                mounted: Some(now.mounted),
                leaving: now.leaving,
            };
            send(stream, &accept(serde_json::to_value(left)?))?;
            if let Some(stays_on) = now.others {
                return Ok(document(&Gone { stays_on }));
            }
            if let Some(how) = now.closed {
                return Ok(how.map(|()| Value::Null));
            }
            self.mounts.wait(front.as_deref(), &now, TOLD);
        }
    }

    fn answer(&self, front: Option<Arc<Mounted>>, op: &Op) -> Result<Value, String> {
        match op {
            Op::Status => document(&self.status(front)?),
            Op::Writers => document(&self.one(front)?.writers.list()),
            Op::Lost => document(&self.one(front)?.writers.take_lost()),
            Op::Sync => match self.call_with_logs(Request::SyncAll) {
                Ok(_) => Ok(Value::Null),
                Err(e) => Err(e.to_string()),
            },
            Op::Checkpoint => match self.call_with_logs(Request::Checkpoint) {
                Ok(Reply::Checkpoint(report)) => document(&report),
                Ok(_) => Err(ODD.into()),
                Err(e) => Err(e.to_string()),
            },
            Op::Trim => match self.call(Request::Trim { start: 0, len: u64::MAX, least: 0 }) {
                Ok(Reply::Trimmed(done)) => document(&done),
                Ok(_) => Err(ODD.into()),
                Err(Error::Posix(libc::EOPNOTSUPP)) => Err(NO_TRIM.into()),
                Err(e) => Err(e.to_string()),
            },
            Op::Remount(change) => self.remount(front, change),
            Op::WaitClosed | Op::Watch | Op::Attach(_) | Op::Freeze(_) => {
                Err("not to be asked here".into())
            }
        }
    }

    /// The mount that is asked about; the oldest where none is named.
    fn one(&self, front: Option<Arc<Mounted>>) -> Result<Arc<Mounted>, String> {
        let front = front.or_else(|| self.mounts.live().into_iter().next());
        front.ok_or_else(|| "the mount has gone".into())
    }

    fn remount(&self, front: Option<Arc<Mounted>>, change: &Change) -> Result<Value, String> {
        let front = self.one(front)?;
        let mut others = self.mounts.live();
        others.retain(|other| !Arc::ptr_eq(other, &front));
        self.info.settings.change(&front, &others, change)
    }

    fn call(&self, request: Request) -> VolumeResult<Reply> {
        self.service.call(&Credentials::default(), request)
    }

    /// As [`Self::call`], after what programs have published in private logs was taken in.
    fn call_with_logs(&self, request: Request) -> VolumeResult<Reply> {
        self.take_logs_in();
        self.call(request)
    }

    fn take_logs_in(&self) {
        self.mounts.live().iter().for_each(|front| front.take_logs_in());
    }

    /// The document, with `front` as its mount, or the oldest.
    fn status(&self, front: Option<Arc<Mounted>>) -> Result<Status, String> {
        let waits = || is_waited_for(&(self.info.devices)());
        let asked = self.asking.status(&self.service, waits);
        // Now it is known whether the server was lost meanwhile.
        let server = (self.info.server)();
        let lost = server.as_ref().and_then(|server| server.lost.clone());
        let is_lost = lost.is_some();
        let silent = asked.is_none().then(|| SILENT.to_owned());
        let runtime = match asked {
            None => RuntimeStatus { devices: (self.info.devices)(), ..RuntimeStatus::default() },
            Some(Ok(Reply::Status(runtime))) => *runtime,
            Some(Ok(_)) => return Err(ODD.into()),
            // What is known without it is said all the same.
            Some(Err(_)) if lost.is_some() => RuntimeStatus {
                failed: lost.map(|why| format!("the server is lost: {why}")),
                remedy: Some(AFTER_A_LOSS.into()),
                ..RuntimeStatus::default()
            },
            Some(Err(e)) => return Err(e.to_string()),
        };
        let mounts: Vec<Mount> = self.mounts.live().iter().map(|f| mount(f)).collect();
        let one = self.one(front).map(|front| mount(&front)).unwrap_or_default();
        let warnings = self.info.warnings.iter().cloned().chain(one.warnings).chain(silent);
        let warnings = warnings.collect();
        Ok(Status {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            volume: text(&self.info.volume),
            log: self.info.log.as_deref().map(text),
            spare_log: (self.info.spare_log)(),
            dir: one.dir,
            options: one.options,
            uptime_s: one.uptime_s,
            time_s: since_1970(),
            // A mount whose server is lost waits for it.
            state: Some(match self.info.board.state().beside(&runtime) {
                State::Serving | State::Latched if is_lost => State::Recovering,
                state => state,
            }),
            requests: one.requests,
            request_loop: one.request_loop,
            warnings,
            mounts,
            server,
            runtime,
        })
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Where mounts are.
fn places(mounts: &Mounts) -> Vec<PathBuf> {
    mounts.live().iter().map(|front| front.entry.mount_point.clone()).collect()
}

/// What one mount says of itself.
fn mount(front: &Mounted) -> Mount {
    let requests = front.traffic.by_name().into_iter();
    Mount {
        dir: text(&front.entry.mount_point),
        device: format!("{}:{}", front.entry.major, front.entry.minor),
        subdir: front.subdir.as_deref().map(text),
        options: front.settings.shown(),
        uptime_s: front.started.elapsed().as_secs_f64(),
        requests: requests.map(|(name, n)| (name.to_owned(), n)).collect(),
        request_loop: request_loop(&front.traffic),
        private_logs: front.logs().map(|(counts, programs)| private_logs(counts, programs)),
        warnings: front.warnings.clone(),
    }
}

fn private_logs(counts: Counts, programs: Vec<Program>) -> PrivateLogs {
    let Counts { sessions, file_logs, leases, ingested, direct, grants, .. } = counts;
    let Counts { refused, ended, lost, .. } = counts;
    let (records, bytes, ingest) = (ingested.records, ingested.bytes, back_end(ingested));
    let programs = programs.into_iter().map(|program| {
        let Program { process, medium, promise, leases } = program;
        LoggedProgram { pid: process.into(), medium: medium.into(), promise, leases }
    });
    let programs = programs.collect();
    PrivateLogs {
        sessions,
        file_logs,
        programs,
        leases,
        direct,
        grants,
        records,
        bytes,
        refused,
        ended,
        lost,
        ingest,
    }
}

fn back_end(counts: IngestCounts) -> Ingest {
    let seconds = |ns| Duration::from_nanos(ns).as_secs_f64();
    let [fetch, locate, merge, copy, patch] = counts.steps_ns.map(seconds);
    let all = seconds(counts.all_ns);
    Ingest {
        batches: counts.batches,
        pipelined: counts.pipelined,
        writes: counts.pieces,
        patched: counts.patched,
        index_hits: counts.hits,
        index_misses: counts.misses,
        brought: counts.brought,
        seconds: IngestSteps { fetch, locate, merge, copy, patch, all },
    }
}

/// As the socket carries it.
fn document(value: &impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|e| e.to_string())
}

fn request_loop(traffic: &Traffic) -> RequestLoop {
    let l = traffic.request_loop();
    let [queues, threads, busy] = [l.queues, l.threads, l.busy].map(|n| n as u64);
    RequestLoop { kind: l.kind.into(), why: l.why, queues, threads, busy }
}

/// Seconds since 1970.
pub fn since_1970() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

fn accept(value: Value) -> Answer {
    Answer { version: VERSION, error: None, value }
}

fn refuse(why: &str) -> Answer {
    Answer { version: VERSION, error: Some(why.to_string()), value: Value::Null }
}
