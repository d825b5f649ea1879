//! What a host has granted to a program, as the program's threads read and write it.

use crate::device::{PIECE, copy, reads};
use crate::queues::atomic::Fate;
use crate::queues::lines::{Attached, Begun, LINES, Lines, lock, of_this_thread};
use crate::queues::sequence::{Kind, RequestOrder, Sequence, Taken};
use crate::unflushed::Unflushed;
use siftfs_base::{Error, Result};
use siftfs_wire::{StorageAnswer, StorageCall, Token};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(super) const EAGAIN: i32 = 11;
pub(super) const ESTALE: i32 = 116;
/// Requests of one call that are under way at once.
pub(super) const WINDOW: usize = 16;

/// Reads and writes what one grant names, with offsets in bytes of the area, as long as the grant
/// lasts.
///
/// Calls of several threads are ordered as the queue's [`RequestOrder`] says: but for `Unordered`,
/// each is carried out as a whole at one moment between its begin and its end. A write that was
/// answered is volatile, as one on a [`siftfs_device::Device`] is, and a flush covers what was
/// answered before.
///
/// [`Error::Link`] and `ESTALE` from any call: the queue's life has ended. What was written and not
/// flushed may be lost, if the target has died, and is kept here. [`Error::Refused`]: a byte is not
/// granted.
pub struct Queue {
    pub(super) lines: Arc<Lines>,
    pub(super) token: Token,
    pub(super) life: u64,
    attached: [Mutex<Option<Attached>>; LINES],
    pub(super) sequence: Sequence,
    /// Held to read by calls that the target orders, and to write by those that it cannot.
    alone: RwLock<()>,
    pub(super) unflushed: Mutex<Unflushed>,
    /// A commit that was not answered: its number, and where its caller finds what became of it.
    pub(super) committing: Mutex<Option<(u64, Arc<Fate>)>>,
}

/// What a flush that begins now covers.
pub struct Covered(Vec<u64>);

/// A call's place beside other calls of the queue, until it is dropped.
pub struct Turn<'a> {
    pub(super) kind: Kind,
    _held: Held<'a>,
}

