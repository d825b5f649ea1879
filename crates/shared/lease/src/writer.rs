//! The holder's side of the memories.
//!
//! *Publishing.* The record's data and the record are written, then the head moves. A fence
//! follows, and then the look at the lease's word. The grantor's recall does it the other way
//! round: it changes the word, and reads the head after a fence. So either the holder sees that the
//! word has changed, or the grantor sees the record.

use crate::batch::{Batches, Logged};
use crate::layout::{BEGIN_AT, HEAD_AT, LOGGED_AT, MOST_BYTES, ORDER_AT, Shape, TAIL_AT, UNTIL_AT};
use crate::record::{Bounds, Record};
use crate::words::{Held, MOST_NUMBER, Own, State, Words};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where in a file a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There.
    At(u64),
    /// To the file's end.
    End,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publish {
    /// Its record is published. It is done if [`Published::look`] says so.
    Published(Published),
    /// There is no room in the ring before the grantor has taken something in.
    Full,
    /// The lease does not last any more: nothing was published.
    Ended,
    /// No record can say it: it has no byte or too many, or its end is beyond the largest file.
    Unfit,
    /// The grantor's memory says what cannot be. The session is of no use.
    Broken,
}

/// A record that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    held: Held,
    number: u64,
    word: usize,
    ingested: usize,
    /// Where in the file it went.
    pub offset: u64,
    /// The ring has just become half full.
    pub half: bool,
}

/// What became of a record whose lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The grantor still takes the ring in. The word to wait for says this.
    NotYet {
        /// Index of the word in the grantor's memory.
        index: usize,
        /// What it says.
        value: u64,
    },
    /// It was taken in.
    Done,
    /// It was not, and never will be.
    Lost,
}

/// What the holder knows of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    size: u64,
}

/// The writer of the ring. There is one for each session: threads take turns.
pub struct Writer<G, H> {
    grantor: Arc<G>,
    holder: Arc<H>,
    shape: Shape,
    largest: u64,
    head: u64,
    tail: u64,
    /// Where the newest record's data end.
    data: u64,
    /// The records of the ring.
    records: Vec<Record>,
    /// Records below this one are in the file log, or nobody asks it for them.
    logged: u64,
    /// Of the records below this one some are not in the log, and no longer in the ring.
    missing: u64,
    /// Records below this one are durable otherwise than by the log, which forgot all it had.
    promised: u64,
    slots: Vec<Slot>,
}

impl<G: Words, H: Own> Writer<G, H> {
    /// The writer of new memory. `largest` is the largest size of a file.
    pub fn new((grantor, holder): (Arc<G>, Arc<H>), shape: Shape, largest: u64) -> Self {
        let none =
            Record { held: Held { slot: 0, number: 0 }, offset: 0, len: 0, data: 0, time: 0 };
        let (records, slots) = (vec![none; shape.records], vec![Slot::default(); shape.slots]);
        let (head, tail, data, logged, missing, promised) = (0, 0, 0, 0, 0, 0);
        Self {
            grantor,
            holder,
            shape,
            largest,
            head,
            tail,
            data,
            records,
            logged,
            missing,
            promised,
            slots,
        }
    }

    /// A lease was granted of a file of this size and mtime. False: it cannot be.
    pub fn begin(&mut self, held: Held, size: u64, mtime: i64) -> bool {
        let Held { slot, number } = held;
        let Some(known) = self.slots.get_mut(slot as usize) else { return false };
        if number <= known.number || number > MOST_NUMBER || size > self.largest {
            return false;
        }
        *known = Slot { number, size };
        // One that reads the new size for the lease before sees after a fence that this one ended.
        H::fence();
        self.holder.store(self.shape.size(slot), size, Ordering::Relaxed);
        self.holder.store(self.shape.mtime(slot), mtime.cast_unsigned(), Ordering::Relaxed);
        // Pairs with the acquire of those who look: the two others are of this lease.
        self.holder.store(self.shape.number(slot), number, Ordering::Release);
        true
    }

    /// The file's size, as this side has it. It counts if the lease is granted before and after.
    pub fn size(&self, held: Held) -> Option<u64> {
        let slot = self.slots.get(held.slot as usize)?;
        (slot.number == held.number).then_some(slot.size)
    }

