//! The daemon's end of the control socket.

use crate::control::{Answer, Ask, Op, VERSION, directory, receive, send, socket_path};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use serde_json::{Value, json};
use siftfs_base::Result as VolumeResult;
use siftfs_fuse::{FuseMount, Writers};
use siftfs_proto::{Credentials, FileService, Reply, Request, SessionId};
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

const SESSION: SessionId = SessionId(2);
/// Commands served at once.
const MAX_CLIENTS: usize = 16;
/// How long a client may take to say what it wants, and to take its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the daemon knows of its mount.
pub struct Info {
    /// The volume.
    pub volume: PathBuf,
    /// Its log, if that lies elsewhere.
    pub log: Option<PathBuf>,
    /// Where it is mounted.
    pub dir: PathBuf,
    /// Mount options as given.
    pub options: String,
    /// When it was mounted.
    pub started: Instant,
}

struct Shared {
    service: Arc<dyn FileService>,
    writers: Writers,
    info: Info,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    clients: usize,
    /// How the daemon ended.
    closed: Option<Result<(), String>>,
}

/// Answers commands until the daemon ends.
pub struct ControlServer {
    shared: Arc<Shared>,
    listener: Arc<UnixListener>,
    path: PathBuf,
    /// The socket's inode: another mount may have put its own in the same place.
    ino: u64,
}

impl ControlServer {
    /// Starts to listen on the socket that belongs to `mount`.
    pub fn start(mount: &FuseMount, service: Arc<dyn FileService>, info: Info) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o755).create(directory())?;
        let path = socket_path(mount.entry());
        let _turn = take_turn()?;
        // A device number belongs to one mount at a time: a socket that is there is that of a
        // dead daemon, or of one whose mount is gone and who still closes its volume.
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let ino = std::fs::symlink_metadata(&path)?.ino();
        let (writers, state) = (mount.writers(), Mutex::default());
        let changed = Condvar::new();
        let shared = Arc::new(Shared { service, writers, info, state, changed });
        listener.set_nonblocking(true)?;
        let listener = Arc::new(listener);
        let server = Self { shared: shared.clone(), listener: listener.clone(), path, ino };
        thread::Builder::new()
            .name("siftfs-control".into())
            .spawn(move || shared.accept(&listener))?;
        Ok(server)
    }

    /// The status document, for others in this process.
    pub fn status(&self) -> impl Fn() -> Result<Value, String> + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || shared.answer(Op::Status)
    }

    /// Tells everyone who waits how it ended, and takes the socket away.
    pub fn finish(self, result: Result<(), String>) {
        self.remove_socket();
        let mut state = self.shared.lock();
        state.closed = Some(result);
        self.shared.changed.notify_all();
        let end = Instant::now() + Duration::from_secs(2);
        // A command may have connected and not be a client yet: it is owed the answer, too.
        while (state.clients > 0 || readable(&self.listener, Some(0))) && Instant::now() < end {
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
        if std::fs::symlink_metadata(&self.path).is_ok_and(|m| m.ino() == self.ino) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Is a connection waiting, now or within the time given (under 1000 ms; `None`: however long)?
fn readable(listener: &UnixListener, wait_ms: Option<u32>) -> bool {
    let limit = wait_ms.map(|ms| Timespec { tv_sec: 0, tv_nsec: i64::from(ms) * 1_000_000 });
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut fds, limit.as_ref()).is_ok_and(|n| n > 0)
}

/// Daemons look at the sockets one after the other, while the result lives.
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
            readable(listener, None);
            let Some(stream) = self.next_client(listener) else { continue };
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

    /// Takes a connection and counts it, in one step: who sees none waiting sees it counted.
    fn next_client(&self, listener: &UnixListener) -> Option<UnixStream> {
        let mut state = self.lock();
        match listener.accept() {
            Ok((stream, _)) if state.clients < MAX_CLIENTS => {
                state.clients += 1;
                Some(stream)
            }
            Ok(_) => None,
            Err(e) => {
                drop(state);
                if e.kind() != io::ErrorKind::WouldBlock {
                    // Out of descriptors, most likely: try again a little later.
                    thread::sleep(Duration::from_millis(100));
                }
                None
            }
        }
    }

    fn leave(&self) {
        self.lock().clients -= 1;
        self.changed.notify_all();
    }

    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
            return send(&mut stream, &refuse("only root and the mounting user may ask"));
        }
        let ask: Ask = receive(&mut stream)?;
        if ask.version != VERSION {
            let what = format!("message version {} instead of {VERSION}", ask.version);
            return send(&mut stream, &refuse(&what));
        }
        if ask.op == Op::WaitClosed {
            send(&mut stream, &Answer { version: VERSION, error: None, value: Value::Null })?;
        }
        let answer = match self.answer(ask.op) {
            Ok(value) => Answer { version: VERSION, error: None, value },
            Err(e) => refuse(&e),
        };
        send(&mut stream, &answer)
    }

    fn answer(&self, op: Op) -> Result<Value, String> {
        match op {
            Op::Status => {
                let runtime = self.document(Request::Status)?;
                Ok(json!({
                    "pid": std::process::id(),
                    "version": env!("CARGO_PKG_VERSION"),
                    "volume": self.info.volume,
                    "log": self.info.log,
                    "dir": self.info.dir,
                    "options": self.info.options,
                    "time_s": since_1970(),
                    "uptime_s": self.info.started.elapsed().as_secs_f64(),
                    "runtime": runtime,
                }))
            }
            Op::Writers => Ok(json!(self.writers.list())),
            Op::Sync => match self.call(Request::SyncAll) {
                Ok(_) => Ok(Value::Null),
                Err(e) => Err(e.to_string()),
            },
            Op::Checkpoint => self.document(Request::Checkpoint),
            Op::WaitClosed => {
                let mut state = self.lock();
                loop {
                    match &state.closed {
                        Some(Ok(())) => return Ok(Value::Null),
                        Some(Err(e)) => return Err(e.clone()),
                        None => {
                            let next = self.changed.wait(state);
                            state = next.unwrap_or_else(PoisonError::into_inner);
                        }
                    }
                }
            }
        }
    }

    fn call(&self, request: Request) -> VolumeResult<Reply> {
        self.service.call(SESSION, &Credentials::default(), request)
    }

    fn document(&self, request: Request) -> Result<Value, String> {
        match self.call(request) {
            Ok(Reply::Json(text)) => serde_json::from_str(&text).map_err(|e| e.to_string()),
            Ok(_) => Err("the volume answered with something else".into()),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// Seconds since 1970.
fn since_1970() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

fn refuse(why: &str) -> Answer {
    Answer { version: VERSION, error: Some(why.to_string()), value: Value::Null }
}