/// Held until the call ends.
enum Held<'a> {
    Beside { _others: RwLockReadGuard<'a, ()> },
    Alone { _others: RwLockWriteGuard<'a, ()> },
}

impl Queue {
    /// Connects, with the token that the host was given.
    ///
    /// # Errors
    /// No target is there, it does not admit this program, or nothing is granted so any more.
    pub fn open(lines: Arc<Lines>, token: Token, order: RequestOrder) -> Result<Self> {
        let queue = Self::of(lines, (token, 1), order, Unflushed::default());
        queue.attached()?;
        Ok(queue)
    }

    pub(super) fn of(
        lines: Arc<Lines>,
        (token, life): (Token, u64),
        order: RequestOrder,
        unflushed: Unflushed,
    ) -> Self {
        let (attached, alone, committing) = Default::default();
        let (sequence, unflushed) = (Sequence::new(order), Mutex::new(unflushed));
        Self { lines, token, life, attached, sequence, alone, unflushed, committing }
    }

    /// Opens the queue for the first time in its life.
    pub(super) fn begin(&self) -> Result<Begun> {
        let at = of_this_thread();
        let begun = self.lines.attach(at, self.token, self.life)?;
        if let (Begun::Attached(attached, _), Some(own)) = (&begun, self.attached.get(at)) {
            *lock(own) = Some(attached.clone());
        }
        Ok(begun)
    }

    /// The queue on the calling thread's connection.
    fn attached(&self) -> Result<Attached> {
        let at = of_this_thread();
        let own = self.attached.get(at).ok_or_else(|| odd("no such connection"))?;
        let mut own = lock(own);
        if let Some(attached) = &*own {
            return Ok(attached.clone());
        }
        match self.lines.attach(at, self.token, self.life)? {
            Begun::Attached(attached, _) => Ok(own.insert(attached).clone()),
            Begun::Ended(_) => Err(Error::Posix(ESTALE)),
        }
    }

    /// Is everything durable that was written?
    pub fn is_flushed(&self) -> bool {
        lock(&self.unflushed).bytes() == 0
    }

    /// Something else is about to make durable what was answered.
    pub fn covers(&self) -> Covered {
        let ended_below = self.sequence.ended_below();
        Covered(lock(&self.unflushed).covered(ended_below))
    }

    /// It has.
    pub fn covered(&self, covered: &Covered) {
        lock(&self.unflushed).flushed(&covered.0);
    }

    /// The place of one call of this kind. `by_host`: a part of it is not granted, and is done in
    /// another way within the turn. Such a call, and one with more requests than are under way at
    /// once, is alone on this queue.
    pub fn turn(
        &self,
        kind: Kind,
        lens: impl IntoIterator<Item = usize>,
        by_host: bool,
    ) -> Turn<'_> {
        let requests: usize = lens.into_iter().map(requests_of).sum();
        let locks = self.sequence.order() == RequestOrder::Locked && kind == Kind::Write;
        let alone = by_host || requests > WINDOW || locks;
        let _held = if alone {
            Held::Alone { _others: self.alone.write().unwrap_or_else(PoisonError::into_inner) }
        } else {
            Held::Beside { _others: self.alone.read().unwrap_or_else(PoisonError::into_inner) }
        };
        Turn { kind, _held }
    }

    /// Fills each buffer from its byte of the area, all of one call.
    ///
    /// # Errors
    /// Above. The contents of the buffers are undefined then.
    ///
    /// # Panics
    /// If the turn is not one for this.
    pub fn read(&self, turn: &Turn<'_>, parts: &mut [(u64, &mut [u8])]) -> Result<()> {
        assert_eq!(turn.kind, Kind::Read, "a read has a turn to read");
        let ranges: Vec<_> = parts.iter().map(|(at, buf)| *at..*at + buf.len() as u64).collect();
        let calls: Vec<_> = parts.iter().flat_map(|(at, buf)| reads(0, *at, buf.len())).collect();
        let mut answers = Vec::new();
        for window in calls.chunks(WINDOW) {
            answers.extend(self.ordered(turn.kind, &ranges, window.to_vec(), |_| ())?);
        }
        let mut answers = answers.into_iter();
        for (_, buf) in parts {
            for piece in buf.chunks_mut(PIECE) {
                match answers.next() {
                    Some(StorageAnswer::Failed { error }) => return Err(error),
                    Some(answer) if copy(&answer, piece) == Some(true) => {}
                    _ => return Err(self.noted(odd("the target answered what was not asked"))),
                }
            }
        }
        Ok(())
    }

    /// One call that reads one range.
    ///
    /// # Errors
    /// As [`Queue::read`].
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let turn = self.turn(Kind::Read, [buf.len()], false);
        self.read(&turn, &mut [(offset, buf)])
    }

    /// Makes durable every write that was answered before.
    ///
    /// # Errors
    /// Above.
    pub fn flush(&self) -> Result<()> {
        let covered = self.covers();
        let done = self.attached().and_then(|Attached { line, queue }| {
            let flush = (Taken::unordered(queue), StorageCall::Flush { device: 0 });
            let ids = line.calls.ask(1)?;
            let answer = line.calls.queued(&ids, vec![flush])?.pop();
            answer.map_or_else(|| Err(odd("no answer")), is_done)
        });
        done.map_err(|error| self.noted(error))?;
        self.covered(&covered);
        Ok(())
    }

    /// Requests of one call, all under way at once. Room on the connection is there before they
    /// have numbers: what has a number is sent without a wait for those behind it.
    pub(super) fn ordered(
        &self,
        kind: Kind,
        ranges: &[Range<u64>],
        calls: Vec<StorageCall>,
        noted: impl FnOnce(&Taken),
    ) -> Result<Vec<StorageAnswer>> {
        let Attached { line, queue } = self.attached().map_err(|error| self.noted(error))?;
        let ids = line.calls.ask(calls.len()).map_err(|error| self.noted(error))?;
        let taken = self.sequence.take(kind, ranges, calls.len(), noted);
        let taken = taken.inspect_err(|_| line.calls.unask(&ids))?;
        let placed = calls.into_iter().enumerate();
        let placed = placed.map(|(at, call)| (taken.place(queue, at), call)).collect();
        let answers = line.calls.queued(&ids, placed).map_err(|error| self.noted(error))?;
        for (at, answer) in answers.iter().enumerate() {
            match answer {
                StorageAnswer::Failed { error } if is_end(error) => {
                    return Err(self.noted(error.clone()));
                }
                _ => self.sequence.answered(taken.place(queue, at)),
            }
        }
        Ok(answers)
    }

    /// An error that ends the life of the queue is told to all of its threads.
    fn noted(&self, error: Error) -> Error {
        if is_end(&error) {
            self.sequence.breaks();
        }
        error
    }
}

/// Does this say that the queue's life has ended? A request that finds no room at the target is in
/// no order any more.
pub(super) fn is_end(error: &Error) -> bool {
    matches!(error, Error::Link(_) | Error::Posix(ESTALE | EAGAIN))
}

fn requests_of(len: usize) -> usize {
    len.div_ceil(PIECE)
}

pub(super) fn is_done(answer: StorageAnswer) -> Result<()> {
    match answer {
        StorageAnswer::Done => Ok(()),
        StorageAnswer::Failed { error } => Err(error),
        _ => Err(odd("the target answered what was not asked")),
    }
}

pub(super) fn odd(why: &str) -> Error {
    Error::Link(why.into())
}
