//! What is so once a lease is granted: what was pending is durable, and no other session has
//! anything of the file in its cache (rule R39); and what the others are told when it has ended.

use crate::holders::*;
use crate::support::World;
use siftfs_proto::*;
use std::sync::mpsc::Receiver;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// Attributes, sizes and data.
type Told<'a> = (&'a [u32], &'a [u32], &'a [(u32, u64, u64)]);

fn no_name(notice: &Notice) -> Told<'_> {
    assert_eq!(notice.names, []);
    (&notice.attributes, &notice.sizes, &notice.data)
}

/// Acknowledges each notice after `before` was called with its number, until the thread has ended.
/// Returns how many there were.
fn acknowledge<T>(
    told: &Receiver<Notice>,
    thread: &JoinHandle<T>,
    before: impl Fn(usize),
) -> usize {
    let mut notices = 0;
    while !thread.is_finished() {
        if let Ok(notice) = told.recv_timeout(Duration::from_millis(5)) {
            before(notices);
            notices += 1;
            drop(notice);
        }
    }
    notices
}

/// A lease is granted when those that cache have acknowledged twice, and nobody is told anything
/// while it lasts.
#[test]
fn r39_caches_are_empty_before_a_lease() {
    let world = World::new(1);
    let v = world.open();
    let (session, recalled) = holder(&v);
    let handle = make(&session, "f");
    let (kernel, told) = caching(&v);
    let ino = look_up(&kernel, "f").ino;
    let asking = session.clone();
    let leasing = spawn(move || lease(&asking, handle));
    let first = told.recv().expect("a notice");
    assert_eq!(no_name(&first), (&[ino][..], &[][..], &[(ino, 0, u64::MAX)][..]));
    // What taking that back makes the kernel ask for neither waits nor keeps the lease away.
    assert_eq!(
        ask(&kernel, Request::GetAttr { file: ino.into() }).unwrap().attr().unwrap().size,
        9
    );
    assert!(told.try_recv().is_err(), "the second waits for the first");
    drop(first);
    let second = told.recv().expect("a notice");
    assert_eq!(no_name(&second), (&[ino][..], &[][..], &[][..]));
    drop(second);
    let held = leasing.join().expect("it returns").expect("a lease");
    assert!(recalled.try_recv().is_err());
    // While it lasts.
    let data = b" and more".to_vec().into();
    for change in [
        Request::LeaseWrite { lease: held, offset: 9, data, time: None, durable: false },
        Request::write(handle, 0, b"OLD".to_vec()),
    ] {
        let (result, owed) = session.call_owing(&Credentials::default(), change);
        result.expect("written");
        assert!(told.try_recv().is_err(), "nobody knows anything that changed");
        assert!(owed.is_settled());
    }
    // Its end.
    let giving = spawn(move || give_back(&session, held));
    let last = told.recv().expect("a notice");
    assert_eq!(no_name(&last), (&[][..], &[ino][..], &[][..]));
    // The kernel appends at the end that it knows, which the file has not any more (rule R50).
    let data = b"!".to_vec().into();
    let file = ino.into();
    let append = Request::Append { file, end: 9, data, kill_priv: false, times: true };
    ask(&kernel, append).expect("appended");
    drop(last);
    giving.join().expect("it returns").expect("given back");
    let read = Request::Read { file: ino.into(), offset: 0, len: 100 };
    assert_eq!(ask(&kernel, read).unwrap().data().unwrap(), b"OLD bytes and more!");
}

