//! Records of tickets that are published and that nobody has written yet: their callers do not wait
//! for storage, so they are written together, by the next caller who needs something durable.
//!
//! What keeps every waiter from waiting for ever: a record that is published is either in here, or
//! in the hands of a thread that does nothing but write it. It comes in here under the lock under
//! which it is published. So a thread that takes all of it and writes that, and then waits for an
//! LSN that it knows, waits for writes that are under way, and for nothing else.

use crate::locks::sync::{Mutex, MutexGuard};
use crate::staging::sequencer::{Published, Sequencer};
use siftfs_base::{Lsn, Result};
use siftfs_device::AlignedBuf;
use std::sync::PoisonError;

/// A staged transaction whose place is fixed and whose bytes are stable (R19), to be written.
pub struct Staged {
    /// The published record: its LSN, and how it must be written.
    pub published: Published,
    /// Index of the record's lane.
    pub lane: usize,
    /// Byte offset in the lane's region.
    pub offset: u64,
    /// The record's bytes.
    pub buf: AlignedBuf,
}

/// Bytes of records that wait at most, and of one write that joins several.
pub const MOST: usize = 1 << 20;

/// The records that wait, in the order of their LSNs. Its lock is taken after any other, and
/// nothing is done under it.
#[derive(Default)]
pub struct Unwritten {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    records: Vec<Staged>,
    bytes: usize,
}

impl Unwritten {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record, in the order of LSNs: the caller holds the lock under which it was published.
    /// True if so much waits now that the caller is to write it, once it holds no lock.
    pub fn push(&self, staged: Staged) -> bool {
        let mut queue = self.lock();
        queue.bytes += staged.buf.len();
        queue.records.push(staged);
        queue.bytes >= MOST
    }

    /// Takes all records out, neighbours in a lane together. The caller writes all of them, and
    /// waits for nothing before.
    pub fn take(&self) -> Vec<Run> {
        let Queue { records, .. } = std::mem::take(&mut *self.lock());
        let mut runs: Vec<Run> = Vec::new();
        for staged in records {
            let last = runs.iter_mut().rev().find(|run| run.lane == staged.lane);
            match last.filter(|run| run.is_followed_by(&staged)) {
                Some(run) => run.add(staged),
                None => runs.push(Run::of(staged)),
            }
        }
        runs
    }

    /// Does a record up to `lsn` wait?
    pub fn holds_up(&self, lsn: Lsn) -> bool {
        self.lock().records.first().is_some_and(|staged| staged.published.lsn() <= lsn)
    }

    /// Memory of what waits, in bytes.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes as u64
    }
}

/// Records that lie one behind the other in a lane, to be written at once.
pub struct Run {
    lane: usize,
    offset: u64,
    len: usize,
    records: Vec<Staged>,
}

impl Run {
    fn of(staged: Staged) -> Self {
        let Staged { lane, offset, .. } = staged;
        Self { lane, offset, len: staged.buf.len(), records: vec![staged] }
    }

    fn is_followed_by(&self, next: &Staged) -> bool {
        self.offset + self.len as u64 == next.offset && self.len + next.buf.len() <= MOST
    }

    fn add(&mut self, staged: Staged) {
        self.len += staged.buf.len();
        self.records.push(staged);
    }

    /// Index of the lane.
    pub fn lane(&self) -> usize {
        self.lane
    }

    /// Byte offset in the lane's region.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of all records.
    pub fn total(&self) -> usize {
        self.len
    }

    /// The bytes of each record.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(|staged| &staged.buf[..])
    }

    /// The write of the run has ended; gives the records' memory to `spare`.
    pub fn completed(self, seq: &Sequencer, result: &Result<()>, spare: impl FnMut(AlignedBuf)) {
        let records = self.records.into_iter().map(|staged| (staged.published, staged.buf));
        let (published, bufs): (Vec<_>, Vec<_>) = records.unzip();
        seq.completed_together(published, result);
        bufs.into_iter().for_each(spare);
    }
}

#[cfg(test)]
#[path = "unwritten_tests.rs"]
mod tests;
