//! One writer of a round: what it does is drawn from a seed, made through its door, and noted in
//! the book before it begins and when it returned.

use super::book::{
    Book, COLD, HOT, PAGED, SEATS, SMALL, Scope, content, generation, log, names, path_of, shape,
    slot,
};
use super::doors::{Door, Embedded, How, Mount};
use super::record::{Found, Stamp, read};
use crate::wire::Wire;
use rustix::io::Errno;
use siftfs_base::Rng;
use siftfs_kills::signals::{Signals, is_gone};
use siftfs_rig::descriptors::own_table;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The directory of names.
pub const NAMES: &str = "names";
/// The file that all append to.
pub const LOG: &str = "log";

/// The path of a record file.
#[must_use]
pub fn path_of_file(file: usize) -> String {
    format!("records-{file}")
}

/// Through which door the writer of a seat works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seat {
    Mount(usize),
    Program,
    Holder,
}

impl Seat {
    fn of(number: usize) -> Self {
        match number {
            0 | 1 => Self::Mount(0),
            2 | 3 => Self::Mount(1),
            4 => Self::Program,
            _ => Self::Holder,
        }
    }
}

/// Where the writers of a round find their doors.
pub struct Doors {
    /// The mounts.
    pub mounts: [PathBuf; 2],
    /// Where the process that has the volume listens.
    pub socket: PathBuf,
}

impl Doors {
    fn open(&self, seat: Seat) -> io::Result<Box<dyn Door>> {
        Ok(match seat {
            Seat::Mount(number) => Box::new(Mount::new(&self.mounts[number])),
            Seat::Program | Seat::Holder => {
                let mut wire = greet(&self.socket)?;
                wire.send(&["work"], &[])?;
                Box::new(Embedded { wire, holds: seat == Seat::Holder })
            }
        })
    }
}

fn greet(socket: &Path) -> io::Result<Wire> {
    Wire::connect(socket).map_err(|_| io::Error::from_raw_os_error(libc::ENOTCONN))
}

/// The seat that changes slot `slot` of a file in this round: seats lie side by side in every
/// block of small slots, and four pages together belong to one of them.
fn seat_of_slot(file: usize, slot: usize, round: u64) -> usize {
    let group = if PAGED.contains(&file) { slot / 4 } else { slot };
    (group + round as usize) % SEATS
}

fn seat_of_name(name: usize, round: u64) -> usize {
    (name + round as usize) % SEATS
}

/// Says in the book which writer has which place in this round.
pub fn give_out(book: &Book, round: u64) {
    let number = |seat: usize| round * SEATS as u64 + seat as u64 + 1;
    for file in 0..PAGED.end {
        for at in 0..shape(file).0 {
            book.give(slot(file, at), number(seat_of_slot(file, at, round)));
        }
    }
    for seat in 0..SEATS {
        book.give(log(seat), number(seat));
    }
    for name in names() {
        let writer = number(seat_of_name(name, round));
        book.give(name, writer);
        book.give(content(name), writer);
    }
}

/// A writer.
pub struct Writer<'a> {
    number: usize,
    round: u64,
    rng: Rng,
    book: &'a Book,
    begun: Instant,
    /// What it did, with the time in microseconds.
    pub story: Vec<String>,
}

/// A call failed, or showed what it may not.
enum Ended {
    Refused(io::Error),
    Wrong(String),
}

impl From<io::Error> for Ended {
    fn from(e: io::Error) -> Self {
        Self::Refused(e)
    }
}

impl<'a> Writer<'a> {
    /// The writer of a seat.
    #[must_use]
    pub fn new(number: usize, round: u64, seed: u64, book: &'a Book, begun: Instant) -> Self {
        Self { number, round, rng: Rng::new(seed), book, begun, story: Vec::new() }
    }

    /// Works until it is told to stop, its door is gone, or something is wrong.
    pub fn run(&mut self, doors: &Doors, signals: &Signals) {
        let ended = self.work(doors, signals);
        let gone =
            |e: &io::Error| signals.is_dying() && Errno::from_io_error(e).is_some_and(is_gone);
        let why = match ended {
            Ok(()) => return,
            Err(Ended::Refused(e)) if gone(&e) => return,
            Err(Ended::Refused(e)) => e.to_string(),
            Err(Ended::Wrong(why)) => why,
        };
        let told = self.story.len().saturating_sub(8);
        let last = self.story[told..].join("\n  ");
        signals.fail(format!("seat {} in round {}: {why}\n  {last}", self.number, self.round));
    }

