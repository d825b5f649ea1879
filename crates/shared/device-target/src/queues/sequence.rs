//! The numbers of a queue's requests, and the groups that they belong to. A program decides them
//! under one lock, and sends after that: requests arrive in any order, and the target carries them
//! out group after group.

use crate::queues::lines::lock;
use siftfs_base::{Bytes, Error, RangeSet, Result};
use siftfs_wire::{Place, QUEUE_WINDOW, UNORDERED};
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

/// Ranges of a group at most: then a new one is begun, which costs one wait for all before.
const MOST_RANGES: usize = 256;

/// How the calls on one file that are under way at once are ordered (the paper's section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestOrder {
    /// A call runs beside others unless it meets a write, or is a write that meets a read.
    #[default]
    Merging,
    /// Every write runs alone; reads run beside reads.
    Basic,
    /// As `Basic`, by a lock of the program: a call is sent when those before are answered.
    Locked,
    /// None: calls that meet may both be seen in part. To measure what order costs.
    Unordered,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// The requests of one life of a queue: which group each call joins, and its numbers.
pub struct Sequence {
    order: RequestOrder,
    state: Mutex<State>,
    /// Numbers have become free, or there will be none.
    room: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    /// The lowest number that is not answered.
    low: u64,
    /// Bit `i`: the number `low + i` is answered.
    answered: u64,
    /// All below have ended: the first number of a group of which a request was answered.
    ended_below: u64,
    group: Group,
    broken: bool,
}

/// The newest group.
#[derive(Default)]
struct Group {
    first: u64,
    reads: RangeSet<Bytes>,
    writes: RangeSet<Bytes>,
}

impl Sequence {
    /// No request yet.
    pub fn new(order: RequestOrder) -> Self {
        Self { order, state: Mutex::default(), room: Condvar::new() }
    }

    /// How it is ordered.
    pub fn order(&self) -> RequestOrder {
        self.order
    }

    /// Places for this count of requests of one call on these bytes, once there is room in the
    /// window. `noted` is called before another call gets places.
    ///
    /// # Errors
    /// The life has ended.
    ///
    /// # Panics
    /// If one call has more requests than a window has numbers.
    pub fn take(
        &self,
        kind: Kind,
        ranges: &[Range<u64>],
        count: usize,
        noted: impl FnOnce(&Taken),
    ) -> Result<Taken> {
        let count = count as u64;
        assert!(count <= QUEUE_WINDOW, "a call takes a part of the window");
        let mut state = lock(&self.state);
        while !state.broken && state.next + count > state.low + QUEUE_WINDOW {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.broken {
            return Err(Error::Link("the queue's life has ended".into()));
        }
        if self.order == RequestOrder::Unordered {
            let taken = Taken { first: 0, numbers: UNORDERED..UNORDERED };
            noted(&taken);
            return Ok(taken);
        }
        let next = state.next;
        // What was answered has ended before whatever is sent now.
        if state.low == next || state.group.parts_from(self.order, kind, ranges) {
            state.group = Group { first: next, ..Group::default() };
        }
        let group = &mut state.group;
        let set = if kind == Kind::Write { &mut group.writes } else { &mut group.reads };
        ranges.iter().for_each(|range| set.insert(range.start, range.end));
        let first = group.first;
        state.next = next + count;
        let taken = Taken { first, numbers: next..state.next };
        noted(&taken);
        Ok(taken)
    }

    /// All numbers below this have ended at the target, answered or not.
    pub fn ended_below(&self) -> u64 {
        lock(&self.state).ended_below
    }

    /// A request was answered, and had ended before.
    pub fn answered(&self, Place { number, first, .. }: Place) {
        if number == UNORDERED {
            return;
        }
        let mut state = lock(&self.state);
        state.ended_below = state.ended_below.max(first);
        let Some(at) = number.checked_sub(state.low) else { return };
        state.answered |= 1 << at;
        let ended = state.answered.trailing_ones();
        if ended > 0 {
            state.low += u64::from(ended);
            state.answered = state.answered.checked_shr(ended).unwrap_or(0);
            drop(state);
            self.room.notify_all();
        }
    }

    /// There is no further request of this life.
    pub fn breaks(&self) {
        lock(&self.state).broken = true;
        self.room.notify_all();
    }
}

/// The places of one call's requests.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    first: u64,
    numbers: Range<u64>,
}

impl Taken {
    /// The place of the call's request at this index.
    pub fn place(&self, queue: u32, at: usize) -> Place {
        let number = match self.numbers.start {
            UNORDERED => UNORDERED,
            first => first + at as u64,
        };
        Place { queue, number, first: self.first }
    }

    /// The number of the call's request at this index, if it is in an order.
    pub fn number(&self, at: usize) -> Option<u64> {
        Some(self.place(0, at).number).filter(|number| *number != UNORDERED)
    }

    /// A place in no order, for a flush, which covers what was answered before.
    pub fn unordered(queue: u32) -> Place {
        Place { queue, number: UNORDERED, first: 0 }
    }
}

impl Group {
    /// Does a call belong into a group of its own?
    fn parts_from(&self, order: RequestOrder, kind: Kind, ranges: &[Range<u64>]) -> bool {
        match (order, kind) {
            (RequestOrder::Merging, kind) => {
                let full = self.reads.ranges() + self.writes.ranges() >= MOST_RANGES;
                let meets = |set: &RangeSet<Bytes>| {
                    ranges.iter().any(|range| set.overlaps(range.start, range.end))
                };
                full || meets(&self.writes) || (kind == Kind::Write && meets(&self.reads))
            }
            (_, Kind::Write) => true,
            (_, Kind::Read) => !self.writes.is_empty(),
        }
    }
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
