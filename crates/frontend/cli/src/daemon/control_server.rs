//! The daemon's end of the control socket.

use crate::control::messages::{
    Answer, Ask, Change, Left, Op, VERSION, directory, receive, send, socket_path,
    volume_socket_path,
};
use crate::daemon::private;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::fs::FlockOperation;
use serde_json::Value;
use siftfs_base::{Error, Result as VolumeResult};
use siftfs_fuse::{FuseMount, Traffic, Writers};
use siftfs_proto::{Credentials, FileService, Reply, Request};
use siftfs_status::{RequestLoop, Status};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
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
const NO_TRIM: &str =
    "what the volume lies on cannot take space back, or the volume's blocks are reserved";

/// Does what [`Op::Remount`] asks.
pub type Remount = dyn Fn(&Change) -> Result<Value, String> + Send + Sync;

/// What the daemon knows of its mount.
pub struct Info {
    /// The volume.
    pub volume: PathBuf,
    /// The volume's log, if that lies elsewhere.
    pub log: Option<PathBuf>,
    /// Where the volume is mounted.
    pub dir: PathBuf,
    /// Mount options as given, and as they changed.
    pub options: Box<dyn Fn() -> String + Send + Sync>,
    /// Changes them; the answer is for the command.
    pub remount: Box<Remount>,
    /// When it was mounted.
    pub started: Instant,
    /// What is not as it should be.
    pub warnings: Vec<String>,
    /// Bytes that are not in the area yet.
    pub backlog: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The process that closing the volume waits for.
    pub waiting: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

struct Shared {
    service: Arc<dyn FileService>,
    writers: Writers,
    traffic: Traffic,
    info: Info,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    clients: usize,
    /// How many of them are about to take the mount away.
    leavers: usize,
    /// The kernel has the mount no more.
    gone: bool,
    /// How the daemon ended.
    closed: Option<Result<(), String>>,
}

/// Answers commands until the daemon ends.
pub struct ControlServer {
    shared: Arc<Shared>,
    /// The socket's names.
    paths: Vec<PathBuf>,
    /// The socket's inode: another mount may have put its own in the same place.
    ino: u64,
}

impl ControlServer {
    /// Starts to listen on the socket that belongs to `mount`.
    pub fn start(mount: &FuseMount, service: Arc<dyn FileService>, info: Info) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o755).create(directory())?;
        let path = socket_path(mount.entry());
        let by_volume = volume_socket_path(&info.volume)?;
        let _turn = take_turn()?;
        // A device number belongs to one mount at a time, and so does a volume. A socket that is
        // there belongs to a dead daemon, or to a daemon whose mount is gone and that still closes
        // its volume.
        for stale in [&path, &by_volume] {
            match std::fs::remove_file(stale) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        let listener = private::listen(&path)?;
        if let Err(error) = std::fs::hard_link(&path, &by_volume) {
            tracing::info!(%error, "a mount of this volume will not wait until it is closed");
        }
        let ino = std::fs::symlink_metadata(&path)?.ino();
        let (writers, traffic) = (mount.writers(), mount.traffic());
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Shared { service, writers, traffic, info, state, changed };
        let shared = Arc::new(shared);
        let server = Self { shared: shared.clone(), paths: vec![path, by_volume], ino };
        thread::Builder::new()
            .name("siftfs-control".into())
            .spawn(move || shared.accept(&listener))?;
        Ok(server)
    }

