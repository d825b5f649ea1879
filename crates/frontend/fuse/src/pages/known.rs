//! What the kernel of a mount with a front may know: names, listings and pages that it was told of
//! and that count until they are taken back, or their time is over.
//!
//! Something is noted *before* the request is carried out whose answer tells it. What another front
//! end changes after that is looked for here, so an answer with older state is always one of which
//! the kernel is told.
//!
//! On a mount that is not shared others change nothing but files that are leased to them. What its
//! kernel was told counts until it is taken back, so nothing is noted of that, and it may have
//! pages of every file. Only files of which pages were taken back are looked at more closely.

use siftfs_base::InodeNr;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long names and attributes count at most, while other front ends may change them.
pub(crate) const TERM: Duration = Duration::from_secs(2);
/// How long they count while nobody else may.
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
/// The kernel counts from when it has the answer, which is later than when we gave it.
pub(crate) const LATER: Duration = Duration::from_millis(200);
/// How long a directory is left alone in which two front ends waited for each other.
const ALONE: Duration = Duration::from_secs(10);
/// A name that would count for a shorter time counts for no time: so two mounts that change names
/// in turns soon do not wait for each other.
const LEAST: Duration = Duration::from_millis(100);
/// Names that are remembered one by one; with more, each name of their directories counts as
/// known.
const MOST_NAMES: usize = 1 << 18;

/// A moment in the order in which things were noted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Stamp(u64);

/// Into how many parts the files of a mount fall, to tell by one look at memory whether something
/// may be noted of one.
const PARTS: usize = 256;

/// How many files of each part are noted.
struct Marks(Box<[AtomicU32]>);

impl Marks {
    fn new() -> Self {
        Self((0..PARTS).map(|_| AtomicU32::new(0)).collect())
    }

    fn of(&self, ino: InodeNr) -> &AtomicU32 {
        let part = usize::try_from(ino).unwrap_or(0) % PARTS;
        self.0.get(part).expect("there are as many")
    }
}

/// What the kernel may know.
pub(crate) struct Known {
    /// The mount is one of several, or may be.
    shared: bool,
    /// Nobody else may change what the kernel knows. What it is told is not noted, and does not run
    /// out; pages and listings are noted all the same.
    alone: AtomicBool,
    hasher: RandomState,
    table: Mutex<Table>,
    /// The files of [`Table::taken`].
    marks: Marks,
    /// Until when it is certain that the session is there.
    certain: Certain,
}

/// Until when what is told counts at most, with or without others, because the session is one over
/// a wire, which may be lost.
struct Certain(AtomicU64);

impl Certain {
    /// In microseconds of this machine; this one means that no session can be lost.
    const ALWAYS: u64 = u64::MAX;

    /// By a clock that goes on while the machine is suspended.
    fn now() -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now = Duration::try_from(now).unwrap_or_default();
        u64::try_from(now.as_micros()).unwrap_or(Self::ALWAYS - 1)
    }

    fn left(&self) -> Duration {
        match self.0.load(Ordering::SeqCst) {
            Self::ALWAYS => DAY,
            until => Duration::from_micros(until.saturating_sub(Self::now())),
        }
    }
}

#[derive(Default)]
struct Table {
    stamp: u64,
    /// Names of all directories together.
    names: usize,
    dirs: HashMap<InodeNr, Dir>,
    /// Files of which it may have pages, and directories of which it may have a listing.
    cached: HashMap<InodeNr, Stamp>,
    /// How often each file is open.
    open: HashMap<InodeNr, u32>,
    /// Writes of each file whose answers wait for other front ends.
    held_back: HashMap<InodeNr, u32>,
    /// Reads of each file that are not answered.
    reads: HashMap<InodeNr, u32>,
    /// Files whose pages were taken back, and whether the kernel has read some since.
    taken: HashMap<InodeNr, bool>,
}

