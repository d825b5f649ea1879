//! A volume in memory, its grantor, and the tokens that a mount would give.

use crate::logs::{Row, TestLogs, replay};
use crate::user::User;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use siftfs_base::{Clock, InodeNr, Result, SystemClock, Timestamp, errno};
use siftfs_device::{Cut, Device, FaultDevice, Image};
use siftfs_grantor::{Bounds, Grantor, Logs, Opens, Peer, Redeemed, Redeems, Token};
use siftfs_lease::LogMedium;
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Sessions, Threads, mkfs_on};
use siftfs_proto::{
    Credentials, FileService, Holder, Identity, LeaseId, Limits, Opening, Owed, Reply, Request,
    Shown,
};
use siftfs_remote::Client;
use siftfs_served::{Setup, Way};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// Nothing here depends on how fast anybody is: a test waits for what happens, and this is for what
/// never does.
pub const EVER: Duration = Duration::from_secs(600);

/// How much faster terms pass by a hasty clock.
const HASTE: u64 = 1000;

struct Opener {
    sessions: Sessions,
    /// They are sessions of a server, then.
    server: Option<Arc<Setup>>,
    said: Option<Duration>,
    early: bool,
    deaf: bool,
    kept: Arc<AtomicU64>,
}

/// A holder that is told of no recall.
struct Deaf(Arc<dyn Holder>);

impl Holder for Deaf {
    fn recall(&self, _lease: LeaseId) {}

    fn attributes(&self, lease: LeaseId) -> Option<Shown> {
        self.0.attributes(lease)
    }

    fn ordered(&self, order: u64) {
        self.0.ordered(order);
    }

    fn lost(&self) {
        self.0.lost();
    }
}

impl Opens for Opener {
    fn open(&self, holder: Arc<dyn Holder>) -> Result<Arc<dyn FileService>> {
        let (identity, limits) = (Identity::Kernel, Limits::default());
        let opening = Opening { identity, administrator: false, limits, client: None };
        let told = match self.deaf {
            true => Arc::new(Deaf(holder.clone())) as Arc<dyn Holder>,
            false => holder.clone(),
        };
        let service = match &self.server {
            None => self.sessions.lender(opening, told)?,
            Some(server) => Arc::new(Client::lend(&server.address, &server.options, "", told)?),
        };
        let (said, kept, early) = (self.said, self.kept.clone(), self.early.then_some(holder));
        Ok(Arc::new(Counted { service, said, kept, early }))
    }
}

/// A session that counts how often leases are used, and may say another term than they have.
struct Counted {
    service: Arc<dyn FileService>,
    said: Option<Duration>,
    kept: Arc<AtomicU64>,
    /// The one that is told of a recall of each lease, before it knows of the lease.
    early: Option<Arc<dyn Holder>>,
}

impl FileService for Counted {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        self.call_owing(cred, req).0
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        if matches!(req, Request::LeaseKeep { .. }) {
            self.kept.fetch_add(1, Ordering::SeqCst);
        }
        let (reply, owed) = self.service.call_owing(cred, req);
        if let (Ok(Reply::Leased { lease, .. }), Some(holder)) = (&reply, &self.early) {
            holder.recall(*lease);
        }
        let reply = match (reply, self.said) {
            (Ok(Reply::Leased { lease, size, granted, .. }), Some(term)) => {
                Ok(Reply::Leased { lease, term, size, granted })
            }
            (reply, _) => reply,
        };
        (reply, owed)
    }
}

/// What a token stands for.
#[derive(Clone, Copy)]
struct Ticket {
    ino: InodeNr,
    pid: u32,
    reads: bool,
}

