//! Questions that nobody should ask.

use crate::town::{FILE, Town};
use siftfs_lease::{Answer, Ask, HEADER, Held, MOST_GRANTED, Packets};

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
