//! The grantor's side of the memories: takes records in, and ends leases.
//!
//! The holder may be hostile, and may write anything into its memory at any time. So the grantor
//! keeps its own position to itself and only publishes it; the holder's is read once per step and
//! checked; and a record and its data are copied once, and checked in the copy.

use crate::layout::{
    ALIVE_AT, EPOCH_AT, HEAD_AT, LAYOUT_VERSION, LOGGED_AT, MAGIC, MAGIC_AT, Shape,
};
use crate::layout::{BEGIN_AT, ORDER_AT, TAIL_AT, UNTIL_AT, VERSION_AT};
use crate::record::{Bounds, RECORD, Record};
use crate::words::{Held, Own, State, Words};
use siftfs_base::{Result, corrupt};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What others are shown of a leased file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its size in bytes, whatever the holder says that it is.
    pub size: u64,
    /// Its mtime, in nanoseconds since 1970.
    pub mtime: i64,
}

/// The reader of the ring. There is one for each session, and one thread at a time has it.
pub struct Reader<G, H> {
    grantor: Arc<G>,
    holder: Arc<H>,
    bounds: Bounds,
    /// Records that were taken in, or passed over.
    tail: u64,
    /// The numbers of the leases that are granted; 0 for the others.
    granted: Vec<u64>,
    /// The holder broke a rule: nothing more of the ring is believed.
    broken: bool,
}

impl<G: Own, H: Words> Reader<G, H> {
    /// The reader of new memory, which says from now on that its grantor is there. `largest` is the
    /// largest size of a file.
    pub fn new(
        (grantor, holder): (Arc<G>, Arc<H>),
        shape: Shape,
        (epoch, largest): (u64, u64),
    ) -> Self {
        for (index, value) in [(MAGIC_AT, MAGIC), (VERSION_AT, LAYOUT_VERSION), (EPOCH_AT, epoch)] {
            grantor.store(index, value, Ordering::Relaxed);
        }
        grantor.store(ALIVE_AT, 1, Ordering::Release);
        let bounds = Bounds { shape, largest, position: 0, drawn: 0 };
        let granted = vec![0; shape.slots];
        Self { grantor, holder, bounds, tail: 0, granted, broken: false }
    }

    /// Grants a lease in a slot that no lease has.
    ///
    /// # Panics
    /// If one has it.
    pub fn grant(&mut self, slot: u32) -> Held {
        self.bounds.drawn += 1;
        let held = Held { slot, number: self.bounds.drawn };
        let granted = self.granted.get_mut(slot as usize).expect("slots are the grantor's own");
        assert_eq!(*granted, 0, "a slot has one lease");
        *granted = held.number;
        let shape = self.bounds.shape;
        // What was said of the slot's lease before does not count for this one.
        self.grantor.store(shape.covered(slot), 0, Ordering::Relaxed);
        self.grantor.store(shape.word(slot), held.word(State::Granted), Ordering::Release);
        held
    }

    /// Does the lease last?
    pub fn is_granted(&self, held: Held) -> bool {
        self.granted.get(held.slot as usize).is_some_and(|number| *number == held.number)
    }

    /// Records that are published and not taken in, as far as the holder can be believed.
    pub fn waiting(&self) -> u64 {
        let head = self.holder.load(HEAD_AT, Ordering::Relaxed);
        head.wrapping_sub(self.tail).min(self.bounds.shape.records as u64)
    }

    /// Records that were taken in or passed over since the session began.
    pub fn passed(&self) -> u64 {
        self.tail
    }

    /// Records that the file log has, or need not have, as the holder says.
    pub fn logged(&self) -> u64 {
        self.holder.load(LOGGED_AT, Ordering::Acquire)
    }