    /// The status document, for others in this process.
    pub fn status(&self) -> impl Fn() -> Result<Status, String> + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || shared.status()
    }

    /// The kernel has the mount no more: callers that wait are told at once.
    pub fn gone(&self) {
        self.shared.lock().gone = true;
        self.shared.changed.notify_all();
    }

    /// Tells every client that waits how the daemon ended, and takes the socket away.
    pub fn finish(self, result: Result<(), String>) {
        self.remove_socket();
        let mut state = self.shared.lock();
        state.closed = Some(result);
        self.shared.changed.notify_all();
        let end = Instant::now() + Duration::from_secs(2);
        // A client that waits for the end was answered before the mount went: it is counted by now.
        while state.clients > 0 && Instant::now() < end {
            let wait = self.shared.changed.wait_timeout(state, Duration::from_millis(100));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl ControlServer {
    /// The kernel gives a device number out again as soon as its mount is gone, long before the
    /// daemon has closed the volume: only our own socket goes.
    fn remove_socket(&self) {
        let Ok(_turn) = take_turn() else { return };
        for path in &self.paths {
            if std::fs::symlink_metadata(path).is_ok_and(|m| m.ino() == self.ino) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Takes a lock, held while the result lives: daemons change the sockets one after the other.
fn take_turn() -> io::Result<File> {
    let dir = File::open(directory())?;
    rustix::fs::flock(&dir, FlockOperation::LockExclusive)?;
    Ok(dir)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut state = self.lock();
        let room = state.clients < MAX_CLIENTS;
        state.clients += usize::from(room);
        room
    }

    fn leave(&self) {
        self.lock().clients -= 1;
        self.changed.notify_all();
    }

    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let user = getsockopt(&stream, PeerCredentials)?.uid();
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            return send(&mut stream, &refuse("only root and the mounting user may ask"));
        }
        let ask: Ask = receive(&mut stream)?;
        if ask.version != VERSION {
            let what = format!("message version {} instead of {VERSION}", ask.version);
            return send(&mut stream, &refuse(&what));
        }
        let answer = match ask.op {
            Op::WaitClosed => {
                self.lock().leavers += 1;
                let how = self.wait_closed(&mut stream);
                self.lock().leavers -= 1;
                how?
            }
            Op::Watch => self.wait_closed(&mut stream)?,
            op => self.answer(&op),
        };
        send(&mut stream, &answer.map_or_else(|e| refuse(&e), accept))
    }

    /// How the daemon ended; says meanwhile how much is left.
    fn wait_closed(&self, stream: &mut UnixStream) -> io::Result<Result<Value, String>> {
        loop {
            let (gone, leaving) = {
                let state = self.lock();
                (state.gone, state.leavers > 0)
            };
            let left = Left {
                left_bytes: (self.info.backlog)(),
                waiting: (self.info.waiting)(),
                mounted: Some(!gone),
                leaving,
            };
            send(stream, &accept(serde_json::to_value(left)?))?;
            let state = self.lock();
            let as_told = |state: &mut State| state.closed.is_none() && state.gone == gone;
            let ended = self.changed.wait_timeout_while(state, TOLD, as_told);
            if let Some(how) = &ended.unwrap_or_else(PoisonError::into_inner).0.closed {
                return Ok(how.clone().map(|()| Value::Null));
            }
        }
    }

    fn answer(&self, op: &Op) -> Result<Value, String> {
        match op {
            Op::Status => document(&self.status()?),
            Op::Writers => document(&self.writers.list()),
            Op::Sync => match self.call(Request::SyncAll) {
                Ok(_) => Ok(Value::Null),
                Err(e) => Err(e.to_string()),
            },
            Op::Checkpoint => match self.call(Request::Checkpoint) {
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
            Op::Remount(change) => (self.info.remount)(change),
            Op::WaitClosed | Op::Watch => Err("not to be asked here".into()),
        }
    }

    fn call(&self, request: Request) -> VolumeResult<Reply> {
        self.service.call(&Credentials::default(), request)
    }

    fn status(&self) -> Result<Status, String> {
        let runtime = match self.call(Request::Status) {
            Ok(Reply::Status(runtime)) => *runtime,
            Ok(_) => return Err(ODD.into()),
            Err(e) => return Err(e.to_string()),
        };
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let requests = self.traffic.by_name().into_iter();
        Ok(Status {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            volume: text(&self.info.volume),
            log: self.info.log.as_deref().map(text),
            dir: text(&self.info.dir),
            options: (self.info.options)(),
            uptime_s: self.info.started.elapsed().as_secs_f64(),
            time_s: since_1970(),
            requests: requests.map(|(name, n)| (name.to_owned(), n)).collect(),
            request_loop: request_loop(&self.traffic),
            warnings: self.info.warnings.clone(),
            runtime,
        })
    }
}

/// As the socket carries it.
fn document(value: &impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|e| e.to_string())
}

fn request_loop(traffic: &Traffic) -> RequestLoop {
    let l = traffic.request_loop();
    let (queues, threads) = (l.queues as u64, l.threads as u64);
    RequestLoop { kind: l.kind.into(), why: l.why, queues, threads }
}

/// Seconds since 1970.
fn since_1970() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

fn accept(value: Value) -> Answer {
    Answer { version: VERSION, error: None, value }
}

fn refuse(why: &str) -> Answer {
    Answer { version: VERSION, error: Some(why.to_string()), value: Value::Null }
}
