//! Write leases: who gets one, what its holder may do, and what ends it.

mod doors;
mod draining;
mod holders;
mod lending;
mod located;
mod ordered;
mod pools;
mod shown;
mod space;
#[path = "../support/mod.rs"]
mod support;
mod times;

use holders::*;
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use std::thread::spawn;
use support::World;

const TERM: u64 = 2_000_000_000;
const ALONE: u64 = 10_000_000_000;

#[test]
fn a_holder_has_bytes_that_nobody_else_has_seen() {
    let world = World::new(2);
    let v = world.open();
    let (session, told) = holder(&v);
    let other = user(&v);
    let handle = make(&session, "f");
    let theirs = open(&other, "f");
    let held = lease(&session, handle).expect("a lease");
    // The holder's own session goes on.
    assert_eq!(read(&session, handle), b"old bytes");
    assert_eq!(look_up(&session, "f").size, 9);
    assert!(told.try_recv().is_err(), "nobody has recalled yet");
    let reading = spawn(move || (read(&other, theirs), other));
    assert_eq!(told.recv(), Ok(held));
    assert_eq!(put(&session, held, 20, b"far"), Ok(3));
    assert_eq!(put(&session, held, 0, b"NEW"), Ok(3));
    assert_eq!(give_back(&session, held), Ok(()));
    let (seen, other) = reading.join().expect("the read returns");
    assert_eq!(seen, b"NEW bytes\0\0\0\0\0\0\0\0\0\0\0far");
    // It has ended: nothing that comes late changes anything.
    assert_eq!(put(&session, held, 0, b"LATE"), Err(libc::ESTALE));
    assert_eq!(keep(&session, held), Err(libc::ESTALE));
    assert_eq!(give_back(&session, held), Err(libc::ESTALE));
    assert_eq!(read(&other, theirs), seen);
    assert!(told.try_recv().is_err(), "it was recalled once");
    drop((session, other));
    v.close().expect("close");
    world.e2fsck();
}

#[test]
fn who_gets_none() {
    let world = World::new(1);
    let v = world.open();
    let (session, _told) = holder_with(&v, Limits { leases: 2, ..Limits::default() });
    let other = user(&v);
    let handles: Vec<Handle> = (0..3).map(|i| make(&session, &format!("f{i}"))).collect();
    assert_eq!(lease(&other, open(&other, "f0")), Err(libc::EOPNOTSUPP), "nobody to be told");
    let ino = look_up(&session, "f0").ino;
    assert_eq!(lease(&session, ino), Err(libc::ESTALE), "a bare number");
    assert_eq!(lease(&session, Handle(u64::MAX)), Err(libc::EBADF));
    let access = Access::Read;
    let to_read = Request::open(ino, access);
    let reads = ask(&session, to_read).unwrap();
    assert_eq!(lease(&session, reads.opened().unwrap()), Err(libc::EBADF), "it may not write");
    let dir = ask(&session, Request::OpenDir { ino: ROOT }).unwrap().opened().unwrap();
    assert_eq!(lease(&session, dir), Err(libc::EBADF), "a directory");
    let kernel = v.endpoint();
    assert_eq!(lease(&kernel, ROOT), Err(libc::EISDIR));
    // A removed file, and one whose number became another's.
    unlink(&session, "f2").expect("unlink");
    assert_eq!(lease(&session, handles[2]), Err(libc::ENOENT));
    ask(&session, Request::Release { handle: handles[2] }).expect("close");
    assert_eq!(lease(&session, handles[2]), Err(libc::EBADF));
    // Beside a section of any session.
    let section = ask(&other, Request::SectionStart { file: open(&other, "f1").into() });
    let section = section.expect("a section").section().unwrap();
    assert_eq!(lease(&session, handles[1]), Err(libc::EBUSY));
    ask(&other, Request::SectionAbort { section }).expect("abort");
    // And no section beside it.
    let first = lease(&session, handles[0]).expect("a lease");
    assert_eq!(lease(&session, handles[0]), Err(libc::EBUSY), "it has it");
    let start = Request::SectionStart { file: handles[0].into() };
    assert_eq!(ask(&session, start).map(drop), Err(libc::EBUSY));
    let second = lease(&session, handles[1]).expect("a second lease");
    assert_ne!(first, second);
    let third = make(&session, "f3");
    assert_eq!(lease(&session, third), Err(libc::EAGAIN), "more than it may have");
    give_back(&session, first).expect("given back");
    lease(&session, third).expect("it may have two");
}

