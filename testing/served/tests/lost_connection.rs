//! A connection that is lost while the server lives: the session keeps what it has, and its client
//! takes it back over the next connection (`docs/design/lost-server.md`, "Coming back").

use siftfs_base::{InodeNr, Result, SystemClock};
use siftfs_device::MemDevice;
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::compound::{Access, Compound, Compounded, Step, Value, Wanted};
use siftfs_proto::{
    Cache, Credentials, FileService, Handle, Held, Level, LockAsk, LockKind, LockPlace, LockRange,
    LockWait, Notice, Opening, ROOT_INO, RenameMode, Reply, Request, Rights, SetAttr, WaitUntil,
};
use siftfs_remote::{Address, Addresses, Claim, FileProtocol, Lasting, Patience, Ways};
use siftfs_served::{Setup, Way};
use siftfs_transport::{Sender, reach};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a test waits for what has to come.
const LIMIT: Duration = Duration::from_secs(30);
/// How long it waits for what must not come.
const BRIEFLY: Duration = Duration::from_millis(300);

/// By which ways, and with which lines of a key; callers are checked by the last one.
const WAYS: [(Way, &str); 3] =
    [(Way::Shared, ""), (Way::Secret, "role=client squash=none"), (Way::Secret, "role=client")];

fn volume() -> LocalVolume {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone() as Arc<dyn siftfs_device::Device>, &MkfsOptions::default()).unwrap();
    let device = device as Arc<dyn siftfs_device::Device>;
    let clock = Arc::new(SystemClock::default());
    let volume = LocalVolume::open_on(device, clock, &OpenOptions::default(), Threads::Real);
    let volume = volume.unwrap();
    let set = SetAttr { perm: Some(0o777), ..SetAttr::default() };
    let open_up = Request::SetAttr { file: ROOT_INO.into(), set, times: true };
    let own = volume.session(Opening::kernel()).unwrap();
    own.call(&Credentials::default(), open_up).unwrap();
    volume
}

type Wire = Arc<dyn Sender<siftfs_calls::ToServer>>;

/// A user of the machine, with the rights that a server which checks callers wants to know.
fn caller() -> Credentials {
    let rights = Some(Box::new(Rights { groups: vec![1000], ..Rights::NONE }));
    Credentials { uid: 1000, gid: 1000, rights, ..Credentials::default() }
}

/// A kernel that has nothing in its cache.
struct Cached;

impl Cache for Cached {
    fn take_back(&self, _: Notice) {}
    fn forget_all(&self, _: Notice) {}
}

/// A kernel's session that comes back, whose connection a test can cut.
struct Mount {
    session: Lasting,
    wire: Arc<Mutex<Option<Wire>>>,
    /// No connection is made while this is set.
    apart: Arc<AtomicBool>,
}

impl Mount {
    fn new(setup: &Setup) -> Self {
        let cache = Some(Arc::new(Cached) as Arc<dyn Cache>);
        Self::of(setup, Claim::Kernel, cache)
    }

    /// A program's session instead of a mount's.
    fn program(setup: &Setup, claim: Claim) -> Self {
        Self::of(setup, claim, None)
    }

    fn of(setup: &Setup, claim: Claim, cache: Option<Arc<dyn Cache>>) -> Self {
        let (wire, apart) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (options, secured) = (setup.options.clone(), setup.secured.clone());
        let (kept, broken) = (wire.clone(), apart.clone());
        let dial = move |address: &Address| {
            if broken.load(Ordering::SeqCst) {
                return Err(siftfs_base::Error::Refused("the test has cut the way".into()));
            }
            let end = reach::<FileProtocol>(address, &options, secured.as_ref())?;
            *kept.lock().unwrap() = Some(end.sender.clone());
            Ok(end)
        };
        let about = ("", claim);
        let ways = Ways::new(Addresses::one(setup.address.clone()), Box::new(dial));
        let session = Lasting::connect(ways, about, cache, Patience::Hard).unwrap();
        Self { session, wire, apart }
    }

    fn cut(&self) {
        self.wire.lock().unwrap().as_ref().expect("a connection").cut();
    }

    fn ask(&self, request: Request) -> Result<Reply> {
        self.session.call(&caller(), request)
    }

    fn create(&self, name: &str) -> (InodeNr, Handle) {
        let create = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
        let (attr, handle) = self.ask(create).unwrap().created().unwrap();
        (attr.ino, handle)
    }

    fn open(&self, name: &str) -> Handle {
        let lookup = Request::Lookup { parent: ROOT_INO, name: name.into() };
        let ino = self.ask(lookup).unwrap().attr().unwrap().ino;
        self.ask(Request::open(ino, Access::Both)).unwrap().opened().unwrap()
    }

