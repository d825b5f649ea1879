//! Atomic writes as a program makes them by itself, over the same direct files: a log file of its
//! own, with an undo or a redo journal. They are what the redo lane is compared with.
//!
//! A journal's record is a block that describes it, and the bytes behind it. Pieces of one atomic
//! write that lie side by side go in one call, in a record as in the file.

use crate::stage::said;
use siftfs::DirectFile;
use siftfs_base::checksum;
use siftfs_rig::place::{Failed, Result};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Bytes of a log file. Its first block says where the log begins.
pub const LOG: u64 = 4 << 20;
/// Bytes of a block.
const BLOCK: usize = 4096;
/// Bytes of the log that may wait for their checkpoint before one is made.
const WAITING: u64 = LOG / 4;

/// The block that describes a record: its number, where its bytes belong, and checksums of what is
/// behind it and of what the file is to have, where a recovery needs them.
fn described(number: u64, (at, len): (u64, usize), sums: [u32; 2]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let [logged, new] = sums.map(u64::from);
    let fields = [number, at, len as u64, logged, new];
    for (to, field) in block.chunks_exact_mut(8).zip(fields) {
        to.copy_from_slice(&field.to_le_bytes());
    }
    block
}

/// The next place of this many bytes behind `at`, in one piece. Places count on for ever; in the
/// file they go round.
fn place(at: u64, len: u64) -> u64 {
    let ring = LOG - BLOCK as u64;
    let left = ring - at % ring;
    if left < len { at + left } else { at }
}

/// Where a place is in the log file.
fn in_file(at: u64) -> u64 {
    BLOCK as u64 + at % (LOG - BLOCK as u64)
}

/// The undo journal: the old bytes are logged durably, then the new ones are written durably. The
/// program has the old bytes in memory and need not read them. A recovery puts the old bytes of the
/// last record back, unless the file has the new ones by their checksum, so a commit needs no mark.
pub struct Undo {
    data: DirectFile,
    log: DirectFile,
    old: Vec<u8>,
    at: u64,
    number: u64,
}

impl Undo {
    /// A journal of a file that has these bytes now.
    pub fn new(data: DirectFile, log: DirectFile, old: Vec<u8>) -> Self {
        Self { data, log, old, at: 0, number: 0 }
    }

    /// Writes `new` at `at`, as a whole and durably: two durable writes, one behind the other.
    ///
    /// # Errors
    /// What the target or the host reports.
    pub fn commit(&mut self, at: u64, new: &[u8]) -> Result<()> {
        let from = usize::try_from(at).map_err(said)?;
        let old = self.old.get_mut(from..from + new.len());
        let old = old.ok_or_else(|| Failed(format!("{at} is behind the file's end")))?;
        let sums = [checksum(0, old), checksum(0, new)];
        let record = [&described(self.number, (at, new.len()), sums), &*old].concat();
        let own = place(self.at, record.len() as u64);
        self.log.write_durable_at(in_file(own), &record).map_err(said)?;
        self.data.write_durable_at(at, new).map_err(said)?;
        old.copy_from_slice(new);
        (self.at, self.number) = (own + record.len() as u64, self.number + 1);
        Ok(())
    }
}

/// How a redo journal knows that a record is whole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// By a block of its own, written when the rest is durable, as the paper's and jbd2's.
    CommitBlock,
    /// By a checksum in the block that describes it: all of it is one write.
    Checksum,
}

/// The redo journal: the new bytes are logged durably. A thread reads them back later, and writes
/// them to the file.
pub struct Redo {
    log: Arc<DirectFile>,
    whole: Whole,
    at: u64,
    number: u64,
    room: Arc<Room>,
    entries: Option<Sender<Entry>>,
    checkpoints: Option<JoinHandle<()>>,
}

/// What the thread that makes checkpoints is told.
enum Entry {
    /// A record is committed: its place, the place behind it, and where how many bytes belong.
    Record { logged: u64, behind: u64, at: u64, len: usize },
    /// All of it is to be in the file soon.
    Drain,
}

/// How far checkpoints have come.
#[derive(Default)]
struct Room {
    state: Mutex<Done>,
    moved: Condvar,
}

