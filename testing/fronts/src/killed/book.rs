//! What was begun, what returned and what is durable, of every place that writers change, by
//! whichever front end. It is kept in the process that kills, and so outlives the one that is
//! killed.
//!
//! Places ("items") are slots of record files, the log's records of each seat, names, and what is
//! in the file of a name. Each has versions that are counted. Within a round one writer changes an
//! item. A sync that returned, through whatever door, makes durable what had returned before it
//! began, whatever door that came through.

use super::record::{Found, Stamp};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Writers of a round.
pub const SEATS: usize = 6;
/// Record files: those that all doors write, those that mostly the holder of leases does, and those
/// whose slots are pages, which alone are written through mappings.
pub const HOT: Range<usize> = 0..4;
/// See [`HOT`].
pub const COLD: Range<usize> = 4..40;
/// See [`HOT`].
pub const PAGED: Range<usize> = 40..44;
/// Names of each seat.
const NAMES: usize = 4;
/// Bytes of a record in the log, and in the file of a name.
pub const SMALL: usize = 64;

/// Slots of a record file, and their bytes. No slot crosses a block: the bytes of an unsynced write
/// may come back by block.
#[must_use]
pub fn shape(file: usize) -> (usize, usize) {
    if HOT.contains(&file) {
        (64, 512)
    } else if COLD.contains(&file) {
        (16, 512)
    } else {
        (24, 4096)
    }
}

/// The first item of a record file; of the file behind the last one, that of the log.
fn first(file: usize) -> usize {
    (0..file).map(|file| shape(file).0).sum()
}

/// The item of a slot.
#[must_use]
pub fn slot(file: usize, slot: usize) -> usize {
    first(file) + slot
}

/// The item of what a seat appends to the log: its version is the number of records.
#[must_use]
pub fn log(seat: usize) -> usize {
    first(PAGED.end) + seat
}

/// All names.
#[must_use]
pub fn names() -> Range<usize> {
    let start = log(SEATS);
    start..start + SEATS * NAMES
}

/// What the file of a name has in it: the version is the generation of the name.
#[must_use]
pub fn content(name: usize) -> usize {
    name + SEATS * NAMES
}

/// What a sync covers.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    /// A record file.
    File(usize),
    /// The log.
    Log,
    /// The file of a name, with its name.
    Name(usize),
    /// The directory of names.
    Names,
    /// Everything.
    All,
}

impl Scope {
    fn items(self) -> Vec<usize> {
        match self {
            Self::File(file) => (first(file)..first(file + 1)).collect(),
            Self::Log => (log(0)..log(SEATS)).collect(),
            Self::Name(name) => vec![name, content(name)],
            Self::Names => names().collect(),
            Self::All => (0..content(names().end)).collect(),
        }
    }
}

/// How the process that was judged had ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// Killed: what was durable is there.
    Death,
    /// In order: all that returned is there.
    End,
}

#[derive(Clone, Copy, Debug, Default)]
struct Item {
    /// The version that was there when the round began.
    first: u64,
    /// Its writer.
    first_writer: u64,
    /// The writer of later ones.
    writer: u64,
    begun: u64,
    returned: u64,
    /// The last one that was not kept under a lease, or was given back since.
    given: u64,
    durable: u64,
}

impl Item {
    fn least(&self, after: After) -> u64 {
        if after == After::Death { self.durable } else { self.returned }
    }

    fn allows(&self, version: u64, after: After) -> bool {
        (self.least(after)..=self.begun).contains(&version)
    }
}

/// Versions that had returned when a sync began.
pub struct Covered(Vec<(usize, u64)>);

/// The book of one volume.
pub struct Book {
    items: Mutex<Vec<Item>>,
    kept: AtomicU64,
    lost: AtomicU64,
}

