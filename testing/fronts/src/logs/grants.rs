//! What a daemon does for the private logs of a mount's programs, for the mounts of a stage.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::{ClockId, clock_gettime};
use siftfs_base::{Clock, InodeNr, SystemClock, Timestamp};
use siftfs_fuse::Tokens;
use siftfs_grantor::{Bounds, Grantor, LogFile, Logs, Opens, Peer, Redeemed, Redeems, Token};
use siftfs_placement::{PrivateLogs, Sessions};
use siftfs_proto::{FileService, Holder, Identity, Limits, Opening};
use siftfs_rig::place::{Failed, Result};
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

/// How much faster terms pass for a volume here: a file that is left alone because its lease was
/// recalled too often may be leased again after a quarter of a second.
pub const HASTE: u64 = 40;

/// A clock under which terms are short, and files have the kernel's times.
#[derive(Default)]
pub struct Hasty(SystemClock);

impl Clock for Hasty {
    fn now(&self) -> Timestamp {
        let t = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp { sec: t.tv_sec, nsec: u32::try_from(t.tv_nsec).unwrap_or(0) }
    }

    fn mono_ns(&self) -> u64 {
        self.0.mono_ns()
    }

    fn boot_ns(&self) -> u64 {
        self.0.mono_ns().saturating_mul(HASTE)
    }
}

/// Opens the sessions of programs.
struct Lenders(Arc<Sessions>);

impl Opens for Lenders {
    fn open(&self, holder: Arc<dyn Holder>) -> siftfs_base::Result<Arc<dyn FileService>> {
        let (identity, limits) = (Identity::Kernel, Limits::default());
        self.0.lender(Opening { identity, administrator: false, limits, client: None }, holder)
    }
}

/// The tokens that a mount has given.
struct Given(Arc<Tokens>);

impl Redeems for Given {
    fn redeem(&self, token: &Token, peer: Peer) -> siftfs_base::Result<Redeemed> {
        let Peer { pid, uid } = peer;
        let shown = self.0.redeem(*token, siftfs_fuse::Peer { pid, uid })?;
        let (ino, process, reads) = (shown.ino, shown.process, shown.reads);
        let credentials = shown.credentials.clone();
        let writers = Box::new(move || shown.writers());
        Ok(Redeemed { ino, process, credentials, reads, writers })
    }

    fn leased(&self, ino: InodeNr, process: u32) {
        self.0.holds(process, ino);
    }

    fn returned(&self, ino: InodeNr, process: u32) {
        self.0.returns(process, ino);
    }
}

/// Where file logs of a volume's programs lie, and the volume's registry of them.
pub struct Directory {
    registry: Arc<PrivateLogs>,
    dir: TempDir,
    made: AtomicU64,
}

impl Directory {
    /// One on a disk, beside this program. The directory for temporary files may lie in memory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(registry: Arc<PrivateLogs>) -> Result<Self> {
        let program = std::env::current_exe().map_err(said)?;
        let beside = program.parent().unwrap_or(&program);
        let dir = tempfile::Builder::new().prefix("siftfs-fronts-logs-").tempdir_in(beside);
        let dir = dir.map_err(said)?;
        // It is made for the first program anyway, which would not be told why it cannot be.
        registry.directory(dir.path()).map_err(said)?;
        Ok(Self { registry, dir, made: AtomicU64::new(0) })
    }
}

impl Directory {
    /// Logs that were made so far.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

impl Logs for Directory {
    fn create(&self, process: u32) -> siftfs_base::Result<Box<dyn LogFile>> {
        let log = self.registry.directory(self.dir.path())?.new_log(process)?;
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(log))
    }
}

fn said(e: impl Display) -> Failed {
    Failed(e.to_string())
}

fn listen(path: &Path) -> Result<OwnedFd> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).map_err(said)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).map_err(said)?).map_err(said)?;
    rustix::net::listen(&socket, 16).map_err(said)?;
    Ok(socket)
}

/// What the mounts of a volume need to lend its files.
#[derive(Clone)]
pub struct Lends {
    /// Opens the mounts' sessions, and those of programs.
    pub sessions: Arc<Sessions>,
    /// Where file logs are made.
    pub logs: Arc<Directory>,
}

/// The grantor of a mount, which listens at `socket`.
///
/// # Errors
/// What cannot be made.
pub fn grantor(lends: Lends, tokens: &Arc<Tokens>, socket: &Path) -> Result<Grantor> {
    let Lends { sessions, logs } = lends;
    let (opens, given) = (Arc::new(Lenders(sessions)), Arc::new(Given(tokens.clone())));
    let bounds = Bounds::default();
    let grantor =
        Grantor::start(listen(socket)?, opens, given, Some(logs), bounds).map_err(said)?;
    tokens.listen_at(socket).map_err(said)?;
    Ok(grantor)
}
