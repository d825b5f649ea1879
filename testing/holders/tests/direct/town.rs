//! A target, its host, the host's grantor, and programs of this process.

use crate::support::machine::{Machine, Way};
use crate::support::{host, volume};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use siftfs_accel::{Direct, Session, Through};
use siftfs_base::Result;
use siftfs_grantor::{Bounds, Counts, Grantor, Logs, Opens, Token};
use siftfs_holders::logs::TestLogs;
use siftfs_holders::user::User;
use siftfs_holders::world::{EVER, Tokens};
use siftfs_placement::{LocalVolume, Sessions};
use siftfs_proto::{FileService, Holder, Identity, Limits, Opening};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Bytes of most files here.
pub const FILE: usize = 40_960;
/// How programs and host reach the target.
pub const WAY: Way = Way::SharedMemory;

/// All of it.
pub struct Town {
    pub machine: Option<Machine>,
    pub volume: LocalVolume,
    pub grantor: Grantor,
    pub tokens: Arc<Tokens>,
    dir: TempDir,
}

struct Opener(Sessions);

impl Opens for Opener {
    fn open(&self, holder: Arc<dyn Holder>) -> Result<Arc<dyn FileService>> {
        let (identity, limits) = (Identity::Kernel, Limits::default());
        let opening = Opening { identity, administrator: false, limits, client: None };
        self.0.lender(opening, holder)
    }
}

impl Town {
    /// One in which no lease ends by itself.
    pub fn new() -> Self {
        Self::idle_after(EVER)
    }

    /// One in which a lease ends that was not used for so long.
    pub fn idle_after(unused: Duration) -> Self {
        Self::with(unused, None)
    }

    /// One whose programs get these logs.
    pub fn with_logs(logs: Arc<TestLogs>) -> Self {
        Self::with(EVER, Some(logs))
    }

    fn with(unused: Duration, logs: Option<Arc<TestLogs>>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(volume(96 << 20), WAY, dir.path());
        let volume = host(&machine);
        let (tokens, bounds) =
            (Arc::new(Tokens::default()), Bounds { commit: EVER, unused, ..Bounds::default() });
        let listener = listen(&dir.path().join("socket"));
        let logs = logs.map(|logs| logs as Arc<dyn Logs>);
        let opens = Arc::new(Opener(volume.sessions()));
        let grantor = Grantor::start(listener, opens, tokens.clone(), logs, bounds).unwrap();
        Self { machine: Some(machine), volume, grantor, tokens, dir }
    }

    /// Where programs enter.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// A token of a file, which this process has open to be written, and to be read if it `reads`.
    pub fn token(&self, ino: u32, reads: bool) -> Token {
        self.tokens.mint(ino, std::process::id(), reads)
    }

    /// A session.
    pub fn enter(&self, ino: u32) -> Session {
        Session::enter_with(&self.socket(), &self.token(ino, true)).unwrap()
    }

    /// A session, and a direct lease of a file.
    pub fn direct(&self, ino: u32) -> (Session, Direct) {
        let session = self.enter(ino);
        let direct = session.lease_direct_with(&self.token(ino, true), |_| {}).unwrap();
        (session, direct.unwrap_or_else(|_| panic!("blocks are granted")))
    }

    /// Some other program.
    pub fn user(&self) -> User {
        User::new(self.volume.sessions().open(Opening::kernel()).unwrap())
    }

    pub fn counts(&self) -> Counts {
        self.grantor.counts()
    }

    /// Waits until something is so.
    pub fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        for _ in 0..6000 {
            if so(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it never came: {what}");
    }

    /// Ends all sessions, and closes the volume.
    pub fn close(self) {
        assert!(self.grantor.stop(EVER), "every session ends");
        assert!(self.tokens.held().is_empty(), "nobody holds anything");
        assert_eq!(self.counts().ended, 0, "nobody broke a rule");
        self.volume.close().unwrap();
    }
}

/// Does the program still have the file?
pub fn is_direct(direct: &Direct) -> bool {
    direct.size() != Through::Mount
}

/// A socket of packets.
fn listen(path: &Path) -> OwnedFd {
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 128).unwrap();
    socket
}