    /// Begins to take in what is published now. What the parts give out is checked.
    ///
    /// # Errors
    /// Corrupt: the holder broke a rule, now or before, and the session is to be ended.
    pub fn begin(&mut self) -> Result<Ingestion<'_, G, H>> {
        if self.broken {
            return Err(corrupt("private log", "it was refused before"));
        }
        // Pairs with the writer's release: the records below were written.
        let head = self.holder.load(HEAD_AT, Ordering::Acquire);
        let waiting = head.checked_sub(self.tail);
        if waiting.is_none_or(|waiting| waiting > self.bounds.shape.records as u64) {
            self.broken = true;
            let detail = format!("its head is {head}, and its tail {}", self.tail);
            return Err(corrupt("private log", detail));
        }
        let Self { grantor, holder, bounds, tail, granted, broken } = self;
        let (grantor, holder) = (&**grantor, &**holder);
        let data = Data { holder, shape: bounds.shape };
        let headers = Headers { holder, bounds, granted, next: *tail, head, oldest: None, broken };
        Ok(Ingestion { headers, data, taken: Taken { grantor, tail } })
    }

    /// Ends leases: has `ingest` take in what is published of them. The holder sees for each of its
    /// records whether it was. Those that have ended before are left alone. `ended` is the index of
    /// a word that waiters are to be woken for.
    ///
    /// # Errors
    /// Those of `ingest`. The leases have ended all the same.
    pub fn end(
        &mut self,
        leases: &[Held],
        ingest: impl FnOnce(&mut Self) -> Result<()>,
        mut ended: impl FnMut(&G, usize),
    ) -> Result<()> {
        let shape = self.bounds.shape;
        let leases = || leases.iter().filter(|held| held.number != 0);
        let lasting: Vec<Held> = leases().copied().filter(|held| self.is_granted(*held)).collect();
        if lasting.is_empty() {
            return Ok(());
        }
        recall(&*self.grantor, &shape, lasting.iter().copied());
        let taken = ingest(self);
        for held in &lasting {
            let index = shape.word(held.slot);
            self.grantor.store(shape.ingested(held.slot), self.tail, Ordering::Relaxed);
            // What was ingested is said before the end is.
            self.grantor.store(index, held.word(State::Ended), Ordering::Release);
            *self.granted.get_mut(held.slot as usize).expect("it lasted") = 0;
            ended(&self.grantor, index);
        }
        taken
    }

    /// All is durable for the file of a lease as of this order, and its log is a way from now on;
    /// with 0 it is none any more. What was promised by the log before that is published, and an
    /// ingestion that begins now takes it in.
    pub fn covered(&self, held: Held, order: u64) {
        let index = self.bounds.shape.covered(held.slot);
        self.grantor.store(index, order, Ordering::Release);
        // The word changed before this fence, and the head is read after it.
        G::fence();
    }

    /// The file log is forgotten up to `begin`.
    pub fn forgot(&self, begin: u64) {
        // Pairs with the writer's acquire.
        self.grantor.store(BEGIN_AT, begin, Ordering::Release);
    }

    /// The session is over. Its leases have ended.
    pub fn close(&self) {
        self.grantor.store(ALIVE_AT, 0, Ordering::Release);
    }
}

/// What is published at one moment, and is being taken in: headers, data and the ring's tail, for
/// different threads.
pub struct Ingestion<'a, G, H> {
    /// The headers of the records.
    pub headers: Headers<'a, H>,
    /// Their data.
    pub data: Data<'a, H>,
    /// How far they are taken in.
    pub taken: Taken<'a, G>,
}

/// The headers of what is published, in the ring's order. They say where the data are, which cannot
/// be had from here.
pub struct Headers<'a, H> {
    holder: &'a H,
    bounds: &'a mut Bounds,
    granted: &'a [u64],
    next: u64,
    head: u64,
    /// Where the data begin of the first record of this ingestion.
    oldest: Option<u64>,
    broken: &'a mut bool,
}

/// Headers that were copied and checked.
#[derive(Debug, Default)]
pub struct Fetched {
    /// Those of leases that last.
    pub records: Vec<Record>,
    /// The number of the next record of the ring.
    pub until: u64,
}

impl<H: Words> Headers<'_, H> {
    /// The next headers, up to this number of records or until they have these bytes; none at the
    /// end. Records of leases that have ended are passed over.
    ///
    /// # Errors
    /// Corrupt: the holder broke a rule. What stands before that in the ring was given out, or is,
    /// with the error.
    pub fn fetch(&mut self, (records, bytes): (usize, u64)) -> (Option<Fetched>, Result<()>) {
        let (mut fetched, begin) = (Fetched::default(), self.next);
        let mut has = 0;
        let mut result = Ok(());
        while !*self.broken && self.next < self.head && has < bytes {
            if self.next - begin >= records as u64 {
                break;
            }
            match self.one() {
                Ok(record) => {
                    self.next += 1;
                    has += u64::from(record.len);
                    let held = record.held;
                    if self.granted.get(held.slot as usize) == Some(&held.number) {
                        fetched.records.push(record);
                    }
                }
                Err(error) => {
                    *self.broken = true;
                    result = Err(error);
                }
            }
        }
        fetched.until = self.next;
        ((self.next > begin).then_some(fetched), result)
    }

    /// Is there more?
    pub fn has_more(&self) -> bool {
        !*self.broken && self.next < self.head
    }

    fn one(&mut self) -> Result<Record> {
        let shape = self.bounds.shape;
        let mut bytes = [0; RECORD];
        self.holder.copy_out(shape.record(self.next), &mut bytes);
        let record = Record::decode(&bytes, self.bounds)?;
        let behind = shape.behind(record.data, record.len as usize);
        // What waits is never more than the ring holds: so one ingestion ends.
        let oldest = *self.oldest.get_or_insert(record.data);
        let behind = behind.filter(|behind| behind - oldest <= shape.data as u64);
        let behind = behind.ok_or_else(|| corrupt("private log", "it has too many bytes"))?;
        self.bounds.position = behind;
        Ok(record)
    }
}