    fn work(&mut self, doors: &Doors, signals: &Signals) -> Result<(), Ended> {
        own_table()?;
        let seat = Seat::of(self.number);
        let mut door = doors.open(seat)?;
        while !signals.stopped() {
            let durable = match seat {
                Seat::Holder => self.hold(&mut *door)?,
                _ => self.step(&mut *door, seat)?,
            };
            signals.returned(durable);
            self.tell("  returned");
        }
        Ok(())
    }

    fn tell(&mut self, what: impl Into<String>) {
        let at = self.begun.elapsed().as_micros();
        self.story.push(format!("{at:8} seat {}: {}", self.number, what.into()));
    }

    /// One call, or a few. True if it promised durability.
    fn step(&mut self, door: &mut dyn Door, seat: Seat) -> Result<bool, Ended> {
        let on_mount = matches!(seat, Seat::Mount(_));
        match self.rng.below(100) {
            0..32 => self.write(door, HOT, How::Plain),
            32..34 => self.write(door, COLD, How::Plain),
            34..42 => self.write(door, PAGED, How::Plain),
            42..46 if on_mount => self.write(door, HOT, How::Durable),
            46..50 if on_mount => self.write(door, PAGED, How::Mapped),
            50..58 => self.append(door),
            58..70 => self.look(door),
            70..82 => self.names(door),
            82..86 => self.sync_names(door),
            86..88 if !on_mount => self.sync(Scope::All, "everything", || door.sync_all()),
            _ => self.sync_file(door),
        }
    }

    /// What the holder of leases does.
    fn hold(&mut self, door: &mut dyn Door) -> Result<bool, Ended> {
        let files = if self.rng.chance(75) { COLD } else { HOT };
        match self.rng.below(100) {
            0..25 => self.write(door, files, How::Kept),
            25..60 => self.write(door, files, How::KeptToo),
            60..66 => self.write(door, files, How::Plain),
            66..70 => self.append(door),
            70..75 => self.look(door),
            75..80 => {
                let file = self.file(files);
                let path = path_of_file(file);
                self.tell(format!("give back {path}"));
                let covered = self.book.covers(Scope::File(file));
                door.give_back(&path)?;
                self.book.given(&covered);
                Ok(false)
            }
            80..86 => self.names(door),
            _ => {
                let file = self.file(files);
                let path = path_of_file(file);
                self.sync(Scope::File(file), &path, || door.sync(&path))
            }
        }
    }

    fn file(&mut self, files: std::ops::Range<usize>) -> usize {
        files.start + self.rng.below(files.len() as u64) as usize
    }

    /// Writes one slot that is this seat's, or several side by side.
    fn write(
        &mut self,
        door: &mut dyn Door,
        files: std::ops::Range<usize>,
        how: How,
    ) -> Result<bool, Ended> {
        let file = self.file(files);
        let (slots, size) = shape(file);
        let own = |at: &usize| seat_of_slot(file, *at, self.round) == self.number;
        let all: Vec<usize> = (0..slots).filter(own).collect();
        let Some(first) = self.rng.pick(&all).copied() else { return Ok(false) };
        let most = if how == How::Mapped { 1 } else { 1 + self.rng.below(4) as usize };
        let run: Vec<usize> = (first..slots).take_while(own).take(most).collect();
        let covered = self.book.covers(Scope::File(file));
        let stamps: Vec<Stamp> = run.iter().map(|at| self.book.begin(slot(file, *at))).collect();
        let bytes: Vec<u8> = stamps.iter().flat_map(|stamp| stamp.record(size)).collect();
        let path = path_of_file(file);
        self.tell(format!("{how:?} {path} slots {run:?} {stamps:?}"));
        match door.write(&path, (first * size) as u64, &bytes, how) {
            Ok(()) if how.is_kept() => self.book.kept(&stamps),
            Ok(()) => self.book.returned(&stamps, how.is_durable()),
            // Others use the file, or did again and again; or the lease was given back.
            Err(e) if how.is_kept() && is_refused(&e) => {
                self.tell("  refused");
                return Ok(false);
            }
            Err(e) => return Err(e.into()),
        }
        if how == How::Kept {
            // What was pending when the lease was granted is durable (clause S7).
            self.book.durable(&covered);
        }
        Ok(how.is_durable() || how == How::Kept)
    }

