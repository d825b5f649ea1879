//! A mount, and sessions that lend beside it.

use crate::program::PATIENCE;
use crate::rings;
use siftfs_base::{SystemClock, Timestamp};
use siftfs_device::MemDevice;
use siftfs_fuse::{
    Front, FuseMount, MountEntry, MountOptions, Requests, Switch, Tokens, Traffic, abort, unmount,
};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::{
    Credentials, FileService, Handle, Holder, Identity, LeaseId, Limits, Opening, ROOT_INO, Reply,
    Request, Shown,
};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// A volume that is mounted.
pub struct World {
    pub dir: tempfile::TempDir,
    entry: MountEntry,
    traffic: Traffic,
    pub tokens: Arc<Tokens>,
    pub operations: Switch,
    server: Option<JoinHandle<io::Result<()>>>,
    volume: Option<LocalVolume>,
}

/// A session that lends, and what is recalled from it.
pub struct Lender {
    pub session: Arc<dyn FileService>,
    pub told: Receiver<LeaseId>,
    holder: Arc<Words>,
}

/// What a holder shows, and where it passes on what is recalled.
struct Words {
    tell: Mutex<Sender<LeaseId>>,
    size: Mutex<u64>,
}

impl Holder for Words {
    fn recall(&self, lease: LeaseId) {
        let _ = self.tell.lock().unwrap().send(lease);
    }

    fn attributes(&self, _lease: LeaseId) -> Option<Shown> {
        let mtime = Timestamp { sec: 0, nsec: 0 };
        Some(Shown { size: *self.size.lock().unwrap(), mtime })
    }
}

/// Runs `act` on a mount by each request loop, and ends it.
pub fn each(options: &MountOptions, act: impl Fn(&World)) {
    let loops = match rings::has_rings() {
        true => &[Requests::Device, Requests::Ring][..],
        false => &[Requests::Device],
    };
    for requests in loops {
        let world = World::new(MountOptions { requests: *requests, ..options.clone() });
        act(&world);
        world.end();
    }
}

/// A mount whose files programs may lease.
pub fn with_logs() -> MountOptions {
    MountOptions { private_logs: true, ..MountOptions::default() }
}

impl World {
    fn new(options: MountOptions) -> Self {
        let device = Arc::new(MemDevice::new(64 << 20));
        let made = MkfsOptions { log_size: Some(16 << 20), ..MkfsOptions::default() };
        mkfs_on(device.clone(), &made).expect("mkfs");
        let (clock, opened) = (Arc::new(SystemClock::default()), OpenOptions::default());
        let volume = LocalVolume::open_on(device, clock, &opened, Threads::Real).expect("open");
        let dir = tempfile::tempdir().expect("a directory");
        let front = Arc::new(Front::default());
        let session = volume.front(Opening::kernel(), front.clone()).expect("a session");
        let make = || FuseMount::new(session.clone(), dir.path(), &options);
        let mount = rings::offering(options.requests != Requests::Device, make)
            .expect("these tests need root and /dev/fuse")
            .with_front(front);
        let (entry, traffic) = (mount.entry().clone(), mount.traffic());
        let (tokens, operations) = (mount.tokens(), mount.operations());
        let server = Some(std::thread::spawn(move || mount.serve()));
        Self { dir, entry, traffic, tokens, operations, server, volume: Some(volume) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// How many requests of this kind have come.
    pub fn count(&self, kind: &str) -> u64 {
        self.traffic.by_name().get(kind).copied().unwrap_or(0)
    }

    fn volume(&self) -> &LocalVolume {
        self.volume.as_ref().expect("it is open")
    }

    /// The number of a file in the root directory.
    pub fn ino(&self, name: &str) -> u32 {
        let lookup = Request::Lookup { parent: ROOT_INO, name: name.into() };
        let ino = ask(&*self.volume().endpoint(), lookup).attr().expect("an entry").ino;
        ask(&*self.volume().endpoint(), Request::Forget { ino, count: 1 });
        ino
    }

    pub fn lender(&self) -> Lender {
        let (tell, told) = channel();
        let holder = Arc::new(Words { tell: Mutex::new(tell), size: Mutex::default() });
        let (identity, limits) = (Identity::Kernel, Limits::default());
        let opening = Opening { identity, administrator: false, limits, client: None };
        let session = self.volume().lender(opening, holder.clone()).expect("a session");
        Lender { session, told, holder }
    }

    fn end(mut self) {
        let begin = Instant::now();
        while let Err(e) = unmount(self.dir.path()) {
            let busy = e.raw_os_error() == Some(libc::EBUSY);
            assert!(busy && begin.elapsed() < PATIENCE, "{e}");
            sleep(Duration::from_millis(20));
        }
        let server = self.server.take().expect("it is served");
        server.join().expect("no panic").expect("it was served to its end");
        self.volume.take().expect("it is open").close().expect("close");
    }
}

impl Drop for World {
    /// A test that has failed leaves no mount behind.
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = abort(&self.entry);
            let _ = siftfs_fuse::detach(self.dir.path());
        }
    }
}

fn ask(service: &dyn FileService, req: Request) -> Reply {
    service.call(&Credentials::default(), req).expect("it may")
}

impl Lender {
    /// A file, opened to be written.
    pub fn open(&self, ino: u32) -> Handle {
        let open = Request::open(ino, siftfs_proto::compound::Access::Both);
        ask(&*self.session, open).opened().expect("a handle")
    }

    /// The lease of a file that the program itself has open that often. A file's RELEASE is under
    /// way for a moment after its close(2).
    #[track_caller]
    pub fn lease(&self, handle: Handle, writers: u64) -> LeaseId {
        let begin = Instant::now();
        loop {
            match self.try_lease(handle, writers) {
                Ok(lease) => return lease,
                Err(e) => assert!(e == libc::EAGAIN && begin.elapsed() < PATIENCE, "errno {e}"),
            }
            sleep(Duration::from_millis(1));
        }
    }

    /// The same, once.
    pub fn try_lease(&self, handle: Handle, writers: u64) -> Result<LeaseId, i32> {
        let lease = Request::Lease { file: handle.into(), writers: Some(writers), direct: None };
        let leased = self.session.call(&Credentials::default(), lease);
        leased.and_then(Reply::leased).map(|(lease, _)| lease).map_err(|e| e.errno())
    }

    /// Others are shown this size.
    pub fn shows(&self, size: u64) {
        *self.holder.size.lock().unwrap() = size;
    }

    pub fn write(&self, lease: LeaseId, offset: u64, data: &[u8]) {
        let data = data.to_vec().into();
        ask(
            &*self.session,
            Request::LeaseWrite { lease, offset, data, time: None, durable: false },
        );
    }

    pub fn give_back(&self, lease: LeaseId) {
        ask(&*self.session, Request::LeaseReturn { lease });
    }

    /// Somebody wants the file.
    #[track_caller]
    pub fn recalled(&self) -> LeaseId {
        self.told.recv_timeout(PATIENCE).expect("it is recalled")
    }
}