/// The data of what is published.
pub struct Data<'a, H> {
    holder: &'a H,
    shape: Shape,
}

impl<H: Words> Data<'_, H> {
    /// Copies bytes of one record's data, from any of them on, each once. It is not taken in yet.
    pub fn copy(&self, position: u64, into: &mut [u8]) {
        let skip = (position % 8) as usize;
        let (first, rest) = match skip {
            0 => (&mut [][..], into),
            _ => into.split_at_mut((8 - skip).min(into.len())),
        };
        if !first.is_empty() {
            let word = self.holder.load(self.shape.data(position), Ordering::Relaxed).to_le_bytes();
            first.iter_mut().zip(word.iter().skip(skip)).for_each(|(byte, from)| *byte = *from);
        }
        if !rest.is_empty() {
            self.holder.copy_out(self.shape.data(position + first.len() as u64), rest);
        }
    }
}

/// How far the ring is taken in.
pub struct Taken<'a, G> {
    grantor: &'a G,
    tail: &'a mut u64,
}

impl<G: Own> Taken<'_, G> {
    /// The records before this number are taken in or passed over: what they had may be written
    /// over.
    pub fn release(&mut self, until: u64) {
        *self.tail = until;
        // Pairs with the writer's acquire: what was read may be written again.
        self.grantor.store(TAIL_AT, until, Ordering::Release);
    }
}

/// Leases are about to end: what the holder writes from here on is not done before they have, and
/// then only if it was taken in. Answers which of them were granted. The thread that has the reader
/// may say so while it takes a record in, and [`Reader::end`] follows.
pub fn recall<G: Own>(grantor: &G, shape: &Shape, leases: impl Iterator<Item = Held>) -> Vec<Held> {
    let word = |held: &Held| grantor.load(shape.word(held.slot), Ordering::Relaxed);
    let granted = |held: &Held| held.state(word(held)) == Some(State::Granted);
    let recalled: Vec<Held> = leases.filter(granted).collect();
    for held in &recalled {
        grantor.store(shape.word(held.slot), held.word(State::Recalled), Ordering::Release);
    }
    // The words changed before this fence, and the head is read after it.
    G::fence();
    recalled
}

/// The grantor vouches for its words up to this time, by CLOCK_BOOTTIME in nanoseconds. One thread
/// says so.
pub fn vouch<G: Own>(grantor: &G, until: u64) {
    grantor.store(UNTIL_AT, until, Ordering::Release);
}

/// The count of what a later fsync(2) must not overtake. It is stored before the answer to what
/// counts it up, by one thread at a time.
pub fn set_order<G: Own>(grantor: &G, order: u64) {
    grantor.store(ORDER_AT, order, Ordering::SeqCst);
}

/// That count.
pub fn order<G: Words>(grantor: &G) -> u64 {
    grantor.load(ORDER_AT, Ordering::SeqCst)
}

/// What others are shown of the file of a lease; nothing, if it does not last, or its holder has
/// not said anything yet. Waits for nobody.
pub fn shown<G: Words, H: Words>(
    (grantor, holder): (&G, &H),
    shape: &Shape,
    held: Held,
) -> Option<Shown> {
    let index = shape.word(held.slot);
    let lasts = || held.state(grantor.load(index, Ordering::Acquire)) == Some(State::Granted);
    if !lasts() || holder.load(shape.number(held.slot), Ordering::Acquire) != held.number {
        return None;
    }
    let size = holder.load(shape.size(held.slot), Ordering::Relaxed);
    let mtime = holder.load(shape.mtime(held.slot), Ordering::Relaxed).cast_signed();
    H::fence();
    lasts().then_some(Shown { size, mtime })
}

#[cfg(test)]
#[path = "reader_tests.rs"]
pub(crate) mod tests;
