//! A client that names the addresses of several servers, one of which has the volume at a time
//! (`docs/design/network.md`, "Several servers").

use siftfs_base::{Error, Result, SystemClock};
use siftfs_crash::fault_device;
use siftfs_device::{Cut, Device, FaultDevice, MemDevice};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::{
    Cache, Credentials, FileService, Handle, LockAsk, LockKind, LockPlace, Notice, ROOT_INO, Reply,
    Request,
};
use siftfs_remote::{Address, Claim, FileProtocol, Lasting, Patience, Ways, transport};
use siftfs_served::returning::{leave_books, open, serve};
use siftfs_served::{Setup, Way};
use siftfs_transport::{Sender, reach};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a client may take to come back.
const LIMIT: Duration = Duration::from_secs(30);
/// In which order the client knows them.
const NAMED: &str = "tcp:other:1,tcp:refuses:1,tcp:a:1,tcp:b:1";

/// A kernel that has nothing in its cache.
struct Cached;

impl Cache for Cached {
    fn take_back(&self, _: Notice) {}
    fn forget_all(&self, _: Notice) {}
}

type Wire = Arc<dyn Sender<siftfs_calls::ToServer>>;

/// Which server there is at each of the addresses, and what was dialed.
#[derive(Clone, Default)]
struct Places {
    servers: Arc<Mutex<HashMap<String, Address>>>,
    dialed: Arc<Mutex<Vec<String>>>,
    wire: Arc<Mutex<Option<Wire>>>,
}

impl Places {
    fn put(&self, host: &str, setup: &Setup) {
        let mut servers = self.servers.lock().unwrap();
        servers.insert(format!("tcp:{host}:1"), setup.address.clone());
    }

    /// Nobody listens there any more, and what leads there is cut.
    fn kill(&self, host: &str) {
        self.servers.lock().unwrap().remove(&format!("tcp:{host}:1"));
        self.wire.lock().unwrap().as_ref().expect("a connection").cut();
    }

    fn dialed(&self) -> Vec<String> {
        std::mem::take(&mut self.dialed.lock().unwrap())
    }

    /// A mount's session of the volume that is called so.
    fn session(&self, volume: &str) -> Result<Lasting> {
        let places = self.clone();
        let dial = move |to: &Address| {
            let text = to.to_string();
            places.dialed.lock().unwrap().push(text.clone());
            let found = places.servers.lock().unwrap().get(&text).cloned();
            let Some(address) = found else {
                return Err(Error::Refused("nobody listens there".into()));
            };
            let end = reach::<FileProtocol>(&address, &transport(), None)?;
            *places.wire.lock().unwrap() = Some(end.sender.clone());
            Ok(end)
        };
        let ways = Ways::new(NAMED.parse().unwrap(), Box::new(dial));
        let cache = Some(Arc::new(Cached) as Arc<dyn Cache>);
        Lasting::connect(ways, (volume, Claim::Kernel), cache, Patience::Hard)
    }
}

fn ask(session: &Lasting, request: Request) -> Result<Reply> {
    session.call(&Credentials::default(), request)
}

/// Makes a file with its name in it, and keeps it open.
fn create(session: &Lasting, name: &str) -> Handle {
    let create = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
    let (_, handle) = ask(session, create).unwrap().created().unwrap();
    ask(session, Request::write(handle, 0, name.as_bytes().to_vec())).unwrap();
    handle
}

fn read(session: &Lasting, file: Handle) -> Vec<u8> {
    ask(session, Request::Read { file: file.into(), offset: 0, len: 100 }).unwrap().data().unwrap()
}

fn lock(file: Handle, owner: u64) -> Request {
    let (place, kind) = (LockPlace::Whole, Some(LockKind::Write));
    Request::SetLock { file: file.into(), ask: LockAsk { owner, pid: 1, place, kind, wait: None } }
}

