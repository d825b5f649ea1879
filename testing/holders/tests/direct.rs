//! Programs that read and write their files at the target, under leases that a grantor has, without
//! a mount (`docs/design/target.md`, "Programs that are not changed"). Target and host are real,
//! and so is the grantor; the program is this process.

#[path = "../../../crates/frontend/direct/tests/support/mod.rs"]
mod support;
#[path = "direct/town.rs"]
mod town;

#[path = "direct/deaths.rs"]
mod deaths;
#[path = "direct/grows.rs"]
mod grows;
#[path = "direct/hostile.rs"]
mod hostile;

use siftfs_accel::{By, Through};
use town::{FILE, Town, is_direct};

/// What is granted goes to the target, and the grantor hears of none of it; others see it, and
/// nobody waits for the program.
#[test]
fn what_is_written_at_the_target_is_seen_through_every_door() {
    let town = Town::new();
    let user = town.user();
    let f = user.make("f", &vec![1; FILE]);
    let (session, direct) = town.direct(f);
    let mut model = vec![1; FILE];
    for (at, len) in [(0, 4096), (5000, 9000), (FILE - 4096, 4096)] {
        assert_eq!(direct.write_at(at as u64, &vec![7; len]), Through::Lease(len));
        model[at..at + len].fill(7);
    }
    let mut read = vec![0; FILE + 10];
    assert_eq!(direct.read_at(0, &mut read), Through::Lease(FILE));
    assert!(read[..FILE] == model);
    let counts = town.counts();
    assert_eq!((counts.leases, counts.direct, counts.ingested.records), (1, 1, 0));
    // Attributes recall nothing; reading does, and the program is asked for nothing.
    assert_eq!(user.stat(f).size, FILE as u64);
    assert!(is_direct(&direct));
    assert!(user.read(f) == model);
    // The reader goes on before that is counted.
    town.until("it is counted", |town| (town.counts().leases, town.counts().direct) == (0, 0));
    // What the program knows is void from here on.
    user.write(f, 0, &[9; 10]).unwrap();
    user.write(f, FILE as u64, b"more").unwrap();
    assert_eq!(direct.read_at(FILE as u64, &mut read), Through::Mount, "it is longer now");
    assert_eq!(direct.read_at(0, &mut read), Through::Mount);
    assert_eq!(direct.size(), Through::Mount);
    assert_eq!(direct.write_at(0, &[8; 4096]), Through::Mount);
    assert_eq!(direct.append(b"x"), Through::Mount);
    assert_eq!(direct.sync_by(true).unwrap(), Through::Mount);
    assert_eq!(&user.read(f)[..12], &[&[9; 10][..], &[7; 2]].concat()[..]);
    direct.close().unwrap();
    drop(session);
    town.close();
}

/// Nothing is acknowledged by a flush that the host would have had to hear of (rule R46).
#[test]
fn r46_a_flush_does_not_overtake_what_others_have_ordered() {
    let town = Town::new();
    let user = town.user();
    let (f, _) = (user.make("f", &vec![1; FILE]), user.make("g", b""));
    let (session, direct) = town.direct(f);
    let sync = |at: u64, datasync| {
        assert_eq!(direct.write_at(at, &[2; 4096]), Through::Lease(4096));
        direct.sync_by(datasync).unwrap()
    };
    assert_eq!(sync(0, true), Through::Lease(By::Daemon), "the first one includes the name");
    assert_eq!(sync(0, true), Through::Lease(By::Target));
    assert_eq!(sync(4096, true), Through::Lease(By::Target));
    user.rename("g", "h");
    assert_eq!(sync(0, true), Through::Lease(By::Daemon), "the rename was answered before");
    assert_eq!(sync(0, true), Through::Lease(By::Target));
    assert_eq!(sync(0, false), Through::Lease(By::Daemon), "times are in it");
    assert!(user.find("h").is_some());
    direct.close().unwrap();
    drop(session);
    town.close();
}

