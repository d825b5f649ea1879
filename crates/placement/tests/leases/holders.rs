//! Sessions that hold write leases, and what they ask for.

use crate::support::World;
use siftfs_base::{Error, Timestamp};
use siftfs_placement::LocalVolume;
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub const ROOT: u32 = ROOT_INO;

/// A volume on which several sessions that lend can set space aside.
pub fn roomy(lanes: u16) -> World {
    World::of_size(96 << 20, lanes)
}

pub type Session = Arc<dyn FileService>;

pub fn ask(session: &Session, req: Request) -> Result<Reply, i32> {
    session.call(&Credentials::default(), req).map_err(|e: Error| e.errno())
}

/// A session that may do everything to files.
pub fn user(v: &LocalVolume) -> Session {
    v.session(Opening::user(0, 0, Rights::all())).expect("a session")
}

pub fn look_up(session: &Session, name: &str) -> Attr {
    let found = ask(session, Request::Lookup { parent: ROOT, name: name.into() });
    found.expect("lookup").attr().expect("an entry")
}

pub fn opening(ino: u32) -> Request {
    Request::open(ino, Access::Both)
}

pub fn open(session: &Session, name: &str) -> Handle {
    let ino = look_up(session, name).ino;
    ask(session, opening(ino)).expect("open").opened().expect("a handle")
}

pub fn create(session: &Session, name: &str) -> Handle {
    let create = Request::Create { parent: ROOT, name: name.into(), perm: 0o644 };
    ask(session, create).expect("create").created().expect("a file").1
}

/// A file with some bytes.
pub fn make(session: &Session, name: &str) -> Handle {
    let handle = create(session, name);
    ask(session, Request::write(handle, 0, b"old bytes".to_vec())).expect("write");
    handle
}

pub fn unlink(session: &Session, name: &str) -> Result<(), i32> {
    ask(session, Request::Unlink { parent: ROOT, name: name.into() }).map(drop)
}

pub fn rename(from: &str, to: &str, mode: RenameMode) -> Request {
    let (name, new_name) = (from.into(), to.into());
    Request::Rename { parent: ROOT, name, new_parent: ROOT, new_name, mode }
}

/// A new extended attribute.
pub fn attribute(ino: u32, name: &[u8], value: Vec<u8>) -> Request {
    let (file, name, mode) = (ino.into(), name.to_vec(), XattrMode::Set);
    Request::SetXattr { file, name, value, mode, kill_setgid: false }
}

/// A list that lets user 1000 read, beside the owner.
pub fn list() -> Vec<u8> {
    let none = u32::MAX;
    let entries =
        [(0x01, 7, none), (0x02, 4, 1000), (0x04, 5, none), (0x10, 5, none), (0x20, 5, none)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        value.extend(u16::to_le_bytes(tag));
        value.extend(u16::to_le_bytes(rights));
        value.extend(u32::to_le_bytes(id));
    }
    value
}

pub fn read(session: &Session, handle: Handle) -> Vec<u8> {
    let read = Request::Read { file: handle.into(), offset: 0, len: 1 << 16 };
    ask(session, read).expect("read").data().expect("bytes")
}

pub fn lease(session: &Session, file: impl Into<Target>) -> Result<LeaseId, i32> {
    let leased = ask(session, Request::Lease { file: file.into(), writers: None, direct: None })?;
    Ok(leased.leased().expect("a lease").0)
}

pub fn put(session: &Session, lease: LeaseId, offset: u64, data: &[u8]) -> Result<u32, i32> {
    let req = Request::LeaseWrite {
        lease,
        offset,
        data: data.to_vec().into(),
        time: None,
        durable: false,
    };
    ask(session, req).map(|reply| reply.written().expect("a length"))
}

pub fn keep(session: &Session, lease: LeaseId) -> Result<(), i32> {
    ask(session, Request::LeaseKeep { lease }).map(drop)
}

pub fn give_back(session: &Session, lease: LeaseId) -> Result<(), i32> {
    ask(session, Request::LeaseReturn { lease }).map(drop)
}

pub fn end(session: &Session) {
    ask(session, Request::EndSession).expect("end");
}

/// A holder that passes on what it is told, and may show something.
pub struct Told {
    tell: Mutex<Sender<LeaseId>>,
    shown: Mutex<Option<Shown>>,
    /// The numbers of the order, each that it was told.
    orders: Mutex<Vec<u64>>,
}

