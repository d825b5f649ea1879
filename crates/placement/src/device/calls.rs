//! Calls on storage over one connection, carried out by a few threads, answered in any order.

use siftfs_base::{BLOCK_SIZE, Error, Result, SharedBlock, corrupt};
use siftfs_device::{AlignedBuf, Device};
use siftfs_transport::{Received, Receiver, Sender, ServerEnd};
use siftfs_wire::{BlockProtocol, FromService, STORAGE_MAX_BLOCKS, StorageAnswer, ToService};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The Service's end of a connection.
pub type DeviceEnd = ServerEnd<BlockProtocol>;

/// How often a worker without a call checks whether it is still wanted.
const POLL: Duration = Duration::from_millis(100);

/// What carries out the calls of one connection, by a few threads.
pub(crate) trait Answers: Sync {
    /// Calls that are carried out at once.
    const WORKERS: usize;

    /// Takes one message. What it asks is done and answered.
    fn take(&self, message: ToService, line: &Line<'_>) -> Taken;
}

/// The connection goes on, or has ended.
pub(crate) type Taken = std::result::Result<(), SessionEnd>;

/// Takes what a caller may not ask.
pub(crate) type Refusals = Box<dyn Fn(&Error) + Send + Sync>;

/// A connection, as those have it that answer.
pub(crate) struct Line<'a> {
    sender: &'a dyn Sender<FromService>,
    refused: &'a Refusals,
}

impl Line<'_> {
    /// Answers a call; a refusal is told, too.
    pub fn answer(&self, id: u64, answer: Result<StorageAnswer>) -> Taken {
        let answer = told(answer, self.refused);
        self.sender.send(FromService::Storage { id, answer }).map_err(SessionEnd::Broke)
    }
}

/// An answer as it is sent; a refusal is told to `refused`, too.
pub(crate) fn told(answer: Result<StorageAnswer>, refused: &Refusals) -> StorageAnswer {
    answer.unwrap_or_else(|error| {
        if matches!(error, Error::Refused(_)) {
            refused(&error);
        }
        StorageAnswer::Failed { error }
    })
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

/// Carries calls out until the connection ends, or `stopped` says so. None is under way when this
/// returns; `refused` is told what the caller may not ask.
pub(crate) fn serve<S: Answers>(
    session: &S,
    end: &mut DeviceEnd,
    stopped: &(dyn Fn() -> bool + Sync),
    refused: &Refusals,
) -> SessionEnd {
    let line = Line { sender: &*end.sender, refused };
    let receiver = Mutex::new(&mut end.receiver);
    let why: Mutex<Option<SessionEnd>> = Mutex::new(None);
    let ended = || lock(&why).is_some();
    let work = || {
        while !ended() {
            let came = next(&receiver, &|| stopped() || ended());
            let done = came.and_then(|came| came.map_or(Ok(()), |m| session.take(m, &line)));
            if let Err(ends) = done {
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

/// The next message, received by the worker whose turn it is.
fn next(
    receiver: &Mutex<&mut Box<dyn Receiver<ToService>>>,
    stopped: &dyn Fn() -> bool,
) -> std::result::Result<Option<ToService>, SessionEnd> {
    let mut receiver = lock(receiver);
    if stopped() {
        return Err(SessionEnd::Stopped);
    }
    match receiver.recv(Some(POLL)) {
        Ok(Received::Message(message)) => Ok(Some(message)),
        Ok(Received::Timeout) => Ok(None),
        Ok(Received::Closed) => Err(SessionEnd::Closed),
        Err(error) => Err(SessionEnd::Broke(error)),
    }
}

/// A message that has no place on this connection.
pub(crate) fn out_of_place() -> SessionEnd {
    let what = "a message that is no call on the storage";
    SessionEnd::Broke(corrupt("message of the block protocol", what))
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
    Ok(data_of(&bytes))
}

/// An answer of these bytes.
pub(crate) fn data_of(bytes: &[u8]) -> StorageAnswer {
    let blocks = bytes.chunks(BLOCK_SIZE).map(|part| {
        let mut block = [0; BLOCK_SIZE];
        block.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        SharedBlock::from(block)
    });
    StorageAnswer::Data { blocks: blocks.collect() }
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

    /// The bytes, of which the first ones are to be written.
    pub fn into_bytes(self) -> AlignedBuf {
        self.bytes
    }

    /// All of it.
    pub fn data(&self) -> Result<&[u8]> {
        self.bytes.get(..self.len).ok_or_else(|| Error::Refused("too few blocks".into()))
    }
}

/// A length that a call may have.
pub(crate) fn sensible(len: u32) -> Result<usize> {
    let len = len as usize;
    if len <= STORAGE_MAX_BLOCKS * BLOCK_SIZE {
        return Ok(len);
    }
    Err(Error::Refused(format!("{len} bytes in one call")))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
