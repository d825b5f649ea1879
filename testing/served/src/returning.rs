//! A volume whose server dies, and the session of a mount that comes back to another one.

use crate::{Setup, Way};
use siftfs_base::{Error, InodeNr, Result, SystemClock};
use siftfs_calls::ToServer;
use siftfs_crash::media_of;
use siftfs_device::{FaultDevice, Image};
use siftfs_placement::{LocalVolume, OpenOptions, Threads};
use siftfs_proto::{Cache, Credentials, FileService, Notice, ROOT_INO, Reply, Request};
use siftfs_remote::{
    Address, Addresses, Before, Claim, FileProtocol, Lasting, Patience, Ways, transport,
};
use siftfs_transport::{Sender, reach};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a client may take to come back.
const LIMIT: Duration = Duration::from_secs(30);

/// A kernel that has nothing in its cache.
struct Cached;

impl Cache for Cached {
    fn take_back(&self, _: Notice) {}
    fn forget_all(&self, _: Notice) {}
}

type Wire = Arc<dyn Sender<ToServer>>;

/// A mount's session, and where it finds its server, if it may.
pub struct Mount {
    /// The session.
    pub session: Lasting,
    server: Arc<Mutex<Option<Address>>>,
    wire: Arc<Mutex<Option<Wire>>>,
}

impl Mount {
    /// Of a server that listens here.
    ///
    /// # Panics
    /// If that gives it no session.
    pub fn new(address: &Address) -> Self {
        let server = Arc::new(Mutex::new(Some(address.clone())));
        let wire = Arc::new(Mutex::new(None));
        let (at, kept) = (server.clone(), wire.clone());
        let dial = move |_: &Address| {
            let Some(address) = at.lock().unwrap().clone() else {
                return Err(Error::Refused("the server is dead".into()));
            };
            let end = reach::<FileProtocol>(&address, &transport(), None)?;
            *kept.lock().unwrap() = Some(end.sender.clone());
            Ok(end)
        };
        let cache = Some(Arc::new(Cached) as Arc<dyn Cache>);
        let about = ("", Claim::Kernel);
        let ways = Ways::new(Addresses::one(address.clone()), Box::new(dial));
        let session = Lasting::connect(ways, about, cache, Patience::Hard).unwrap();
        Self { session, server, wire }
    }

    /// Its server is dead: it hears nothing from that any more.
    ///
    /// # Panics
    /// If the session does not notice.
    pub fn loses(&self) {
        *self.server.lock().unwrap() = None;
        self.wire.lock().unwrap().as_ref().expect("a connection").cut();
        let begun = Instant::now();
        while self.session.lost().is_none() {
            assert!(begun.elapsed() < LIMIT, "the connection was cut");
            std::thread::yield_now();
        }
    }

    /// Another server listens here.
    ///
    /// # Panics
    /// If another thread has panicked.
    pub fn finds(&self, address: &Address) {
        *self.server.lock().unwrap() = Some(address.clone());
    }

    /// Calls.
    ///
    /// # Errors
    /// Those of the call.
    pub fn ask(&self, request: Request) -> Result<Reply> {
        self.session.call(&Credentials::default(), request)
    }

    /// Makes a file in the root directory, with its name a hundred times in it.
    ///
    /// # Panics
    /// If it cannot.
    pub fn create(&self, name: &str) -> InodeNr {
        let create = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
        let (attr, _) = self.ask(create).unwrap().created().unwrap();
        let write = Request::write(attr.ino, 0, name.as_bytes().repeat(100));
        self.ask(write).unwrap();
        attr.ino
    }

    /// As fsync(2).
    ///
    /// # Errors
    /// Those of the call.
    pub fn fsync(&self, ino: InodeNr) -> Result<Reply> {
        self.ask(Request::Fsync { file: ino.into(), datasync: false })
    }

    /// The inode of a name in the root directory.
    ///
    /// # Errors
    /// Those of the call.
    pub fn find(&self, name: &str) -> Result<InodeNr> {
        let lookup = Request::Lookup { parent: ROOT_INO, name: name.into() };
        Ok(self.ask(lookup)?.attr()?.ino)
    }

    /// The first bytes of a file in the root directory, 64 KiB at most.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let file = self.find(name)?.into();
        self.ask(Request::Read { file, offset: 0, len: 64 << 10 })?.data()
    }
}

/// Opens a volume that is on `image`, for a server whose books are in `books`.
///
/// # Errors
/// Those of the volume.
pub fn open(device: &Arc<FaultDevice>, image: &Image, books: &Path) -> Result<LocalVolume> {
    let options = OpenOptions { books: Some(books.into()), ..OpenOptions::default() };
    let clock = Arc::new(SystemClock::default());
    LocalVolume::open_on(media_of(device, image), clock, &options, Threads::Real)
}

/// Serves a volume that is opened.
pub fn serve(volume: &LocalVolume) -> Setup {
    serve_by(volume, Way::Unix)
}

/// The same, by another way.
pub fn serve_by(volume: &LocalVolume, way: Way) -> Setup {
    let served = volume.served("volume").unwrap();
    let before = Before { secret: None, ..served.before() };
    Setup::after_by(served, before, way)
}

/// What a server that dies here has written of its clients is what one after it finds in `books`.
///
/// # Panics
/// If the files cannot be copied.
pub fn leave_books(alive: &Path, books: &Path) {
    for entry in std::fs::read_dir(alive).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), books.join(entry.file_name())).unwrap();
    }
}
