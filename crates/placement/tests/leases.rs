//! Write leases: a holder's bytes that nobody else has seen, and everybody who recalls them.

use siftfs_base::Error;
use siftfs_placement::LocalVolume;
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

mod support;
use support::World;

const ROOT: u32 = ROOT_INO;

type Session = Arc<dyn FileService>;

fn ask(session: &Session, req: Request) -> Result<Reply, i32> {
    session.call(&Credentials::default(), req).map_err(|e: Error| e.errno())
}

fn user(limits: Limits) -> Opening {
    Opening { limits, ..Opening::user(0, 0, Rights::all()) }
}

fn lookup(session: &Session, name: &str) -> Attr {
    let found = ask(session, Request::Lookup { parent: ROOT, name: name.into() });
    found.expect("lookup").attr().expect("an entry")
}

fn open(session: &Session, name: &str) -> Handle {
    let ino = lookup(session, name).ino;
    let open =
        Request::Open { ino, access: Access::Both, truncate: false, kill_priv: false, times: true };
    ask(session, open).expect("open").opened().expect("a handle")
}

fn create(session: &Session, name: &str) -> Handle {
    let create = Request::Create { parent: ROOT, name: name.into(), perm: 0o644 };
    ask(session, create).expect("create").created().expect("a file").1
}

fn write(session: &Session, handle: Handle, offset: u64, data: &[u8]) {
    ask(session, Request::write(handle, offset, data.to_vec())).expect("write");
}

fn read(session: &Session, handle: Handle) -> Vec<u8> {
    let read = Request::Read { file: handle.into(), offset: 0, len: 1 << 16 };
    ask(session, read).expect("read").data().expect("bytes")
}

fn lease(session: &Session, handle: Handle) -> Result<LeaseId, i32> {
    let leased = ask(session, Request::Lease { file: handle.into() })?;
    Ok(leased.leased().expect("a lease").0)
}

fn put(session: &Session, lease: LeaseId, offset: u64, data: &[u8]) -> Result<u32, i32> {
    let req = Request::LeaseWrite { lease, offset, data: data.to_vec().into() };
    ask(session, req).map(|reply| reply.written().expect("a length"))
}

fn give_back(session: &Session, lease: LeaseId) -> Result<(), i32> {
    ask(session, Request::LeaseReturn { lease }).map(drop)
}

/// A holder that passes on what it is told.
struct Told(Mutex<Sender<LeaseId>>);

impl Holder for Told {
    fn recall(&self, lease: LeaseId) {
        let _ = self.0.lock().expect("nobody panicked").send(lease);
    }
}

fn holder(v: &LocalVolume) -> (Session, Receiver<LeaseId>) {
    let (tell, told) = channel();
    let holder = Arc::new(Told(Mutex::new(tell)));
    (v.holder(user(Limits::default()), holder).expect("a session"), told)
}

/// Gives back what is recalled, with `data` at the begin of the file, until nobody recalls.
fn answer(session: Session, told: Receiver<LeaseId>, data: Vec<u8>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for lease in told {
            assert_eq!(put(&session, lease, 0, &data), Ok(data.len() as u32));
            assert_eq!(give_back(&session, lease), Ok(()));
        }
    })
}

#[test]
fn a_read_of_another_session_recalls() {
    let world = World::new(2);
    let v = world.open();
    let (session, told) = holder(&v);
    let other = v.session(user(Limits::default())).expect("a session");
    let handle = create(&session, "f");
    write(&session, handle, 0, b"old bytes");
    let theirs = open(&other, "f");
    let held = lease(&session, handle).expect("a lease");
    // The holder's own session goes on.
    assert_eq!(read(&session, handle), b"old bytes");
    assert!(told.try_recv().is_err(), "nobody has recalled yet");
    let answering = answer(session, told, b"NEW".to_vec());
    assert_eq!(read(&other, theirs), b"NEW bytes");
    assert_eq!(put(&other, held, 0, b"x"), Err(libc::ESTALE));
    drop(other);
    v.close().expect("close");
    // Closing recalls nothing more: the lease has ended, and the session is the thread's.
    drop(answering);
    world.e2fsck();
}