    /// The file was written in another way than by a record, up to `end`, at `time` in nanoseconds
    /// since 1970, and that is done: others are shown its size and mtime from now on. False: the
    /// lease is not the slot's any more.
    pub fn note(&mut self, held: Held, end: u64, time: i64) -> bool {
        let Some(size) = self.size(held) else { return false };
        if end > size {
            let end = end.min(self.largest);
            self.slots.get_mut(held.slot as usize).expect("just seen").size = end;
            self.holder.store(self.shape.size(held.slot), end, Ordering::Release);
        }
        let mtime = self.shape.mtime(held.slot);
        self.holder.store(mtime, time.cast_unsigned(), Ordering::Release);
        true
    }

    /// Publishes a write. `time` is nanoseconds since 1970. Others are shown the file's size and
    /// mtime with it, and never a size without its record.
    pub fn publish(&mut self, held: Held, place: Place, bytes: &[u8], time: i64) -> Publish {
        let Some(size) = self.size(held).filter(|_| is_granted(&*self.grantor, &self.shape, held))
        else {
            return Publish::Ended;
        };
        let offset = match place {
            Place::At(offset) => offset,
            Place::End => size,
        };
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.largest);
        let most = MOST_BYTES.min(self.shape.data);
        let (Some(end), true) = (end, (1..=most).contains(&bytes.len())) else {
            return Publish::Unfit;
        };
        let (data, used) = match self.room(bytes.len()) {
            Ok(room) => room,
            Err(why) => return why,
        };
        self.lose(self.shape.behind(data, bytes.len()).expect("seen when room was found"));
        let len = u32::try_from(bytes.len()).expect("a mebibyte at most");
        let record = Record { held, offset, len, data, time };
        self.put(&record, bytes);
        let number = self.head;
        self.head += 1;
        // Pairs with the reader's acquire: the record and its data are written.
        self.holder.store(HEAD_AT, self.head, Ordering::Release);
        // After the head: a recall, or this program's death, takes in the record of each size and
        // time that others were shown. Pairs with the fence of those who look.
        if end > size {
            self.slots.get_mut(held.slot as usize).expect("just seen").size = end;
            self.holder.store(self.shape.size(held.slot), end, Ordering::Release);
        }
        let mtime = self.shape.mtime(held.slot);
        self.holder.store(mtime, time.cast_unsigned(), Ordering::Release);
        let (word, ingested) = (self.shape.word(held.slot), self.shape.ingested(held.slot));
        let half = used < self.shape.data as u64 / 2
            && used + u64::from(len) >= self.shape.data as u64 / 2
            || self.head - self.tail == self.shape.records as u64 / 2;
        Publish::Published(Published { held, number, word, ingested, offset, half })
    }

    /// Where the data of a write of `len` bytes go, and the bytes of data before it.
    fn room(&mut self, len: usize) -> Result<(u64, u64), Publish> {
        // Pairs with the reader's release: what is before the tail was read.
        let tail = self.grantor.load(TAIL_AT, Ordering::Acquire);
        if tail < self.tail || tail > self.head {
            return Err(Publish::Broken);
        }
        self.tail = tail;
        if self.head - tail >= self.shape.records as u64 {
            return Err(Publish::Full);
        }
        let begin = self.shape.begin(self.data, len);
        let span = begin.and_then(|begin| Some((begin, self.shape.behind(begin, len)?)));
        let (begin, behind) = span.ok_or(Publish::Unfit)?;
        let oldest = match tail == self.head {
            true => begin,
            false => self.at(tail).data,
        };
        match behind - oldest <= self.shape.data as u64 {
            true => Ok((begin, begin - oldest)),
            false => Err(Publish::Full),
        }
    }

    fn put(&mut self, record: &Record, bytes: &[u8]) {
        let (shape, largest, position) = (self.shape, self.largest, self.data);
        let bounds = Bounds { shape, largest, position, drawn: record.held.number };
        self.holder.copy_in(shape.data(record.data), bytes);
        self.holder.copy_in(shape.record(self.head), &record.encode(&bounds));
        let index = (self.head & (shape.records as u64 - 1)) as usize;
        *self.records.get_mut(index).expect("the index is within the ring") = *record;
        self.data = shape.behind(record.data, bytes.len()).expect("seen when room was found");
    }

    fn at(&self, number: u64) -> &Record {
        let index = (number & (self.shape.records as u64 - 1)) as usize;
        self.records.get(index).expect("the index is within the ring")
    }

    /// The next record is to have data up to `behind`. What the file log does not have and is
    /// written over by that was taken in, and can only be made durable by the daemon.
    fn lose(&mut self, behind: u64) {
        let waiting = self.head - self.logged;
        if waiting >= self.shape.records as u64
            || waiting > 0 && behind - self.at(self.logged).data > self.shape.data as u64
        {
            (self.missing, self.logged) = (self.head, self.head);
        }
    }

    /// Records that were published since the session began.
    pub fn published(&self) -> u64 {
        self.head
    }

    /// Puts all records into the batch in the making that the file log does not have yet; answers
    /// which the next one is. None: the daemon alone can make them durable.
    pub fn batch(&self, batches: &mut Batches) -> Option<u64> {
        batches.clear();
        if self.missing > self.promised {
            return None;
        }
        for number in self.logged..self.head {
            let Record { held, offset, len, data, time } = *self.at(number);
            let copy = |into: &mut [u8]| self.holder.copy_out(self.shape.data(data), into);
            if !batches.push(&Logged { held, offset, time }, len as usize, copy) {
                return None;
            }
        }
        Some(self.head)
    }

    /// The file log has the records below this one.
    pub fn logged(&mut self, records: u64) {
        self.logged = self.logged.max(records);
        self.holder.store(LOGGED_AT, self.logged, Ordering::Release);
    }

    /// The daemon made the records below this one durable, and forgot what the log had.
    pub fn promised(&mut self, records: u64) {
        self.promised = self.promised.max(records);
        self.logged(records);
    }
}

