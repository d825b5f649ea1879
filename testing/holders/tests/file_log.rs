//! Programs whose fsync(2) is one write of their own, and crashes after it.

use siftfs_accel::{Leased, Session, Through};
use siftfs_grantor::Bounds;
use siftfs_holders::logs::replay;
use siftfs_holders::program::Program;
use siftfs_holders::world::{Setting, World};
use siftfs_lease::LogMedium;
use siftfs_proto::{Reply, Request, SetAttr};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_siftfs-holders");

fn world() -> World {
    World::new(Setting { logs: Some(LogMedium::File), ..Setting::default() })
}

/// A program whose lease the log is a way for.
fn start(world: &World, ino: u32) -> Program {
    let mut program = Program::start(PROGRAM, world, ino, false);
    assert_eq!(program.tell("sync"), "durable");
    program
}

/// Has it made its own log durable, or has the daemon? By how often the registry was written,
/// which the daemon does if it forgets something.
fn rows_written(world: &World, act: impl FnOnce()) -> u64 {
    let before = world.logs.as_ref().expect("logs").writes();
    act();
    world.logs.as_ref().expect("logs").writes() - before
}

/// All that a crash leaves in a file.
fn after_a_crash(world: World, name: &str) -> Vec<u8> {
    let world = world.crash();
    let user = world.user();
    let bytes = user.read(user.find(name).expect("its name is durable"));
    world.close();
    bytes
}

#[test]
fn what_a_program_made_durable_itself_survives_a_crash() {
    let world = world();
    let f = world.user().make("f", b"");
    let mut program = start(&world, f);
    let written = rows_written(&world, || {
        for i in 0..100 {
            assert_eq!(program.tell("append line"), (4 * i).to_string());
            assert_eq!(program.tell("sync"), "durable");
        }
    });
    assert_eq!((written, world.counts().ingested.records), (0, 0), "the daemon has done nothing");
    assert_eq!(program.tell("append more"), "400");
    assert_eq!(after_a_crash(world, "f"), b"line".repeat(100));
    drop(program);
}

/// R36: the lease's end is durable before anybody else has the file.
#[test]
fn r36_an_older_log_undoes_nothing_of_the_next_one_who_writes() {
    let world = world();
    let user = world.user();
    let f = user.make("f", b"");
    let mut program = start(&world, f);
    assert_eq!(program.tell("append old"), "0");
    assert_eq!(program.tell("sync"), "durable");
    user.write(f, 0, b"new").expect("write");
    user.ask(Request::Fsync { file: f.into(), datasync: false })
        .and_then(Reply::done)
        .expect("fsync");
    assert_eq!(program.tell("append more"), "mount");
    assert_eq!(after_a_crash(world, "f"), b"new");
    drop(program);
}

/// R36: the log forgets what it has of a file before the registry has the file's lease. Else a
/// crash between the two wrote that over what a sync of the volume has promised since.
#[test]
fn r36_nothing_counts_that_the_log_had_of_a_lease_before_it_was_registered() {
    let world = world();
    let (f, g) = (world.user().make("f", b""), world.user().make("g", b""));
    let token = |ino| world.tokens.mint(ino, std::process::id(), true);
    let session = Session::enter_with(&world.socket(), &token(f)).expect("enter");
    let [of_f, of_g] = [f, g].map(|ino| session.lease_with(&token(ino)).expect("lease"));
    let sync = |leased: &Leased| assert_eq!(leased.sync(false).expect("sync"), Through::Lease(()));
    let write = |bytes: &[u8]| assert_eq!(of_g.write_at(0, bytes), Through::Lease(bytes.len()));
    sync(&of_f);
    write(b"old");
    let written = rows_written(&world, || sync(&of_f));
    assert_eq!(written, 0, "the log has the record");
    write(b"new");
    sync(&of_g);
    let logs = world.logs.as_ref().expect("logs");
    let ((), mut left) = logs.cut(|| ());
    let (now, bytes) = left.pop().expect("a log");
    assert_eq!(now.leases.len(), 2, "the log is a way for both");
    for row in logs.former().into_iter().chain([now]) {
        replay(&(row, bytes.clone()), |lease, _, data| {
            assert_ne!(lease.ino, g, "{data:?} would be written over what came after it");
        });
    }
    drop((of_f, of_g, session));
    world.close();
}