#[test]
fn r31_a_lease_means_something_in_one_session() {
    let world = World::new(1);
    let v = world.open();
    let ((one, told), (other, _)) = (holder(&v), holder(&v));
    let handle = make(&one, "f");
    let held = lease(&one, handle).expect("a lease");
    assert_eq!(put(&other, held, 0, b"x"), Err(libc::ESTALE));
    assert_eq!(keep(&other, held), Err(libc::ESTALE));
    assert_eq!(give_back(&other, held), Err(libc::ESTALE));
    let guessed = LeaseId(held.0.wrapping_add(1));
    assert_eq!(put(&one, guessed, 0, b"x"), Err(libc::ESTALE));
    assert_eq!(keep(&one, held), Ok(()));
    assert!(told.try_recv().is_err());
    assert_eq!(read(&one, handle), b"old bytes");
}

#[test]
fn r54_a_silent_holder_is_ended_after_its_term() {
    let world = World::new(1);
    let v = world.open();
    let (session, told) = holder(&v);
    let other = user(&v);
    let handle = make(&session, "f");
    let theirs = open(&other, "f");
    let held = lease(&session, handle).expect("a lease");
    put(&session, held, 0, b"GIVEN").expect("given before");
    let reading = spawn(move || (read(&other, theirs), other));
    assert_eq!(told.recv(), Ok(held));
    world.clock.advance(TERM);
    let (seen, other) = reading.join().expect("the read returns");
    assert_eq!(seen, b"GIVENytes");
    for late in [put(&session, held, 0, b"LATE").map(drop), keep(&session, held)] {
        assert_eq!(late, Err(libc::ESTALE));
    }
    assert_eq!(give_back(&session, held), Err(libc::ESTALE));
    assert_eq!(read(&other, theirs), b"GIVENytes");
    // The next one does not wait for a holder that was silent.
    assert_eq!(lease(&session, handle), Err(libc::EAGAIN));
    world.clock.advance(ALONE);
    lease(&session, handle).expect("ten seconds later");
}

/// A lease that nobody used for a term is over: nobody waits for its holder, and it is not told.
#[test]
fn r54_what_is_not_used_ends() {
    let world = World::new(1);
    let v = world.open();
    let (session, told) = holder(&v);
    let other = user(&v);
    let handle = make(&session, "f");
    let theirs = open(&other, "f");
    let ino = look_up(&other, "f").ino;
    let held = lease(&session, handle).expect("a lease");
    for _ in 0..3 {
        world.clock.advance(TERM - 1_000_000);
        keep(&session, held).expect("a use begins the term anew");
    }
    // The machine slept.
    world.clock.advance(3600 * TERM);
    assert_eq!(put(&session, held, 0, b"LATE"), Err(libc::ESTALE));
    assert_eq!(read(&other, theirs), b"old bytes");
    // The background ends it, too, and with it its reference to a removed file.
    let held = lease(&session, handle).expect("a lease");
    unlink(&session, "f").expect("the own session's");
    for (session, handle) in [(&session, handle), (&other, theirs)] {
        ask(session, Request::Release { handle }).expect("close");
    }
    ask(&session, Request::Forget { ino, count: 1 }).expect("forget");
    end(&other);
    let free = || ask(&session, Request::StatFs).unwrap().space().unwrap().files_free;
    let before = free();
    world.clock.advance(TERM);
    v.tick().expect("tick");
    make(&session, "next");
    assert_eq!(free(), before, "one inode less, and one more");
    assert_eq!(keep(&session, held), Err(libc::ESTALE));
    assert!(told.try_recv().is_err(), "nobody waited");
}

#[test]
fn a_session_takes_its_leases_along() {
    let world = World::new(1);
    let v = world.open();
    let ((session, told), other) = (holder(&v), user(&v));
    let handles = ["f", "g"].map(|name| make(&session, name));
    let theirs = ["f", "g"].map(|name| open(&other, name));
    let held = handles.map(|handle| lease(&session, handle).expect("a lease"));
    put(&session, held[0], 0, b"GIVEN").expect("given");
    let reading = spawn(move || (read(&other, theirs[0]), other));
    assert_eq!(told.recv(), Ok(held[0]));
    end(&session);
    let (seen, other) = reading.join().expect("the read returns");
    assert_eq!(seen, b"GIVENytes");
    assert_eq!(read(&other, theirs[1]), b"old bytes");
    assert!(told.recv().is_err(), "the other one was not recalled");
    assert_eq!(give_back(&session, held[0]), Err(libc::ESTALE));
    drop((session, other));
    v.close().expect("close");
    world.e2fsck();
}