#[derive(Default)]
struct Done {
    /// The place where the log begins.
    tail: u64,
    failed: Option<String>,
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Done> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the log begins there at least.
    fn until(&self, tail: u64) -> Result<()> {
        let mut state = self.lock();
        loop {
            if let Some(why) = &state.failed {
                return Err(Failed(why.clone()));
            }
            if state.tail >= tail {
                return Ok(());
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Redo {
    /// A journal of this file, whose log is empty.
    pub fn new(data: DirectFile, log: DirectFile, whole: Whole) -> Self {
        let (room, log) = (Arc::new(Room::default()), Arc::new(log));
        let (entries, told) = channel();
        let (own, moves) = (log.clone(), room.clone());
        let thread = thread::spawn(move || {
            let done = Checkpoints { data, log: own, room: moves.clone(), waiting: 0 }.run(&told);
            if let Err(Failed(why)) = done {
                moves.lock().failed = Some(why);
                moves.moved.notify_all();
            }
        });
        let (entries, checkpoints) = (Some(entries), Some(thread));
        Self { log, whole, at: 0, number: 0, room, entries, checkpoints }
    }

    /// Writes `new` at `at`, as a whole and durably. When it returns, the log has it; the file has
    /// it later.
    ///
    /// # Errors
    /// What the target or the host reports, of a checkpoint too.
    pub fn commit(&mut self, at: u64, new: &[u8]) -> Result<()> {
        let mark = if self.whole == Whole::CommitBlock { BLOCK } else { 0 };
        let bytes = (BLOCK + new.len() + mark) as u64;
        let own = place(self.at, bytes);
        let behind = own + bytes;
        self.room.until((behind + BLOCK as u64).saturating_sub(LOG))?;
        let sum = if self.whole == Whole::Checksum { checksum(0, new) } else { 0 };
        let head = described(self.number, (at, new.len()), [sum, 0]);
        self.log.write_durable_at(in_file(own), &[&head, new].concat()).map_err(said)?;
        if mark > 0 {
            self.log.write_durable_at(in_file(behind) - mark as u64, &head).map_err(said)?;
        }
        (self.at, self.number) = (behind, self.number + 1);
        self.tell(Entry::Record { logged: own, behind, at, len: new.len() })
    }

    fn tell(&self, entry: Entry) -> Result<()> {
        let told = self.entries.as_ref().is_some_and(|to| to.send(entry).is_ok());
        if told { Ok(()) } else { self.room.until(u64::MAX) }
    }

    /// Returns when all that was committed is in the file, durably.
    ///
    /// # Errors
    /// As [`Redo::commit`].
    pub fn drain(&self) -> Result<()> {
        self.tell(Entry::Drain)?;
        self.room.until(self.at)
    }
}

impl Drop for Redo {
    fn drop(&mut self) {
        self.entries = None;
        if let Some(thread) = self.checkpoints.take() {
            drop(thread.join());
        }
    }
}

/// What brings records into the file.
struct Checkpoints {
    data: DirectFile,
    log: Arc<DirectFile>,
    room: Arc<Room>,
    /// Bytes that were written and are not durable in the file.
    waiting: u64,
}

impl Checkpoints {
    fn run(&mut self, told: &Receiver<Entry>) -> Result<()> {
        let mut behind = 0;
        for entry in told {
            match entry {
                Entry::Record { logged, behind: own, at, len } => {
                    let from = in_file(logged) + BLOCK as u64;
                    let bytes = self.log.read_at(from, len).map_err(said)?;
                    self.data.write_at(at, &bytes).map_err(said)?;
                    (self.waiting, behind) = (self.waiting + own - logged, own);
                }
                Entry::Drain => self.flush(behind)?,
            }
            if self.waiting >= WAITING {
                self.flush(behind)?;
            }
        }
        Ok(())
    }

    /// Makes what was written durable, then the place where the log begins.
    fn flush(&mut self, tail: u64) -> Result<()> {
        self.data.sync_data().map_err(said)?;
        let mut first = [0; BLOCK];
        first[..8].copy_from_slice(&tail.to_le_bytes());
        self.log.write_durable_at(0, &first).map_err(said)?;
        self.waiting = 0;
        self.room.lock().tail = tail;
        self.room.moved.notify_all();
        Ok(())
    }
}

#[cfg(test)]
#[path = "journals_tests.rs"]
mod tests;