/// A volume that is another one.
fn stranger() -> LocalVolume {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(32 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let clock = Arc::new(SystemClock::default());
    LocalVolume::open_on(device, clock, &OpenOptions::default(), Threads::Real).unwrap()
}

/// A volume whose first server has this device and these books.
fn made(books: &Path) -> (Arc<FaultDevice>, LocalVolume) {
    let device = Arc::new(FaultDevice::new(32 << 20, 1));
    mkfs_on(device.clone() as Arc<dyn Device>, &MkfsOptions::default()).unwrap();
    let image = device.contents();
    let volume = open(&device, &image, books).unwrap();
    (device, volume)
}

/// A server of another volume, one that lets no kernel in, and one that is dead are passed by, at
/// the first connection and after a death; what was acknowledged, open or locked is there at the
/// next server, which is dialed first after that.
#[test]
fn a_session_goes_where_the_volume_is() {
    let (alive, books) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let places = Places::default();
    let (device, volume) = made(alive.path());
    let (first, other) = (serve(&volume), stranger());
    let refuses = Setup::new(&volume, Way::Tcp);
    let called = Setup::serving(other.served("other").unwrap(), Way::Unix, "");
    places.put("other", &called);
    places.put("refuses", &refuses);
    places.put("a", &first);
    let session = places.session("volume").unwrap();
    assert_eq!(places.dialed(), ["tcp:other:1", "tcp:refuses:1", "tcp:a:1"]);
    assert_eq!(session.address().to_string(), "tcp:a:1");
    let (synced, lost) = (create(&session, "synced"), create(&session, "not synced"));
    ask(&session, Request::Fsync { file: synced.into(), datasync: false }).unwrap();
    ask(&session, lock(lost, 7)).unwrap();
    // By now the stranger has the volume's name.
    let called = Setup::serving(other.served("volume").unwrap(), Way::Unix, "");
    places.put("other", &called);
    places.kill("a");
    let begun = Instant::now();
    while session.lost().is_none() {
        assert!(begun.elapsed() < LIMIT, "the connection was cut");
        std::thread::yield_now();
    }
    leave_books(alive.path(), books.path());
    let image = device.image(Cut::LoseAll);
    drop((first, refuses));
    volume.abandon();
    let device = Arc::new(fault_device(image.clone(), 1));
    let volume = open(&device, &image, books.path()).unwrap();
    let second = serve(&volume);
    places.put("b", &second);
    assert_eq!(read(&session, synced), b"synced");
    assert_eq!(read(&session, lost), b"not synced");
    ask(&session, Request::Fsync { file: lost.into(), datasync: false }).unwrap();
    assert_eq!(ask(&session, lock(lost, 8)), Err(siftfs_base::errno(libc::EAGAIN)));
    let dialed = places.dialed();
    let round: Vec<_> = dialed.iter().take(4).map(String::as_str).collect();
    assert_eq!(round, ["tcp:a:1", "tcp:b:1", "tcp:other:1", "tcp:refuses:1"]);
    assert_eq!(dialed.last().unwrap(), "tcp:b:1");
    assert_eq!(session.address().to_string(), "tcp:b:1");
    // A connection that is lost is looked for where it was.
    places.wire.lock().unwrap().as_ref().unwrap().cut();
    assert_eq!(read(&session, lost), b"not synced");
    assert_eq!(places.dialed(), ["tcp:b:1"]);
    session.leave();
    drop((second, called));
    volume.close().unwrap();
    other.close().unwrap();
}

#[test]
fn the_first_connection_says_of_each_why_not() {
    let (volume, places) = (stranger(), Places::default());
    let (called, refuses) = (
        Setup::serving(volume.served("other").unwrap(), Way::Unix, ""),
        Setup::new(&volume, Way::Tcp),
    );
    places.put("other", &called);
    places.put("refuses", &refuses);
    let said = places.session("volume").map(drop).unwrap_err().to_string();
    for part in [
        "no server answers for the volume: tcp:other:1: ",
        "no volume is called \"volume\" here; tcp:refuses:1: ",
        " speaks for ",
        "; tcp:a:1: nobody listens there; tcp:b:1: nobody listens there",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(places.dialed().len(), 4, "each once");
}
