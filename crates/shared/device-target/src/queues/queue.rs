//! What a host has granted to a program, as the program's threads read and write it.

use crate::device::{PIECE, copy, pieces, reads};
use crate::queues::lines::{Attached, LINES, Lines, lock, of_this_thread};
use crate::queues::sequence::{Kind, RequestOrder, Sequence, Taken};
use crate::unflushed::{Unflushed, Written};
use siftfs_base::{BLOCK_SIZE, Error, Result};
use siftfs_wire::{StorageAnswer, StorageCall, Token};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const EAGAIN: i32 = 11;
const ESTALE: i32 = 116;
/// Requests of one call that are under way at once.
const WINDOW: usize = 16;
/// Bytes that are kept unflushed at most; a write that finds more of them flushes first.
const MOST_UNFLUSHED: u64 = 16 << 20;

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
    lines: Arc<Lines>,
    token: Token,
    life: u64,
    attached: [Mutex<Option<Attached>>; LINES],
    sequence: Sequence,
    /// Held to read by calls that the target orders, and to write by those that it cannot.
    alone: RwLock<()>,
    unflushed: Mutex<Unflushed>,
}

/// A write that is not known to be durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// First byte of the area.
    pub offset: u64,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// What a flush that begins now covers.
pub struct Covered(Vec<u64>);

/// A call's place beside other calls of the queue, until it is dropped.
pub struct Turn<'a> {
    kind: Kind,
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

    fn of(
        lines: Arc<Lines>,
        (token, life): (Token, u64),
        order: RequestOrder,
        unflushed: Unflushed,
    ) -> Self {
        let (attached, alone) = Default::default();
        let (sequence, unflushed) = (Sequence::new(order), Mutex::new(unflushed));
        Self { lines, token, life, attached, sequence, alone, unflushed }
    }

    /// Begins a new life, after the last one has ended: what is kept is so still. No call of the
    /// last life is carried out any more when this returns.
    ///
    /// # Errors
    /// As [`Queue::open`], with what is kept, in the order of the writes.
    pub fn again(self) -> std::result::Result<Self, (Error, Vec<Kept>)> {
        let Self { lines, token, life, sequence, unflushed, .. } = self;
        let unflushed = unflushed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let next = Self::of(lines, (token, life + 1), sequence.order(), unflushed);
        match next.attached() {
            Ok(_) => Ok(next),
            Err(error) => Err((error, next.kept())),
        }
    }

    /// The queue on the calling thread's connection.
    fn attached(&self) -> Result<Attached> {
        let at = of_this_thread();
        let own = self.attached.get(at).ok_or_else(|| odd("no such connection"))?;
        let mut own = lock(own);
        if let Some(attached) = &*own {
            return Ok(attached.clone());
        }
        let attached = self.lines.attach(at, self.token, self.life)?;
        Ok(own.insert(attached).clone())
    }

    /// What is not known to be durable, in the order of the writes.
    pub fn kept(&self) -> Vec<Kept> {
        let all = lock(&self.unflushed).all();
        let bytes = |Written { offset, len, blocks }: Written| {
            let (mut data, mut block) = (Vec::new(), [0; BLOCK_SIZE]);
            for from in blocks {
                from.copy_to(&mut block);
                data.extend_from_slice(&block);
            }
            data.truncate(len as usize);
            Kept { offset, data }
        };
        all.into_iter().map(bytes).collect()
    }

    /// Is everything durable that was written?
    pub fn is_flushed(&self) -> bool {
        lock(&self.unflushed).bytes() == 0
    }

    /// Something else is about to make durable what was answered.
    pub fn covers(&self) -> Covered {
        Covered(lock(&self.unflushed).covered())
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
            answers.extend(self.ordered(turn.kind, &ranges, window.to_vec(), || ())?);
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

    /// Writes each part at its byte of the area, all of one call; `durable` makes them durable
    /// before it returns.
    ///
    /// # Errors
    /// Above. Any part may be written then.
    ///
    /// # Panics
    /// If the turn is not one for this.
    pub fn write(&self, turn: &Turn<'_>, parts: &[(u64, &[u8])], durable: bool) -> Result<()> {
        assert_eq!(turn.kind, Kind::Write, "a write has a turn to write");
        if lock(&self.unflushed).bytes() > MOST_UNFLUSHED {
            self.flush()?;
        }
        let ranges: Vec<_> = parts.iter().map(|(at, data)| *at..*at + data.len() as u64).collect();
        let all: Vec<_> = parts.iter().flat_map(|(at, data)| pieces(*at, data)).collect();
        let mut done = Ok(());
        for window in all.chunks(WINDOW) {
            let call = |piece: &Written| {
                let Written { offset, len, blocks } = piece.clone();
                StorageCall::Write { device: 0, offset, len, durable, blocks }
            };
            let calls = window.iter().map(call).collect();
            let mut numbers = Vec::new();
            let keep = || {
                // In the order in which the target carries out what meets.
                let mut unflushed = lock(&self.unflushed);
                numbers.extend(window.iter().map(|piece| unflushed.keep(piece.clone())));
            };
            let answers = self.ordered(turn.kind, &ranges, calls, keep)?;
            for (number, answer) in numbers.into_iter().zip(answers) {
                let one = is_done(answer);
                match &one {
                    Ok(()) => lock(&self.unflushed).answered(number, durable),
                    Err(_) => lock(&self.unflushed).refused(number),
                }
                done = done.and(one);
            }
        }
        done
    }

    /// One call that reads one range.
    ///
    /// # Errors
    /// As [`Queue::read`].
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let turn = self.turn(Kind::Read, [buf.len()], false);
        self.read(&turn, &mut [(offset, buf)])
    }

    /// One call that writes one range.
    ///
    /// # Errors
    /// As [`Queue::write`].
    pub fn write_at(&self, offset: u64, data: &[u8], durable: bool) -> Result<()> {
        let turn = self.turn(Kind::Write, [data.len()], false);
        self.write(&turn, &[(offset, data)], durable)
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
    fn ordered(
        &self,
        kind: Kind,
        ranges: &[Range<u64>],
        calls: Vec<StorageCall>,
        noted: impl FnOnce(),
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
                _ => self.sequence.answered(taken.place(queue, at).number),
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
fn is_end(error: &Error) -> bool {
    matches!(error, Error::Link(_) | Error::Posix(ESTALE | EAGAIN))
}

fn requests_of(len: usize) -> usize {
    len.div_ceil(PIECE)
}

fn is_done(answer: StorageAnswer) -> Result<()> {
    match answer {
        StorageAnswer::Done => Ok(()),
        StorageAnswer::Failed { error } => Err(error),
        _ => Err(odd("the target answered what was not asked")),
    }
}

fn odd(why: &str) -> Error {
    Error::Link(why.into())
}
