use super::*;
use crate::session::locks::owned::tests::Draw;
use crate::session::locks::room::MOST;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

const S: [SessionId; 2] = [SessionId(11), SessionId(12)];
const READ: Option<LockKind> = Some(LockKind::Read);
const WRITE: Option<LockKind> = Some(LockKind::Write);

/// What requests were answered with, by their numbers.
type Told = Arc<Mutex<BTreeMap<u64, i32>>>;

/// A table, and what it answers.
struct World {
    table: Table,
    told: Told,
    asked: u64,
}

impl World {
    fn new(most: u64) -> Self {
        let mut table = Table::default();
        S.iter().for_each(|session| table.begin(*session, most, None));
        Self { table, told: Told::default(), asked: 0 }
    }

    /// The answers that came since the last call.
    fn give(&mut self, answers: Answers) -> BTreeMap<u64, i32> {
        for (done, result) in answers {
            done(result.map(|()| siftfs_proto::Reply::Done));
        }
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    /// Makes a request; its number is also that of its wait.
    fn ask(&mut self, mut ask: Ask) -> (u64, BTreeMap<u64, i32>) {
        self.asked += 1;
        let (number, told) = (self.asked, self.told.clone());
        if let Some(wait) = &mut ask.ask.wait {
            wait.number = number;
        }
        let done = Box::new(move |result: Result<siftfs_proto::Reply>| {
            let before =
                told.lock().unwrap().insert(number, result.map_or_else(|e| e.errno(), |_| 0));
            assert_eq!(before, None, "each request is answered once");
        });
        let answers = self.table.set(&ask, done);
        (number, self.give(answers))
    }

    /// The only answer there is, which must be this request's own.
    fn now(&mut self, ask: Ask) -> i32 {
        let (number, told) = self.ask(ask);
        assert_eq!(told.keys().copied().collect::<Vec<_>>(), [number]);
        told[&number]
    }

    /// A request that waits.
    fn waits(&mut self, ask: Ask) -> u64 {
        let (number, told) = self.ask(ask);
        assert_eq!(told, BTreeMap::new());
        number
    }
}

const WAIT: Option<LockWait> = Some(LockWait { number: 0, until: WaitUntil::Process });

fn bytes(owner: u64, (first, last): (u64, u64), kind: Option<LockKind>) -> Ask {
    let place = LockPlace::Range(LockRange::new(first, last).unwrap());
    let ask = LockAsk { owner, pid: 70, place, kind, wait: None };
    Ask { session: S[0], user: 0, ino: 5, handle: owner, ask }
}

fn whole(owner: u64, kind: Option<LockKind>) -> Ask {
    let place = LockPlace::Whole;
    let ask = LockAsk { owner, pid: 70, place, kind, wait: None };
    Ask { session: S[0], user: 0, ino: 5, handle: owner, ask }
}

fn waiting(mut ask: Ask) -> Ask {
    ask.ask.wait = WAIT;
    ask
}

#[test]
fn the_same_number_in_two_sessions_is_two_owners() {
    let mut w = World::new(100);
    assert_eq!(w.now(bytes(1, (0, 9), WRITE)), 0);
    let other = |ask: Ask| Ask { session: S[1], ..ask };
    assert_eq!(w.now(other(bytes(1, (9, 20), READ))), libc::EAGAIN);
    assert_eq!(w.now(other(bytes(1, (10, 20), WRITE))), 0);
    assert_eq!(w.now(bytes(1, (10, 10), READ)), libc::EAGAIN);
    assert_eq!(w.now(whole(2, WRITE)), 0, "the whole is another matter");
}

/// Of a client that has lost its connection the earlier session keeps its locks until the next one
/// has taken them. Another owner gets none of them in between.
#[test]
fn a_session_takes_over_what_an_earlier_one_of_its_client_has() {
    let mut w = World::new(100);
    let (earlier, later) = (SessionId(21), SessionId(22));
    w.table.begin(earlier, 100, Some(7));
    let of = |session, ask: Ask| Ask { session, ..ask };
    assert_eq!(w.now(of(earlier, bytes(1, (0, 9), WRITE))), 0);
    assert_eq!(w.now(of(earlier, whole(2, WRITE))), 0);
    let waits = w.waits(waiting(bytes(1, (5, 5), WRITE)));
    w.table.begin(later, 100, Some(7));
    assert_eq!(w.now(of(later, bytes(3, (0, 9), WRITE))), libc::EAGAIN, "another owner's");
    assert_eq!(w.now(of(later, bytes(1, (0, 6), WRITE))), 0, "nobody else gets it");
    assert_eq!(w.now(of(later, whole(2, WRITE))), 0);
    assert_eq!(w.now(bytes(4, (9, 9), READ)), libc::EAGAIN, "what was not taken over stays");
    let answers = w.table.end(earlier);
    assert_eq!(w.give(answers), BTreeMap::new());
    assert_eq!(w.now(bytes(4, (9, 9), READ)), 0);
    assert_eq!(w.now(whole(4, WRITE)), libc::EAGAIN, "the later session has it");
    let (own, told) = w.ask(of(later, bytes(1, (0, 6), None)));
    assert_eq!(told, [(own, 0), (waits, 0)].into());
}

#[test]
fn waits_go_on_in_their_order() {
    let mut w = World::new(100);
    assert_eq!(w.now(bytes(1, (0, 9), WRITE)), 0);
    let reads = [2, 3].map(|owner| w.waits(waiting(bytes(owner, (0, 4), READ))));
    let writes = w.waits(waiting(bytes(4, (4, 6), WRITE)));
    let late = w.waits(waiting(bytes(5, (0, 0), READ)));
    let (own, told) = w.ask(bytes(1, (0, 9), None));
    assert_eq!(told, [own, reads[0], reads[1], late].map(|n| (n, 0)).into());
    assert_eq!(w.now(bytes(2, (0, 9), None)), 0);
    let (own, told) = w.ask(bytes(3, (0, 9), None));
    assert_eq!(told, [(own, 0), (writes, 0)].into());
}

/// A lock that is exchanged for another kind lets others go on before its new wait ends.
#[test]
fn flock_gives_up_what_it_has_before_it_waits() {
    let mut w = World::new(100);
    for owner in [1, 2] {
        assert_eq!(w.now(whole(owner, READ)), 0);
    }
    assert_eq!(w.now(whole(1, WRITE)), libc::EAGAIN);
    assert_eq!(w.now(whole(2, WRITE)), 0, "the refused one has lost its lock");
    let first = w.waits(waiting(whole(1, READ)));
    let second = w.waits(waiting(whole(3, WRITE)));
    let (own, told) = w.ask(whole(2, READ));
    assert_eq!(told, [(own, 0), (first, 0)].into());
    let third = w.waits(waiting(whole(2, WRITE)));
    let (own, told) = w.ask(whole(1, None));
    assert_eq!(told, [(own, 0), (second, 0)].into());
    let (own, told) = w.ask(whole(3, None));
    assert_eq!(told, [(own, 0), (third, 0)].into());
}

#[test]
fn circles_of_processes_are_refused() {
    let mut w = World::new(100);
    for owner in [1, 2, 3] {
        assert_eq!(w.now(bytes(owner, (owner, owner), WRITE)), 0);
    }
    w.waits(waiting(bytes(1, (2, 2), WRITE)));
    w.waits(waiting(bytes(2, (3, 3), READ)));
    assert_eq!(w.now(waiting(bytes(3, (0, 1), READ))), libc::EDEADLK);
    // An open file waits for as long as it takes, and so do whole files.
    let mut patient = waiting(bytes(3, (1, 1), READ));
    patient.ask.wait.as_mut().unwrap().until = WaitUntil::File;
    let wait = w.waits(patient);
    let answers = w.table.cancel(S[0], wait);
    assert_eq!(w.give(answers), [(wait, libc::EINTR)].into());
    let on = |ino: InodeNr, owner: u64| Ask { ino, ..whole(owner, WRITE) };
    assert_eq!((w.now(on(8, 8)), w.now(on(9, 9))), (0, 0));
    w.waits(waiting(on(9, 8)));
    w.waits(waiting(on(8, 9)));
}

/// An owner with several threads gets a lock that another one waits for, whose lock it waits for
/// itself.
#[test]
fn a_lock_that_closes_a_circle_ends_the_wait() {
    let mut w = World::new(100);
    assert_eq!(w.now(bytes(1, (1, 1), WRITE)), 0);
    assert_eq!(w.now(bytes(3, (0, 0), WRITE)), 0);
    w.waits(waiting(bytes(2, (1, 1), WRITE)));
    let late = w.waits(waiting(bytes(1, (0, 9), WRITE)));
    let (own, told) = w.ask(bytes(2, (5, 5), READ));
    assert_eq!(told, [(own, 0), (late, libc::EDEADLK)].into());
}

#[test]
fn waits_end_with_their_session_their_handle_and_by_their_number() {
    let mut w = World::new(100);
    let other = |ask: Ask| Ask { session: S[1], ..ask };
    assert_eq!(w.now(bytes(1, (0, 9), WRITE)), 0);
    assert_eq!(w.now(other(bytes(1, (20, 29), WRITE))), 0);
    let mine = w.waits(waiting(bytes(2, (20, 20), WRITE)));
    let theirs = w.waits(waiting(other(bytes(2, (0, 0), WRITE))));
    let answers = w.table.cancel(S[0], theirs);
    assert!(answers.is_empty(), "another session's wait has another number");
    let answers = w.table.end(S[1]);
    assert_eq!(w.give(answers), [(theirs, libc::ESTALE), (mine, 0)].into());
    assert_eq!(w.now(other(bytes(1, (50, 50), READ))), libc::ESTALE);
    let last = w.waits(waiting(bytes(2, (0, 0), WRITE)));
    let answers = w.table.close(S[0], 2, false);
    assert_eq!(w.give(answers), [].into(), "a kernel waits through no handle that it closes");
    let answers = w.table.close(S[0], 2, true);
    assert_eq!(w.give(answers), [(last, libc::EBADF)].into());
    let answers = w.table.end(S[0]);
    assert_eq!(w.give(answers), [].into());
    assert!(w.table.spaces.is_empty() && w.table.waits.is_empty() && w.table.waiting.is_empty());
}

/// What was taken through one handle goes with it, whatever the owner took through another.
#[test]
fn locks_end_with_their_handle() {
    let mut w = World::new(100);
    assert_eq!(w.now(bytes(1, (0, 9), WRITE)), 0);
    assert_eq!(w.now(Ask { handle: 77, ..bytes(1, (5, 14), WRITE) }), 0);
    let wait = w.waits(waiting(bytes(2, (9, 10), READ)));
    let answers = w.table.close(S[0], 1, false);
    assert_eq!(w.give(answers), [].into());
    assert_eq!(w.now(bytes(3, (0, 4), WRITE)), 0);
    let answers = w.table.close(S[0], 77, false);
    assert_eq!(w.give(answers), [(wait, 0)].into());
}

/// A lock of a file that may be about to be closed is waited for, and no other one.
#[test]
fn a_file_that_may_be_closed_is_waited_for() {
    let mut w = World::new(100);
    let mut brief = waiting(whole(2, WRITE));
    brief.ask.wait.as_mut().unwrap().until = WaitUntil::Closed;
    let closes = |w: &mut World, handle: u64| {
        let answers = w.table.close_descriptor(&Ask { handle, ..bytes(90, (0, 9), None) });
        w.give(answers)
    };
    assert_eq!(w.now(whole(1, READ)), 0);
    assert_eq!(w.now(brief), libc::EAGAIN);
    assert_eq!(closes(&mut w, 1), [].into());
    let wait = w.waits(brief);
    let answers = w.table.close(S[0], 1, false);
    assert_eq!(w.give(answers), [(wait, 0)].into());
    assert_eq!(w.now(whole(2, None)), 0);
    // Its end ends the doubt.
    assert_eq!(w.now(whole(1, READ)), 0);
    assert_eq!(closes(&mut w, 1), [].into());
    let wait = w.waits(brief);
    let answers = w.table.cancel(S[0], wait);
    assert_eq!(w.give(answers), [(wait, libc::EINTR)].into());
    assert_eq!(w.now(brief), libc::EAGAIN);
    // Another lock takes the place of the one that ends, or is there beside it.
    assert_eq!(closes(&mut w, 1), [].into());
    let wait = w.waits(brief);
    assert_eq!(w.now(whole(3, READ)), 0);
    let answers = w.table.close(S[0], 1, false);
    assert_eq!(w.give(answers), [(wait, libc::EAGAIN)].into());
    assert_eq!(closes(&mut w, 3), [].into());
    assert_eq!(w.now(whole(4, READ)), 0);
    assert_eq!(w.now(brief), libc::EAGAIN);
    // Without a lock that was taken through it a handle does not matter.
    assert_eq!((w.now(whole(3, None)), w.now(whole(4, None))), (0, 0));
    assert!(w.table.sessions[&S[0]].closing.is_empty());
    // The owner's own bytes are given up at once.
    assert_eq!(w.now(bytes(5, (0, 9), WRITE)), 0);
    let next = w.waits(waiting(bytes(6, (0, 0), WRITE)));
    let answers = w.table.close_descriptor(&Ask { handle: 77, ..bytes(5, (0, 99), None) });
    assert_eq!(w.give(answers), [(next, 0)].into());
}

/// Beyond the bounds the answer is ENOLCK, and a user that has much leaves as much to others.
#[test]
fn locks_are_bounded() {
    let mut w = World::new(3);
    assert_eq!(w.now(bytes(1, (0, 9), WRITE)), 0);
    assert_eq!(w.now(bytes(1, (20, 20), WRITE)), 0);
    assert_eq!(w.now(bytes(1, (5, 5), None)), 0, "three parts");
    assert_eq!(w.now(bytes(1, (2, 2), None)), libc::ENOLCK);
    assert_eq!(w.now(bytes(2, (50, 50), READ)), libc::ENOLCK);
    assert_eq!(w.now(waiting(bytes(2, (0, 0), READ))), libc::ENOLCK);
    assert_eq!(w.now(bytes(1, (0, 20), None)), 0);
    assert_eq!(w.now(bytes(2, (50, 50), READ)), 0);

    let mut room = Room::default();
    S.iter().for_each(|session| room.begin(*session, u64::MAX));
    let users = [(S[0], 1), (S[0], 2), (S[1], 1)];
    let full = |room: &mut Room, user| {
        let mut taken = 0;
        while room.has(user, 1) {
            room.take(user, 1);
            taken += 1;
        }
        taken
    };
    let taken = users.map(|user| full(&mut room, user));
    assert_eq!(taken, [MOST / 2, MOST / 4, MOST / 8]);
    room.give_back(users[0], MOST / 2);
    assert!(room.has(users[2], 1));
}

/// Many owners of one file are refused before a comparison with all of them takes long.
#[test]
fn owners_of_one_file_are_bounded() {
    let mut w = World::new(u64::MAX);
    for owner in 0..OF_ONE_FILE as u64 {
        assert_eq!(w.now(whole(owner, READ)), 0);
    }
    assert_eq!(w.now(whole(OF_ONE_FILE as u64, READ)), libc::ENOLCK);
    assert_eq!(w.now(whole(5, READ)), 0);
    assert_eq!(w.now(Ask { ino: 6, ..whole(OF_ONE_FILE as u64, READ) }), 0);
}

const FILES: [InodeNr; 2] = [0, 1];
const BYTES: u64 = 8;
const OWNERS: u64 = 5;

/// The simplest table: which owner has each byte, and how, and the waits in their order.
#[derive(Default)]
struct Model {
    /// By file, byte and owner.
    held: BTreeMap<(InodeNr, u64, OwnerId), LockKind>,
    waits: Vec<(u64, Ask)>,
}

impl Model {
    fn blockers(&self, ask: &Ask) -> BTreeSet<OwnerId> {
        let kind = ask.ask.kind.expect("a lock is wanted");
        let range = ask.range();
        let others = self.held.iter().filter(|((ino, byte, owner), held)| {
            *ino == ask.ino
                && (range.first()..=range.last()).contains(byte)
                && *owner != ask.owner()
                && held.conflicts(kind)
        });
        others.map(|((_, _, owner), _)| *owner).collect()
    }