impl Told {
    fn new(tell: Sender<LeaseId>) -> Arc<Self> {
        Arc::new(Self { tell: Mutex::new(tell), shown: Mutex::default(), orders: Mutex::default() })
    }

    /// All numbers of the order that it was told.
    pub fn orders(&self) -> Vec<u64> {
        self.orders.lock().expect("nobody panicked").clone()
    }

    /// The last of them.
    pub fn order(&self) -> u64 {
        self.orders().pop().unwrap_or(0)
    }

    /// Others are shown this from here on.
    pub fn shows(&self, size: u64, mtime: Timestamp) {
        *self.shown.lock().expect("nobody panicked") = Some(Shown { size, mtime });
    }
}

impl Holder for Told {
    fn recall(&self, lease: LeaseId) {
        let _ = self.tell.lock().expect("nobody panicked").send(lease);
    }

    fn attributes(&self, _lease: LeaseId) -> Option<Shown> {
        *self.shown.lock().expect("nobody panicked")
    }

    fn ordered(&self, order: u64) {
        self.orders.lock().expect("nobody panicked").push(order);
    }
}

/// A cache that hands its notices over.
struct Cached(Mutex<Sender<Notice>>);

impl Cache for Cached {
    fn take_back(&self, notice: Notice) {
        let _ = self.0.lock().unwrap().send(notice);
    }
}

/// A kernel's session that caches, and what it is told.
pub fn caching(v: &LocalVolume) -> (Session, Receiver<Notice>) {
    let (tell, told) = channel();
    (v.front(Opening::kernel(), Arc::new(Cached(Mutex::new(tell)))).expect("a session"), told)
}

/// A session that may hold leases, and what is recalled from it.
pub fn holder_with(v: &LocalVolume, limits: Limits) -> (Session, Receiver<LeaseId>) {
    let (tell, told) = channel();
    let opening = Opening { limits, ..Opening::user(0, 0, Rights::all()) };
    (v.holder(opening, Told::new(tell)).expect("a session"), told)
}

/// As [`holder`], with the holder itself.
pub fn shower(v: &LocalVolume) -> (Session, Receiver<LeaseId>, Arc<Told>) {
    let (tell, told) = channel();
    let holder = Told::new(tell);
    let opening = Opening::user(0, 0, Rights::all());
    (v.holder(opening, holder.clone()).expect("a session"), told, holder)
}

/// A session that changes nothing but what is leased to it, as those of private logs.
pub fn lender(v: &LocalVolume) -> (Session, Receiver<LeaseId>, Arc<Told>) {
    let (tell, told) = channel();
    let holder = Told::new(tell);
    let (identity, limits) = (Identity::Kernel, Limits::default());
    let opening = Opening { identity, administrator: false, limits, client: None };
    (v.lender(opening, holder.clone()).expect("a session"), told, holder)
}

/// The lease of a file that is open to be written that often elsewhere.
pub fn lease_beside(session: &Session, handle: Handle, writers: u64) -> Result<LeaseId, i32> {
    let leased =
        ask(session, Request::Lease { file: handle.into(), writers: Some(writers), direct: None })?;
    Ok(leased.leased().expect("a lease").0)
}

pub fn holder(v: &LocalVolume) -> (Session, Receiver<LeaseId>) {
    holder_with(v, Limits::default())
}

/// A session that gives back what is recalled, with `NEW` at the begin of the file.
pub struct Answering {
    pub session: Session,
    thread: JoinHandle<Vec<LeaseId>>,
}

impl Answering {
    pub fn start(v: &LocalVolume) -> Self {
        let (session, told) = holder(v);
        let own = session.clone();
        let thread = std::thread::spawn(move || {
            let give = |lease: &LeaseId| {
                assert_eq!(put(&own, *lease, 0, b"NEW"), Ok(3));
                assert_eq!(give_back(&own, *lease), Ok(()));
            };
            told.into_iter().inspect(give).collect()
        });
        Self { session, thread }
    }

    /// Ends the session. Returns what was recalled from it.
    pub fn end(self) -> Vec<LeaseId> {
        end(&self.session);
        self.thread.join().expect("it gave everything back")
    }
}
