//! Programs that hold leases, and others that want the files.

use siftfs_accel::{Session, Through};
use siftfs_grantor::Bounds;
use siftfs_holders::program::Program;
use siftfs_holders::user::User;
use siftfs_holders::world::{EVER, Setting, World};
use siftfs_proto::{Reply, Request};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How volume and grantor are, if a test does not say. `served.rs` has another one.
#[allow(dead_code)]
fn setting() -> Setting {
    Setting::default()
}

/// Others are shown size and times by the holder's words, which a served Runtime does not see.
fn shown() -> Setting {
    Setting { served: false, ..crate::setting() }
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_siftfs-holders");

fn start(world: &World, ino: u32) -> Program {
    Program::start(PROGRAM, world, ino, false)
}

#[test]
fn what_a_program_wrote_is_seen_through_every_door() {
    let world = World::new(shown());
    let user = world.user();
    let (f, g) = (user.make("f", b"old "), user.make("g", b""));
    let (mut one, mut other) = (start(&world, f), start(&world, g));
    assert_eq!(world.counts().leases, 2);
    assert_eq!(world.tokens.held(), [(f, one.pid()), (g, other.pid())].into());
    assert_eq!(one.tell("append bytes"), "4");
    assert_eq!(one.tell("read"), "old bytes");
    assert_eq!(one.tell("len"), "9");
    assert_eq!(other.tell("write 2 xy"), "2");
    assert_eq!(user.read(f), b"old bytes");
    // The lease has ended, and the other program's has not.
    for call in ["append more", "write 0 x", "len", "read", "sync"] {
        assert_eq!(one.tell(call), "mount", "{call}");
    }
    // Attributes are what the holder shows, and recall nothing.
    assert_eq!(user.stat(g).size, 4);
    assert_eq!(other.tell("len"), "4");
    let again = world.tokens.mint(f, one.pid(), true);
    let hex: String = again.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(one.tell(&format!("again {hex}")), "leased");
    assert_eq!(one.tell("append !"), "9");
    user.truncate(f, 10);
    user.rename("f", "h");
    assert_eq!(user.find("h"), Some(f));
    assert_eq!(user.read(f), b"old bytes!");
    one.wait();
    other.wait();
    world.until("the sessions end", |world| world.counts().sessions == 0);
    assert!(world.tokens.held().is_empty());
    assert_eq!(world.counts().ended, 0);
    assert_eq!(user.read(g), b"\0\0xy");
    world.close();
}

/// Rule R47, and L1.
#[test]
fn r47_what_a_killed_program_wrote_is_there() {
    let world = World::new(crate::setting());
    let user = world.user();
    let f = user.make("f", b"");
    let mut program = start(&world, f);
    for i in 0..100 {
        assert_eq!(program.tell("append line"), (4 * i).to_string());
    }
    program.kill();
    assert_eq!(user.read(f), b"line".repeat(100));
    world.until("the session ends", |world| world.counts().sessions == 0);
    assert_eq!(world.counts().ingested.records, 100);
    world.close();
}

/// L4: others go on without a program that does nothing, and it learns what became of its write.
#[test]
fn a_program_that_is_stopped_holds_up_nobody() {
    let world = World::new(crate::setting());
    let user = world.user();
    let f = user.make("f", b"");
    let mut program = Program::start(PROGRAM, &world, f, true);
    program.send("stop text");
    program.wait_stopped();
    assert_eq!(user.read(f), b"text", "what was published was taken in");
    user.write(f, 0, b"T").expect("write");
    program.go_on();
    assert_eq!(program.says(), "done");
    assert_eq!(user.read(f), b"Text");
    program.wait();
    world.close();
}

/// L3: a sync is durable, with the file's name.
#[test]
fn what_was_synced_survives_a_crash() {
    let world = World::new(crate::setting());
    let user = world.user();
    let f = user.make("f", b"");
    let mut program = start(&world, f);
    assert_eq!(program.tell("append durable"), "0");
    assert_eq!(program.tell("sync"), "durable");
    let world = world.crash();
    let user = world.user();
    let found = user.find("f").expect("its name is durable too");
    assert_eq!(user.read(found), b"durable");
    drop(program);
    world.close();
}

/// A volume that somebody fills after the program has written, or before: what the program was told
/// is written finds room, and its lease ends, so that the next write(2) goes by the mount.
#[test]
fn what_was_written_finds_room_on_a_full_volume() {
    for reads in [false, true] {
        let world = World::new(crate::setting());
        let user = world.user();
        let (f, big) = (user.make("f", b""), user.make("big", b""));
        let mut program = start(&world, f);
        let mut at = 0;
        for len in [1 << 20, 4096] {
            while user.write(big, at, &vec![1; len]).is_ok() {
                at += len as u64;
            }
        }
        assert_eq!(program.tell("fill 300"), "300");
        match reads {
            true => assert_eq!(user.read(f), vec![b'f'; 300 * 4096]),
            // The lease may have ended before the daemon has made the file durable.
            false => assert!(["durable", "mount"].contains(&&*program.tell("sync"))),
        }
        world.until("the lease ends", |world| world.counts().leases == 0);
        assert_eq!(user.read(f), vec![b'f'; 300 * 4096]);
        assert_eq!(program.tell("append x"), "mount");
        assert_eq!(program.tell("sync"), "mount", "nothing is lost");
        let again = world.tokens.mint(f, program.pid(), true);
        let hex: String = again.iter().map(|byte| format!("{byte:02x}")).collect();
        let refused = program.tell(&format!("again {hex}"));
        assert!(refused.contains(&format!("os error {}", libc::ENOSPC)), "{refused}");
        user.truncate(big, 0);
        program.wait();
        world.close();
    }
}

/// A program that writes on while what it wrote is taken in, with more than the ring holds: what it
/// was told is done finds room, and no more than that. The grantor waits for no recall.
#[test]
fn a_full_volume_ends_a_lease_in_time() {
    let world = World::new(Setting { deaf: true, ..crate::setting() });
    let user = world.user();
    let (f, big) = (user.make("f", b""), user.make("big", b""));
    let mut program = start(&world, f);
    let mut at = 0;
    for len in [1 << 20, 4096] {
        while user.write(big, at, &vec![1; len]).is_ok() {
            at += len as u64;
        }
    }
    let done: usize = program.tell("fill 20000").parse().expect("a number");
    assert!(done < 20_000, "the volume has no room for all of it");
    assert_eq!(program.tell("sync"), "mount", "nothing is lost");
    let seen = user.read(f);
    assert_eq!((seen.len(), seen.iter().all(|byte| *byte == b'f')), (done * 4096, true));
    program.wait();
    world.close();
}

/// A recall that comes before the grantor has read the answer that grants the lease.
#[test]
fn a_recall_that_comes_early_is_not_lost() {
    let world = World::new(Setting { early: true, ..crate::setting() });
    let f = world.user().make("f", b"");
    let mut program = start(&world, f);
    world.until("the lease ends", |world| world.counts().leases == 0);
    assert_eq!(program.tell("append x"), "mount");
    program.wait();
    world.close();
}

#[test]
fn an_umount_takes_in_what_was_written() {
    let mut world = World::new(crate::setting());
    let user = world.user();
    let f = user.make("f", b"");
    let mut program = start(&world, f);
    assert_eq!(program.tell("append last"), "0");
    world.stop();
    assert_eq!(user.read(f), b"last");
    assert_eq!(program.tell("append x"), "mount");
    assert_eq!(program.tell("sync"), "mount");
    program.wait();
    drop(user);
    world.close();
}

#[test]
fn a_lease_that_is_not_used_is_given_back() {
    let bounds = Bounds { unused: Duration::ZERO, commit: EVER, ..Bounds::default() };
    let world = World::new(Setting { bounds, ..crate::setting() });
    let f = world.user().make("f", b"");
    let mut program = start(&world, f);
    world.until("the lease ends", |world| world.counts().leases == 0);
    assert_eq!(program.tell("append x"), "mount");
    program.wait();
    world.close();
}

#[test]
fn what_is_old_is_taken_in_by_itself() {
    let bounds = Bounds { unused: EVER, commit: Duration::ZERO, ..Bounds::default() };
    let world = World::new(Setting { bounds, ..crate::setting() });
    let f = world.user().make("f", b"");
    let mut program = start(&world, f);
    assert_eq!(program.tell("append x"), "0");
    world.until("it is taken in", |world| world.counts().ingested.records == 1);
    assert_eq!(program.tell("append x"), "1", "the lease lasts");
    program.wait();
    world.close();
}

#[test]
fn a_lease_is_used_within_its_term() {
    let said = Some(Duration::from_millis(500));
    let world = World::new(Setting { said, ..crate::setting() });
    let f = world.user().make("f", b"");
    let mut program = start(&world, f);
    world.until("it is used again and again", |world| world.kept.load(Ordering::SeqCst) > 3);
    assert_eq!(program.tell("append x"), "0");
    program.wait();
    world.close();
}

/// More than a ring holds, of records and of data: writes wait for nothing but one ingestion.
#[test]
fn rings_are_taken_in_when_they_are_full() {
    let world = World::new(crate::setting());
    let user = world.user();
    let f = user.make("f", b"");
    let mut program = start(&world, f);
    assert_eq!(program.tell("fill 3000"), "3000");
    assert_eq!(program.tell("len"), (3000u64 * 4096).to_string());
    assert_eq!(user.read(f).len(), 3000 * 4096);
    assert_eq!(world.counts().ingested.bytes, 3000 * 4096);
    program.wait();
    world.close();
}

/// Two threads of a program append lines, by the lease or by the mount, while another program reads
/// and so ends the leases. Each line is there once.
#[test]
fn each_write_is_made_once() {
    let world = World::new(crate::setting());
    let user = world.user();
    let own = std::process::id();
    let first = user.make("first", b"");
    let mint = |ino| world.tokens.mint(ino, own, true);
    let session = Session::enter_with(&world.socket(), &mint(first)).expect("enter");
    let (mut leased, mut mounted) = (0, 0);
    for round in 0..40 {
        let f = user.make(&format!("f{round}"), b"");
        let file = session.lease_with(&mint(f)).expect("lease");
        let (over, half) = (AtomicBool::new(false), Barrier::new(2));
        let append = |thread: u32| {
            let mut ways = [0usize, 0];
            for i in 0..20_000 {
                // In the middle of this the lease ends. Where it has ended before, the other
                // program is waited for all the same.
                if ways[1] >= 5 && (thread, i <= 25) != (1, true) {
                    break;
                }
                // The first lines of one thread are there when the other program comes.
                if (thread, i) == (1, 25) {
                    half.wait();
                }
                let line = format!("{thread} {i:05}\n");
                match file.append(line.as_bytes()) {
                    Through::Lease(_) => ways[0] += 1,
                    Through::Mount => {
                        append_by_mount(&user, f, line.as_bytes());
                        ways[1] += 1;
                    }
                }
            }
            ways
        };
        let (one, two) = std::thread::scope(|scope| {
            let threads = [scope.spawn(|| append(1)), scope.spawn(|| append(2))];
            let reader = scope.spawn(|| {
                half.wait();
                while !over.load(Ordering::SeqCst) {
                    let lines = user.read(f);
                    assert_eq!(lines.len() % 8, 0, "whole lines");
                    std::thread::yield_now();
                }
            });
            let ways = threads.map(|thread| thread.join().expect("no panic"));
            over.store(true, Ordering::SeqCst);
            reader.join().expect("no panic");
            (ways[0], ways[1])
        });
        leased += one[0] + two[0];
        mounted += one[1] + two[1];
        let made = one.iter().chain(&two).sum::<usize>();
        let text = String::from_utf8(user.read(f)).expect("text");
        let mut lines: Vec<&str> = text.lines().collect();
        for thread in 1..=2 {
            let start = format!("{thread} ");
            let own: Vec<_> = lines.iter().filter(|line| line.starts_with(&start)).collect();
            assert!(own.is_sorted(), "a thread's lines are in its order: {own:?}");
        }
        lines.sort_unstable();
        lines.dedup();
        assert_eq!((lines.len(), text.lines().count()), (made, made), "each line once");
        file.close().expect("close");
    }
    assert!(leased > 0 && mounted > 0, "both ways were gone: {leased}, {mounted}");
    drop(session);
    world.close();
}

fn append_by_mount(user: &User, ino: u32, bytes: &[u8]) {
    let (file, data) = (ino.into(), bytes.to_vec().into());
    let (append, kill_priv, times) = (true, false, true);
    let write = Request::Write { file, offset: 0, data, append, kill_priv, times };
    user.ask(write).and_then(Reply::written).expect("append");
}

/// The file's time is the last write's, whenever it is taken in.
#[test]
fn the_time_of_a_write_stays_what_it_was() {
    let world = World::new(shown());
    let user = world.user();
    let f = user.make("f", b"");
    let before = user.stat(f).mtime;
    let mut program = start(&world, f);
    assert_eq!(program.tell("append x"), "0");
    let wrote = siftfs_base::Clock::now(&siftfs_base::SystemClock::default());
    let shown = user.stat(f).mtime;
    assert!(before <= shown && shown <= wrote, "{before:?} {shown:?} {wrote:?}");
    // Taken in later than it was written.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(program.tell("read"), "x");
    assert_eq!(user.stat(f).mtime, shown, "taken in");
    assert_eq!(user.read(f), b"x");
    assert_eq!(user.stat(f).mtime, shown, "the lease has ended");
    program.wait();
    world.close();
}
