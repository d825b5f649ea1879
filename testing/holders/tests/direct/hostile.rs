//! Questions that nobody should ask.

use crate::town::{FILE, Town};
use siftfs_holders::logs::TestLogs;
use siftfs_lease::{Answer, Ask, HEADER, Held, LogMedium, MOST_GRANTED, Packets};
use std::sync::Arc;

/// A connection that says what it likes.
struct Raw(Packets);

impl Raw {
    fn ask(&self, ask: Ask) -> Answer {
        self.0.send_in_turn(&ask.encode()).unwrap();
        let packet = self.0.receive(HEADER + MOST_GRANTED, true).unwrap().unwrap();
        Answer::decode(&packet.bytes).unwrap()
    }
}

/// Blocks are granted of a lease that lasts, is of a handle that may read, and of nothing else; as
/// often as anybody asks, and with as much room as there may be.
#[test]
fn blocks_are_granted_of_ones_own_lease_alone() {
    let town = Town::new();
    let user = town.user();
    let (f, g) = (user.make("f", &vec![1; FILE]), user.make("g", &vec![1; FILE]));
    let raw = Raw(Packets::connect(&town.socket()).unwrap());
    assert!(matches!(raw.ask(Ask::Enter(town.token(f, true))), Answer::Entered { .. }));
    let lease = |ino, reads| match raw.ask(Ask::Lease(town.token(ino, reads))) {
        Answer::Leased { held, .. } => held,
        other => panic!("{other:?}"),
    };
    let direct = |held, room| raw.ask(Ask::Direct { held, room });
    let nobodys = Held { slot: 0, number: 1 };
    assert_eq!(direct(nobodys, 0), Answer::Failed(libc::EBADF), "before any lease");
    let held = lease(f, true);
    let unreadable = lease(g, false);
    assert_eq!(direct(unreadable, 0), Answer::Failed(libc::EBADF));
    for (slot, number) in [(held.slot, held.number + 9), (u32::MAX, held.number), (5, 0)] {
        let odd = direct(Held { slot, number }, 0);
        assert_eq!(odd, Answer::Failed(libc::EBADF), "{slot} {number}");
    }
    for room in [0, 1, 1 << 20, u64::MAX] {
        let Answer::Granted(granted) = direct(held, room) else { panic!("{room}") };
        let whole: u64 = granted.runs.iter().filter(|r| !r.fresh).map(|run| run.count).sum();
        let fresh: u64 = granted.runs.iter().filter(|run| run.fresh).map(|run| run.count).sum();
        assert_eq!(whole, FILE as u64 / 4096, "{room}");
        assert!(fresh <= 64 << 8 && (fresh > 0) == (room > 0), "{fresh} of {room}");
    }
    // The lease ends, and what was granted with it.
    assert!(user.read(f) == vec![1; FILE]);
    assert_eq!(direct(held, 0), Answer::Ended);
    assert_eq!(raw.ask(Ask::Return(held)), Answer::Done);
    assert_eq!(direct(held, 0), Answer::Failed(libc::EBADF));
    let counts = town.counts();
    assert_eq!((counts.grants, counts.direct, counts.leases), (4, 0, 1));
    drop(raw);
    town.until("the session ends", |town| town.counts().sessions == 0);
    town.close();
}

/// A grant grows by its own lease alone, and only where there is one; by whatever numbers.
#[test]
fn a_grant_grows_by_its_own_lease_alone() {
    let town = Town::new();
    let user = town.user();
    let (f, g) = (user.make("f", &vec![1; FILE]), user.make("g", &vec![1; FILE]));
    let raw = Raw(Packets::connect(&town.socket()).unwrap());
    assert!(matches!(raw.ask(Ask::Enter(town.token(f, true))), Answer::Entered { .. }));
    let lease = |ino, reads| match raw.ask(Ask::Lease(town.token(ino, reads))) {
        Answer::Leased { held, .. } => held,
        other => panic!("{other:?}"),
    };
    let extend = |held, first, end| raw.ask(Ask::Extend { held, first, end });
    let held = lease(f, true);
    let unreadable = lease(g, false);
    assert_eq!(extend(unreadable, 0, 1 << 20), Answer::Failed(libc::EBADF));
    assert_eq!(extend(held, 0, 1 << 20), Answer::Failed(libc::EAGAIN), "nothing is granted");
    for (slot, number) in [(held.slot, held.number + 9), (u32::MAX, held.number), (5, 0)] {
        let odd = extend(Held { slot, number }, 0, 1 << 20);
        assert_eq!(odd, Answer::Failed(libc::EBADF), "{slot} {number}");
    }
    assert!(matches!(raw.ask(Ask::Direct { held, room: 0 }), Answer::Granted(_)));
    let mut had = 0;
    for (first, end) in [(0, 1 << 20), (0, 1 << 20), (u64::MAX, u64::MAX), (0, u64::MAX)] {
        let Answer::Extended(runs) = extend(held, first, end) else { panic!("{first} {end}") };
        assert!(runs.iter().all(|run| run.fresh && run.first >= FILE as u64 / 4096));
        had += runs.iter().map(|run| run.count).sum::<u64>();
        assert!(had <= 64 << 8, "{had} blocks of room");
    }
    assert!(had >= 200, "{had} blocks of room");
    // The lease ends, and nothing grows any more.
    assert!(user.read(f) == vec![1; FILE]);
    assert_eq!(extend(held, 0, 1 << 20), Answer::Ended);
    drop(raw);
    town.until("the session ends", |town| town.counts().sessions == 0);
    town.close();
}

/// The file log counts for a lease, or blocks of its file are granted: never both, in whichever
/// order a program asks. Else a recovery would write the log's older bytes over newer ones.
#[test]
fn the_file_log_never_counts_for_a_direct_lease() {
    let logs = Arc::new(TestLogs::new(LogMedium::File));
    let town = Town::with_logs(logs.clone());
    let user = town.user();
    let (f, g) = (user.make("f", &vec![1; FILE]), user.make("g", &vec![1; FILE]));
    let raw = Raw(Packets::connect(&town.socket()).unwrap());
    assert!(matches!(raw.ask(Ask::Enter(town.token(f, true))), Answer::Entered { .. }));
    assert!(matches!(raw.ask(Ask::Log), Answer::Log(_)));
    let lease = |ino| match raw.ask(Ask::Lease(town.token(ino, true))) {
        Answer::Leased { held, .. } => held,
        other => panic!("{other:?}"),
    };
    let fsync = |held| raw.ask(Ask::Fsync { held, datasync: true, log: 0 });
    let counted = || -> Vec<u64> {
        logs.rows().iter().flat_map(|row| row.leases.iter().map(|lease| lease.number)).collect()
    };
    let logged = lease(f);
    assert_eq!(fsync(logged), Answer::Done);
    assert_eq!(counted(), [logged.number]);
    let direct = lease(g);
    assert!(matches!(raw.ask(Ask::Direct { held: direct, room: 0 }), Answer::Granted(_)));
    assert_eq!(fsync(direct), Answer::Done);
    assert_eq!(counted(), [logged.number]);
    assert_eq!(raw.ask(Ask::Direct { held: logged, room: 0 }), Answer::Failed(libc::EBUSY));
    assert_eq!((town.counts().grants, town.counts().direct), (1, 1));
    drop(raw);
    town.until("the session ends", |town| town.counts().sessions == 0);
    town.close();
}