    fn apply(&mut self, ask: &Ask) {
        for byte in ask.range().first()..=ask.range().last() {
            let place = (ask.ino, byte, ask.owner());
            match ask.ask.kind {
                Some(kind) => drop(self.held.insert(place, kind)),
                None => drop(self.held.remove(&place)),
            }
        }
    }

    /// Everybody for whom somebody waits, through any number of others.
    fn closure(&self) -> BTreeSet<(OwnerId, OwnerId)> {
        let waits = self.waits.iter().filter(|(_, ask)| ask.detects());
        let edges = waits.flat_map(|(_, a)| self.blockers(a).into_iter().map(|b| (a.owner(), b)));
        let mut all: BTreeSet<(OwnerId, OwnerId)> = edges.collect();
        loop {
            let more: Vec<_> = all
                .iter()
                .flat_map(|(a, b)| all.iter().filter(move |(c, _)| c == b).map(|(_, d)| (*a, *d)))
                .filter(|pair| !all.contains(pair))
                .collect();
            if more.is_empty() {
                return all;
            }
            all.extend(more);
        }
    }

    /// After `ask` was granted: which waits have become hopeless.
    fn break_circles(&mut self, ask: &Ask, told: &mut BTreeMap<u64, i32>) {
        for (number, wait) in self.waits.clone() {
            let hopeless = wait.detects()
                && self.blockers(&wait).contains(&ask.owner())
                && self.closure().contains(&(ask.owner(), wait.owner()));
            if hopeless {
                self.waits.retain(|(n, _)| *n != number);
                told.insert(number, libc::EDEADLK);
            }
        }
    }

