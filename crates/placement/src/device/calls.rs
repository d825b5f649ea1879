//! Calls on storage over one connection, carried out by a few threads, answered in any order.

use siftfs_base::{BLOCK_SIZE, Error, Result, SharedBlock, corrupt};
use siftfs_device::{AlignedBuf, Device};
use siftfs_transport::{Received, Receiver, Sender, ServerEnd};
use siftfs_wire::{
    BlockProtocol, FromService, STORAGE_MAX_BLOCKS, StorageAnswer, StorageCall, ToService,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The Service's end of a connection.
pub type DeviceEnd = ServerEnd<BlockProtocol>;

/// How often a worker without a call checks whether it is still wanted.
const POLL: Duration = Duration::from_millis(100);

/// What carries out the calls of one connection.
pub(crate) trait Answers: Sync {
    /// Calls that are carried out at once.
    const WORKERS: usize;

    /// One call. [`Error::Refused`]: the caller may not ask for this.
    fn carry_out(&self, call: StorageCall) -> Result<StorageAnswer>;

    /// Is no further call to be carried out?
    fn is_over(&self) -> bool {
        false
    }
}

/// Why a session ended.
pub(crate) enum SessionEnd {
    /// The caller closed the connection.
    Closed,
    /// The server ends, or what was served is over.
    Stopped,
    /// The connection broke, or the caller broke the protocol.
    Broke(Error),
}

/// Carries calls out until the connection ends, `session` is over, or `stopped` says so. None is
/// under way when this returns; `refused` is told what the caller may not ask.
pub(crate) fn serve<S: Answers>(
    session: &S,
    end: &mut DeviceEnd,
    stopped: &(dyn Fn() -> bool + Sync),
    refused: &(dyn Fn(&Error) + Sync),
) -> SessionEnd {
    let receiver = Mutex::new(&mut end.receiver);
    let (ended, why) = (AtomicBool::new(false), Mutex::new(None));
    let stopped = || stopped() || session.is_over();
    let work = || {
        while !ended.load(Ordering::Acquire) {
            let ends = match next(&receiver, &stopped) {
                Ok(Some((id, call))) => answer(session, (id, call), &*end.sender, refused).err(),
                Ok(None) => None,
                Err(ends) => Some(ends),
            };
            if let Some(ends) = ends {
                ended.store(true, Ordering::Release);
                lock(&why).get_or_insert(ends);
            }
        }
    };
    thread::scope(|scope| {
        let started = (1..S::WORKERS).try_for_each(|_| {
            let worker = thread::Builder::new().name("siftfs-storage".into());
            worker.spawn_scoped(scope, work).map(drop)
        });
        if let Err(error) = started {
            tracing::warn!(%error, "fewer threads than usual for calls on the storage");
        }
        work();
    });
    lock(&why).take().unwrap_or(SessionEnd::Stopped)
}

fn answer(
    session: &impl Answers,
    (id, call): (u64, StorageCall),
    sender: &dyn Sender<FromService>,
    refused: &(dyn Fn(&Error) + Sync),
) -> std::result::Result<(), SessionEnd> {
    let answer = session.carry_out(call).unwrap_or_else(|error| {
        if matches!(error, Error::Refused(_)) {
            refused(&error);
        }
        StorageAnswer::Failed { error }
    });
    sender.send(FromService::Storage { id, answer }).map_err(SessionEnd::Broke)
}

/// The next call, received by the worker whose turn it is.
fn next(
    receiver: &Mutex<&mut Box<dyn Receiver<ToService>>>,
    stopped: &dyn Fn() -> bool,
) -> std::result::Result<Option<(u64, StorageCall)>, SessionEnd> {
    let mut receiver = lock(receiver);
    if stopped() {
        return Err(SessionEnd::Stopped);
    }
    match receiver.recv(Some(POLL)) {
        Ok(Received::Message(ToService::Storage { id, call })) => Ok(Some((id, call))),
        Ok(Received::Message(_)) => {
            let what = "a message that is no call on the storage";
            Err(SessionEnd::Broke(corrupt("message of the block protocol", what)))
        }
        Ok(Received::Timeout) => Ok(None),
        Ok(Received::Closed) => Err(SessionEnd::Closed),
        Err(error) => Err(SessionEnd::Broke(error)),
    }
}

/// Reads, as a call asks for it.
pub(crate) fn read(device: &dyn Device, offset: u64, len: u32) -> Result<StorageAnswer> {
    read_by(len, |bytes| device.read(offset, bytes))
}

/// As [`read`], of what `fill` puts into the buffer.
pub(crate) fn read_by(
    len: u32,
    fill: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<StorageAnswer> {
    let mut bytes = AlignedBuf::zeroed(sensible(len)?);
    fill(&mut bytes)?;
    let blocks = bytes.chunks(BLOCK_SIZE).map(|part| {
        let mut block = [0; BLOCK_SIZE];
        block.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        SharedBlock::from(block)
    });
    Ok(StorageAnswer::Data { blocks: blocks.collect() })
}

/// What a call is to write, as it came.
pub(crate) struct Carried {
    bytes: AlignedBuf,
    len: usize,
}

impl Carried {
    /// Out of the blocks of a call.
    pub fn of(len: u32, blocks: &[SharedBlock]) -> Result<Self> {
        let len = sensible(len)?;
        if blocks.len() != len.div_ceil(BLOCK_SIZE) {
            let what = format!("a write of {len} bytes with {} blocks", blocks.len());
            return Err(Error::Refused(what));
        }
        let mut bytes = AlignedBuf::zeroed(blocks.len() * BLOCK_SIZE);
        for (to, block) in bytes.as_chunks_mut::<BLOCK_SIZE>().0.iter_mut().zip(blocks) {
            block.copy_to(to);
        }
        Ok(Self { bytes, len })
    }

    /// All of it.
    pub fn data(&self) -> Result<&[u8]> {
        self.bytes.get(..self.len).ok_or_else(|| Error::Refused("too few blocks".into()))
    }
}

/// A length that a call may have.
fn sensible(len: u32) -> Result<usize> {
    let len = len as usize;
    if len <= STORAGE_MAX_BLOCKS * BLOCK_SIZE {
        return Ok(len);
    }
    Err(Error::Refused(format!("{len} bytes in one call")))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
