//! A ring of 64-bit words between one producer and one consumer, and the handshake by which
//! each of them sleeps and is woken. The algorithms know nothing of where the words lie
//! ([`Memory`]), so that they run under a model checker as they are.
//!
//! The other side may be hostile and may write anything anywhere at any time. So a side keeps its
//! own position to itself and only publishes it; the other's position is read once per step and
//! checked; and a word of the ring is read once, into private memory.
//!
//! *Sleeping.* A side that finds nothing to do sets its flag, checks again, and sleeps; the other
//! publishes its position, reads the flag, and rings if it is set. A fence between the two steps of
//! either side makes it impossible that both read before the other's step is visible: either the
//! sleeper sees the position, or the other sees the flag.

use siftfs_base::{Result, corrupt};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A 64-bit word that both sides see.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

/// Memory that both sides see.
pub(crate) trait Memory {
    type Word: Word;
    fn word(&self, index: usize) -> &Self::Word;
    /// A sequentially consistent fence.
    fn fence();
}

/// Words that a ring's control takes; each field has a cache line of its own.
pub(crate) const CONTROL_WORDS: usize = 32;
const TAIL: usize = 0;
const HEAD: usize = 8;
const CONSUMER_SLEEPS: usize = 16;
const PRODUCER_SLEEPS: usize = 24;

/// Where a ring lies in its memory, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub control: usize,
    pub data: usize,
    /// Words of data, a power of two.
    pub capacity: u64,
}

impl Place {
    fn at(&self, position: u64) -> usize {
        self.data + (position & (self.capacity - 1)) as usize
    }
}

/// The words between two positions that the other side may have had a hand in.
fn distance(place: &Place, tail: u64, head: u64) -> Result<u64> {
    let used = tail.wrapping_sub(head);
    if used > place.capacity {
        let detail = format!("position {tail} and position {head} are further apart than its size");
        return Err(corrupt("ring in shared memory", detail));
    }
    Ok(used)
}

/// Sets `flag`, unless `ready` says, after a fence, that there is no reason to sleep.
fn sleepy<M: Memory>(
    memory: &M,
    flag: usize,
    ready: impl FnOnce() -> Result<bool>,
) -> Result<bool> {
    memory.word(flag).store(1, Ordering::Relaxed);
    M::fence();
    let ready = ready();
    if !matches!(ready, Ok(false)) {
        memory.word(flag).store(0, Ordering::Relaxed);
    }
    ready.map(|ready| !ready)
}

/// Whether the other side sleeps or is about to; it counts as woken from now on.
fn sleeps<M: Memory>(memory: &M, flag: usize) -> bool {
    M::fence();
    let flag = memory.word(flag);
    let sleeps = flag.load(Ordering::Relaxed) != 0;
    if sleeps {
        flag.store(0, Ordering::Relaxed);
    }
    sleeps
}

/// The side that appends.
pub(crate) struct Producer<M> {
    memory: Arc<M>,
    place: Place,
    tail: u64,
}

impl<M: Memory> Producer<M> {
    pub fn new(memory: Arc<M>, place: Place) -> Self {
        assert!(place.capacity.is_power_of_two(), "positions wrap at a power of two");
        Self { memory, place, tail: 0 }
    }

    /// Words that fit now.
    ///
    /// # Errors
    /// The consumer's position cannot be.
    pub fn room(&self) -> Result<u64> {
        // Pairs with the consumer's release: the words up to there have been read.
        let head = self.memory.word(self.place.control + HEAD).load(Ordering::Acquire);
        Ok(self.place.capacity - distance(&self.place, self.tail, head)?)
    }

    /// Appends a word that the consumer sees after [`Producer::publish`]. The caller has asked
    /// for the room.
    pub fn put(&mut self, word: u64) {
        self.memory.word(self.place.at(self.tail)).store(word, Ordering::Relaxed);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the consumer what was put; whether it has to be woken.
    #[must_use]
    pub fn publish(&self) -> bool {
        self.memory.word(self.place.control + TAIL).store(self.tail, Ordering::Release);
        sleeps(&*self.memory, self.place.control + CONSUMER_SLEEPS)
    }

    /// Whether to sleep until the consumer rings: there is no room, and it will see that we sleep.
    pub fn may_sleep(&self) -> Result<bool> {
        let flag = self.place.control + PRODUCER_SLEEPS;
        sleepy(&*self.memory, flag, || self.room().map(|room| room > 0))
    }

    /// Does not sleep any more.
    pub fn awake(&self) {
        self.memory.word(self.place.control + PRODUCER_SLEEPS).store(0, Ordering::Relaxed);
    }
}

/// The side that takes.
pub(crate) struct Consumer<M> {
    memory: Arc<M>,
    place: Place,
    head: u64,
}

impl<M: Memory> Consumer<M> {
    pub fn new(memory: Arc<M>, place: Place) -> Self {
        assert!(place.capacity.is_power_of_two(), "positions wrap at a power of two");
        Self { memory, place, head: 0 }
    }

    /// Words that are there now.
    ///
    /// # Errors
    /// The producer's position cannot be.
    pub fn available(&self) -> Result<u64> {
        // Pairs with the producer's release: the words up to there have been written.
        let tail = self.memory.word(self.place.control + TAIL).load(Ordering::Acquire);
        distance(&self.place, tail, self.head)
    }

    /// Takes a word; the caller knows that it is there.
    pub fn take(&mut self) -> u64 {
        let word = self.memory.word(self.place.at(self.head)).load(Ordering::Relaxed);
        self.head = self.head.wrapping_add(1);
        word
    }

    /// Gives the producer the room of what was taken; whether it has to be woken.
    #[must_use]
    pub fn publish(&self) -> bool {
        self.memory.word(self.place.control + HEAD).store(self.head, Ordering::Release);
        sleeps(&*self.memory, self.place.control + PRODUCER_SLEEPS)
    }

    /// Whether to sleep until the producer rings: nothing is there, and it will see that we sleep.
    pub fn may_sleep(&self) -> Result<bool> {
        let flag = self.place.control + CONSUMER_SLEEPS;
        sleepy(&*self.memory, flag, || self.available().map(|n| n > 0))
    }

    /// Does not sleep any more.
    pub fn awake(&self) {
        self.memory.word(self.place.control + CONSUMER_SLEEPS).store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
