//! A server dies while clients keep what is not durable, and those after it die at every write and
//! flush of their recoveries: the one that serves at last knows the clients
//! (`docs/design/lost-server.md`, "The book").

use siftfs_base::{Error, InodeNr, Result, SystemClock};
use siftfs_crash::{fault_device, media_of};
use siftfs_device::{Cut, Device, FaultDevice, Image};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::{Cache, Credentials, FileService, Notice, ROOT_INO, RenameMode, Reply, Request};
use siftfs_remote::{Address, Before, Claim, FileProtocol, Lasting, Patience, transport};
use siftfs_served::Setup;
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

type Wire = Arc<dyn Sender<siftfs_calls::ToServer>>;

/// A mount's session, and where it finds its server, if it may.
struct Mount {
    session: Lasting,
    server: Arc<Mutex<Option<Address>>>,
    wire: Arc<Mutex<Option<Wire>>>,
}

impl Mount {
    fn new(address: &Address) -> Self {
        let server = Arc::new(Mutex::new(Some(address.clone())));
        let wire = Arc::new(Mutex::new(None));
        let (at, kept) = (server.clone(), wire.clone());
        let dial = move || {
            let Some(address) = at.lock().unwrap().clone() else {
                return Err(Error::Refused("the server is dead".into()));
            };
            let end = reach::<FileProtocol>(&address, &transport(), None)?;
            *kept.lock().unwrap() = Some(end.sender.clone());
            Ok(end)
        };
        let cache = Some(Arc::new(Cached) as Arc<dyn Cache>);
        let about = ("", Claim::Kernel);
        let session = Lasting::connect(Box::new(dial), about, cache, Patience::Hard).unwrap();
        Self { session, server, wire }
    }

    /// Its server is dead: it hears nothing from that any more.
    fn loses(&self) {
        *self.server.lock().unwrap() = None;
        self.wire.lock().unwrap().as_ref().expect("a connection").cut();
        let begun = Instant::now();
        while self.session.lost().is_none() {
            assert!(begun.elapsed() < LIMIT, "the connection was cut");
            std::thread::yield_now();
        }
    }

    fn ask(&self, request: Request) -> Result<Reply> {
        self.session.call(&Credentials::default(), request)
    }

    fn create(&self, name: &str) -> InodeNr {
        let create = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
        let (attr, _) = self.ask(create).unwrap().created().unwrap();
        let write = Request::write(attr.ino, 0, name.as_bytes().repeat(100));
        self.ask(write).unwrap();
        attr.ino
    }

    fn fsync(&self, ino: InodeNr) -> Result<Reply> {
        self.ask(Request::Fsync { file: ino.into(), datasync: false })
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let lookup = Request::Lookup { parent: ROOT_INO, name: name.into() };
        let ino = self.ask(lookup)?.attr()?.ino;
        match self.ask(Request::Read { file: ino.into(), offset: 0, len: 4096 })? {
            Reply::Data(data) => Ok(data),
            other => panic!("{other:?}"),
        }
    }
}

fn open(device: &Arc<FaultDevice>, image: &Image, books: &Path) -> Result<LocalVolume> {
    let options = OpenOptions { books: Some(books.into()), ..OpenOptions::default() };
    let clock = Arc::new(SystemClock::default());
    LocalVolume::open_on(media_of(device, image), clock, &options, Threads::Real)
}

fn serve(volume: &LocalVolume) -> Setup {
    let served = volume.served("volume");
    let before = Before { secret: None, ..served.before() };
    Setup::after(served, before)
}

/// What a server leaves that dies, and its client.
struct Dead {
    mount: Mount,
    image: Image,
    files: [InodeNr; 2],
}

/// One file is durable under the name that it had before, the other one not at all.
fn dead(books: &Path) -> Dead {
    let device = Arc::new(FaultDevice::new(32 << 20, 1));
    mkfs_on(device.clone() as Arc<dyn Device>, &MkfsOptions::default()).unwrap();
    let image = device.contents();
    let alive = tempfile::tempdir().unwrap();
    let volume = open(&device, &image, alive.path()).unwrap();
    let setup = serve(&volume);
    let mount = Mount::new(&setup.address);
    let files = ["lost", "synced"].map(|name| mount.create(name));
    mount.fsync(files[1]).unwrap();
    let (name, new_name) = ("synced".into(), "renamed".into());
    let (parent, mode) = (ROOT_INO, RenameMode::NoReplace);
    mount.ask(Request::Rename { parent, name, new_parent: parent, new_name, mode }).unwrap();
    mount.loses();
    // What it does from here on, nobody sees.
    for entry in std::fs::read_dir(alive.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), books.join(entry.file_name())).unwrap();
    }
    let image = device.image(Cut::LoseAll);
    drop(setup);
    volume.abandon();
    Dead { mount, image, files }
}

/// A server that dies at the operation `at` of its storage after it has begun, or before it serves
/// anybody. What it leaves, and whether it came to its end.
fn dies(image: &Image, books: &Path, at: u64, cut: Cut) -> (Image, bool) {
    let device = Arc::new(fault_device(image.clone(), 1));
    device.cut_at(at);
    let opened = open(&device, image, books);
    let ended = opened.is_ok();
    let left = device.image(cut);
    opened.into_iter().for_each(LocalVolume::abandon);
    (left, ended)
}

/// The server that is there at last, and the client that it has to know.
fn comes_back(dead: &Dead, image: &Image, books: &Path, what: &str) {
    let device = Arc::new(fault_device(image.clone(), 1));
    let volume = open(&device, image, books).unwrap_or_else(|e| panic!("{what}: {e}"));
    let setup = serve(&volume);
    *dead.mount.server.lock().unwrap() = Some(setup.address.clone());
    for (name, was) in [("lost", "lost"), ("renamed", "synced")] {
        let read = dead.mount.read(name);
        assert!(read.as_deref() == Ok(was.repeat(100).as_bytes()), "{what}: {name}");
    }
    assert!(dead.mount.read("synced").is_err(), "{what}: renamed twice, or not at all");
    for ino in dead.files {
        assert_eq!(dead.mount.fsync(ino).map(drop), Ok(()), "{what}: {ino}");
    }
    dead.mount.session.leave();
    drop(setup);
    volume.close().unwrap();
}

/// Seen to fail when the header names an epoch before the book does.
#[test]
fn a_client_is_known_wherever_recoveries_die() {
    let mut whole = 0;
    let mut round = 0;
    while whole < 2 {
        let books = tempfile::tempdir().unwrap();
        let dead = dead(books.path());
        let cut = [Cut::KeepAll, Cut::LoseAll, Cut::Random(round)][(round % 3) as usize];
        let (left, ended) = dies(&dead.image, books.path(), round, cut);
        // Another one after that, somewhere.
        let again = (round * 7) % 31;
        let (left, _) = dies(&left, books.path(), again, cut);
        comes_back(&dead, &left, books.path(), &format!("{round}, {again}, {cut:?}"));
        whole += u32::from(ended);
        round += 1;
    }
    assert!(round > 20, "a recovery of {round} operations");
}
