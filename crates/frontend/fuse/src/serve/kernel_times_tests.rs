//! Every order of what a kernel, programs and two changes of the daemon's do with one file's times.

use super::*;
use std::collections::HashSet;

/// Which of the rules is left out, to see that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The kernel's times do not wait for a change.
    Turns,
    /// They count while the kernel has not taken a change.
    LeavingOut,
    /// The kernel is told while it has older times under way.
    Waiting,
    /// It is asked for its times while utimensat(2) is under way.
    Lock,
    /// It is not asked for its times.
    Asking,
    /// Its answer counts although it has sent times since.
    Sent,
}

/// A change by the daemon, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Change {
    step: u32,
    value: u32,
    /// What was read from the daemon or from the kernel.
    read: u32,
}

const ALL_DONE: u32 = 13;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    times: Times,
    daemon: u32,
    kernel: u32,
    dirty: bool,
    /// Times under way from the kernel, and whether they are being carried out.
    flight: Option<(u32, bool)>,
    changes: Vec<Change>,
    /// Stores that are left, each with a later time than all before.
    stores: u32,
    /// utimensat(2): `None` is over, else how far it is.
    user: Option<u32>,
    /// What must be there in the end, if that is certain.
    last: Option<u32>,
}

const USER: u32 = 50;

impl World {
    fn new(changes: u32, stores: u32, user: bool) -> Self {
        let change = |i| Change { step: 0, value: 100 + i, read: 0 };
        Self {
            times: Times::default(),
            daemon: 0,
            kernel: 1,
            dirty: true,
            flight: None,
            changes: (0..changes).map(change).collect(),
            stores,
            user: user.then_some(0),
            last: None,
        }
    }

    /// The kernel's lock of the file is held.
    fn locked(&self) -> bool {
        self.user == Some(1)
    }

    /// No change is between its beginning and its end.
    fn calm(&self) -> bool {
        self.changes.iter().all(|c| c.step == 0 || c.step == ALL_DONE)
    }

    /// Every state that can follow.
    fn next(&self, without: Without) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |follows: Option<Self>| all.extend(follows);
        add(self.clone().store());
        add(self.clone().build());
        add(self.clone().deliver(without));
        add(self.clone().user());
        for i in 0..self.changes.len() {
            add(self.clone().change(i, without));
        }
        all
    }

    fn store(mut self) -> Option<Self> {
        if self.stores == 0 || self.locked() {
            return None;
        }
        self.stores -= 1;
        self.kernel = 20 - self.stores;
        self.dirty = true;
        self.last = self.calm().then_some(self.kernel);
        Some(self)
    }

    fn build(mut self) -> Option<Self> {
        if !self.dirty || self.flight.is_some() {
            return None;
        }
        self.dirty = false;
        self.flight = Some((self.kernel, false));
        Some(self)
    }

    fn deliver(mut self, without: Without) -> Option<Self> {
        let (value, carried_out) = self.flight?;
        if carried_out {
            self.daemon = value;
            self.times.end_turn();
            self.flight = None;
            return Some(self);
        }
        let mut times = self.times.clone();
        if without == Without::LeavingOut {
            times.untold = 0;
        }
        if without == Without::Turns {
            times.busy = false;
        }
        match times.sent() {
            Fate::Wait => return None,
            Fate::LeftOut => self.flight = None,
            Fate::Mtime => unreachable!("no change here is of the ctime alone"),
            Fate::Count => {
                (self.times.busy, self.times.sent) = (true, true);
                self.flight = Some((value, true));
            }
        }
        Some(self)
    }

    /// The kernel first sends what it has, then the new time, and takes that when it is answered.
    fn user(mut self) -> Option<Self> {
        match self.user? {
            0 if !self.dirty && self.flight.is_none() => {
                match self.times.sent() {
                    Fate::Wait => return None,
                    Fate::LeftOut => {}
                    Fate::Mtime => unreachable!("no change here is of the ctime alone"),
                    Fate::Count => {
                        self.daemon = USER;
                        self.times.end_turn();
                    }
                }
                self.user = Some(1);
            }
            1 => {
                self.kernel = USER;
                self.user = None;
                self.last = self.calm().then_some(USER);
            }
            _ => return None,
        }
        Some(self)
    }

    fn change(mut self, i: usize, without: Without) -> Option<Self> {
        let mut change = self.changes[i].clone();
        let may = match change.step {
            0 => self.times.take_turn(),
            1 => {
                self.daemon = change.value;
                self.last = Some(change.value);
                true
            }
            2 => {
                self.times.changed(What::All);
                self.times.end_turn();
                true
            }
            3 => self.times.tell(),
            4 => {
                change.read = self.daemon;
                true
            }
            5 if self.locked() => false,
            5 => {
                self.kernel = change.read;
                true
            }
            6 => without == Without::Waiting || self.flight.is_none(),
            7 => {
                self.times.taken(What::All);
                true
            }
            8 => without == Without::Lock || !self.locked(),
            9 => {
                change.read = self.kernel;
                true
            }
            10 => {
                self.times.sent &= without != Without::Sent;
                match self.times.answered() {
                    _ if without == Without::Asking => change.step = 11,
                    Fate::Wait => return None,
                    Fate::LeftOut => change.step = 11,
                    Fate::Mtime => unreachable!("an answer counts, or it does not"),
                    Fate::Count => {}
                }
                true
            }
            11 => {
                self.daemon = change.read;
                self.times.end_turn();
                true
            }
            12 => {
                self.times.told();
                true
            }
            _ => false,
        };
        change.step += 1;
        self.changes[i] = change;
        may.then_some(self)
    }

    /// Both have the same times in the end, and the last ones where one was the last.
    fn is_right(&self) -> bool {
        self.daemon == self.kernel && self.last.is_none_or(|last| last == self.daemon)
    }
}