    /// Opens a file by a compound: the client does not refer to it otherwise.
    fn open_only(&self, name: &str, access: Access) -> Handle {
        let steps = vec![Step::Open { path: name.into(), access, truncate: false }];
        let (level, rights, wanted) = (Level::Visible, caller().rights.unwrap(), Wanted::All);
        let compound = Compound { base: ROOT_INO, steps, level, rights: *rights, wanted };
        let done = self.ask(Request::Compound(Box::new(compound))).unwrap().compounded().unwrap();
        let Compounded::Done { values, .. } = done else { panic!("{done:?}") };
        values.iter().find_map(Value::handle).expect("it stays open")
    }

    fn unlink(&self, name: &str) -> Result<Reply> {
        self.ask(Request::Unlink { parent: ROOT_INO, name: name.into() })
    }

    fn rename(&self, name: &str, new_name: &str) {
        let (parent, mode) = (ROOT_INO, RenameMode::Replace);
        let (name, new_name) = (name.into(), new_name.into());
        let rename = Request::Rename { parent, name, new_parent: parent, new_name, mode };
        self.ask(rename).unwrap();
    }

    fn read(&self, handle: Handle, len: u32) -> Vec<u8> {
        match self.ask(Request::Read { file: handle.into(), offset: 0, len }) {
            Ok(Reply::Data(data)) => data,
            other => panic!("{other:?}"),
        }
    }

    /// Begins to wait for a lock; the answer comes by what is returned.
    fn waits(&self, handle: Handle, place: LockPlace) -> Receiver<Result<Reply>> {
        let wait = Some(LockWait { number: 1, until: WaitUntil::File });
        let ask = LockAsk { owner: 1, pid: 1, place, kind: Some(LockKind::Write), wait };
        let (tell, told) = channel();
        let request = Request::SetLock { file: handle.into(), ask };
        let done = Box::new(move |result| drop(tell.send(result)));
        self.session.submit(&caller(), request, done);
        told
    }
}

fn lock(handle: Handle, place: LockPlace, kind: Option<LockKind>) -> Request {
    let ask = LockAsk { owner: 7, pid: 1, place, kind, wait: None };
    Request::SetLock { file: handle.into(), ask }
}

fn bytes() -> LockPlace {
    LockPlace::Range(LockRange::new(0, 9).unwrap())
}

fn still_waits(waits: &Receiver<Result<Reply>>) {
    assert_eq!(waits.recv_timeout(BRIEFLY), Err(RecvTimeoutError::Timeout));
}

/// What has no name, and a lock for which another client waits: both outlive the connection, as
/// often as it is lost.
#[test]
fn files_without_a_name_and_locks_outlive_it() {
    for (way, line) in WAYS {
        let volume = volume();
        let setup = Setup::admitting(&volume, way, line);
        let (one, other) = (Mount::new(&setup), Mount::new(&setup));
        let (_, unnamed) = one.create("unnamed");
        one.ask(Request::write(unnamed, 0, b"still here".to_vec())).unwrap();
        one.unlink("unnamed").unwrap();
        let (_, locked) = one.create("locked");
        let theirs = other.open("locked");
        for place in [bytes(), LockPlace::Whole] {
            one.ask(lock(locked, place, Some(LockKind::Write))).unwrap();
            let waits = other.waits(theirs, place);
            for _ in 0..3 {
                one.cut();
                assert_eq!(one.read(unnamed, 10), b"still here", "{way:?}");
                still_waits(&waits);
            }
            one.ask(lock(locked, place, None)).unwrap();
            assert_eq!(waits.recv_timeout(LIMIT), Ok(Ok(Reply::Done)), "{way:?}");
        }
        drop((one, other));
        volume.close().unwrap();
    }
}

/// What a compound has opened stays open, also what its user may not open any more, and a file
/// without a name.
#[test]
fn files_that_compounds_opened_outlive_it() {
    for (way, line) in WAYS {
        let volume = volume();
        let setup = Setup::admitting(&volume, way, line);
        let (one, other) = (Mount::new(&setup), Mount::new(&setup));
        for name in ["closed", "gone"] {
            let (ino, made) = other.create(name);
            other.ask(Request::write(made, 0, b"as it was".to_vec())).unwrap();
            let handle = one.open_only(name, Access::Read);
            let set = SetAttr { perm: Some(0), ..SetAttr::default() };
            other.ask(Request::SetAttr { file: made.into(), set, times: true }).unwrap();
            if name == "gone" {
                other.unlink(name).unwrap();
                other.ask(Request::Release { handle: made }).unwrap();
                other.ask(Request::Forget { ino, count: 1 }).unwrap();
            }
            for _ in 0..3 {
                one.cut();
                assert_eq!(one.read(handle, 20), b"as it was", "{way:?} {line} {name}");
                let write = one.ask(Request::write(handle, 0, vec![1]));
                assert_eq!(write, Err(siftfs_base::errno(libc::EBADF)), "{way:?} {line}");
            }
        }
        drop((one, other));
        volume.close().unwrap();
    }
}