/// The rule of the way: what the daemon promises is not undone by what the log has.
#[test]
fn an_older_log_undoes_nothing_that_the_daemon_made_durable() {
    let world = world();
    let user = world.user();
    let f = user.make("f", b"");
    let a = user.make("a", b"");
    user.ask(Request::Fsync { file: a.into(), datasync: false }).expect("fsync");
    let mut program = start(&world, f);
    assert_eq!(program.tell("append old"), "0");
    assert_eq!(program.tell("sync"), "durable");
    assert_eq!(program.tell("write 0 new"), "3");
    user.rename("a", "b");
    let written = rows_written(&world, || assert_eq!(program.tell("sync"), "durable"));
    assert_eq!(written, 1, "it was forgotten");
    let written = rows_written(&world, || {
        assert_eq!(program.tell("write 1 E"), "1");
        assert_eq!(program.tell("sync"), "durable");
    });
    assert_eq!(written, 0, "the log is a way again");
    let world = world.crash();
    let user = world.user();
    assert_eq!(user.read(user.find("f").expect("f")), b"nEw");
    assert!(user.find("a").is_none() && user.find("b").is_some(), "R46: the rename came before");
    world.close();
    drop(program);
}

/// R38: the directory's mode was changed before the fsync(2), which goes through the daemon.
#[test]
fn r38_a_local_fsync_carries_the_mode_of_the_directory() {
    let world = world();
    let user = world.user();
    let f = user.make("f", b"");
    let mut program = start(&world, f);
    let set = SetAttr { perm: Some(0o700), ..SetAttr::default() };
    let root = siftfs_proto::ROOT_INO;
    user.ask(Request::SetAttr { file: root.into(), set, times: true }).expect("chmod");
    assert_eq!(program.tell("append secret"), "0");
    assert_eq!(program.tell("sync"), "durable");
    let world = world.crash();
    assert_eq!(world.user().stat(root).perm, 0o700);
    assert_eq!(world.user().read(f), b"secret");
    world.close();
    drop(program);
}

/// What a sync of the volume makes durable is not undone, either.
#[test]
fn an_older_log_undoes_nothing_of_a_sync_of_the_volume() {
    let world = world();
    let f = world.user().make("f", b"");
    let mut program = start(&world, f);
    assert_eq!(program.tell("append old"), "0");
    assert_eq!(program.tell("sync"), "durable");
    assert_eq!(program.tell("write 0 new"), "3");
    world.ingest();
    assert_eq!(program.tell("write 0 xxx"), "mount", "its lease has ended");
    assert_eq!(after_a_crash(world, "f"), b"new");
    drop(program);
}

/// What was written and never synced becomes durable by age, and older bytes of the log undo it no
/// longer.
#[test]
fn an_older_log_undoes_nothing_that_is_durable_by_age() {
    let commit = Duration::from_millis(100);
    let bounds = Bounds { commit, ..Setting::default().bounds };
    let world = World::new(Setting { logs: Some(LogMedium::File), bounds, ..Setting::default() });
    let user = world.user();
    let f = user.make("f", b"");
    let mut program = start(&world, f);
    assert_eq!(program.tell("append old"), "0");
    assert_eq!(program.tell("sync"), "durable");
    assert_eq!(program.tell("write 0 new"), "3");
    let rows = |world: &World| world.logs.as_ref().expect("logs").rows();
    world.until("the lease ends", |world| rows(world).iter().all(|row| row.leases.is_empty()));
    assert_eq!(after_a_crash(world, "f"), b"new");
    drop(program);
}

