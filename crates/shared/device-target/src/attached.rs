//! A program's way to blocks that a host has granted to it.

use crate::calls::Calls;
use crate::device::{copy, pieces, reads};
use crate::place::TargetPlace;
use crate::unflushed::{Unflushed, Written};
use siftfs_base::{BLOCK_SIZE, Error, Result};
use siftfs_wire::{PROTOCOL_VERSION, StorageAnswer, StorageCall, Token};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls of one read or write that are under way at once.
const WINDOW: usize = 16;
/// Bytes that are kept unflushed at most; a write that finds more of them flushes first.
const MOST_UNFLUSHED: u64 = 16 << 20;

/// A connection that reads and writes what one grant names, with offsets in bytes of the area, as
/// long as the grant lasts.
///
/// A write that was answered is volatile, as one on a [`siftfs_device::Device`] is, and a flush
/// covers what was answered before. Calls that are under way at once come in any order.
/// [`Error::Link`] from any call: the connection is of no use any more; what was written and not
/// flushed may be lost, if the target has died, and is kept here. [`Error::Refused`]: a byte is not
/// granted.
pub struct Attached {
    calls: Calls,
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

impl Attached {
    /// Connects to the target, with the token that the host was given.
    ///
    /// # Errors
    /// No target is there, it does not admit this program, or nothing is granted so any more.
    pub fn open(place: &TargetPlace, token: Token) -> Result<Self> {
        let attached = Self { calls: Calls::new(place.connect()?), unflushed: Mutex::default() };
        attached.done(StorageCall::Attach { version: PROTOCOL_VERSION, token })?;
        Ok(attached)
    }

    /// As [`Attached::open`], after the connection was lost: what is kept is so still.
    ///
    /// # Errors
    /// As [`Attached::open`], with what is kept, in the order of the writes.
    pub fn again(
        self,
        place: &TargetPlace,
        token: Token,
    ) -> std::result::Result<Self, (Error, Vec<Kept>)> {
        match Self::open(place, token) {
            Ok(new) => Ok(Self { calls: new.calls, unflushed: self.unflushed }),
            Err(error) => Err((error, self.kept())),
        }
    }

    fn unflushed(&self) -> MutexGuard<'_, Unflushed> {
        self.unflushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is not known to be durable, in the order of the writes.
    pub fn kept(&self) -> Vec<Kept> {
        let all = self.unflushed().all();
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
        self.unflushed().bytes() == 0
    }

    /// Bytes of what is not known to be durable.
    pub fn kept_bytes(&self) -> u64 {
        self.unflushed().bytes()
    }

    /// Something else is about to make durable what was answered.
    pub fn covers(&self) -> Covered {
        Covered(self.unflushed().covered())
    }

    /// It has.
    pub fn covered(&self, covered: &Covered) {
        self.unflushed().flushed(&covered.0);
    }

    /// Fills `buf` from byte `offset` of the area.
    ///
    /// # Errors
    /// Above. The contents of the buffer are undefined then.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let calls: Vec<_> = reads(0, offset, buf.len()).collect();
        let mut left = buf;
        for window in calls.chunks(WINDOW) {
            for (call, answer) in window.iter().zip(self.calls.all(window.to_vec())?) {
                let StorageCall::Read { len, .. } = call else { continue };
                let (piece, rest) =
                    left.split_at_mut_checked(*len as usize).ok_or_else(|| self.odd())?;
                if let StorageAnswer::Failed { error } = answer {
                    return Err(error);
                }
                if copy(&answer, piece) != Some(true) {
                    return Err(self.odd());
                }
                left = rest;
            }
        }
        Ok(())
    }

    /// Writes `data` at byte `offset` of the area; `durable` makes this write durable before it
    /// returns.
    ///
    /// # Errors
    /// Above. Any part may be written then.
    pub fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<()> {
        if self.unflushed().bytes() > MOST_UNFLUSHED {
            self.flush()?;
        }
        let pieces: Vec<_> = pieces(offset, data).collect();
        let mut done = Ok(());
        for window in pieces.chunks(WINDOW) {
            let numbers: Vec<u64> = {
                let mut unflushed = self.unflushed();
                window.iter().map(|piece| unflushed.keep(piece.clone())).collect()
            };
            let call = |piece: &Written| {
                let Written { offset, len, blocks } = piece.clone();
                StorageCall::Write { device: 0, offset, len, durable, blocks }
            };
            let answers = self.calls.all(window.iter().map(call).collect())?;
            for (number, answer) in numbers.into_iter().zip(answers) {
                let one = self.is_done(answer);
                match &one {
                    Ok(()) => self.unflushed().answered(number, durable),
                    Err(_) => self.unflushed().refused(number),
                }
                done = done.and(one);
            }
        }
        done
    }

    /// Makes durable every write that was answered before.
    ///
    /// # Errors
    /// Above.
    pub fn flush(&self) -> Result<()> {
        let covered = self.covers();
        self.done(StorageCall::Flush { device: 0 })?;
        self.covered(&covered);
        Ok(())
    }

    fn done(&self, call: StorageCall) -> Result<()> {
        let answer = self.calls.call(call)?;
        self.is_done(answer)
    }

    fn is_done(&self, answer: StorageAnswer) -> Result<()> {
        match answer {
            StorageAnswer::Done => Ok(()),
            StorageAnswer::Failed { error } => Err(error),
            _ => Err(self.odd()),
        }
    }

    fn odd(&self) -> Error {
        Error::Link("the target answered what was not asked".into())
    }
}
