//! A program's way to blocks that a host has granted to it.

use crate::calls::Calls;
use crate::device::{copy, pieces, reads};
use crate::place::TargetPlace;
use crate::unflushed::Written;
use siftfs_base::{Error, Result};
use siftfs_wire::{PROTOCOL_VERSION, StorageAnswer, StorageCall, Token};

/// Calls of one read or write that are under way at once.
const WINDOW: usize = 16;

/// A connection that reads and writes what one grant names, with offsets in bytes of the area, as
/// long as the grant lasts.
///
/// A write that was answered is volatile, as one on a [`siftfs_device::Device`] is, and a flush
/// covers what was answered before. Calls that are under way at once come in any order.
/// [`Error::Link`] from any call: the connection is of no use any more; what was written and not
/// flushed may be lost, if the target has died. [`Error::Refused`]: a byte is not granted.
pub struct Attached {
    calls: Calls,
}

impl Attached {
    /// Connects to the target, with the token that the host was given.
    ///
    /// # Errors
    /// No target is there, it does not admit this program, or nothing is granted so any more.
    pub fn open(place: &TargetPlace, token: Token) -> Result<Self> {
        let attached = Self { calls: Calls::new(place.connect()?) };
        attached.done(StorageCall::Attach { version: PROTOCOL_VERSION, token })?;
        Ok(attached)
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
        let calls: Vec<_> = pieces(offset, data)
            .map(|Written { offset, len, blocks }| StorageCall::Write {
                device: 0,
                offset,
                len,
                durable,
                blocks,
            })
            .collect();
        let mut done = Ok(());
        for window in calls.chunks(WINDOW) {
            for answer in self.calls.all(window.to_vec())? {
                done = done.and(self.is_done(answer));
            }
        }
        done
    }

    /// Makes durable every write that was answered before.
    ///
    /// # Errors
    /// Above.
    pub fn flush(&self) -> Result<()> {
        self.done(StorageCall::Flush { device: 0 })
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