/// Does the lease last? What was read of it before counts then.
pub fn lasts<G: Words>(grantor: &G, shape: &Shape, held: Held) -> bool {
    G::fence();
    is_granted(grantor, shape, held)
}

/// Does the file log alone make a file of this lease durable, at this time by CLOCK_BOOTTIME in
/// nanoseconds? It does if it says so after the batch is persistent (rules R37, R38 and R46).
pub fn log_promises<G: Words>(grantor: &G, shape: &Shape, held: Held, now: u64) -> bool {
    G::fence();
    let order = grantor.load(ORDER_AT, Ordering::Acquire);
    let covered = grantor.load(shape.covered(held.slot), Ordering::Acquire);
    let until = grantor.load(UNTIL_AT, Ordering::Acquire);
    covered != 0 && covered == order && now < until && is_granted(grantor, shape, held)
}

/// Does the grantor vouch for its words, at this time by CLOCK_BOOTTIME in nanoseconds? Those of a
/// daemon that was killed say *granted* for ever (rule R37).
pub fn is_vouched<G: Words>(grantor: &G, now: u64) -> bool {
    now < grantor.load(UNTIL_AT, Ordering::Acquire)
}

/// What the grantor has forgotten of the file log: the position of the first batch that counts.
pub fn forgotten<G: Words>(grantor: &G) -> u64 {
    // Pairs with the grantor's release: the log's file may be written again before it.
    grantor.load(BEGIN_AT, Ordering::Acquire)
}

fn is_granted<G: Words>(grantor: &G, shape: &Shape, held: Held) -> bool {
    let index = shape.word(held.slot);
    held.state(grantor.load(index, Ordering::Acquire)) == Some(State::Granted)
}

impl Published {
    /// Is the write done? If not, [`Published::settled`] will tell.
    #[must_use]
    pub fn look<G: Words>(&self, grantor: &G) -> bool {
        // The head moved before this fence, and the word is read after it.
        G::fence();
        let word = grantor.load(self.word, Ordering::Acquire);
        self.held.state(word) == Some(State::Granted)
    }

    /// What became of it, now that the lease is recalled.
    pub fn settled<G: Words>(&self, grantor: &G) -> Settled {
        // Pairs with the reader's release: what was ingested is said before.
        let value = grantor.load(self.word, Ordering::Acquire);
        match self.held.state(value) {
            Some(State::Granted | State::Recalled) => Settled::NotYet { index: self.word, value },
            Some(State::Ended) if self.number < grantor.load(self.ingested, Ordering::Relaxed) => {
                Settled::Done
            }
            // A slot has no other lease before the holder has given this one back.
            Some(State::Ended) | None => Settled::Lost,
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
