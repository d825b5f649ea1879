//! Whose call of another machine a change is (rule R53): so that it can be told, after the death of
//! the server, whether the change was carried out.

use siftfs_base::{InodeNr, Lsn};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots that a client's calls have at most.
pub const ORIGIN_SLOTS: u32 = 64;
/// Of a call that may be carried out twice: nothing is noted of it, but it has its place in the
/// order.
pub const NO_SLOT: u32 = u32::MAX;
/// Clients at a time whose calls have an origin.
pub const ORIGIN_CLIENTS: usize = 256;

/// The identity of one call of a client, the same over every connection that the client makes.
///
/// A change of names in a call with an origin is durable together with that identity, or neither
/// is: [`Recovered::reply`] has it after a crash. A client gives a slot its next number only when
/// it has the answer of the one before: then what is known of that one is forgotten.
#[derive(Debug, Default)]
pub struct Origin {
    /// Number of the client, drawn at random by it, never 0.
    pub client: u64,
    /// One of its slots, below [`ORIGIN_SLOTS`], or [`NO_SLOT`].
    pub slot: u32,
    /// Number of the call in its slot; larger than every earlier one.
    pub number: u64,
    /// A creation that is made once more, because the server died before it was durable: inode
    /// number and generation that it had. It gets these, or is refused with `ESTALE`.
    pub again: Option<(InodeNr, u32)>,
    lsn: AtomicU64,
    order: AtomicU64,
    at: OnceLock<u64>,
}

impl Origin {
    /// The call `number` in a slot of a client.
    pub fn new(client: u64, slot: u32, number: u64) -> Self {
        Self { client, slot, number, ..Self::default() }
    }

    /// The same call, of a creation that is made once more as this inode, of this generation.
    #[must_use]
    pub fn again(self, ino: InodeNr, generation: u32) -> Self {
        Self { again: Some((ino, generation)), ..self }
    }

    /// LSN of the newest change of names that the call has made; 0 for none. Read it when the call
    /// has returned.
    pub fn lsn(&self) -> Lsn {
        Lsn(self.lsn.load(Ordering::Acquire))
    }

    /// Place of the call's change in the order of all changes that have an origin, from 1 on; 0 for
    /// no change. Read it when the call has returned.
    pub fn order(&self) -> u64 {
        self.order.load(Ordering::Acquire)
    }

    /// The call's change has this place in that order (for the Runtime, under its lock).
    pub fn ordered(&self, order: u64) {
        self.order.store(order, Ordering::Release);
    }

    /// Of an append: where the bytes are, in bytes. Read it when the call has returned.
    pub fn at(&self) -> Option<u64> {
        self.at.get().copied()
    }

    /// The call has put its bytes there (for the Runtime).
    pub fn appended(&self, at: u64) {
        let _ = self.at.set(at);
    }

    /// The call has made a change of names (for the Runtime).
    pub fn made(&self, lsn: Lsn) {
        self.lsn.store(lsn.0, Ordering::Release);
    }
}

/// Two are equal if they are the same call.
impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        let of = |origin: &Self| (origin.client, origin.slot, origin.number, origin.again);
        of(self) == of(other)
    }
}

impl Eq for Origin {}

/// A change of names that was carried out, as recovery found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Number of the call in its slot.
    pub number: u64,
    /// LSN of the newest change of names that it made.
    pub lsn: Lsn,
    /// The inode that its first change of names was about: the one made, named, moved or removed.
    pub ino: InodeNr,
}

/// What a recovery found of the epoch that ended with a crash: which changes of names are there.
///
/// LSNs and calls of any other epoch than [`Recovered::epoch`] are not known here: nobody can say
/// whether they were carried out.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The epoch that ended.
    pub epoch: u64,
    /// All changes of names up to here are there.
    pub ops_cut: Lsn,
    /// Those above that are there.
    pub ops: BTreeSet<Lsn>,
    /// The newest call of each client and slot that is known to have been carried out.
    pub replies: BTreeMap<(u64, u32), Carried>,
}

impl Recovered {
    /// Is the change of names with this LSN, drawn in [`Recovered::epoch`], there?
    pub fn holds(&self, lsn: Lsn) -> bool {
        lsn <= self.ops_cut || self.ops.contains(&lsn)
    }

    /// What came of a client's call of [`Recovered::epoch`], if it changed names, and that is
    /// there. `None`: it has no effect, and may be carried out.
    pub fn reply(&self, client: u64, slot: u32, number: u64) -> Option<Carried> {
        self.replies.get(&(client, slot)).copied().filter(|carried| carried.number == number)
    }

    /// Notes a call that is there; the newest of a slot counts.
    pub fn note(&mut self, client: u64, slot: u32, carried: Carried) {
        let newest = self.replies.entry((client, slot)).or_insert(carried);
        if newest.number < carried.number {
            *newest = carried;
        }
    }
}

/// Short: every change that the log had may be in it.
impl fmt::Debug for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovered")
            .field("epoch", &self.epoch)
            .field("ops_cut", &self.ops_cut)
            .field("ops", &self.ops.len())
            .field("replies", &self.replies.len())
            .finish()
    }
}

#[cfg(test)]
#[path = "origin_tests.rs"]
mod tests;