/// A stream of appends goes to room at the target, little ones to records; others are shown the
/// size before they see the bytes, and see all of them.
#[test]
fn appends() {
    let town = Town::new();
    let user = town.user();
    let f = user.make("f", b"begin");
    let (session, direct) = town.direct(f);
    let (mut model, mut records) = (b"begin".to_vec(), 0);
    for (turn, len) in (0_u8..).zip([100, 5000, 70_000, 4096, 300_000, 1, 65_536, 200_000]) {
        let bytes = vec![turn; len];
        assert_eq!(direct.append(&bytes), Through::Lease((model.len() as u64, len)), "{turn}");
        model.extend(&bytes);
        assert_eq!(direct.size(), Through::Lease(model.len() as u64));
        assert_eq!(user.stat(f).size, model.len() as u64, "others are shown the size");
        if turn % 3 == 2 {
            assert!(matches!(direct.sync_by(true).unwrap(), Through::Lease(_)));
            records = town.counts().ingested.records;
        }
    }
    assert_eq!(town.counts().leases, 1, "nothing was recalled");
    let mut read = vec![0; model.len()];
    assert_eq!(direct.read_at(0, &mut read), Through::Lease(model.len()));
    assert!(read == model);
    // Most of it is no record.
    assert!(records < 8, "{records}");
    assert!(town.counts().ingested.bytes < 300_000, "{:?}", town.counts());
    assert!(user.read(f) == model, "another program reads");
    direct.close().unwrap();
    drop(session);
    town.close();
}

/// Threads append beside each other: no byte comes over another, and none is lost.
#[test]
fn appends_of_threads_do_not_meet() {
    let town = Town::new();
    let user = town.user();
    let f = user.make("f", b"");
    let (session, direct) = town.direct(f);
    let direct = &direct;
    std::thread::scope(|scope| {
        for thread in 1..=4_u8 {
            scope.spawn(move || {
                for _ in 0..40 {
                    let done = direct.append(&vec![thread; 3000]);
                    assert!(matches!(done, Through::Lease((_, 3000))), "{done:?}");
                }
            });
        }
    });
    let all = user.read(f);
    assert_eq!(all.len(), 4 * 40 * 3000);
    assert!(all.chunks(3000).all(|part| part.iter().all(|byte| *byte == part[0])));
    for thread in 1..=4 {
        assert_eq!(all.iter().filter(|byte| **byte == thread).count(), 40 * 3000);
    }
    drop(session);
    town.close();
}

/// What the file log would have is never written over what is newer at the target: the lease is of
/// one kind or of the other. Where nothing is granted, the lease is a private log's.
#[test]
fn a_handle_that_may_not_read_gets_no_blocks() {
    let town = Town::new();
    let f = town.user().make("f", &vec![1; FILE]);
    let session = town.enter(f);
    let leased = session.lease_direct_with(&town.token(f, false), |_| {}).unwrap();
    let Err(leased) = leased else { panic!("it reads by a token that may only write") };
    assert_eq!(leased.write_at(3, b"log"), Through::Lease(3));
    assert_eq!((town.counts().leases, town.counts().grants), (1, 0));
    assert_eq!(&town.user().read(f)[..7], b"\x01\x01\x01log\x01");
    drop((leased, session));
    town.close();
}

/// A lease that is used at the target alone is used, and one that is not goes back.
#[test]
fn a_direct_lease_is_used_at_the_target() {
    let town = Town::idle_after(std::time::Duration::from_millis(1500));
    let f = town.user().make("f", &vec![1; FILE]);
    let (session, direct) = town.direct(f);
    for _ in 0..35 {
        assert_eq!(direct.write_at(0, &[2; 4096]), Through::Lease(4096));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    town.until("it goes back", |town| town.counts().leases == 0);
    assert_eq!(direct.write_at(0, &[2; 4096]), Through::Mount);
    drop((direct, session));
    town.close();
}
