//! Locks on files between sessions of one volume.

use siftfs_base::Error;
use siftfs_placement::LocalVolume;
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

mod support;
use support::World;

const ROOT: u32 = ROOT_INO;
const READ: Option<LockKind> = Some(LockKind::Read);
const WRITE: Option<LockKind> = Some(LockKind::Write);

type Session = Arc<dyn FileService>;

fn ask(session: &Session, req: Request) -> Result<Reply, i32> {
    session.call(&Credentials::default(), req).map_err(|e: Error| e.errno())
}

fn user(v: &LocalVolume) -> Session {
    let opening = Opening { limits: Limits::default(), ..Opening::user(0, 0, Rights::all()) };
    v.session(opening).expect("a session")
}

/// A file that the session has open for `access`.
fn open(session: &Session, access: Access) -> Handle {
    let created = Request::Create { parent: ROOT, name: b"f".into(), perm: 0o644 };
    let ino = match ask(session, created) {
        Ok(Reply::Created { attr, handle }) => {
            assert_eq!(ask(session, Request::Release { handle }), Ok(Reply::Done));
            attr.ino
        }
        _ => match ask(session, Request::Lookup { parent: ROOT, name: b"f".into() }) {
            Ok(Reply::Entry(attr)) => attr.ino,
            other => panic!("{other:?}"),
        },
    };
    let open = Request::open(ino, access);
    match ask(session, open) {
        Ok(Reply::Opened { handle }) => handle,
        other => panic!("{other:?}"),
    }
}

fn bytes(first: u64, last: u64) -> LockPlace {
    LockPlace::Range(LockRange::new(first, last).expect("a range"))
}

fn lock(file: impl Into<Target>, place: LockPlace, kind: Option<LockKind>) -> Request {
    let ask = LockAsk { owner: 1, pid: 42, place, kind, wait: None };
    Request::SetLock { file: file.into(), ask }
}

/// Begins to wait; the answer comes by what is returned.
fn wait(session: &Session, file: Handle, number: u64) -> Receiver<Result<Reply, i32>> {
    let wait = Some(LockWait { number, until: WaitUntil::Process });
    let ask = LockAsk { owner: 1, pid: 43, place: LockPlace::Whole, kind: WRITE, wait };
    let (tell, told) = channel();
    let done = Box::new(move |result: Result<Reply, Error>| {
        tell.send(result.map_err(|e| e.errno())).expect("the test listens");
    });
    session.submit(&Credentials::default(), Request::SetLock { file: file.into(), ask }, done);
    told
}

/// A session locks what it has open, for what it has it open, and is refused by another one's lock.
#[test]
fn sessions_lock_what_they_have_open() {
    let world = World::new(1);
    let v = world.open();
    let (one, other) = (user(&v), user(&v));
    let handle = open(&one, Access::Read);
    assert_eq!(ask(&one, lock(handle, bytes(0, 9), WRITE)), Err(libc::EBADF), "it only reads");
    assert_eq!(ask(&one, lock(handle, bytes(0, 9), READ)), Ok(Reply::Done));
    assert_eq!(ask(&one, lock(handle, LockPlace::Whole, WRITE)), Ok(Reply::Done));
    assert_eq!(ask(&other, lock(handle, bytes(0, 9), READ)), Err(libc::EBADF), "another's handle");
    let written = open(&other, Access::Write);
    assert_eq!(ask(&other, lock(written, bytes(0, 9), READ)), Err(libc::EBADF), "it only writes");
    assert_eq!(ask(&other, lock(written, bytes(9, 20), WRITE)), Err(libc::EAGAIN));
    let (range, kind) = (LockRange::new(5, 99).expect("a range"), LockKind::Write);
    let get = Request::GetLock { file: written.into(), owner: 1, range, kind };
    let held = HeldLock { kind: LockKind::Read, range: LockRange::new(0, 9).unwrap(), pid: 42 };
    assert_eq!(ask(&other, get.clone()), Ok(Reply::Lock(Some(held))));
    assert_eq!(ask(&one, lock(handle, bytes(5, 9), None)), Ok(Reply::Done));
    assert_eq!(ask(&other, get), Ok(Reply::Lock(None)));
    // Only a kernel knows of descriptors, and nobody locks what is not open.
    let Ok(Reply::Entry(attr)) = ask(&other, Request::Lookup { parent: ROOT, name: b"f".into() })
    else {
        panic!("the file is there")
    };
    let closes = Request::CloseLocks { ino: attr.ino, handle: written, owner: 1 };
    assert_eq!(ask(&other, closes.clone()), Err(libc::ESTALE));
    assert_eq!(ask(&other, lock(attr.ino, bytes(0, 9), None)), Err(libc::ESTALE));
    let kernel = v.session(Opening::kernel()).expect("a session");
    assert_eq!(ask(&kernel, closes), Ok(Reply::Done));
    assert_eq!(ask(&kernel, lock(attr.ino, bytes(0, 9), READ)), Err(libc::EBADF));
    drop((one, other, kernel));
    v.close().expect("close");
    world.e2fsck();
}

