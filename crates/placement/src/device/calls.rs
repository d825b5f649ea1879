//! Calls on storage over one connection, carried out by a few threads, answered in any order.

use siftfs_base::{BLOCK_SIZE, Error, Result, SharedBlock, corrupt};
use siftfs_device::{AlignedBuf, Device};
use siftfs_transport::{Received, Receiver, Sender, ServerEnd};
use siftfs_wire::{BlockProtocol, FromService, STORAGE_MAX_BLOCKS, StorageAnswer, ToService};
use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The Service's end of a connection.
pub type DeviceEnd = ServerEnd<BlockProtocol>;

/// How often a worker without a call checks whether it is still wanted.
const POLL: Duration = Duration::from_millis(100);

/// What carries out the calls of one connection, by a few threads.
pub(crate) trait Answers: Sync {
    /// What was taken, and is carried out later.
    type Later: Send;
    /// Calls that are carried out at once.
    const WORKERS: usize;

    /// Takes one message. What it asks is done and answered, or kept until it may be done.
    fn take(&self, message: ToService, line: &Arc<Line<Self::Later>>) -> Taken;

    /// Does what was kept, and may be done now.
    fn resume(&self, later: Self::Later, line: &Arc<Line<Self::Later>>) -> Taken;

    /// What was kept is not to be done any more: the connection has ended.
    fn give_up(&self, later: Self::Later);

    /// Done again and again, also while nothing comes.
    fn look(&self) {}

    /// Is no further call to be carried out?
    fn is_over(&self) -> bool {
        false
    }
}

/// The connection goes on, or has ended.
pub(crate) type Taken = std::result::Result<(), SessionEnd>;

/// A connection, as its workers have it, and as others do who have something for them.
pub(crate) struct Line<T> {
    sender: Arc<dyn Sender<FromService>>,
    refused: Box<dyn Fn(&Error) + Send + Sync>,
    state: Mutex<LineState<T>>,
    changed: Condvar,
}

struct LineState<T> {
    ready: VecDeque<T>,
    receiving: bool,
    ended: bool,
}

/// What a worker is to do.
enum Turn<T> {
    Receive,
    Resume(T),
    End,
}

impl<T> Line<T> {
    fn new(
        sender: &Arc<dyn Sender<FromService>>,
        refused: Box<dyn Fn(&Error) + Send + Sync>,
    ) -> Arc<Self> {
        let state = LineState { ready: VecDeque::new(), receiving: false, ended: false };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Arc::new(Self { sender: sender.clone(), refused, state, changed })
    }

    /// Answers a call; a refusal is told, too.
    pub fn answer(&self, id: u64, answer: Result<StorageAnswer>) -> Taken {
        let answer = answer.unwrap_or_else(|error| {
            if matches!(error, Error::Refused(_)) {
                (self.refused)(&error);
            }
            StorageAnswer::Failed { error }
        });
        self.sender.send(FromService::Storage { id, answer }).map_err(SessionEnd::Broke)
    }

    /// For one of the connection's workers. Comes back if the connection has ended.
    pub fn push(&self, later: T) -> std::result::Result<(), T> {
        let mut state = lock(&self.state);
        if state.ended {
            return Err(later);
        }
        state.ready.push_back(later);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    fn turn(&self) -> Turn<T> {
        let mut state = lock(&self.state);
        loop {
            if state.ended {
                return Turn::End;
            }
            if let Some(later) = state.ready.pop_front() {
                return Turn::Resume(later);
            }
            if !state.receiving {
                state.receiving = true;
                return Turn::Receive;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Another worker may receive.
    fn received(&self) {
        lock(&self.state).receiving = false;
        self.changed.notify_one();
    }

    /// What nobody will do any more.
    fn end(&self) -> VecDeque<T> {
        let mut state = lock(&self.state);
        state.ended = true;
        let left = mem::take(&mut state.ready);
        drop(state);
        self.changed.notify_all();
        left
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
    refused: Box<dyn Fn(&Error) + Send + Sync>,
) -> SessionEnd {
    let line = Line::new(&end.sender, refused);
    let receiver = Mutex::new(&mut end.receiver);
    let why = Mutex::new(None);
    let stopped = || stopped() || session.is_over();
    let finish = |left: VecDeque<S::Later>| left.into_iter().for_each(|l| session.give_up(l));
    let work = || loop {
        let done = match line.turn() {
            Turn::End => return,
            Turn::Resume(later) => session.resume(later, &line),
            Turn::Receive => {
                let came = next(&receiver, &stopped);
                line.received();
                session.look();
                came.and_then(|came| came.map_or(Ok(()), |m| session.take(m, &line)))
            }
        };
        if let Err(ends) = done {
            finish(line.end());
            lock(&why).get_or_insert(ends);
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
