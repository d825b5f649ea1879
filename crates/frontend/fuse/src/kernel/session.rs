//! The connection: INIT, the threads that read requests, the end.

use super::MAX_IO;
use super::abi;
use super::counts::Counts;
use super::readers::{Readers, Taken};
use super::reply::{Answer, Channel, Token};
use super::request::{Dialect, Message, Operation, header, parse};
use rustix::io::Errno;
use siftfs_base::errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Requests of the background (reads ahead, mostly) that the kernel has under way at once, and
/// from how many on it throttles who causes them.
const MAX_BACKGROUND: u16 = 64;
const CONGESTED: u16 = 48;

/// What we want from the kernel, each only where it has it. Not among them, on purpose: the
/// writeback cache (size and times would move into the kernel), POSIX and flock locks (the
/// kernel keeps both, interruptibly), and automatic invalidation (the kernel's cache cannot be
/// stale).
const WANTED: [(&str, u32); 14] = [
    ("ASYNC_READ", abi::FUSE_ASYNC_READ),
    ("BIG_WRITES", abi::FUSE_BIG_WRITES),
    ("ATOMIC_O_TRUNC", abi::FUSE_ATOMIC_O_TRUNC),
    ("PARALLEL_DIROPS", abi::FUSE_PARALLEL_DIROPS),
    ("DO_READDIRPLUS", abi::FUSE_DO_READDIRPLUS),
    ("READDIRPLUS_AUTO", abi::FUSE_READDIRPLUS_AUTO),
    ("ASYNC_DIO", abi::FUSE_ASYNC_DIO),
    ("CACHE_SYMLINKS", abi::FUSE_CACHE_SYMLINKS),
    ("EXPLICIT_INVAL_DATA", abi::FUSE_EXPLICIT_INVAL_DATA),
    ("HANDLE_KILLPRIV_V2", abi::FUSE_HANDLE_KILLPRIV_V2),
    ("MAX_PAGES", abi::FUSE_MAX_PAGES),
    // The kernel checks permissions by lists that it asks us for, and leaves the umask to us,
    // because a default list takes its place.
    ("POSIX_ACL", abi::FUSE_POSIX_ACL),
    ("DONT_MASK", abi::FUSE_DONT_MASK),
    ("SETXATTR_EXT", abi::FUSE_SETXATTR_EXT),
];

/// Who carries requests out.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Carries one request out and answers it, now or later, by its token.
    fn handle(&self, message: Message<'_>, token: Token);
}

/// An initialised connection to the kernel. Requests wait until [`Session::run`]; dropped, it
/// ends the mount (unless `run` is under way).
pub(crate) struct Session {
    device: Arc<OwnedFd>,
    dialect: Dialect,
    acls: bool,
    counts: Arc<Counts>,
}

/// What came of one attempt to read a request.
enum Next {
    /// A message of so many bytes.
    Message(usize),
    /// The mount is gone.
    End,
}

impl Session {
    /// Waits for the kernel's INIT on the descriptor of a mount, and answers it.
    ///
    /// # Errors
    /// A kernel whose protocol is too old or of another major version; a mount that ended.
    pub(crate) fn start(device: OwnedFd) -> io::Result<Self> {
        let device = Arc::new(device);
        let channel = Arc::new(Channel::new(device.clone()));
        let mut buffer = Buffer::new();
        loop {
            let Next::Message(len) = buffer.read(&device)? else {
                return Err(io::Error::other("the mount ended before the kernel's first request"));
            };
            let message = parse(buffer.message(len), Dialect::default());
            let Ok(Message {
                unique,
                op: Operation::Init { major, minor, max_readahead, flags },
                ..
            }) = message
            else {
                return Err(io::Error::other("the kernel's first request is not INIT"));
            };
            let token = Token::new(channel.clone(), unique);
            if major > abi::MAJOR {
                // The kernel asks again in the major version that it is told.
                let ours = abi::InitOut { major: abi::MAJOR, minor: abi::MINOR, ..init_zero() };
                token.send(Ok(Answer::Init(Box::new(ours))));
                continue;
            }
            if (major, minor) < (abi::MAJOR, abi::MINOR_LEAST) {
                token.send(Err(errno(libc::EPROTO)));
                return Err(io::Error::other(format!(
                    "the kernel speaks FUSE {major}.{minor}; SiftFS needs {}.{} (Linux 5.4) or newer",
                    abi::MAJOR,
                    abi::MINOR_LEAST,
                )));
            }
            let agreed = agree(flags);
            let out = init_out(minor, max_readahead, agreed);
            token.send(Ok(Answer::Init(Box::new(out))));
            let dialect = Dialect { setxattr_ext: agreed & abi::FUSE_SETXATTR_EXT != 0 };
            let acls = agreed & abi::FUSE_POSIX_ACL != 0 && agreed & abi::FUSE_DONT_MASK != 0;
            let counts = Arc::new(Counts::default());
            counts.add(abi::INIT);
            return Ok(Self { device, dialect, acls, counts });
        }
    }