/// A kernel that takes something of the file into its cache meanwhile is told once more, and after
/// three times more the asker is told that others use the file.
#[test]
fn r39_what_is_read_meanwhile_is_taken_back() {
    let world = World::new(1);
    let v = world.open();
    let (session, recalled) = holder(&v);
    let handle = make(&session, "f");
    let (kernel, told) = caching(&v);
    let ino = look_up(&kernel, "f").ino;
    let read = || ask(&kernel, Request::Read { file: ino.into(), offset: 0, len: 100 });
    let stat = || ask(&kernel, Request::GetAttr { file: ino.into() });
    let try_it = |touch: &dyn Fn(usize) -> Option<bool>| {
        let asking = session.clone();
        let leasing = spawn(move || lease(&asking, handle));
        let notices = acknowledge(&told, &leasing, |number| match touch(number) {
            Some(true) => drop(read().expect("never delayed")),
            Some(false) => drop(stat().expect("never delayed")),
            None => {}
        });
        let leased = leasing.join().expect("it returns");
        let leased = leased.map(|held| {
            let giving = session.clone();
            let giving = spawn(move || give_back(&giving, held));
            acknowledge(&told, &giving, |_| {});
            giving.join().expect("it returns").expect("given back");
        });
        (notices, leased)
    };
    // Attributes that are asked for because pages are taken back do not count; pages do.
    assert_eq!(try_it(&|_| None), (2, Ok(())));
    assert_eq!(try_it(&|n| (n == 0).then_some(false)), (2, Ok(())));
    assert_eq!(try_it(&|n| (n == 0).then_some(true)), (4, Ok(())));
    assert_eq!(try_it(&|n| (n == 1).then_some(false)), (4, Ok(())));
    assert_eq!(try_it(&|n| (n < 6).then_some(true)), (8, Ok(())));
    assert_eq!(try_it(&|n| (n % 2 == 1).then_some(false)), (8, Err(libc::EAGAIN)));
    assert_eq!(try_it(&|_| Some(true)), (8, Err(libc::EAGAIN)));
    assert!(recalled.try_recv().is_err(), "there was nothing to recall");
}

/// A section that another session starts meanwhile, and a file that it removes.
#[test]
fn what_comes_meanwhile_is_looked_at() {
    let world = World::new(1);
    let v = world.open();
    let (session, _recalled) = holder(&v);
    let cases = [("f", libc::EBUSY), ("g", libc::ENOENT), ("h", libc::ESTALE)];
    let handles = cases.map(|(name, _)| make(&session, name));
    let (kernel, told) = caching(&v);
    for ((name, answer), handle) in cases.into_iter().zip(handles) {
        let theirs = open(&kernel, name);
        let asking = session.clone();
        let leasing = spawn(move || lease(&asking, handle));
        let first = told.recv().expect("a notice");
        match name {
            "f" => {
                drop(ask(&kernel, Request::SectionStart { file: theirs.into() }).expect("start"))
            }
            "g" => unlink(&kernel, name).expect("unlink"),
            _ => end(&session),
        }
        drop(first);
        // Whatever else it is told.
        acknowledge(&told, &leasing, |_| {});
        assert_eq!(leasing.join().expect("it returns"), Err(answer), "{name}");
    }
    drop((session, kernel));
    v.close().expect("close");
    world.e2fsck();
}

/// What was pending of a file is durable when its lease is granted: bytes, names and permissions.
/// What the holder keeps for itself, or gave without an fsync, is not promised.
#[test]
fn s7_what_was_pending_is_durable() {
    let world = World::new(2);
    let v = world.open();
    let (session, _recalled) = holder(&v);
    let handle = make(&session, "f");
    ask(&session, rename("f", "renamed", RenameMode::Replace)).expect("rename");
    let set = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    ask(&session, Request::SetAttr { file: handle.into(), set, times: true }).expect("chmod");
    lease(&session, handle).expect("a lease");
    drop(session);
    v.abandon();
    let v = world.open();
    let session = user(&v);
    let attr = look_up(&session, "renamed");
    assert_eq!((attr.perm, attr.size), (0o600, 9));
    let handle = open(&session, "renamed");
    assert_eq!(read(&session, handle), b"old bytes");
    let old = ask(&session, Request::Lookup { parent: ROOT, name: b"f".to_vec() });
    assert_eq!(old.map(drop), Err(libc::ENOENT));
    drop(session);
    v.close().expect("close");
    world.e2fsck();
}