/// Every order from `begin`: how many states there are, and the first one that ends wrong, or that
/// stands still before the end.
fn wrong(begin: World, without: Without) -> (usize, Option<World>) {
    let (mut seen, mut open) = (HashSet::new(), vec![begin]);
    while let Some(world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        let next = world.next(without);
        if next.is_empty() {
            let over = world.changes.iter().all(|c| c.step == ALL_DONE) && world.user.is_none();
            let quiet = over && world.flight.is_none() && world.times.is_quiet();
            if !quiet || !world.is_right() {
                return (seen.len(), Some(world));
            }
        }
        open.extend(next);
    }
    (seen.len(), None)
}

#[test]
fn no_order_loses_times() {
    for (changes, stores, user) in [(1, 2, false), (1, 1, true), (2, 1, false), (2, 1, true)] {
        let (states, found) = wrong(World::new(changes, stores, user), Without::Nothing);
        assert_eq!(found, None, "{changes} changes, {stores} stores, {user}");
        assert!(states > 300, "{states} states are not all orders");
    }
}

#[test]
fn without_any_of_the_rules_an_order_does() {
    use Without as W;
    for without in [W::Turns, W::LeavingOut, W::Waiting, W::Lock, W::Asking, W::Sent] {
        let (_, found) = wrong(World::new(1, 2, without == W::Lock), without);
        assert!(found.is_some(), "{without:?}");
    }
}

/// Waiting and waking, by threads: nobody stands still, and no file is remembered for ever.
#[test]
fn turns_end() {
    let times: Arc<KernelTimes> = Arc::default();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let times = &times;
            scope.spawn(move || {
                for round in 0..500 {
                    let turn = times.turn([thread % 2, 1, 2]);
                    let untold = turn.changed(1);
                    drop(turn);
                    drop(times.sent(2));
                    if round % 3 == 0 {
                        continue;
                    }
                    let telling = untold.tell();
                    telling.taken()();
                    drop(telling.answered());
                }
            });
            scope.spawn(move || (0..500).for_each(|_| drop(times.sent(1))));
        }
    });
    assert!(times.files().is_empty(), "{:?}", times.files());
}

/// While the kernel has not taken a ctime of the daemon's, its mtime counts, and its ctime does
/// not. What it is asked for afterwards counts if it has sent nothing since.
#[test]
fn a_ctime_alone_leaves_the_mtime_to_the_kernel() {
    let mut times = Times::default();
    assert!(times.take_turn());
    times.changed(What::Ctime);
    assert_eq!(times.sent(), Fate::Wait, "the daemon is changing the file");
    times.end_turn();
    assert_eq!(times.sent(), Fate::Mtime);
    times.end_turn();
    assert!(times.tell());
    assert_eq!(times.answered(), Fate::LeftOut, "the kernel has not taken it");
    times.taken(What::Ctime);
    assert_eq!(times.answered(), Fate::Count);
    times.end_turn();
    assert_eq!(times.sent(), Fate::Count);
    assert_eq!(times.answered(), Fate::LeftOut, "it has sent younger ones");
    times.end_turn();
    times.changed(What::All);
    times.changed(What::Ctime);
    assert_eq!(times.sent(), Fate::LeftOut, "another change was of all times");
    times.taken(What::All);
    assert_eq!(times.sent(), Fate::Mtime);
    times.end_turn();
    times.taken(What::Ctime);
    times.told();
    assert!(times.is_quiet());
}