/// The tokens of a mount, and the processes that hold files.
#[derive(Default)]
pub struct Tokens {
    tokens: Mutex<HashMap<Token, Ticket>>,
    held: Mutex<HashSet<(InodeNr, u32)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tokens {
    /// A token of a file for a process that has it open to be written, and perhaps to be read.
    pub fn mint(&self, ino: InodeNr, pid: u32, reads: bool) -> Token {
        let mut token = [0; 16];
        getrandom::fill(&mut token).expect("random bytes");
        lock(&self.tokens).insert(token, Ticket { ino, pid, reads });
        token
    }

    /// The files that are held, each by a process.
    pub fn held(&self) -> HashSet<(InodeNr, u32)> {
        lock(&self.held).clone()
    }
}

impl Redeems for Tokens {
    fn redeem(&self, token: &Token, peer: Peer) -> Result<Redeemed> {
        let ticket = lock(&self.tokens).remove(token).filter(|ticket| ticket.pid == peer.pid);
        let Ticket { ino, pid, reads } = ticket.ok_or_else(|| errno(libc::EACCES))?;
        let credentials = Credentials { pid, ..Credentials::default() };
        Ok(Redeemed { ino, process: pid, credentials, reads, writers: Box::new(|| 0) })
    }

    fn leased(&self, ino: InodeNr, process: u32) {
        assert!(lock(&self.held).insert((ino, process)), "a file has one lease");
    }

    fn returned(&self, ino: InodeNr, process: u32) {
        assert!(lock(&self.held).remove(&(ino, process)), "what is returned was leased");
    }
}

/// A volume and its grantor.
pub struct World {
    device: Arc<FaultDevice>,
    volume: LocalVolume,
    grantor: Option<Grantor>,
    /// The tokens of programs.
    pub tokens: Arc<Tokens>,
    /// How often leases were used.
    pub kept: Arc<AtomicU64>,
    /// File logs, if programs get some.
    pub logs: Option<Arc<TestLogs>>,
    server: Option<Arc<Setup>>,
    dir: TempDir,
}

/// How the volume and the grantor are.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Bytes of the volume.
    pub size: u64,
    /// Bounds of the grantor.
    pub bounds: Bounds,
    /// The term that the grantor is told, if it is not the one of ten minutes that leases have.
    pub said: Option<Duration>,
    /// Every lease is recalled before the grantor knows of it.
    pub early: bool,
    /// No recall reaches the grantor.
    pub deaf: bool,
    /// Programs get logs of their own, which lie in this.
    pub logs: Option<LogMedium>,
    /// A file may be leased again soon, however often it was recalled.
    pub hasty: bool,
    /// The Runtime is behind shared memory, as in another process.
    pub served: bool,
}

impl Default for Setting {
    /// A volume of 64 MiB of this process, on which nothing ends by itself.
    fn default() -> Self {
        let bounds = Bounds { commit: EVER, unused: EVER, ..Bounds::default() };
        let (early, deaf, logs, hasty) = (false, false, None, false);
        let served = false;
        Self { size: 64 << 20, bounds, said: None, early, deaf, logs, hasty, served }
    }
}

impl World {
    /// A new volume.
    pub fn new(setting: Setting) -> Self {
        let device = Arc::new(FaultDevice::new(setting.size, 0));
        let any: Arc<dyn Device> = device.clone();
        let options = MkfsOptions { log_size: Some(6 << 20), lanes: 2, ..MkfsOptions::default() };
        mkfs_on(any, &options).expect("mkfs");
        Self::over(device, setting)
    }

    fn over(device: Arc<FaultDevice>, setting: Setting) -> Self {
        let (clock, lease_term): (Arc<dyn Clock>, _) = match setting.hasty {
            true => (Arc::new(Hasty::default()), EVER * HASTE as u32),
            false => (Arc::new(SystemClock::default()), EVER),
        };
        let options = OpenOptions { lease_term, ..OpenOptions::default() };
        let any: Arc<dyn Device> = device.clone();
        let volume = LocalVolume::open_on(any, clock, &options, Threads::Real).expect("open");
        let dir = tempfile::tempdir().expect("a directory");
        let listener = listen(&dir.path().join("socket"));
        let tokens = Arc::new(Tokens::default());
        let (sessions, kept) = (volume.sessions(), Arc::default());
        let Setting { said, early, deaf, .. } = setting;
        // File logs are the volume's own process's.
        let served = setting.served && setting.logs.is_none();
        let server = served.then(|| Arc::new(Setup::new(&volume, Way::Shared)));
        let (theirs, uses) = (server.clone(), Arc::clone(&kept));
        let opens = Arc::new(Opener { sessions, server: theirs, said, early, deaf, kept: uses });
        let logs = setting.logs.map(|medium| Arc::new(TestLogs::new(medium)));
        let given = logs.clone().map(|logs| logs as Arc<dyn Logs>);
        let grantor = Grantor::start(listener, opens, tokens.clone(), given, setting.bounds);
        let grantor = Some(grantor.expect("a grantor"));
        Self { device, volume, grantor, tokens, kept, logs, server, dir }
    }

