//! Sessions over a wire that cache: what they are told, what waits for whom, and that the thread
//! which receives waits for nobody (rule R51).

use siftfs_base::{InodeNr, Result, SystemClock};
use siftfs_calls::{Back, FromServer, ToServer, Told};
use siftfs_device::MemDevice;
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::{
    Cache, Credentials, FileService, LockAsk, LockKind, LockPlace, LockRange, LockWait, Notice,
    ROOT_INO, Reply, Request, Target, WaitUntil, compound::Access,
};
use siftfs_remote::{Address, Claim, Client, Listener, transport};
use siftfs_served::{Setup, Way};
use siftfs_transport::{Connection, Received};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// How long a test waits for what has to come.
const LIMIT: Duration = Duration::from_secs(20);

/// A cache that hands over what it is told.
#[derive(Default)]
struct Cached {
    notices: Mutex<Option<Sender<Notice>>>,
    lost: Mutex<Option<Sender<Vec<InodeNr>>>>,
    /// The session itself, of a cache that asks it before it takes something back.
    asks: OnceLock<Arc<Client>>,
}

impl Cache for Cached {
    fn take_back(&self, notice: Notice) {
        if let Some(client) = self.asks.get() {
            look_up(client, "f");
        }
        if let Some(tell) = &*self.notices.lock().unwrap() {
            let _ = tell.send(notice);
        }
    }

    fn forget_all(&self, notice: Notice) {
        drop(notice);
    }

    fn lost(&self, known: Vec<InodeNr>) {
        if let Some(tell) = &*self.lost.lock().unwrap() {
            let _ = tell.send(known);
        }
    }
}

fn volume() -> LocalVolume {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone() as Arc<dyn siftfs_device::Device>, &MkfsOptions::default()).unwrap();
    let device = device as Arc<dyn siftfs_device::Device>;
    let clock = Arc::new(SystemClock::default());
    LocalVolume::open_on(device, clock, &OpenOptions::default(), Threads::Real).unwrap()
}

fn caching(setup: &Setup, cache: &Arc<Cached>) -> Arc<Client> {
    let reached = (&setup.options, setup.secured.as_ref());
    let cache = Some(cache.clone() as Arc<dyn Cache>);
    Arc::new(Client::connect(&setup.address, reached, "", Claim::Kernel, cache).unwrap())
}

/// A session whose notices come here.
fn told(setup: &Setup) -> (Arc<Client>, Receiver<Notice>) {
    let (tell, told) = channel();
    let cache = Arc::new(Cached { notices: Mutex::new(Some(tell)), ..Cached::default() });
    (caching(setup, &cache), told)
}

fn ask(client: &Client, req: Request) -> Result<Reply> {
    client.call(&Credentials::default(), req)
}

fn look_up(client: &Client, name: &str) -> InodeNr {
    let found = ask(client, Request::Lookup { parent: ROOT_INO, name: name.into() });
    found.unwrap().attr().unwrap().ino
}

fn create(client: &Client, name: &str) -> InodeNr {
    let created = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
    ask(client, created).unwrap().created().unwrap().0.ino
}

fn write(ino: InodeNr, byte: u8) -> Request {
    Request::write(ino, 0, vec![byte; 10])
}

/// Runs `work` on a thread of its own; it has to end in time.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = channel();
    std::thread::spawn(move || done.send(work()));
    ended.recv_timeout(LIMIT).expect("it ends")
}

/// A change is answered when it is made, says later that the others know of it, and keeps neither a
/// slot nor a thread meanwhile: more of them wait than a session has slots.
#[test]
fn changes_that_wait_for_others_keep_no_slot() {
    const CHANGES: u8 = 200;
    let volume = volume();
    let setup = Setup::new(&volume, Way::Shared);
    let (one, _notices) = told(&setup);
    let ino = create(&one, "f");
    let (other, notices) = told(&setup);
    look_up(&other, "f");
    let (owed, read) = in_time(move || {
        let owing = |byte| one.call_owing(&Credentials::default(), write(ino, byte));
        let owed: Vec<_> = (0..CHANGES)
            .map(|byte| {
                let (result, owed) = owing(byte);
                assert_eq!(result, Ok(Reply::Written { len: 10 }));
                assert!(!owed.is_settled(), "the other one has not taken it back");
                owed
            })
            .collect();
        let read = Request::Read { file: ino.into(), offset: 0, len: 10 };
        let read = ask(&one, read).unwrap().data().unwrap();
        // A call that has nobody who waits for it waits itself.
        let waits = std::thread::spawn(move || ask(&one, write(ino, 0)));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waits.is_finished());
        (owed, (read, waits))
    });
    assert_eq!(read.0, [CHANGES - 1; 10]);
    for (n, owed) in owed.iter().enumerate() {
        let notice = notices.recv_timeout(LIMIT).unwrap();
        assert_eq!(notice.data, [(ino, 0, 10)]);
        assert!(!owed.is_settled(), "{n}");
        drop(notice);
        assert!(owed.wait_for(LIMIT), "{n}");
    }
    drop(notices.recv_timeout(LIMIT).unwrap());
    in_time(move || read.1.join().unwrap()).unwrap();
    drop(other);
    drop(setup);
    volume.close().unwrap();
}