impl Default for Book {
    fn default() -> Self {
        let items = Mutex::new(vec![Item::default(); content(names().end)]);
        Self { items, kept: AtomicU64::new(0), lost: AtomicU64::new(0) }
    }
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Vec<Item>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on `writer` changes the item.
    pub fn give(&self, item: usize, writer: u64) {
        self.lock()[item].writer = writer;
    }

    /// What returned last of an item.
    #[must_use]
    pub fn version(&self, item: usize) -> u64 {
        self.lock()[item].returned
    }

    /// Is that durable?
    #[must_use]
    pub fn is_durable(&self, item: usize) -> bool {
        let known = self.lock()[item];
        known.durable == known.returned
    }

    /// A change begins. Says what it makes of the item: the next version that was never begun.
    #[must_use]
    pub fn begin(&self, item: usize) -> Stamp {
        let next = self.lock()[item].begun + 1;
        self.begin_version(item, next)
    }

    /// A change begins that makes this version.
    pub fn begin_version(&self, item: usize, version: u64) -> Stamp {
        let mut items = self.lock();
        let known = &mut items[item];
        known.begun = known.begun.max(version);
        Stamp { writer: known.writer, item: item as u64, version }
    }

    /// Changes returned. They are durable, too, if the call promised that.
    pub fn returned(&self, stamps: &[Stamp], durable: bool) {
        let mut items = self.lock();
        for stamp in stamps {
            let known = &mut items[stamp.item as usize];
            (known.returned, known.given) = (stamp.version, stamp.version);
            if durable {
                known.durable = stamp.version;
            }
        }
    }

    /// A write returned whose bytes nobody else has seen.
    pub fn kept(&self, stamps: &[Stamp]) {
        let mut items = self.lock();
        stamps.iter().for_each(|stamp| items[stamp.item as usize].returned = stamp.version);
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    /// What had been kept of a file by then was given back.
    pub fn given(&self, covered: &Covered) {
        let mut items = self.lock();
        for (item, version) in &covered.0 {
            let known = &mut items[*item];
            known.given = known.given.max(*version);
        }
    }

    /// How many did since this was asked.
    #[must_use]
    pub fn take_kept(&self) -> u64 {
        self.kept.swap(0, Ordering::Relaxed)
    }

    /// How many changes were lost that had returned, since this was asked.
    #[must_use]
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// A sync begins. One of a file has a lease of it recalled first; one of everything knows
    /// nothing of what is kept under leases (clause S7).
    #[must_use]
    pub fn covers(&self, scope: Scope) -> Covered {
        let items = self.lock();
        let version = |item: usize| match scope {
            Scope::All => items[item].given,
            _ => items[item].returned,
        };
        Covered(scope.items().into_iter().map(|item| (item, version(item))).collect())
    }

    /// It returned.
    pub fn durable(&self, covered: &Covered) {
        let mut items = self.lock();
        for (item, version) in &covered.0 {
            let known = &mut items[*item];
            known.durable = known.durable.max(*version);
            known.given = known.given.max(*version);
        }
    }

    /// The only version that a read may see now, if nothing changes the item just now.
    #[must_use]
    pub fn settled(&self, item: usize) -> Option<u64> {
        let known = self.lock()[item];
        (known.begun == known.returned).then_some(known.returned)
    }

    /// Judges what a record's place has, and goes on from there.
    ///
    /// # Errors
    /// What is wrong.
    pub fn found(&self, item: usize, found: Found, after: After) -> Result<(), String> {
        let known = self.lock()[item];
        let (version, writer) = match found {
            Found::Nothing => (0, 0),
            Found::Whole(stamp) => (stamp.version, stamp.writer),
            Found::Broken => return Err(format!("bytes that nobody wrote ({known:?})")),
        };
        if let Found::Whole(stamp) = found {
            let wanted = if version == known.first { known.first_writer } else { known.writer };
            if stamp.item != item as u64 || writer != wanted {
                return Err(format!("bytes of another place or writer: {stamp:?} ({known:?})"));
            }
        }
        if !known.allows(version, after) {
            return Err(format!("version {version} ({known:?})"));
        }
        self.adopt(item, version, writer);
        Ok(())
    }

    /// Judges how many records of a seat the log has; each is there once, in order, and of the
    /// writer that wrote it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn found_log(&self, seat: usize, found: &[Stamp], after: After) -> Result<(), String> {
        let item = log(seat);
        let known = self.lock()[item];
        for (stamp, wanted) in found.iter().zip(1..) {
            let own = stamp.version <= known.first || stamp.writer == known.writer;
            if stamp.version != wanted || !own {
                return Err(format!("record {wanted} is {stamp:?} ({known:?})"));
            }
        }
        let count = found.len() as u64;
        if !known.allows(count, after) {
            return Err(format!("{count} records ({known:?})"));
        }
        self.adopt(item, count, 0);
        Ok(())
    }