/// A wait keeps no thread. It ends with what it waits for, by its number, with its handle and with
/// its session.
#[test]
fn waits_end() {
    let world = World::new(1);
    let v = world.open();
    let (one, other) = (user(&v), user(&v));
    let (holder, waiter) = (open(&one, Access::Both), open(&other, Access::Both));
    assert_eq!(ask(&one, lock(holder, LockPlace::Whole, READ)), Ok(Reply::Done));
    let told = wait(&other, waiter, 5);
    assert_eq!(told.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(wait(&other, waiter, 5).recv(), Ok(Err(libc::EINVAL)), "the number is taken");
    assert_eq!(ask(&one, Request::CancelLock { number: 5 }), Ok(Reply::Done));
    assert_eq!(told.try_recv(), Err(TryRecvError::Empty), "another session's number");
    assert_eq!(ask(&other, Request::CancelLock { number: 5 }), Ok(Reply::Done));
    assert_eq!(told.try_recv(), Ok(Err(libc::EINTR)));
    // The holder's handle is closed.
    let told = wait(&other, waiter, 5);
    assert_eq!(ask(&one, Request::Release { handle: holder }), Ok(Reply::Done));
    assert_eq!(told.try_recv(), Ok(Ok(Reply::Done)));
    // The waiter's is.
    let holder = open(&one, Access::Both);
    let told = wait(&one, holder, 6);
    assert_eq!(ask(&one, Request::Release { handle: holder }), Ok(Reply::Done));
    assert_eq!(told.try_recv(), Ok(Err(libc::EBADF)));
    // The waiter's session ends, and then the holder's.
    let (third, holder) = (user(&v), open(&one, Access::Both));
    let file = open(&third, Access::Both);
    let (stale, granted) = (wait(&third, file, 1), wait(&one, holder, 1));
    assert_eq!(ask(&third, Request::EndSession), Ok(Reply::Done));
    assert_eq!(stale.try_recv(), Ok(Err(libc::ESTALE)));
    assert_eq!(ask(&third, lock(file, LockPlace::Whole, READ)), Err(libc::ESTALE));
    drop(other);
    assert_eq!(granted.try_recv(), Ok(Ok(Reply::Done)));
    drop((one, third));
    v.close().expect("close");
}

/// A call waits on its own thread.
#[test]
fn a_call_waits_as_well() {
    let world = World::new(1);
    let v = world.open();
    let (one, other) = (user(&v), user(&v));
    let (holder, waiter) = (open(&one, Access::Both), open(&other, Access::Both));
    assert_eq!(ask(&one, lock(holder, LockPlace::Whole, WRITE)), Ok(Reply::Done));
    let waits = std::thread::spawn(move || {
        let wait = Some(LockWait { number: 1, until: WaitUntil::Process });
        let ask = LockAsk { owner: 1, pid: 1, place: LockPlace::Whole, kind: READ, wait };
        let req = Request::SetLock { file: waiter.into(), ask };
        other.call(&Credentials::default(), req).map_err(|e| e.errno())
    });
    assert_eq!(ask(&one, lock(holder, LockPlace::Whole, None)), Ok(Reply::Done));
    assert_eq!(waits.join().expect("no panic"), Ok(Reply::Done));
    drop(one);
    v.close().expect("close");
}
