//! The device loop: requests are read from `/dev/fuse`, and answers written to it.

use super::MAX_IO;
use super::abi;
use super::handler::{Dispatch, Handler};
use super::readers::{Readers, Taken, free_when_answered};
use super::reply::{Channel, Way};
use super::request::header;
use rustix::event::epoll;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Requests without an answer.
const UNANSWERED: [u32; 3] = [abi::FORGET, abi::BATCH_FORGET, abi::INTERRUPT];

/// What came of one attempt to read a request.
pub(super) enum Next {
    /// A message of this many bytes.
    Message(usize),
    /// No request waits, and the descriptor is non-blocking.
    Nothing,
    /// The mount is gone.
    End,
}

/// Starts the threads that `readers` keeps free; there are more while requests take long. `ends`
/// takes how each ended.
///
/// # Errors
/// When a thread cannot be started; others may run then.
pub(super) fn start<H: Handler>(
    device: &Arc<OwnedFd>,
    dispatch: &Dispatch<H>,
    readers: &Arc<Readers>,
    ends: &Sender<io::Result<()>>,
) -> io::Result<()> {
    // From here on requests are waited for in `Turn::wait`.
    let flags = rustix::fs::fcntl_getfl(&**device)?;
    rustix::fs::fcntl_setfl(&**device, flags | OFlags::NONBLOCK)?;
    let (device, dispatch, ends) = (device.clone(), dispatch.clone(), ends.clone());
    let reader = Reader { device, dispatch, readers: readers.clone(), ends };
    (0..readers.keep()).try_for_each(|_| reader.another())
}

/// A thread that reads requests and carries them out, and what the next one needs.
struct Reader<H> {
    device: Arc<OwnedFd>,
    dispatch: Dispatch<H>,
    readers: Arc<Readers>,
    /// Takes how each thread ended.
    ends: Sender<io::Result<()>>,
}

impl<H: Handler> Reader<H> {
    /// Starts another thread; the caller has counted it.
    fn another(&self) -> io::Result<()> {
        let (device, dispatch) = (self.device.clone(), self.dispatch.clone());
        let (readers, ends) = (self.readers.clone(), self.ends.clone());
        let reader = Self { device, dispatch, readers, ends };
        let turn = Turn::new(&self.device)?;
        let body = move || {
            reader.dispatch.schedule.enter();
            let end = reader.read_requests(&turn);
            reader.readers.end();
            // The session has stopped listening once another reader has failed.
            let _ = reader.ends.send(end);
        };
        std::thread::Builder::new().name("siftfs-fuse".into()).spawn(body)?;
        Ok(())
    }

    fn read_requests(&self, turn: &Turn) -> io::Result<()> {
        // One per reader: its reference count then stays in this thread's cache.
        let channel = Arc::new(Channel::new(self.device.clone()));
        let mut buffer = Buffer::new();
        loop {
            let len = match buffer.read(&self.device)? {
                Next::Message(len) => len,
                Next::Nothing => {
                    turn.wait()?;
                    continue;
                }
                Next::End => return Ok(()),
            };
            let message = buffer.message(len);
            let way = Way::Device(channel.clone());
            // A request without an answer is short, too: no other thread has to be free meanwhile.
            if header(message).is_ok_and(|h| UNANSWERED.contains(&h.opcode)) {
                self.dispatch.message(message, way);
                continue;
            }
            self.cover();
            let early = self.readers.clone();
            let answered = free_when_answered(message, early, || {
                self.dispatch.message(message, way);
            });
            if !answered && !self.readers.done() {
                return Ok(());
            }
        }
    }

    /// Makes sure that a thread is free for the next request.
    fn cover(&self) {
        if self.readers.taken() == Taken::Start
            && let Err(error) = self.another()
        {
            tracing::warn!(%error, "no thread for the next request: it waits for this one");
            self.readers.not_started();
        }
    }
}

/// A reader's place among those that wait for a request. Of the readers that wait the kernel wakes
/// the one that was started first, where read(2) would wake the one that has waited for longest:
/// with one client it is always the same thread, whose caches are warm, and the others wait for
/// when that one is busy.
struct Turn(OwnedFd);

impl Turn {
    fn new(device: &OwnedFd) -> io::Result<Self> {
        let turn = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        epoll::add(&turn, device, epoll::EventData::new_u64(0), flags)?;
        Ok(Self(turn))
    }

    /// Returns when there may be a request, or the mount is gone.
    fn wait(&self) -> io::Result<()> {
        let mut event = [MaybeUninit::uninit()];
        match epoll::wait(&self.0, &mut event, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// One page of a buffer.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// Where a reader's requests arrive, reused for each. Messages begin so that the data of a WRITE
/// begins on a page.
pub(super) struct Buffer {
    pages: Vec<Page>,
}

/// Where a message begins.
const START: usize = 4096 - abi::WRITE_HEAD;

impl Buffer {
    pub(super) fn new() -> Self {
        let pages = 1 + MAX_IO as usize / 4096;
        Self { pages: (0..pages).map(|_| Page::new_zeroed()).collect() }
    }

    pub(super) fn message(&self, len: usize) -> &[u8] {
        self.pages.as_bytes().get(START..START + len).expect("a read stays in its buffer")
    }

    /// Waits for a message.
    pub(super) fn read(&mut self, device: &OwnedFd) -> io::Result<Next> {
        let bytes = self.pages.as_mut_bytes();
        let space = bytes.get_mut(START..).expect("a buffer is longer than a page");
        loop {
            return match rustix::io::read(device, &mut *space) {
                // CONNABORTED: it went while a request was on its way to us.
                Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Next::End),
                Ok(len) => Ok(Next::Message(len)),
                Err(Errno::AGAIN) => Ok(Next::Nothing),
                // Interrupted, or taken back before it was read.
                Err(Errno::INTR | Errno::NOENT) => continue,
                Err(e) => Err(e.into()),
            };
        }
    }
}