#[test]
fn after_three_recalls_in_a_second_a_file_is_left_alone() {
    let world = World::new(1);
    let v = world.open();
    let (answering, other) = (Answering::start(&v), user(&v));
    let handle = make(&answering.session, "f");
    let theirs = open(&other, "f");
    for _ in 0..3 {
        lease(&answering.session, handle).expect("a lease");
        assert_eq!(read(&other, theirs), b"NEW bytes");
    }
    assert_eq!(lease(&answering.session, handle), Err(libc::EAGAIN));
    world.clock.advance(ALONE);
    let last = lease(&answering.session, handle).expect("ten seconds later");
    assert_eq!(read(&other, theirs), b"NEW bytes");
    let recalled = answering.end();
    assert_eq!((recalled.len(), recalled.last()), (4, Some(&last)));
}

/// The number of a removed file that is leased is no other file's (rule R49).
#[test]
fn r49_a_leased_inode_stays() {
    let world = World::new(1);
    let v = world.open();
    let (session, _told) = holder(&v);
    let handle = make(&session, "f");
    let ino = look_up(&session, "f").ino;
    let held = lease(&session, handle).expect("a lease");
    unlink(&session, "f").expect("unlink");
    ask(&session, Request::Release { handle }).expect("close");
    ask(&session, Request::Forget { ino, count: 2 }).expect("forget");
    let made = |name: &str| {
        create(&session, name);
        look_up(&session, name).ino
    };
    assert!((0..8).all(|i| made(&format!("g{i}")) != ino), "its number is in use");
    assert_eq!(put(&session, held, 0, b"for nobody"), Ok(10));
    give_back(&session, held).expect("given back");
    v.commit(true).expect("commit");
    v.checkpoint().expect("checkpoint");
    assert!((0..8).any(|i| made(&format!("h{i}")) == ino), "its number is free now");
    drop(session);
    v.close().expect("close");
    world.e2fsck();
}

#[test]
fn ten_thousand_sessions_that_ask() {
    let world = World::new(1);
    let v = world.open();
    let first = holder(&v);
    make(&first.0, "f");
    let mut sessions = Vec::new();
    for _ in 0..10_000 {
        let (session, told) = holder(&v);
        let handle = open(&session, "f");
        sessions.push((session, told, handle));
    }
    // Each asks the one before: the third recall is the last one for ten seconds.
    let (mut granted, mut refused) = (0, 0);
    for turn in 0..sessions.len() {
        let (session, _, handle) = &sessions[turn];
        let asked = session.clone();
        let handle = *handle;
        let asking = spawn(move || lease(&asked, handle));
        if granted > 0 && refused == 0 {
            let (before, told, _) = &sessions[turn - 1];
            let held = told.recv().expect("the holder is told");
            give_back(before, held).expect("given back");
        }
        match asking.join().expect("it returns") {
            Ok(_) => granted += 1,
            Err(libc::EAGAIN) => refused += 1,
            Err(other) => panic!("errno {other}"),
        }
    }
    assert_eq!((granted, refused), (3, 9_997));
    sessions.iter().for_each(|(session, ..)| end(session));
}

/// Closing, and remounting read-only, take what holders have.
#[test]
fn closing_recalls() {
    let world = World::new(1);
    let v = world.open();
    let answering = Answering::start(&v);
    let handle = make(&answering.session, "f");
    let held = lease(&answering.session, handle).expect("a lease");
    v.remounter().make_read_only().expect("read-only");
    assert_eq!(read(&answering.session, handle), b"NEW bytes");
    assert_eq!(lease(&answering.session, handle), Err(libc::EROFS));
    v.remounter().make_writable().expect("writable");
    let again = lease(&answering.session, handle).expect("a lease");
    v.close().expect("close");
    assert_eq!(answering.end(), [held, again]);
    world.e2fsck();
}