/// Taking a notice back may need the server, as a kernel does that has a dirty page.
#[test]
fn what_takes_a_notice_back_may_call_the_server() {
    let volume = volume();
    let setup = Setup::new(&volume, Way::Unix);
    let (one, _notices) = told(&setup);
    let ino = create(&one, "f");
    let cache = Arc::new(Cached::default());
    let other = caching(&setup, &cache);
    look_up(&other, "f");
    cache.asks.set(other.clone()).ok().unwrap();
    in_time(move || ask(&one, write(ino, 1))).unwrap();
    assert!(other.lost().is_none());
    drop(setup);
    volume.close().unwrap();
}

/// What follows the grant of a lock may need the server, too.
#[test]
fn what_follows_a_wait_may_call_the_server() {
    let volume = volume();
    let setup = Setup::new(&volume, Way::Unix);
    let (one, _notices) = told(&setup);
    let ino = create(&one, "f");
    let open = || ask(&one, Request::open(ino, Access::Both)).unwrap().opened().unwrap();
    let (first, second) = (open(), open());
    let lock = |file: siftfs_proto::Handle, owner, kind, wait| {
        let (file, place) = (Target::Open(file), LockPlace::Range(LockRange::ALL));
        Request::SetLock { file, ask: LockAsk { owner, pid: 1, place, kind, wait } }
    };
    ask(&one, lock(first, 1, Some(LockKind::Write), None)).unwrap();
    let wait = Some(LockWait { number: 5, until: WaitUntil::File });
    let (tell, granted) = channel();
    let again = one.clone();
    let done = Box::new(move |result: Result<Reply>| {
        look_up(&again, "f");
        tell.send(result).unwrap();
    });
    let cred = Credentials::default();
    one.submit(&cred, lock(second, 2, Some(LockKind::Write), wait), done);
    assert!(granted.recv_timeout(Duration::from_millis(200)).is_err());
    ask(&one, lock(first, 1, None, None)).unwrap();
    granted.recv_timeout(LIMIT).unwrap().unwrap();
    drop(setup);
    drop(one);
    volume.close().unwrap();
}

/// A session that is lost says so to its cache, with all that was looked up; one that ends in order
/// does not.
#[test]
fn what_is_lost_is_said() {
    let volume = volume();
    for in_order in [true, false] {
        let setup = Setup::new(&volume, Way::Unix);
        let (tell, lost) = channel();
        let cache = Arc::new(Cached { lost: Mutex::new(Some(tell)), ..Cached::default() });
        let client = caching(&setup, &cache);
        let kept = create(&client, if in_order { "a" } else { "b" });
        let ino = create(&client, if in_order { "c" } else { "d" });
        ask(&client, Request::Forget { ino, count: 1 }).unwrap();
        assert!(client.has_looked_up(kept) && !client.has_looked_up(ino));
        if in_order {
            client.leave();
            assert!(ask(&client, write(kept, 1)).is_err());
            assert!(lost.recv_timeout(Duration::from_millis(300)).is_err());
        } else {
            drop(setup);
            assert_eq!(lost.recv_timeout(LIMIT).unwrap(), [kept]);
            assert_eq!(ask(&client, write(kept, 1)).unwrap_err().errno(), libc::EIO);
            assert!(client.lost().unwrap().to_string().contains("the server ends"));
        }
    }
    volume.close().unwrap();
}

fn opened(volume: [u8; 16]) -> FromServer {
    let (slots, bytes, checks, instance, back) = (4, 1 << 20, false, 1, Back::New);
    FromServer::Opened { volume, slots, bytes, checks, instance, back }
}

/// What a server says that makes no sense ends the connection, and nothing else.
#[test]
fn a_server_that_breaks_a_rule_is_left() {
    let settled = FromServer::Settled { slot: 1, number: 2 };
    let result = Ok(Box::new(Reply::Done));
    let owing = FromServer::Owing { slot: 1, number: 2, result, done: None, proofs: None };
    let again = opened([0; 16]);
    let durable = FromServer::Durable { order: 1 };
    let notice = FromServer::Notice { notice: 0, all: false, told: Told::default() };
    for (caches, message, why) in [
        (true, settled.clone(), "settles a call that owes nothing"),
        (false, settled, "settles a call that owes nothing"),
        (true, owing.clone(), "not under way"),
        (false, owing, "does not cache"),
        (false, notice, "does not cache"),
        (true, again, "second session"),
        (true, durable, "keeps nothing"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::Unix(dir.path().join("s"));
        let listener = Listener::bind(&address, &transport()).unwrap();
        let serves = std::thread::spawn(move || {
            let end = listener.accept(Some(LIMIT)).unwrap().expect("a client");
            let Connection { sender, mut receiver, .. } = end;
            assert!(matches!(receiver.recv(Some(LIMIT)), Ok(Received::Message(ToServer::Open(_)))));
            sender.send(opened([1; 16])).unwrap();
            sender.send(message).unwrap();
            // Until the client has gone.
            while matches!(receiver.recv(Some(LIMIT)), Ok(Received::Message(_))) {}
        });
        let cache = caches.then(|| Arc::new(Cached::default()) as Arc<dyn Cache>);
        let client =
            Client::connect(&address, (&transport(), None), "", Claim::Kernel, cache).unwrap();
        let client = Arc::new(client);
        let asked = client.clone();
        let error = in_time(move || ask(&asked, Request::StatFs)).unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
        assert_eq!(client.lost(), Some(error));
        drop(client);
        serves.join().unwrap();
    }
}
