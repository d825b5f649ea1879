//! One device of a volume at a target.

use crate::calls::Calls;
use crate::target::Target;
use crate::unflushed::{Unflushed, Written};
use siftfs_base::{BLOCK_SIZE, Error, Result, SharedBlock};
use siftfs_device::{Device, DeviceInfo, Discards, Medium, ReadOp, Role, WriteOp};
use siftfs_wire::{STORAGE_MAX_BLOCKS, StorageAnswer, StorageCall, StorageDevice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that one call carries at most.
pub(crate) const PIECE: usize = STORAGE_MAX_BLOCKS * BLOCK_SIZE;
/// Calls of one batch that are under way at once.
const WINDOW: usize = 16;
/// Bytes that are kept unflushed at most; a write that finds more of them flushes first.
const MOST_UNFLUSHED: u64 = 64 << 20;

/// A device whose other end is the target. It is as large as it was when it was opened.
pub struct TargetDevice {
    target: Arc<Target>,
    at: u8,
    part: StorageDevice,
    /// What it was when it was opened.
    info: DeviceInfo,
}

impl TargetDevice {
    /// Device number `at`.
    pub(crate) fn new(target: &Arc<Target>, at: u8, part: StorageDevice) -> Self {
        let info = match target.once(StorageCall::Describe { device: at }) {
            Some(StorageAnswer::Described { info }) => info,
            _ => DeviceInfo::default(),
        };
        Self { target: target.clone(), at, part, info }
    }

    fn unflushed(&self) -> Option<MutexGuard<'_, Unflushed>> {
        // Where a lost target is not waited for, nothing is written again.
        self.target.keeper.get()?;
        let unflushed: &Mutex<Unflushed> = self.target.unflushed.get(usize::from(self.at))?;
        Some(unflushed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes pieces of which any may be carried out when one is refused.
    fn write_pieces(&self, pieces: &[Written], durable: bool) -> Result<()> {
        let kept = self.unflushed().map_or(0, |unflushed| unflushed.bytes());
        if kept > MOST_UNFLUSHED {
            self.flush()?;
        }
        pieces.chunks(WINDOW).try_for_each(|pieces| self.write_window(pieces, durable))
    }

    fn write_window(&self, pieces: &[Written], durable: bool) -> Result<()> {
        let numbers: Vec<u64> = self.unflushed().map_or_else(Vec::new, |mut unflushed| {
            pieces.iter().map(|piece| unflushed.keep(piece.clone())).collect()
        });
        let calls: Vec<_> = pieces.iter().map(|piece| self.write_call(piece, durable)).collect();
        let answers = self.target.calls(&calls)?;
        let mut unflushed = self.unflushed();
        let mut done = Ok(());
        for (at, answer) in answers.iter().enumerate() {
            let number = numbers.get(at).copied();
            let kept = unflushed.as_mut().zip(number);
            match answer {
                StorageAnswer::Done => {
                    kept.into_iter().for_each(|(unflushed, n)| unflushed.answered(n, durable));
                }
                StorageAnswer::Failed { error } => {
                    kept.into_iter().for_each(|(unflushed, n)| unflushed.refused(n));
                    done = done.and(Err(error.clone()));
                }
                other => return Err(self.target.unfit(Some(other))),
            }
        }
        done
    }

    fn write_call(&self, piece: &Written, durable: bool) -> StorageCall {
        let Written { offset, len, blocks } = piece.clone();
        StorageCall::Write { device: self.at, offset, len, durable, blocks }
    }
}

/// The pieces of a write.
pub(crate) fn pieces(offset: u64, data: &[u8]) -> impl Iterator<Item = Written> {
    let places = (0u64..).map(move |piece| offset + piece * PIECE as u64);
    places.zip(data.chunks(PIECE)).map(|(offset, data)| {
        let blocks = data.chunks(BLOCK_SIZE).map(|bytes| {
            let mut block = [0; BLOCK_SIZE];
            block.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            SharedBlock::from(block)
        });
        Written { offset, len: data.len() as u32, blocks: blocks.collect() }
    })
}

/// The calls that read these bytes of a device.
pub(crate) fn reads(device: u8, offset: u64, len: usize) -> impl Iterator<Item = StorageCall> {
    (0..len).step_by(PIECE).map(move |at| StorageCall::Read {
        device,
        offset: offset + at as u64,
        len: PIECE.min(len - at) as u32,
    })
}

/// Copies what was read; false if it is not as much as was asked for.
pub(crate) fn copy(answer: &StorageAnswer, into: &mut [u8]) -> Option<bool> {
    let StorageAnswer::Data { blocks } = answer else { return None };
    if blocks.len() != into.len().div_ceil(BLOCK_SIZE) {
        return Some(false);
    }
    let mut bytes = [0; BLOCK_SIZE];
    for (to, block) in into.chunks_mut(BLOCK_SIZE).zip(blocks) {
        match <&mut [u8; BLOCK_SIZE]>::try_from(&mut *to) {
            Ok(whole) => block.copy_to(whole),
            Err(_) => {
                block.copy_to(&mut bytes);
                to.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
            }
        }
    }
    Some(true)
}

fn check_bounds(op: &'static str, size: u64, offset: u64, len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::Io { op, offset, len, errno: EINVAL }),
    }
}

/// As Linux numbers it on every machine.
const EINVAL: i32 = 22;

impl Device for TargetDevice {
    fn size(&self) -> u64 {
        self.part.size
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_batch(&mut [ReadOp { offset, buf }])
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        check_bounds("write", self.part.size, offset, data.len() as u64)?;
        self.write_pieces(&pieces(offset, data).collect::<Vec<_>>(), fua)
    }

    fn flush(&self) -> Result<()> {
        let covered = self.unflushed().map(|unflushed| unflushed.covered(0));
        self.target.done(StorageCall::Flush { device: self.at })?;
        if let Some((mut unflushed, covered)) = self.unflushed().zip(covered) {
            unflushed.flushed(&covered);
        }
        Ok(())
    }

    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        let mut wanted = Vec::new();
        for op in ops.iter_mut() {
            check_bounds("read", self.part.size, op.offset, op.buf.len() as u64)?;
            let calls = reads(self.at, op.offset, op.buf.len());
            wanted.extend(calls.zip(op.buf.chunks_mut(PIECE)));
        }
        for window in wanted.chunks_mut(WINDOW) {
            let calls: Vec<_> = window.iter().map(|(call, _)| call.clone()).collect();
            let answers = self.target.calls(&calls)?;
            for ((_, into), answer) in window.iter_mut().zip(&answers) {
                match (copy(answer, into), answer) {
                    (Some(true), _) => {}
                    (None, StorageAnswer::Failed { error }) => return Err(error.clone()),
                    _ => return Err(self.target.unfit(Some(answer))),
                }
            }
        }
        Ok(())
    }

    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        for op in ops {
            check_bounds("write", self.part.size, op.offset, op.data.len() as u64)?;
        }
        // A window of pieces at a time: the copies of a long batch do not all exist at once.
        let mut all = ops.iter().flat_map(|op| pieces(op.offset, op.data)).peekable();
        while all.peek().is_some() {
            let window: Vec<_> = all.by_ref().take(WINDOW).collect();
            self.write_pieces(&window, false)?;
        }
        Ok(())
    }

    fn claim(&self, role: Role, patience: Duration) -> Result<()> {
        self.target.claim(self.at, role, patience)
    }

    fn unclaim(&self, role: Role) -> Result<()> {
        // What is written again when the target was lost is written with the roles of then.
        if self.unflushed().is_some_and(|unflushed| unflushed.bytes() > 0) {
            self.flush()?;
        }
        self.target.unclaim(self.at, role)
    }

    fn discards(&self) -> Option<Discards> {
        self.part.discards
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_bounds("discard", self.part.size, offset, len)?;
        self.target.done(StorageCall::Discard { device: self.at, offset, len })
    }

    fn medium(&self) -> Medium {
        self.part.medium
    }

    fn describe(&self) -> DeviceInfo {
        // A report does not wait for a target that is away: what was known when the storage was
        // opened is said then. Of a disk that is all there is; a record area counts.
        let away = if self.target.is_away() { ", which is LOST: waiting for it" } else { "" };
        let counts = self.part.medium == Medium::Bytes && away.is_empty();
        let now = counts.then(|| self.target.once(StorageCall::Describe { device: self.at }));
        let info = match now.flatten() {
            Some(StorageAnswer::Described { info }) => info,
            _ => self.info.clone(),
        };
        let kind = format!("{} at a target{away}", info.kind);
        DeviceInfo { path: self.target.place().to_string(), kind, ..info }
    }
}

/// A device over a connection that no call goes over yet, for a look at its header.
pub(crate) struct Glance {
    calls: Arc<Calls>,
    at: u8,
    part: StorageDevice,
}

impl Glance {
    pub fn new(calls: &Arc<Calls>, at: u8, part: StorageDevice) -> Self {
        Self { calls: calls.clone(), at, part }
    }
}

impl Device for Glance {
    fn size(&self) -> u64 {
        self.part.size
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_bounds("read", self.part.size, offset, buf.len() as u64)?;
        for (call, into) in reads(self.at, offset, buf.len()).zip(buf.chunks_mut(PIECE)) {
            match self.calls.call(call)? {
                StorageAnswer::Failed { error } => return Err(error),
                answer if copy(&answer, into) == Some(true) => {}
                _ => return Err(Error::Link("an answer to something else".into())),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], _fua: bool) -> Result<()> {
        Err(Error::Io { op: "write", offset, len: data.len() as u64, errno: EINVAL })
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn medium(&self) -> Medium {
        self.part.medium
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