    /// Where programs enter.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// The server, if the Runtime is behind one, ends all sessions. It waits for those that are to
    /// return leases, but not for long.
    pub fn stop_server(&self) {
        self.server.iter().for_each(|server| server.server.stop());
    }

    /// A session that does what the kernel would for some other program.
    pub fn user(&self) -> User {
        User::new(self.volume.sessions().open(Opening::kernel()).expect("a session"))
    }

    /// What the grantor counts.
    pub fn counts(&self) -> siftfs_grantor::Counts {
        self.grantor.as_ref().expect("it runs").counts()
    }

    /// Waits until something is so.
    pub fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        for _ in 0..60_000 {
            if so(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it never came: {what}");
    }

    /// Ends all sessions.
    pub fn stop(&mut self) {
        let grantor = self.grantor.take().expect("it is stopped once");
        assert!(grantor.stop(EVER), "every session ends");
        assert!(self.tokens.held().is_empty(), "nobody holds anything");
    }

    /// Ends all sessions, and closes the volume.
    pub fn close(mut self) {
        if self.grantor.is_some() {
            self.stop();
        }
        drop(self.server.take());
        self.volume.close().expect("close");
    }

    /// Takes in what all programs have published, as before a sync of the volume.
    pub fn ingest(&self) {
        self.grantor.as_ref().expect("it runs").ingest();
    }

    /// The power fails without anybody being asked. What is there afterwards, once the file logs
    /// have been written over it.
    pub fn crash(mut self) -> Self {
        let left = self.cut(Cut::LoseAll);
        // The image is from before: what ends now is in another volume.
        self.stop();
        drop(self.server.take());
        self.volume.abandon();
        left.recover()
    }

    /// What would be there if the power failed now. Writes of the volume that were not flushed fare
    /// as `cut` says. All goes on.
    pub fn cut(&self, cut: Cut) -> Left {
        let image = || self.device.image(cut);
        let (image, logs) = match &self.logs {
            Some(logs) => logs.cut(image),
            None => (image(), Vec::new()),
        };
        Left { image, logs }
    }
}

/// What a power failure leaves.
pub struct Left {
    image: Image,
    logs: Vec<(Row, Vec<u8>)>,
}

impl Left {
    /// The volume, recovered, with what the file logs have written over it.
    pub fn recover(self) -> World {
        let Self { image, logs } = self;
        let world = World::over(Arc::new(FaultDevice::from_image(image, 0)), Setting::default());
        let user = world.user();
        for log in &logs {
            let scanned = replay(log, |lease, offset, bytes| {
                assert_eq!(
                    user.stat(lease.ino).generation,
                    lease.generation,
                    "it is the same file"
                );
                user.write(lease.ino, offset, bytes).expect("what was acknowledged has room");
            });
            assert_eq!(scanned.lost, None);
        }
        world
    }
}

/// A clock by which terms are short: a file that is left alone because its lease was recalled too
/// often may be leased again soon.
#[derive(Default)]
struct Hasty(SystemClock);

impl Clock for Hasty {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn mono_ns(&self) -> u64 {
        self.0.mono_ns()
    }

    fn boot_ns(&self) -> u64 {
        self.0.mono_ns().saturating_mul(HASTE)
    }
}

/// A socket of packets.
fn listen(path: &Path) -> OwnedFd {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None).expect("a socket");
    let address = SocketAddrUnix::new(path).expect("a short path");
    rustix::net::bind(&socket, &address).expect("bind");
    rustix::net::listen(&socket, 128).expect("listen");
    socket
}
