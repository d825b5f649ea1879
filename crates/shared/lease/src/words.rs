//! Words that both sides see, and what the word of a lease says.

use std::sync::atomic::Ordering;

/// Memory of words, which another side may write to at any time.
pub trait Words {
    /// Reads a word once.
    fn load(&self, index: usize, order: Ordering) -> u64;

    /// A sequentially consistent fence.
    fn fence();

    /// Copies bytes out, each word read once.
    fn copy_out(&self, index: usize, into: &mut [u8]) {
        let (words, rest) = into.as_chunks_mut::<8>();
        let mut at = index;
        for word in words {
            *word = self.load(at, Ordering::Relaxed).to_le_bytes();
            at += 1;
        }
        if !rest.is_empty() {
            let word = self.load(at, Ordering::Relaxed).to_le_bytes();
            rest.iter_mut().zip(word).for_each(|(byte, from)| *byte = from);
        }
    }
}

/// Memory of which this side is the one writer.
pub trait Own: Words {
    /// Writes a word.
    fn store(&self, index: usize, value: u64, order: Ordering);

    /// Copies bytes in. What is left of the last word becomes zero.
    fn copy_in(&self, index: usize, from: &[u8]) {
        let (words, rest) = from.as_chunks::<8>();
        let mut at = index;
        for word in words {
            self.store(at, u64::from_le_bytes(*word), Ordering::Relaxed);
            at += 1;
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word.iter_mut().zip(rest).for_each(|(byte, from)| *byte = *from);
            self.store(at, u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }
}

/// A lease as both sides name it: the slot that it has, and its number, which no other lease of the
/// session has or had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// Its slot.
    pub slot: u32,
    /// Its number, in 62 bits and never 0.
    pub number: u64,
}

/// What the word of a lease says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The holder may write and read by itself.
    Granted,
    /// The grantor takes the ring in.
    Recalled,
    /// The lease is over.
    Ended,
}

/// Largest number of a lease.
pub(crate) const MOST_NUMBER: u64 = u64::MAX >> 2;

impl Held {
    /// The word that says this of the lease.
    pub(crate) fn word(self, state: State) -> u64 {
        self.number << 2 | (state as u64 + 1)
    }

    /// What the word says of this lease; none, if it says something of another one.
    pub(crate) fn state(self, word: u64) -> Option<State> {
        let states = [State::Granted, State::Recalled, State::Ended];
        states.into_iter().find(|state| self.word(*state) == word)
    }
}
