//! The device loop: requests are read from `/dev/fuse`, and answers written to it.

use super::MAX_IO;
use super::abi;
use super::readers::{Readers, Taken};
use super::reply::{Channel, Way};
use super::session::{Dispatch, Handler};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// What came of one attempt to read a request.
pub(super) enum Next {
    /// A message of so many bytes.
    Message(usize),
    /// The mount is gone.
    End,
}

/// Starts `keep` threads that read; there are more while requests take long. `ends` takes how each
/// ended.
///
/// # Errors
/// When a thread cannot be started; others may run then.
pub(super) fn start<H: Handler>(
    device: &Arc<OwnedFd>,
    dispatch: &Dispatch<H>,
    keep: usize,
    ends: &Sender<io::Result<()>>,
) -> io::Result<()> {
    let readers = Arc::new(Readers::new(keep));
    let (device, dispatch, ends) = (device.clone(), dispatch.clone(), ends.clone());
    let reader = Reader { device, dispatch, readers, ends };
    (0..keep).try_for_each(|_| reader.another())
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
        let body = move || {
            let end = reader.read_requests();
            reader.readers.end();
            // Nobody listens any more once another reader has failed.
            let _ = reader.ends.send(end);
        };
        std::thread::Builder::new().name("siftfs-fuse".into()).spawn(body)?;
        Ok(())
    }

    fn read_requests(&self) -> io::Result<()> {
        // One per reader: its reference count then stays in this thread's cache.
        let channel = Arc::new(Channel::new(self.device.clone()));
        let mut buffer = Buffer::new();
        while let Next::Message(len) = buffer.read(&self.device)? {
            if self.readers.taken() == Taken::Start
                && let Err(error) = self.another()
            {
                tracing::warn!(%error, "no thread for the next request: it waits for this one");
                self.readers.not_started();
            }
            self.dispatch.message(buffer.message(len), Way::Device(channel.clone()));
            if !self.readers.done() {
                break;
            }
        }
        Ok(())
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
                // Interrupted, taken back before it was read, or nothing there.
                Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
                Err(e) => Err(e.into()),
            };
        }
    }
}
