//! Writes of a queue, and what becomes of them when its life ends before they are answered.
//!
//! Such a write may have been carried out, and been seen, and another one may have come over it:
//! then it must not be written again (`docs/design/protocol-model.md`, "Request groups"). So it is
//! the queue that sees to it, before any further call: the target says what was carried out of the
//! life that has ended, and the rest is written in the next one, in the order in which it was
//! asked for.

use crate::device::pieces;
use crate::queues::atomic::{Fate, Outcome};
use crate::queues::lines::{Begun, lock};
use crate::queues::queue::{EAGAIN, ESTALE, Queue, Turn, WINDOW, is_done, is_end};
use crate::queues::sequence::{Kind, Taken};
use crate::unflushed::{Unflushed, Written};
use siftfs_base::{BLOCK_SIZE, Error, Result};
use siftfs_wire::{Carried, StorageCall};
use std::sync::{Arc, PoisonError};

/// Bytes that are kept unflushed at most; a write that finds more of them flushes first.
const MOST_UNFLUSHED: u64 = 16 << 20;
/// Lives that are tried: each may end at once, with its connection.
const LIVES: u64 = 4;

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What happened.
    pub error: Error,
    /// The queue has the write, and its next life, or what comes after it, carries it out: the
    /// caller must not do it again.
    pub kept: bool,
}

/// A write that is not known to be durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// First byte of the area.
    pub offset: u64,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// What follows on a life that has ended.
pub enum Next {
    /// The next life: nothing of the last one is carried out any more. The writes that were not
    /// answered are carried out, or one of them was refused.
    Life(Box<Queue>, Result<()>),
    /// The grant has ended in order, and what was answered is durable. These writes were not
    /// carried out, in this order. `EIO`: some are in doubt, which may have been, or not.
    Ended(Vec<Kept>, Result<()>),
    /// The grant cannot be reached: these writes may be lost, in this order. With what came of
    /// others.
    Lost(Vec<Kept>, Result<()>),
}

impl Queue {
    /// Writes each part at its byte of the area, all of one call; `durable` makes them durable
    /// before it returns.
    ///
    /// # Errors
    /// Those of a queue. Any part may be written then. What is [`Failed::kept`] is not to be
    /// written again by the caller: [`Queue::again`] sees to it.
    ///
    /// # Panics
    /// If the turn is not one for this.
    pub fn write(
        &self,
        turn: &Turn<'_>,
        parts: &[(u64, &[u8])],
        durable: bool,
    ) -> std::result::Result<(), Failed> {
        assert_eq!(turn.kind, Kind::Write, "a write has a turn to write");
        if lock(&self.unflushed).bytes() > MOST_UNFLUSHED {
            self.flush().map_err(|error| Failed { error, kept: false })?;
        }
        let all: Vec<_> = parts.iter().flat_map(|(at, data)| pieces(*at, data)).collect();
        let (mut done, mut names) = (Ok(()), Vec::new());
        for (at, window) in all.chunks(WINDOW).enumerate() {
            let noted =
                |taken: &Taken| self.note(&all, (at * WINDOW, window.len()), &mut names, taken);
            let written = self.write_window(window, durable, noted);
            let answers = written.map_err(|error| Failed { error, kept: !names.is_empty() })?;
            for (name, one) in names.iter().skip(at * WINDOW).zip(answers) {
                match &one {
                    Ok(()) => lock(&self.unflushed).answered(*name, durable),
                    Err(_) => lock(&self.unflushed).refused(*name),
                }
                done = done.and(one);
            }
        }
        done.map_err(|error| Failed { error, kept: false })
    }

    /// Keeps all of a call's writes before the first is sent, in the order in which the target
    /// carries out what meets. Those of this window have places.
    fn note(&self, all: &[Written], window: (usize, usize), names: &mut Vec<u64>, taken: &Taken) {
        let mut unflushed = lock(&self.unflushed);
        if names.is_empty() {
            names.extend(all.iter().map(|piece| unflushed.keep(piece.clone())));
        }
        let own = names.iter().skip(window.0).take(window.1);
        own.enumerate().for_each(|(at, name)| unflushed.place(*name, taken.number(at)));
    }

    fn write_window(
        &self,
        window: &[Written],
        durable: bool,
        noted: impl FnOnce(&Taken),
    ) -> Result<Vec<Result<()>>> {
        let ranges: Vec<_> =
            window.iter().map(|piece| piece.offset..piece.offset + u64::from(piece.len)).collect();
        let call = |piece: &Written| {
            let Written { offset, len, blocks } = piece.clone();
            StorageCall::Write { device: 0, offset, len, durable, blocks }
        };
        let calls = window.iter().map(call).collect();
        let answers = self.ordered(Kind::Write, &ranges, calls, noted)?;
        Ok(answers.into_iter().map(is_done).collect())
    }