#[derive(Default)]
struct Dir {
    /// Each name that may be known, by its hash.
    names: HashMap<u64, Name>,
    /// Until when any name may be known.
    all: Option<Instant>,
    /// When another front end last changed names here.
    changed: Option<Instant>,
    /// Until then no name is told for any time: another front end waited for this kernel until what
    /// it knew was over.
    left_alone: Option<Instant>,
}

/// What is noted of a name.
#[derive(Clone, Copy, Default)]
struct Name {
    /// Answers under way that tell it.
    asking: u32,
    /// Until when one counts that was given.
    until: Option<Instant>,
}

impl Name {
    /// Until when it may be known, if it may.
    fn known(self, now: Instant) -> Option<Instant> {
        let asking = (self.asking > 0).then(|| now + TERM + LATER);
        self.until.max(asking).filter(|until| *until > now)
    }
}

impl Dir {
    /// How long a name counts that is told now: an eighth of the time for which other front ends
    /// have left the directory alone, so that two that change it in turns soon wait for nothing.
    fn valid(&self, now: Instant) -> Duration {
        if self.left_alone.is_some_and(|until| now < until) {
            return Duration::ZERO;
        }
        let quiet = |at| now.saturating_duration_since(at) / 8;
        let valid = self.changed.map_or(TERM, quiet).min(TERM);
        if valid >= LEAST { valid } else { Duration::ZERO }
    }

    /// Until when a name may be known, if it may.
    fn known(&self, hash: u64, now: Instant) -> Option<Instant> {
        let all = self.all.filter(|until| *until > now);
        self.names.get(&hash).and_then(|name| name.known(now)).max(all)
    }

    fn may_forget(&self, now: Instant) -> bool {
        self.names.is_empty()
            && self.all.is_none_or(|until| until <= now)
            && self.changed.is_none_or(|at| at + 8 * TERM <= now)
            && self.left_alone.is_none_or(|until| until <= now)
    }
}

impl Table {
    fn next(&mut self) -> Stamp {
        self.stamp += 1;
        Stamp(self.stamp)
    }

    /// What is noted of a name, to be changed.
    fn name(&mut self, dir: InodeNr, hash: u64) -> &mut Name {
        if self.names >= MOST_NAMES {
            self.sweep(Instant::now());
        }
        let names = &mut self.dirs.entry(dir).or_default().names;
        self.names += usize::from(!names.contains_key(&hash));
        names.entry(hash).or_default()
    }

    /// Forgets names whose time is over; if that does not help, single names become all names.
    fn sweep(&mut self, now: Instant) {
        for dir in self.dirs.values_mut() {
            dir.names.retain(|_, name| name.known(now).is_some());
        }
        self.names = self.dirs.values().map(|dir| dir.names.len()).sum();
        if self.names > MOST_NAMES / 2 {
            for dir in self.dirs.values_mut() {
                let told = dir.names.values().filter_map(|name| name.until);
                dir.all = told.chain(dir.all).max();
                dir.names.retain(|_, name| name.asking > 0);
            }
            self.names = self.dirs.values().map(|dir| dir.names.len()).sum();
        }
        self.dirs.retain(|_, dir| !dir.may_forget(now));
    }
}

impl Known {
    /// Nothing is known, on a mount that is shared or is not.
    pub(crate) fn new(shared: bool) -> Self {
        let (alone, hasher) = (AtomicBool::new(!shared), RandomState::new());
        let (table, marks) = (Mutex::default(), Marks::new());
        let certain = Certain(AtomicU64::new(Certain::ALWAYS));
        Self { shared, alone, hasher, table, marks, certain }
    }

    /// Is the mount shared?
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// May others change what the kernel knows?
    pub(crate) fn share(&self, others: bool) {
        if self.shared {
            self.alone.store(!others, Ordering::SeqCst);
        }
    }

    /// Is it noted what the kernel reads and writes of the file? Where the mount is not shared,
    /// from when pages of it were taken back.
    pub(crate) fn watches(&self, ino: InodeNr) -> bool {
        self.shared || self.marks.of(ino).load(Ordering::SeqCst) > 0
    }

