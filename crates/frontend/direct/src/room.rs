//! Room behind the file's end, and blocks that were never written: what is written there at the
//! target is the file's durably when the host has heard of it, and not with a flush.

use siftfs_base::{BLOCK_BYTES, Blocks, Bytes, RangeSet};
use siftfs_proto::{DirectRun, ROOM_MOST};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that are appended between two syncs, by several writes and by one, from which on they go
/// to the target: fewer are the host's, which makes them durable in one step. One write is one
/// round trip then, where it would be two by the target; what the host spends on the bytes
/// themselves comes to as much as that at about 200 KiB.
const SMALL: [u64; 2] = [64 << 10, 192 << 10];
/// Room that is asked for, in bytes: first, and at most.
const ROOMS: [u64; 2] = [64 << 10, 16 << 20];

/// The blocks of a grant that the file had not written before.
pub(crate) struct Fresh {
    /// Behind the last one, in bytes of the file.
    end: u64,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    unwritten: RangeSet<Blocks>,
    /// Bytes that were written and that the host has not heard of.
    pending: RangeSet<Bytes>,
    /// Counts what the host has to hear of, and what of that it has.
    noted: u64,
    told: u64,
}

/// What the host hears of by an fsync that begins now.
pub(crate) struct Telling {
    noted: u64,
    pending: RangeSet<Bytes>,
}

fn blocks(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES)
}

impl Fresh {
    /// Of these runs.
    pub fn of(runs: &[DirectRun]) -> Self {
        let mut fresh = Self { end: 0, done: Mutex::default() };
        fresh.add(runs);
        fresh
    }

    /// Those of these runs, too.
    pub fn add(&mut self, runs: &[DirectRun]) {
        let done = self.done.get_mut().unwrap_or_else(PoisonError::into_inner);
        for run in runs.iter().filter(|run| run.fresh) {
            let last = run.first.saturating_add(run.count);
            done.unwritten.insert(run.first, last);
            self.end = self.end.max(last.saturating_mul(BLOCK_BYTES));
        }
    }

    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The byte of the file behind the last block that was granted as a fresh one; 0 without any.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Is a durable write of these bytes not durable before the host has heard of it?
    pub fn concerns(&self, bytes: &Range<u64>) -> bool {
        let (done, blocks) = (self.done(), blocks(bytes));
        done.noted != done.told || done.unwritten.overlaps(blocks.start, blocks.end)
    }

    /// These bytes were written, or may have been in part; they made the file longer if it `grew`.
    pub fn wrote(&self, bytes: &Range<u64>, grew: bool) {
        let (mut done, blocks) = (self.done(), blocks(bytes));
        let first = done.unwritten.overlaps(blocks.start, blocks.end);
        if first || grew {
            done.unwritten.remove(blocks.start, blocks.end);
            done.pending.insert(bytes.start, bytes.end);
            done.noted += 1;
        }
    }

    /// Has the host to hear of something?
    pub fn owes(&self) -> bool {
        let done = self.done();
        done.noted != done.told
    }

    /// The host is about to be asked for an fsync.
    pub fn tells(&self) -> Telling {
        let done = self.done();
        Telling { noted: done.noted, pending: done.pending.clone() }
    }

    /// It has made that fsync.
    pub fn told(&self, telling: &Telling) {
        let mut done = self.done();
        done.told = done.told.max(telling.noted);
        telling.pending.iter().for_each(|(start, end)| done.pending.remove(start, end));
    }

    /// Is there something that the host has not heard of, and that is not among these writes?
    pub fn lacks(&self, kept: &[(u64, Vec<u8>)]) -> bool {
        let mut pending = self.done().pending.clone();
        for (offset, data) in kept {
            pending.remove(*offset, offset.saturating_add(data.len() as u64));
        }
        !pending.is_empty()
    }
}

/// How a file is appended to: in a stream, or a little between two syncs.
#[derive(Debug)]
pub(crate) struct Appends {
    /// Since the last sync.
    bytes: u64,
    writes: u64,
    /// There was little between the last two.
    small: bool,
    /// There was a stream between the last two syncs: the next write continues it.
    streamed: bool,
    /// Room that is asked for next, in bytes.
    next: u64,
}

impl Default for Appends {
    fn default() -> Self {
        Self { bytes: 0, writes: 0, small: false, streamed: false, next: ROOMS[0] }
    }
}

impl Appends {
    /// This many bytes are about to be appended.
    pub fn note(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.writes += 1;
    }

    /// What was written is made durable.
    pub fn synced(&mut self) {
        if self.bytes > 0 {
            (self.small, self.streamed) = (!self.is_much(), self.is_stream());
        }
        (self.bytes, self.writes) = (0, 0);
    }

    /// Is this a stream, which goes to the target?
    pub fn is_stream(&self) -> bool {
        self.is_much() || !self.small && (self.writes > 1 || self.streamed)
    }

    fn is_much(&self) -> bool {
        let [several, one] = SMALL;
        self.bytes >= if self.writes == 1 { one } else { several }
    }

    /// The room to ask for, so that `beyond` bytes have place in it.
    pub fn room(&self, beyond: u64) -> u64 {
        self.next.max(beyond).min(ROOM_MOST)
    }

    /// Is so little of the room left that more is to be asked for before it is used up?
    pub fn is_short(&self, left: u64) -> bool {
        left < self.next / 2
    }

    /// Room was asked for: the next time it is more.
    pub fn asked(&mut self) {
        self.next = (2 * self.next).min(ROOMS[1]);
    }

    /// The lease has ended: the next one begins with little.
    pub fn begin_anew(&mut self) {
        self.next = ROOMS[0];
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