    /// One call that writes one range.
    ///
    /// # Errors
    /// As [`Queue::write`].
    pub fn write_at(&self, offset: u64, data: &[u8], durable: bool) -> Result<()> {
        let turn = self.turn(Kind::Write, [data.len()], false);
        self.write(&turn, &[(offset, data)], durable).map_err(|failed| failed.error)
    }

    /// Is there a write that was not answered? There is one while a call is under way, and after
    /// the life of the queue has ended in one.
    pub fn has_unanswered(&self) -> bool {
        !lock(&self.unflushed).unanswered().is_empty()
    }

    /// Bytes that are not known to be durable.
    pub fn kept_bytes(&self) -> u64 {
        lock(&self.unflushed).bytes()
    }

    /// What is not known to be durable, in the order of the writes.
    pub fn kept(&self) -> Vec<Kept> {
        kept(&lock(&self.unflushed))
    }

    /// What follows on this life, of which no call is under way. No call of it is carried out any
    /// more when this returns.
    pub fn again(self) -> Next {
        let Self { lines, token, life: last, sequence, unflushed, committing, .. } = self;
        let mut unflushed = unflushed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let commit = committing.into_inner().unwrap_or_else(PoisonError::into_inner);
        for life in last + 1..=last + LIVES {
            let next = Self::of(lines.clone(), (token, life), sequence.order(), unflushed);
            match next.begin() {
                Ok(Begun::Attached(_, carried)) => {
                    decide(commit, last, Some(&carried));
                    return next.resume(last, &carried);
                }
                Ok(Begun::Ended(carried)) => {
                    decide(commit, last, Some(&carried));
                    let doubt = next.sort_out(last, &carried);
                    let mut left = lock(&next.unflushed);
                    left.drop_answered();
                    return Next::Ended(kept(&left), doubt);
                }
                Err(Error::Posix(ESTALE)) => {
                    // It has ended in order, so what was answered is durable.
                    decide(commit, last, None);
                    let in_doubt = if next.has_unanswered() { Err(EIO) } else { Ok(()) };
                    return Next::Ended(Vec::new(), in_doubt);
                }
                Err(Error::Link(_) | Error::Posix(EAGAIN)) if life < last + LIVES => {
                    let kept = next.unflushed;
                    unflushed = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
                }
                Err(_) => return Next::Lost(next.kept(), Ok(())),
            }
        }
        unreachable!("the last life that is tried returns")
    }

    /// Writes what was not carried out of the `last` life. No other call is under way.
    fn resume(self, last: u64, carried: &Carried) -> Next {
        let mut done = self.sort_out(last, carried);
        let left = lock(&self.unflushed).unanswered();
        for (name, _, written) in left {
            let noted = |taken: &Taken| lock(&self.unflushed).place(name, taken.number(0));
            let one = self.write_window(std::slice::from_ref(&written), false, noted);
            match one.map(|mut answers| answers.pop()) {
                Ok(Some(Ok(()))) => lock(&self.unflushed).answered(name, false),
                Ok(Some(Err(error))) => {
                    lock(&self.unflushed).refused(name);
                    done = done.and(Err(error));
                }
                // This life has ended, too.
                Err(error) if is_end(&error) => return Next::Lost(self.kept(), done),
                Ok(None) | Err(_) => return Next::Lost(self.kept(), done.and(Err(EIO))),
            }
        }
        Next::Life(Box::new(self), done)
    }

    /// Takes what was carried out of the `last` life as answered.
    fn sort_out(&self, last: u64, carried: &Carried) -> Result<()> {
        let mut unflushed = lock(&self.unflushed);
        let mut done = Ok(());
        for (name, request, _) in unflushed.unanswered() {
            match request {
                Some(_) if carried.life > last => {
                    // Somebody else has had the queue: whether it was carried out is not known.
                    unflushed.refused(name);
                    done = Err(EIO);
                }
                Some(number) if carried.life == last && carried.has(number) => {
                    unflushed.answered(name, false);
                }
                _ => {}
            }
        }
        done
    }
}

/// Says what became of a commit of the `last` life that was not answered, by what was carried out
/// of the last life that had requests, if that is known.
fn decide(commit: Option<(u64, Arc<Fate>)>, last: u64, carried: Option<&Carried>) {
    let Some((number, fate)) = commit else { return };
    fate.set(match carried {
        Some(carried) if carried.life == last && carried.has(number) => Outcome::Done,
        Some(carried) if carried.life <= last => Outcome::Undone,
        // Somebody else has had the queue, or it is too long ago.
        _ => Outcome::InDoubt,
    });
}

const EIO: Error = Error::Posix(5);

fn kept(unflushed: &Unflushed) -> Vec<Kept> {
    let bytes = |Written { offset, len, blocks }: Written| {
        let (mut data, mut block) = (Vec::new(), [0; BLOCK_SIZE]);
        for from in blocks {
            from.copy_to(&mut block);
            data.extend_from_slice(&block);
        }
        data.truncate(len as usize);
        Kept { offset, data }
    };
    unflushed.all().into_iter().map(bytes).collect()
}
