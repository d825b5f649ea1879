//! A queue pair of RDMA verbs beside the connection over which the two sides have met: bytes cross
//! the queue pair, and the connection is silent. Its end is the end of both.
//!
//! Both directions share the queue pair's completions. A thread that looks for its own takes those
//! of the other direction, too, and then rings for a thread that sleeps there.

use crate::Awaited;
use crate::channel::Channel;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use siftfs_codec::frame::Took;
use siftfs_rdma::{Changed, Flow, Queue};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the end waits for what was sent to be with the peer.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);

/// See the module. `C` is the connection below.
pub(crate) struct Rdma<C, Q> {
    below: C,
    state: Mutex<State<Q>>,
    /// Readable when the queue pair has done something.
    completions: OwnedFd,
    readers: OwnedFd,
    writers: OwnedFd,
}

struct State<Q> {
    flow: Flow<Q>,
    reader_sleeps: bool,
    writer_sleeps: bool,
    /// The connection below has ended.
    ended: bool,
}

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Bytes,
    Room,
}

impl<Q: Queue> State<Q> {
    fn is_there(&self, what: For) -> bool {
        let over = self.ended || self.flow.is_broken();
        match what {
            For::Bytes => over || self.flow.has_bytes(),
            For::Room => over || self.flow.has_room(),
        }
    }

    fn sleeps(&mut self, who: For) -> &mut bool {
        match who {
            For::Bytes => &mut self.reader_sleeps,
            For::Room => &mut self.writer_sleeps,
        }
    }
}

impl<C: Channel + AsFd, Q: Queue> Rdma<C, Q> {
    /// Over a connected queue pair, and the connection over which the two sides have met.
    ///
    /// # Errors
    /// The system has no descriptors.
    pub fn new(below: C, queue: Q) -> io::Result<Self> {
        let bell =
            || Ok::<_, io::Error>(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let completions = queue.descriptor().try_clone_to_owned()?;
        let flow = Flow::new(queue);
        let state = State { flow, reader_sleeps: false, writer_sleeps: false, ended: false };
        let (readers, writers) = (bell()?, bell()?);
        Ok(Self { below, state: Mutex::new(state), completions, readers, writers })
    }

    fn state(&self) -> MutexGuard<'_, State<Q>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bell(&self, who: For) -> &OwnedFd {
        match who {
            For::Bytes => &self.readers,
            For::Room => &self.writers,
        }
    }

    /// Wakes threads that sleep for what has changed.
    fn ring(&self, state: &State<Q>, changed: Changed) {
        for (who, is_there, sleeps) in [
            (For::Bytes, changed.bytes, state.reader_sleeps),
            (For::Room, changed.room, state.writer_sleeps),
        ] {
            if is_there && sleeps {
                // It counts to 2^64: there is room.
                let _ = rustix::io::write(self.bell(who), &1u64.to_le_bytes());
            }
        }
    }

    /// Takes what was done, and the lock in which it stays so.
    fn pumped(&self) -> MutexGuard<'_, State<Q>> {
        let mut state = self.state();
        let changed = state.flow.pump();
        self.ring(&state, changed);
        state
    }

    /// As [`Rdma::pumped`], with the event that woke this thread, if one did. Another one is asked
    /// for, for all that sleep.
    fn wakes(&self) -> MutexGuard<'_, State<Q>> {
        let mut state = self.state();
        let changed = state.flow.wake();
        self.ring(&state, changed);
        state
    }

    /// Sleeps until there is what a thread waits for, or may be.
    fn sleep(&self, who: For, timeout: Duration) -> io::Result<()> {
        let mut state = self.wakes();
        if state.is_there(who) {
            return Ok(());
        }
        *state.sleeps(who) = true;
        drop(state);
        let mut fds = [
            PollFd::new(&self.completions, PollFlags::IN),
            PollFd::new(self.bell(who), PollFlags::IN),
            PollFd::new(&self.below, PollFlags::IN),
        ];
        let slept = crate::channel::socket::wait(&mut fds, timeout);
        let [_, rang, below] = fds.map(|fd| !fd.revents().is_empty());
        if rang {
            let _ = rustix::io::read(self.bell(who), &mut [0; 8]);
        }
        let ended = below && self.has_ended()?;
        let mut state = self.wakes();
        *state.sleeps(who) = false;
        state.ended |= ended;
        slept
    }

    /// Whether the connection below has ended.
    ///
    /// # Errors
    /// Something came over it, or it failed.
    fn has_ended(&self) -> io::Result<bool> {
        match self.below.read(&mut [IoSliceMut::new(&mut [0; 8])])? {
            Took::Nothing => Ok(false),
            Took::End => Ok(true),
            Took::Bytes(_) => Err(io::Error::new(ErrorKind::InvalidData, "bytes beside RDMA")),
        }
    }
}

impl<C: Channel + AsFd, Q: Queue + 'static> Channel for Rdma<C, Q> {
    fn read(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<Took> {
        let mut state = self.pumped();
        match state.flow.read(into) {
            Ok(0) if state.ended => Ok(Took::End),
            Ok(0) => Ok(Took::Nothing),
            Ok(n) => Ok(Took::Bytes(n)),
            // A peer that ends takes its queue pair with it.
            Err(_) if state.ended || self.has_ended()? => Ok(Took::End),
            Err(e) => Err(e),
        }
    }

    fn write(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.pumped();
        match state.ended {
            true => Err(ErrorKind::BrokenPipe.into()),
            false => state.flow.write(from),
        }
    }

    /// What was taken is with the device.
    fn flush(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// What tells that the peer has ended.
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.below.as_fd()
    }

    fn awaited(&self) -> io::Result<Awaited> {
        let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned();
        let [completions, bell] = [self.completions.as_fd(), self.readers.as_fd()];
        let descriptors = vec![own(completions)?, own(bell)?, own(self.below.as_fd())?];
        Ok(Awaited { descriptors, tells_room: false })
    }

    fn arm(&self) -> io::Result<bool> {
        let mut state = self.wakes();
        let idle = !state.is_there(For::Bytes);
        state.reader_sleeps = idle;
        Ok(idle)
    }

    fn woken(&self) -> io::Result<()> {
        // It has rung, or has not.
        let _ = rustix::io::read(&self.readers, &mut [0; 8]);
        let ended = self.has_ended()?;
        let mut state = self.wakes();
        state.reader_sleeps = false;
        state.ended |= ended;
        Ok(())
    }

    fn wait_readable(&self, timeout: Duration) -> io::Result<()> {
        self.sleep(For::Bytes, timeout)
    }

    fn wait_writable(&self, timeout: Duration) -> io::Result<()> {
        self.sleep(For::Room, timeout)
    }

    fn has_room(&self) -> bool {
        let state = self.pumped();
        !state.ended && state.flow.has_room()
    }

    fn cut(&self) {
        let mut state = self.state();
        state.flow.stop();
        self.ring(&state, Changed { bytes: true, room: true });
        drop(state);
        self.below.cut();
    }

    /// The connection below ends once what was sent is with the peer: the queue pair goes after it,
    /// and with it what is under way.
    fn end(&self, patience: Duration) {
        let deadline = Instant::now() + LAST_WORDS.max(patience);
        while Instant::now() < deadline {
            let state = self.wakes();
            if state.ended || state.flow.is_through() {
                break;
            }
            drop(state);
            let mut fds = [PollFd::new(&self.completions, PollFlags::IN)];
            if crate::channel::socket::wait(&mut fds, LOOK).is_err() {
                break;
            }
        }
        self.below.end(patience);
    }
}

#[cfg(test)]
#[path = "rdma_tests.rs"]
mod tests;