    fn go_on(&mut self, told: &mut BTreeMap<u64, i32>) {
        while let Some(at) = self.waits.iter().position(|(_, ask)| self.blockers(ask).is_empty()) {
            let (number, ask) = self.waits.remove(at);
            self.apply(&ask);
            told.insert(number, 0);
            self.break_circles(&ask, told);
        }
    }

    fn ask(&mut self, number: u64, ask: &Ask) -> BTreeMap<u64, i32> {
        let mut told = BTreeMap::new();
        let blocked = ask.ask.kind.is_some() && !self.blockers(ask).is_empty();
        if !blocked {
            self.apply(ask);
            told.insert(number, 0);
            if ask.ask.kind.is_some() {
                self.break_circles(ask, &mut told);
            }
        } else if ask.ask.wait.is_none() {
            told.insert(number, libc::EAGAIN);
        } else {
            self.waits.push((number, *ask));
            if ask.detects() && self.closure().contains(&(ask.owner(), ask.owner())) {
                self.waits.pop();
                told.insert(number, libc::EDEADLK);
            }
        }
        self.go_on(&mut told);
        told
    }
}

/// Beside the simplest table, for drawn requests of several owners, some of which wait several
/// times at once.
#[test]
fn the_table_does_what_the_simplest_one_does() {
    let mut deadlocks = 0;
    for seed in 0..100 {
        let (mut w, mut model, mut draw) = (World::new(u64::MAX), Model::default(), Draw(seed));
        for step in 0..120 {
            let first = draw.below(BYTES);
            let last = first + draw.below((BYTES - first).min(4));
            let kind = [None, READ, WRITE, WRITE][draw.below(4) as usize];
            let mut ask = bytes(draw.below(OWNERS), (first, last), kind);
            ask.ino = FILES[draw.below(2) as usize];
            ask.session = S[draw.below(2) as usize];
            let until = if draw.below(4) > 0 { WaitUntil::Process } else { WaitUntil::File };
            let wait = LockWait { number: 0, until };
            ask.ask.wait = (draw.below(3) > 0).then_some(wait);
            let (number, told) = w.ask(ask);
            let expected = model.ask(number, &ask);
            assert_eq!(told, expected, "seed {seed}, step {step}: {ask:?}");
            deadlocks += told.values().filter(|e| **e == libc::EDEADLK).count();
            let closed = model.closure().iter().any(|(a, b)| a == b);
            assert!(!closed, "seed {seed}, step {step}: nobody waits for itself");
            if draw.below(8) == 0 && !model.waits.is_empty() {
                let at = draw.below(model.waits.len() as u64) as usize;
                let (number, ask) = model.waits.remove(at);
                let answers = w.table.cancel(ask.session, number);
                assert_eq!(w.give(answers), [(number, libc::EINTR)].into());
            }
        }
        let ended = S.map(|session| {
            let answers = w.table.end(session);
            w.give(answers).len()
        });
        assert_eq!(ended[0] + ended[1], model.waits.len(), "seed {seed}");
        assert!(w.table.spaces.is_empty() && w.table.waiting.is_empty(), "seed {seed}");
    }
    assert!(deadlocks > 100, "circles were drawn: {deadlocks}");
}
