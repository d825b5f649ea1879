//! Programs that do what no program should, beside one that goes on.

use siftfs_accel::{Session, Through};
use siftfs_grantor::Bounds;
use siftfs_holders::program::Program;
use siftfs_holders::raw::Raw;
use siftfs_holders::world::{Setting, World};
use siftfs_lease::{Answer, Ask, Packets};
use siftfs_proto::{ROOT_INO, Request, SetAttr};
use std::time::Duration;

/// How volume and grantor are, if a test does not say. `served.rs` has another one.
#[allow(dead_code)]
fn setting() -> Setting {
    Setting::default()
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_siftfs-holders");

/// Programs that write anything into their memory and to their sockets. Their sessions end, the
/// others' and the volume do not.
#[test]
fn programs_that_write_anything_hurt_nobody_else() {
    let world = World::new(crate::setting());
    let user = world.user();
    let good = user.make("good", b"");
    let mut program = Program::start(PROGRAM, &world, good, false);
    for seed in 0..8 {
        let f = user.make(&format!("f{seed}"), b"theirs");
        let mut bad = Program::start(PROGRAM, &world, f, true);
        bad.send(&format!("rage {seed}"));
        assert_eq!(program.tell("append line"), (4 * seed).to_string());
        // Whatever it says of its file can be read by others.
        assert!(user.stat(f).size <= siftfs_proto::MAX_FILE_SIZE);
        if seed % 2 == 0 {
            bad.kill();
        } else {
            assert_eq!(bad.says(), "over");
            bad.wait();
        }
        assert_eq!(program.tell("read"), "line".repeat(seed as usize + 1));
    }
    world.until("their sessions end", |world| world.counts().sessions == 1);
    world.until("they are counted", |world| world.counts().ended >= 4);
    assert_eq!(world.tokens.held(), [(good, program.pid())].into());
    assert_eq!(user.read(good), b"line".repeat(8));
    program.wait();
    world.close();
}

/// L6: what a token stands for, and for whom.
#[test]
fn tokens_are_their_processes_own_and_good_for_one_use() {
    let world = World::new(crate::setting());
    let f = world.user().make("f", b"");
    let own = std::process::id();
    let enter = |token| {
        let entered = Session::enter_with(&world.socket(), &token);
        entered.map_err(|e| e.raw_os_error())
    };
    assert_eq!(enter([0; 16]).err(), Some(Some(libc::EACCES)), "guessed");
    let theirs = world.tokens.mint(f, 1, true);
    assert_eq!(enter(theirs).err(), Some(Some(libc::EACCES)), "another process's");
    let once = world.tokens.mint(f, own, true);
    let session = enter(once).expect("enter");
    assert_eq!(enter(once).err(), Some(Some(libc::EACCES)), "used");
    let refused = session.lease_with(&once).err().and_then(|e| e.raw_os_error());
    assert_eq!(refused, Some(libc::EACCES), "used");
    world.until("they are counted", |world| world.counts().refused == 4);
    drop(session);
    world.close();
}

/// A program that is killed before its first answer has broken no rule: its session is over.
#[test]
fn a_program_that_is_gone_before_its_first_answer() {
    let world = World::new(crate::setting());
    let f = world.user().make("f", b"");
    for _ in 0..50 {
        let gone = Packets::connect(&world.socket()).expect("connect");
        let token = world.tokens.mint(f, std::process::id(), true);
        gone.send_in_turn(&Ask::Enter(token).encode()).expect("send");
    }
    let kept = Raw::enter(&world.socket(), world.tokens.mint(f, std::process::id(), true));
    world.until("they are over", |world| world.counts().sessions == 1);
    assert_eq!(world.counts().ended, 0, "somebody broke a rule");
    drop(kept);
    world.close();
}

/// A program that may not read a file does not read it by a lease.
#[test]
fn a_file_that_may_not_be_read_is_not_read() {
    let world = World::new(crate::setting());
    let f = world.user().make("f", b"secret");
    let mint = || world.tokens.mint(f, std::process::id(), false);
    let session = Session::enter_with(&world.socket(), &mint()).expect("enter");
    let file = session.lease_with(&mint()).expect("lease");
    assert_eq!(file.write_at(0, b"S"), Through::Lease(1));
    // At its end and behind it as well, where there is no byte to be asked for.
    for offset in [0, 6, 10_000] {
        let refused = file.read_at(offset, &mut [0; 6]).err().and_then(|e| e.raw_os_error());
        assert_eq!(refused, Some(libc::EBADF), "at {offset}");
    }
    assert_eq!(file.sync(false).expect("sync"), Through::Lease(()));
    file.close().expect("close");
    drop(session);
    world.close();
}

#[test]
fn a_user_has_half_of_the_sessions() {
    let bounds = Bounds { sessions: 4, ..crate::setting().bounds };
    let world = World::new(Setting { bounds, ..crate::setting() });
    let f = world.user().make("f", b"");
    let own = std::process::id();
    let enter = || Session::enter_with(&world.socket(), &world.tokens.mint(f, own, true));
    let (one, two) = (enter().expect("enter"), enter().expect("enter"));
    assert!(enter().is_err(), "the connection is closed");
    drop(one);
    world.until("there is room", |world| world.counts().sessions == 1);
    drop((enter().expect("enter"), two));
    world.close();
}

#[test]
fn what_says_nothing_keeps_no_place() {
    let bounds = Bounds { patience: Duration::ZERO, ..crate::setting().bounds };
    let world = World::new(Setting { bounds, ..crate::setting() });
    let silent = Packets::connect(&world.socket()).expect("connect");
    assert!(silent.receive(64, false).expect("an end").is_none());
    world.until("it has gone", |world| world.counts().sessions == 0);
    world.until("it is counted", |world| world.counts().refused == 1);
    world.close();
}

/// Questions out of their order, of leases that are not there, and of another version.
#[test]
fn questions_that_make_no_sense_are_refused() {
    let world = World::new(crate::setting());
    let f = world.user().make("f", b"");
    let mint = || world.tokens.mint(f, std::process::id(), true);
    let early = Packets::connect(&world.socket()).expect("connect");
    early.send(&Ask::Ingest.encode(), &[]).expect("send");
    assert!(early.receive(64, false).expect("an end").is_none());
    let mut other = Ask::Enter(mint()).encode();
    other[0] = 9;
    let early = Packets::connect(&world.socket()).expect("connect");
    early.send(&other, &[]).expect("send");
    assert!(early.receive(64, false).expect("an end").is_none(), "another version");
    let mut raw = Raw::enter(&world.socket(), mint());
    let held = raw.lease(mint());
    let none = siftfs_lease::Held { slot: 7, ..held };
    let wrong = siftfs_lease::Held { number: held.number + 1, ..held };
    for held in [none, wrong, siftfs_lease::Held { slot: u32::MAX, number: 1 }] {
        for ask in [
            Ask::Read { held, offset: 0, len: 1 },
            Ask::Fsync { held, datasync: false, log: 0 },
            Ask::Return(held),
        ] {
            assert_eq!(raw.ask(ask), Some(Answer::Failed(libc::EBADF)), "{ask:?}");
        }
    }
    let far = Ask::Read { held, offset: u64::MAX, len: 1 };
    assert!(matches!(raw.ask(far), Some(Answer::Failed(_) | Answer::Data(_))));
    assert_eq!(raw.ask(Ask::Return(held)), Some(Answer::Done));
    assert_eq!(raw.ask(Ask::Return(held)), Some(Answer::Failed(libc::EBADF)));
    assert_eq!(raw.ask(Ask::Enter(mint())), None, "it enters twice");
    world.until("the session ends", |world| world.counts().sessions == 0);
    world.until("it is counted", |world| world.counts().ended == 1);
    world.close();
}

/// More leases than a session may have, all of them used and given back.
#[test]
fn leases_are_bounded() {
    let world = World::new(crate::setting());
    let user = world.user();
    let mint = |ino| world.tokens.mint(ino, std::process::id(), true);
    let first = user.make("f", b"");
    let session = Session::enter_with(&world.socket(), &mint(first)).expect("enter");
    let files: Vec<_> = (0..1024).map(|i| user.make(&format!("f{i}"), b"")).collect();
    let leases: Vec<_> =
        files.iter().map(|ino| session.lease_with(&mint(*ino)).expect("lease")).collect();
    let one_more = user.make("more", b"");
    let refused = session.lease_with(&mint(one_more)).err().and_then(|e| e.raw_os_error());
    assert_eq!(refused, Some(libc::EAGAIN));
    for (i, lease) in leases.iter().enumerate() {
        assert_eq!(lease.append(&[i as u8; 10]), Through::Lease(0));
    }
    drop(leases);
    assert_eq!(world.counts().leases, 0);
    for (i, ino) in files.iter().enumerate() {
        assert_eq!(user.read(*ino), [i as u8; 10]);
    }
    drop(session.lease_with(&mint(one_more)).expect("there is room again"));
    drop(session);
    world.close();
}

/// A removed file goes when its lease has ended.
#[test]
fn a_removed_file_is_written_on_and_goes() {
    let world = World::new(crate::setting());
    let user = world.user();
    let f = user.make("f", b"");
    let mut program = Program::start(PROGRAM, &world, f, false);
    assert_eq!(program.tell("append x"), "0");
    let unlink = Request::Unlink { parent: ROOT_INO, name: b"f".to_vec() };
    user.ask(unlink).expect("unlink");
    assert_eq!(program.tell("append x"), "mount");
    program.wait();
    world.until("the session ends", |world| world.counts().sessions == 0);
    assert_eq!(user.find("f"), None);
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    let gone = user.ask(Request::SetAttr { file: f.into(), set, times: true });
    drop(gone);
    world.close();
}