    fn append(&mut self, door: &mut dyn Door) -> Result<bool, Ended> {
        let stamp = self.book.begin(log(self.number));
        self.tell(format!("append {stamp:?}"));
        door.append(LOG, &stamp.record(SMALL))?;
        self.book.returned(&[stamp], false);
        Ok(false)
    }

    /// A read shows what returned last, by any door.
    fn look(&mut self, door: &mut dyn Door) -> Result<bool, Ended> {
        // Each look has a lease recalled, and a file of which that happens often is leased no more.
        let file = match self.rng.below(100) {
            0..60 => self.file(HOT),
            60..68 => self.file(COLD),
            _ => self.file(PAGED),
        };
        let (slots, size) = shape(file);
        let at = self.rng.below(slots as u64) as usize;
        let item = slot(file, at);
        let path = path_of_file(file);
        self.tell(format!("read {path} slot {at}"));
        let before = self.book.settled(item);
        let mut bytes = door.read(&path, (at * size) as u64, size)?;
        let after = self.book.settled(item);
        bytes.resize(size, 0);
        let seen = match read(&bytes) {
            Found::Nothing => Some(0),
            Found::Whole(stamp) => Some(stamp.version),
            Found::Broken => None,
        };
        match (before, after) {
            (Some(wanted), Some(still)) if wanted == still && seen != Some(wanted) => {
                Err(Ended::Wrong(format!("{path} slot {at}: {seen:?} instead of {wanted}")))
            }
            _ => Ok(false),
        }
    }

    fn own_name(&mut self) -> Option<usize> {
        let own: Vec<usize> =
            names().filter(|name| seat_of_name(*name, self.round) == self.number).collect();
        self.rng.pick(&own).copied()
    }

    /// A name goes one step on; a file that is made gets its record.
    fn names(&mut self, door: &mut dyn Door) -> Result<bool, Ended> {
        let Some(name) = self.own_name() else { return Ok(false) };
        let version = self.book.version(name);
        let (from, to) = (path_of(name, version), path_of(name, version + 1));
        if from.is_none() && !self.book.is_durable(name) {
            // The next one is another file, which may be durable while the removal is not.
            return self.sync(Scope::Names, NAMES, || door.sync_dir(NAMES));
        }
        let stamp = self.book.begin_version(name, version + 1);
        self.tell(format!("name {from:?} to {to:?}"));
        match (&from, &to) {
            (None, Some(to)) => door.create(to)?,
            (Some(from), Some(to)) => door.rename(from, to)?,
            (Some(from), None) => door.remove(from)?,
            (None, None) => {}
        }
        self.book.returned(&[stamp], false);
        if let (None, Some(path)) = (&from, &to) {
            let stamp = self.book.begin_version(content(name), generation(version + 1));
            door.write(path, 0, &stamp.record(SMALL), How::Plain)?;
            self.book.returned(&[stamp], false);
        }
        Ok(false)
    }

    /// Names become durable by their directory, or by their file.
    fn sync_names(&mut self, door: &mut dyn Door) -> Result<bool, Ended> {
        let name = self.own_name().filter(|_| self.rng.chance(60));
        let path = name.and_then(|name| path_of(name, self.book.version(name)));
        match (name, path) {
            (Some(name), Some(path)) => self.sync(Scope::Name(name), &path, || door.sync(&path)),
            _ => self.sync(Scope::Names, NAMES, || door.sync_dir(NAMES)),
        }
    }

    fn sync_file(&mut self, door: &mut dyn Door) -> Result<bool, Ended> {
        let draw = self.rng.below(100);
        let file = match draw {
            0..50 => self.file(HOT),
            50..68 => self.file(COLD),
            68..82 => self.file(PAGED),
            _ => return self.sync(Scope::Log, LOG, || door.sync(LOG)),
        };
        let path = path_of_file(file);
        self.sync(Scope::File(file), &path, || door.sync(&path))
    }

    fn sync(
        &mut self,
        scope: Scope,
        what: &str,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> Result<bool, Ended> {
        self.tell(format!("sync {what}"));
        let covered = self.book.covers(scope);
        sync()?;
        self.book.durable(&covered);
        Ok(true)
    }
}

fn is_refused(e: &io::Error) -> bool {
    [Some(libc::EAGAIN), Some(libc::EBUSY)].contains(&e.raw_os_error())
}