    /// May nobody else change what the kernel knows?
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::SeqCst)
    }

    /// How long attributes count that are told now.
    pub(crate) fn attributes(&self) -> Duration {
        let usual = if self.is_alone() { DAY } else { TERM };
        usual.min(self.certain.left())
    }

    /// What is told from here on counts for this time at most, from now on.
    pub(crate) fn trust(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(Certain::ALWAYS);
        let until = Certain::now().saturating_add(time).min(Certain::ALWAYS - 1);
        self.certain.0.store(if time == 0 { 0 } else { until }, Ordering::SeqCst);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hash(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one(name)
    }

    /// The present moment in the order of what is noted.
    pub(crate) fn moment(&self) -> Stamp {
        Stamp(self.table().stamp)
    }

    /// An answer is about to tell what a name stands for. [`Known::told`] or [`Known::untold`]
    /// follows.
    pub(crate) fn asked(&self, dir: InodeNr, name: &[u8]) {
        if self.is_alone() {
            return;
        }
        let hash = self.hash(name);
        self.table().name(dir, hash).asking += 1;
    }

    /// The answer is about to be given: how long what it tells of the name counts.
    pub(crate) fn told(&self, dir: InodeNr, name: &[u8]) -> Duration {
        let certain = self.certain.left();
        if self.is_alone() {
            return DAY.min(certain);
        }
        let (hash, now) = (self.hash(name), Instant::now());
        let mut table = self.table();
        let valid = table.dirs.get(&dir).map_or(Duration::ZERO, |entry| entry.valid(now));
        let valid = valid.min(certain);
        let name = table.name(dir, hash);
        name.asking = name.asking.saturating_sub(1);
        name.until = if valid.is_zero() { name.until } else { Some(now + valid + LATER) };
        valid
    }

    /// The answer tells nothing of the name.
    pub(crate) fn untold(&self, dir: InodeNr, name: &[u8]) {
        if self.is_alone() {
            return;
        }
        let hash = self.hash(name);
        let mut table = self.table();
        let name = table.name(dir, hash);
        name.asking = name.asking.saturating_sub(1);
    }

    /// The kernel is about to give what it knows by one name to the other, with the time for which
    /// that counts, and perhaps the other way round.
    pub(crate) fn moves(&self, from: (InodeNr, &[u8]), to: (InodeNr, &[u8])) {
        if self.is_alone() {
            return;
        }
        let now = Instant::now();
        let mut table = self.table();
        let until = |table: &Table, (dir, name): (InodeNr, &[u8])| {
            table.dirs.get(&dir).and_then(|dir| dir.known(self.hash(name), now))
        };
        let until = until(&table, from).max(until(&table, to));
        for (dir, name) in [from, to] {
            if until.is_some() {
                let name = table.name(dir, self.hash(name));
                name.until = name.until.max(until);
            }
        }
    }

    /// Names of a directory that another front end changed: of those that the kernel may know
    /// these, and until when.
    pub(crate) fn changed<'a>(
        &self,
        dir: InodeNr,
        names: impl Iterator<Item = &'a [u8]>,
    ) -> Vec<(&'a [u8], Instant)> {
        let now = Instant::now();
        let mut table = self.table();
        let entry = table.dirs.entry(dir).or_default();
        entry.changed = Some(now);
        let until = |name: &[u8]| entry.known(self.hash(name), now);
        names.filter_map(|name| until(name).map(|until| (name, until))).collect()
    }

    /// Another front end waited for names of the directory until their time was over. Two that wait
    /// for each other do so once.
    pub(crate) fn leave_alone(&self, dir: InodeNr) {
        let until = Instant::now() + ALONE;
        self.table().dirs.entry(dir).or_default().left_alone = Some(until);
    }

    /// An answer is about to bring pages of a file, or a part of a directory's listing.
    pub(crate) fn pages(&self, ino: InodeNr) {
        if !self.shared {
            return;
        }
        let mut table = self.table();
        let stamp = table.next();
        table.cached.insert(ino, stamp);
    }

    /// Pages of a file are about to be taken back.
    pub(crate) fn takes(&self, ino: InodeNr) {
        let mut table = self.table();
        if let Entry::Vacant(entry) = table.taken.entry(ino) {
            entry.insert(false);
            self.marks.of(ino).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The kernel sends what a program wrote through its cache. Has it read the file again since
    /// pages were taken back? While the write was on its way a page of it may have been taken, and
    /// read again without what was written: the kernel takes its own write for known.
    pub(crate) fn may_have_lost(&self, ino: InodeNr) -> bool {
        if !self.watches(ino) {
            return false;
        }
        let mut table = self.table();
        let lost = table.taken.get(&ino) == Some(&true);
        if lost {
            self.keeps(&mut table, ino);
        }
        lost
    }

    /// The kernel loses nothing of the file any more.
    fn keeps(&self, table: &mut Table, ino: InodeNr) {
        if table.taken.remove(&ino).is_some() {
            self.marks.of(ino).fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A read of the file is under way.
    pub(crate) fn reads(&self, ino: InodeNr) {
        let mut table = self.table();
        *table.reads.entry(ino).or_default() += 1;
        if let Some(again) = table.taken.get_mut(&ino) {
            *again = true;
        }
    }

    /// It is answered.
    pub(crate) fn read(&self, ino: InodeNr) {
        less(&mut self.table().reads, ino);
    }

    /// May the kernel have such?
    pub(crate) fn has_pages(&self, ino: InodeNr) -> Option<Stamp> {
        match self.shared {
            true => self.table().cached.get(&ino).copied(),
            false => Some(Stamp(0)),
        }
    }

    /// The kernel has dropped all that it had at that moment.
    pub(crate) fn dropped(&self, ino: InodeNr, at: Stamp) {
        let mut table = self.table();
        if table.cached.get(&ino).is_some_and(|stamp| *stamp <= at) {
            table.cached.remove(&ino);
        }
    }

    /// The kernel knew the inode at no later moment than that.
    pub(crate) fn forgotten(&self, ino: InodeNr, at: Stamp) {
        self.dropped(ino, at);
        let mut table = self.table();
        if !table.cached.contains_key(&ino) {
            self.keeps(&mut table, ino);
        }
    }

    /// A file was opened.
    pub(crate) fn opened(&self, ino: InodeNr) {
        if !self.shared {
            return;
        }
        *self.table().open.entry(ino).or_default() += 1;
    }

    /// It was closed once.
    pub(crate) fn closed(&self, ino: InodeNr) {
        if !self.shared {
            return;
        }
        less(&mut self.table().open, ino);
    }

    /// May it be open?
    pub(crate) fn is_open(&self, ino: InodeNr) -> bool {
        !self.shared || self.table().open.contains_key(&ino)
    }

    /// The answer of a write waits for other front ends.
    pub(crate) fn hold_back(&self, ino: InodeNr) {
        *self.table().held_back.entry(ino).or_default() += 1;
    }

    /// It is given.
    pub(crate) fn answered(&self, ino: InodeNr) {
        less(&mut self.table().held_back, ino);
    }

    /// Does the answer of a write of this file wait, and nothing else keep its pages locked?
    pub(crate) fn is_held_back(&self, ino: InodeNr) -> bool {
        let table = self.table();
        table.held_back.contains_key(&ino) && !table.reads.contains_key(&ino)
    }
}

/// One less of `ino`.
fn less(counts: &mut HashMap<InodeNr, u32>, ino: InodeNr) {
    if let Some(count) = counts.get_mut(&ino) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&ino);
        }
    }
}

#[cfg(test)]
#[path = "known_tests.rs"]
mod tests;