    /// Does the kernel check permissions by access control lists?
    pub(crate) fn has_acls(&self) -> bool {
        self.acls
    }

    /// Requests so far, also while they are served.
    pub(crate) fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Serves until the mount is gone (umount(2), or an aborted connection), with `keep` threads
    /// free to read when nothing is to be done, and more while requests take long.
    ///
    /// # Errors
    /// When the kernel connection fails for another reason, or a thread cannot be started. Other
    /// threads may still be answering then.
    pub(crate) fn run(self, keep: usize, handler: &Arc<impl Handler>) -> io::Result<()> {
        let (ends, ended) = mpsc::channel();
        let reader = Reader {
            device: self.device.clone(),
            dialect: self.dialect,
            counts: self.counts.clone(),
            handler: handler.clone(),
            readers: Arc::new(Readers::new(keep)),
            ends,
        };
        for _ in 0..keep {
            reader.another()?;
        }
        drop((reader, self));
        ended.into_iter().collect()
    }
}

fn init_zero() -> abi::InitOut {
    abi::InitOut::new_zeroed()
}

/// Those of our wishes that the kernel offers.
fn agree(offered: u32) -> u32 {
    let mut agreed = 0;
    for (name, flag) in WANTED {
        if offered & flag == 0 {
            tracing::info!(name, "the kernel does not offer this");
        }
        agreed |= offered & flag;
    }
    agreed
}

fn init_out(minor: u32, max_readahead: u32, flags: u32) -> abi::InitOut {
    abi::InitOut {
        major: abi::MAJOR,
        minor: minor.min(abi::MINOR),
        max_readahead,
        flags,
        max_background: MAX_BACKGROUND,
        congestion_threshold: CONGESTED,
        max_write: MAX_IO,
        time_gran: 1,
        max_pages: u16::try_from(MAX_IO / 4096).unwrap_or(u16::MAX),
        ..init_zero()
    }
}

/// A thread that reads requests and carries them out, and what the next one needs.
struct Reader<H> {
    device: Arc<OwnedFd>,
    dialect: Dialect,
    counts: Arc<Counts>,
    handler: Arc<H>,
    readers: Arc<Readers>,
    /// Takes how each thread ended.
    ends: Sender<io::Result<()>>,
}

impl<H: Handler> Reader<H> {
    /// Starts another thread; the caller has counted it.
    fn another(&self) -> io::Result<()> {
        let (device, handler) = (self.device.clone(), self.handler.clone());
        let (readers, ends) = (self.readers.clone(), self.ends.clone());
        let counts = self.counts.clone();
        let reader = Self { device, dialect: self.dialect, counts, handler, readers, ends };
        let body = move || {
            let end = reader.read_requests();
            reader.readers.end();
            // Nobody listens any more once another reader has failed.
            let _ = reader.ends.send(end);
        };
        std::thread::Builder::new().name("siftfs-fuse".into()).spawn(body)?;
        Ok(())
    }

    /// Hands one message over, or refuses it.
    fn dispatch(&self, bytes: &[u8], channel: &Arc<Channel>) {
        let head = header(bytes);
        self.counts.add(head.map_or(0, |h| h.opcode));
        match parse(bytes, self.dialect) {
            Ok(message) => {
                let token = Token::new(channel.clone(), message.unique);
                self.handler.handle(message, token);
            }
            Err(_) => {
                tracing::error!(len = bytes.len(), "a request of the kernel that makes no sense");
                if let Ok(h) = head {
                    Token::new(channel.clone(), h.unique).send(Err(errno(libc::EPROTO)));
                }
            }
        }
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
            self.dispatch(buffer.message(len), &channel);
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
struct Buffer {
    pages: Vec<Page>,
}

/// Where a message begins.
const START: usize = 4096 - abi::WRITE_HEAD;

impl Buffer {
    fn new() -> Self {
        let pages = 1 + MAX_IO as usize / 4096;
        Self { pages: (0..pages).map(|_| Page::new_zeroed()).collect() }
    }

    fn message(&self, len: usize) -> &[u8] {
        self.pages.as_bytes().get(START..START + len).expect("a read stays in its buffer")
    }

    /// Waits for a message.
    fn read(&mut self, device: &OwnedFd) -> io::Result<Next> {
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

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