    /// Judges a name and what is in its file; nothing is found of a name that is absent.
    ///
    /// # Errors
    /// What is wrong.
    pub fn found_name(
        &self,
        name: usize,
        found: Option<(u64, Found)>,
        after: After,
    ) -> Result<(), String> {
        let [known, inside] = [name, content(name)].map(|item| self.lock()[item]);
        let Some((version, bytes)) = found else {
            if !(known.least(after)..=known.begun).any(|v| v % 3 == 0) {
                return Err(format!("it is missing ({known:?})"));
            }
            let next = known.begun.next_multiple_of(3);
            self.adopt(name, next, 0);
            self.adopt(content(name), inside.begun, 0);
            return Ok(());
        };
        if !known.allows(version, after) {
            return Err(format!("version {version} ({known:?})"));
        }
        let generation = generation(version);
        match bytes {
            Found::Nothing if inside.least(after) >= generation => {
                return Err(format!("its file is empty ({inside:?})"));
            }
            Found::Nothing => {}
            Found::Whole(stamp) => {
                let place = stamp.item == content(name) as u64 && stamp.version == generation;
                if !place || inside.begun < generation {
                    return Err(format!("its file has bytes of another one: {stamp:?}"));
                }
            }
            Found::Broken => return Err(format!("bytes that nobody wrote ({inside:?})")),
        }
        self.adopt(name, version, 0);
        let written = if bytes == Found::Nothing { generation - 1 } else { generation };
        self.adopt(content(name), written, 0);
        Ok(())
    }

    /// What was found is where the next round begins.
    fn adopt(&self, item: usize, version: u64, writer: u64) {
        let mut items = self.lock();
        let lost = items[item].returned.saturating_sub(version);
        self.lost.fetch_add(lost, Ordering::Relaxed);
        let writer_now = items[item].writer;
        items[item] = Item {
            first: version,
            first_writer: writer,
            writer: writer_now,
            begun: version,
            returned: version,
            given: version,
            durable: version,
        };
    }
}

/// Versions of a name go round: missing, its first name, its second name, missing. Each round is a
/// generation, counted from 1, and the names have its number.
#[must_use]
pub fn generation(version: u64) -> u64 {
    version / 3 + 1
}

/// The path of a name in this version, if it has one.
#[must_use]
pub fn path_of(name: usize, version: u64) -> Option<String> {
    let kind = match version % 3 {
        1 => 'a',
        2 => 'b',
        _ => return None,
    };
    Some(format!("names/{name}.{}.{kind}", generation(version)))
}

/// Name and version of an entry of the directory of names.
#[must_use]
pub fn name_of(entry: &str) -> Option<(usize, u64)> {
    let mut parts = entry.split('.');
    let (name, generation) = (parts.next()?.parse().ok()?, parts.next()?.parse::<u64>().ok()?);
    let kind = match parts.next()? {
        "a" => 1,
        "b" => 2,
        _ => return None,
    };
    let version = generation.checked_sub(1)? * 3 + kind;
    let known = names().contains(&name) && parts.next().is_none();
    known.then_some((name, version))
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