/// The log goes round, and what the ring has lost is made durable by the daemon.
#[test]
fn a_log_that_is_full_is_forgotten() {
    let world = world();
    let f = world.user().make("f", b"");
    let mut program = start(&world, f);
    let mut len = 0;
    let written = rows_written(&world, || {
        for turn in 0..60 {
            // Five hundred pieces of 4 KiB are more than a batch has, fifty are not.
            let pieces = if turn % 7 == 3 { 500 } else { 50 };
            assert_eq!(program.tell(&format!("fill {pieces}")), pieces.to_string());
            len += pieces * 4096;
            assert_eq!(program.tell("sync"), "durable");
        }
    });
    assert!(written > 4, "{written}");
    // More than the ring holds, which the log has not.
    assert_eq!(program.tell("fill 1500"), "1500");
    assert_eq!(program.tell("sync"), "durable");
    assert_eq!(program.tell("append end"), (len + 1500 * 4096).to_string());
    assert_eq!(program.tell("sync"), "durable");
    let bytes = after_a_crash(world, "f");
    assert_eq!(bytes.len(), len + 1500 * 4096 + 3);
    assert!(bytes[..len + 1500 * 4096].iter().all(|byte| *byte == b'f') && bytes.ends_with(b"end"));
    drop(program);
}

/// What was taken in and written over in the ring is not in the log: the daemon alone can make it
/// durable.
#[test]
fn what_the_ring_has_lost_is_made_durable_by_the_daemon() {
    let world = world();
    let f = world.user().make("f", b"");
    let mut program = start(&world, f);
    // A ring holds 1,024 of these, and a batch the rest.
    assert_eq!(program.tell("fill 1100"), "1100");
    assert_eq!(program.tell("sync"), "durable");
    let bytes = after_a_crash(world, "f");
    assert!(bytes.len() == 1100 * 4096 && bytes.iter().all(|byte| *byte == b'f'));
    drop(program);
}

/// The registry cannot be written any more: nothing is promised that does not hold.
#[test]
fn a_registry_that_fails_leaves_all_to_the_daemon() {
    for what in ["end", "forget", "register"] {
        let world = world();
        let user = world.user();
        let (f, g) = (user.make("f", b""), user.make("g", b""));
        let mut program = start(&world, f);
        assert_eq!(program.tell("append old"), "0");
        assert_eq!(program.tell("sync"), "durable");
        world.logs.as_ref().expect("logs").fail(true);
        match what {
            "end" => user.write(f, 0, b"new").expect("write"),
            "forget" => {
                assert_eq!(program.tell("write 0 new"), "3");
                user.rename("g", "h");
                assert_eq!(program.tell("sync"), "durable");
            }
            _ => {
                let hex = |token: [u8; 16]| token.map(|byte| format!("{byte:02x}")).concat();
                let token = hex(world.tokens.mint(g, program.pid(), true));
                user.write(f, 0, b"new").expect("write");
                assert_eq!(program.tell(&format!("again {token}")), "leased");
                for i in 0..3 {
                    assert_eq!(program.tell("append x"), i.to_string());
                    assert_eq!(program.tell("sync"), "durable");
                }
            }
        }
        user.ask(Request::Fsync { file: f.into(), datasync: false }).expect("fsync");
        let world = world.crash();
        let user = world.user();
        assert_eq!(user.read(f), b"new", "{what}");
        if what == "register" {
            assert_eq!(user.read(g), b"xxx");
        }
        world.close();
        drop(program);
    }
}

/// A program that is killed leaves nothing in the registry, and its bytes in the file.
#[test]
fn a_killed_program_leaves_no_log() {
    let world = world();
    let user = world.user();
    let f = user.make("f", b"");
    let mut program = start(&world, f);
    assert_eq!(program.tell("append durable"), "0");
    assert_eq!(program.tell("sync"), "durable");
    assert_eq!(program.tell("append ,written"), "7");
    program.kill();
    world.until("its session ends", |world| world.counts().sessions == 0);
    assert!(world.logs.as_ref().expect("logs").rows().is_empty());
    assert_eq!(user.read(f), b"durable,written");
    world.close();
}