/// A program forgets what it has looked up as soon as it has opened it: what is open stays so, also
/// without a name, and its locks stay its own.
#[test]
fn what_a_program_has_open_outlives_it() {
    let user = |uid| Claim::User { uid, gid: uid, rights: Rights::default() };
    for (way, line, claim) in [
        (Way::Unix, "", Claim::Owner),
        (Way::Shared, "", user(1000)),
        (Way::Tcp, "", user(1000)),
        (Way::Secret, "role=admin squash=none", Claim::Owner),
        (Way::Secret, "role=client", user(1000)),
    ] {
        let volume = volume();
        let setup = Setup::admitting(&volume, way, line);
        let one = Mount::program(&setup, claim.clone());
        let other = Mount::program(&setup, if way == Way::Tcp { user(1001) } else { claim });
        let create = |name: &str| {
            let (ino, handle) = one.create(name);
            one.ask(Request::Forget { ino, count: 1 }).unwrap();
            handle
        };
        let (unnamed, locked) = (create("unnamed"), create("locked"));
        one.ask(Request::write(unnamed, 0, b"still here".to_vec())).unwrap();
        one.unlink("unnamed").unwrap();
        let set = SetAttr { perm: Some(0o666), ..SetAttr::default() };
        one.ask(Request::SetAttr { file: locked.into(), set, times: true }).unwrap();
        let theirs = other.open("locked");
        one.ask(lock(locked, bytes(), Some(LockKind::Write))).unwrap();
        let waits = other.waits(theirs, bytes());
        for byte in 1..4 {
            one.cut();
            assert_eq!(one.read(unnamed, 10), b"still here", "{way:?}");
            one.ask(Request::write(locked, 0, vec![byte; 3])).unwrap();
            one.ask(Request::Fsync { file: locked.into(), datasync: false }).unwrap();
            still_waits(&waits);
        }
        assert_eq!(one.read(locked, 10), [3; 3]);
        one.ask(lock(locked, bytes(), None)).unwrap();
        assert_eq!(waits.recv_timeout(LIMIT), Ok(Ok(Reply::Done)), "{way:?}");
        // What the client would show codes for is the server's to ask.
        let held = Held { ino: 12, generation: 0, count: 1 };
        let refer = Request::HoldMany { inodes: vec![held] };
        assert_eq!(one.ask(refer), Err(siftfs_base::errno(libc::EPERM)), "{way:?}");
        drop((one, other));
        volume.close().unwrap();
    }
}

/// A client that stays away is waited for no longer than its term.
#[test]
fn its_term_ends() {
    let volume = volume();
    let setup = Setup::new(&volume, Way::Secret);
    let (one, other) = (Mount::new(&setup), Mount::new(&setup));
    let (_, locked) = one.create("locked");
    let theirs = other.open("locked");
    one.ask(lock(locked, LockPlace::Whole, Some(LockKind::Write))).unwrap();
    let waits = other.waits(theirs, LockPlace::Whole);
    one.apart.store(true, Ordering::SeqCst);
    one.cut();
    still_waits(&waits);
    assert_eq!(waits.recv_timeout(LIMIT), Ok(Ok(Reply::Done)), "the other one has it");
    one.apart.store(false, Ordering::SeqCst);
    let attr = Request::GetAttr { file: locked.into() };
    assert_eq!(one.ask(attr).map(drop), Err(siftfs_base::errno(libc::EIO)), "its lock is lost");
    drop((one, other));
    volume.close().unwrap();
}

/// Changes are carried out once each, and none is lost, while the connection is cut again and
/// again.
#[test]
fn changes_are_made_once_each() {
    for (way, line) in WAYS {
        let volume = volume();
        let setup = Setup::admitting(&volume, way, line);
        let mount = Arc::new(Mount::new(&setup));
        let until = Instant::now() + Duration::from_secs(4);
        let work = |worker: u64| {
            let mount = mount.clone();
            std::thread::spawn(move || {
                let mut rounds = 0u64;
                while Instant::now() < until {
                    let (name, moved) = (format!("{worker}-{rounds}"), format!("{worker}-moved"));
                    let (ino, handle) = mount.create(&name);
                    let data = rounds.to_le_bytes();
                    mount.ask(Request::write(handle, 0, data.to_vec())).unwrap();
                    mount.rename(&name, &moved);
                    assert_eq!(mount.read(handle, 8), data, "{way:?}");
                    mount.ask(Request::Release { handle }).unwrap();
                    mount.unlink(&moved).unwrap();
                    let again = mount.unlink(&moved);
                    assert_eq!(again, Err(siftfs_base::errno(libc::ENOENT)), "{way:?}");
                    mount.ask(Request::Forget { ino, count: 1 }).unwrap();
                    rounds += 1;
                }
                rounds
            })
        };
        let workers = [1, 2, 3].map(work);
        let mut cuts = 0;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(40));
            mount.cut();
            cuts += 1;
        }
        let rounds = workers.map(|worker| worker.join().expect("no call fails"));
        assert!(cuts > 10 && rounds.iter().all(|rounds| *rounds > 5), "{cuts}, {rounds:?}");
        drop(mount);
        volume.close().unwrap();
    }
}
