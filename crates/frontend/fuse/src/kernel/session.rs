//! The connection: INIT, the threads that read requests, the end.

use super::MAX_IO;
use super::abi;
use super::bounds::{CONGESTED, MAX_BACKGROUND};
use super::counts::Counts;
use super::device::{self, Buffer, Next};
use super::handler::{Dispatch, Handler};
use super::notify::Notifier;
use super::priority::Schedule;
use super::readers::Readers;
use super::reply::{Answer, Channel, Token, Way};
use super::request::{Dialect, Message, Operation, parse};
use super::transport::{Requests, State, Transport};
use siftfs_base::errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use zerocopy::FromZeros;

/// What we want from the kernel, each only where it has it. Not among them, on purpose: automatic
/// invalidation (the kernel's cache cannot be stale). The writeback cache is wanted where the
/// mount's options say so, and so are file locks as requests, which the kernel else keeps itself.
const WANTED: [(&str, u32); 15] = [
    ("ASYNC_READ", abi::FUSE_ASYNC_READ),
    // File handles are opened after their inode left the kernel's memory, by LOOKUP of ".".
    ("EXPORT_SUPPORT", abi::FUSE_EXPORT_SUPPORT),
    ("BIG_WRITES", abi::FUSE_BIG_WRITES),
    ("ATOMIC_O_TRUNC", abi::FUSE_ATOMIC_O_TRUNC),
    ("PARALLEL_DIROPS", abi::FUSE_PARALLEL_DIROPS),
    ("DO_READDIRPLUS", abi::FUSE_DO_READDIRPLUS),
    // Attributes come with a directory's first entries (`reply::block_size` says how many), and
    // with further ones when a program looks at those.
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

/// What a mount wants beside that if other mounts of its volume may be there.
const LOCKS: [(&str, u32); 2] =
    [("POSIX_LOCKS", abi::FUSE_POSIX_LOCKS), ("FLOCK_LOCKS", abi::FUSE_FLOCK_LOCKS)];

/// What the mount's options say of the connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// How requests come after the first.
    pub(crate) requests: Requests,
    /// The kernel's writeback cache.
    pub(crate) writeback: bool,
    /// Mounts that map users to others. Of most requests the kernel then does not say who the
    /// caller is.
    pub(crate) idmap: bool,
    /// File locks come as requests.
    pub(crate) shared: bool,
    /// The mount shows a part of the volume. Handles of files are then good for what the kernel
    /// knows, and no other: what it never looked up here may lie outside of that part.
    pub(crate) below: bool,
}

/// An initialised connection to the kernel. Requests wait until [`Session::run`]; dropped, it
/// ends the mount (unless `run` is under way).
pub(crate) struct Session {
    device: Arc<OwnedFd>,
    dialect: Dialect,
    agreed: u32,
    minor: u32,
    counts: Arc<Counts>,
    transport: Transport,
}

impl Session {
    /// Waits for the kernel's INIT on the descriptor of a mount, and answers it with what is
    /// `wanted`. A kernel without a usable writeback cache does without.
    ///
    /// # Errors
    /// A kernel whose protocol is too old or of another major version, or that cannot do what is
    /// wanted; a mount that ended.
    pub(crate) fn start(device: OwnedFd, wanted: Wanted) -> io::Result<Self> {
        let device = Arc::new(device);
        let channel = Arc::new(Channel::new(device.clone()));
        let mut buffer = Buffer::new();
        loop {
            let len = match buffer.read(&device)? {
                Next::Message(len) => len,
                Next::Nothing => continue,
                Next::End => {
                    let what = "the mount ended before the kernel's first request";
                    return Err(io::Error::other(what));
                }
            };
            let message = parse(buffer.message(len), Dialect::default());
            let Ok(Message {
                unique,
                op: Operation::Init { major, minor, max_readahead, flags, flags2 },
                ..
            }) = message
            else {
                return Err(io::Error::other("the kernel's first request is not INIT"));
            };
            let token = Token::new(Way::Device(channel.clone()), unique);
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
            // Older kernels call a page written before the server has it, and only fsync(2) waits.
            let writeback = wanted.writeback && minor >= abi::MINOR_WRITEBACK;
            let agreed = agree(flags, Wanted { writeback, ..wanted });
            let chosen = Transport::choose(wanted.requests, flags, flags2);
            let transport = match chosen.and_then(|t| may_map(wanted.idmap, flags, flags2, t)) {
                Ok(transport) => transport,
                Err(why) => {
                    token.send(Err(errno(libc::EOPNOTSUPP)));
                    return Err(io::Error::other(why));
                }
            };
            let mut out = init_out(minor, max_readahead, agreed);
            agree_more(&mut out, &wanted, transport.is_ring(), flags2);
            token.send(Ok(Answer::Init(Box::new(out))));
            let dialect = Dialect { setxattr_ext: agreed & abi::FUSE_SETXATTR_EXT != 0 };
            let counts = Arc::new(Counts::default());
            counts.add(abi::INIT);
            // The kernel says that it takes ENOSYS for an answer to OPENDIR; an answer has no such
            // flag.
            let agreed = agreed | flags & abi::FUSE_NO_OPENDIR_SUPPORT;
            return Ok(Self { device, dialect, agreed, minor, counts, transport });
        }
    }

    /// Sends the kernel what it did not ask for.
    pub(crate) fn notifier(&self) -> Notifier {
        Notifier::new(self.device.clone())
    }

    /// Does the kernel check permissions by access control lists?
    pub(crate) fn has_acls(&self) -> bool {
        self.has(abi::FUSE_POSIX_ACL | abi::FUSE_DONT_MASK)
    }

    /// Does the kernel keep written pages back, and own the size and times of files?
    pub(crate) fn has_writeback(&self) -> bool {
        self.has(abi::FUSE_WRITEBACK_CACHE)
    }

    /// Does the kernel call a page written only when the server has it?
    pub(crate) fn settles_pages(&self) -> bool {
        self.minor >= abi::MINOR_WRITEBACK
    }

    /// Does the kernel do without OPENDIR if it is told so?
    pub(crate) fn has_no_opendir(&self) -> bool {
        self.has(abi::FUSE_NO_OPENDIR_SUPPORT)
    }

    fn has(&self, flags: u32) -> bool {
        self.agreed & flags == flags
    }

    /// Requests so far, also while they are served.
    pub(crate) fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// How requests come, also while they are served.
    pub(crate) fn transport(&self) -> Arc<State> {
        self.transport.state()
    }

    /// Serves until the mount is gone (umount(2), or an aborted connection), with `keep` threads
    /// free for requests when nothing is to be done, and more while requests take long, scheduled
    /// by `schedule`. The mount is at `place`.
    ///
    /// # Errors
    /// When the kernel connection fails for another reason, or a thread cannot be started. Other
    /// threads may still be answering then.
    pub(crate) fn run(
        self,
        (keep, schedule): (usize, Arc<Schedule>),
        place: &Path,
        handler: &Arc<impl Handler>,
    ) -> io::Result<()> {
        let (ends, ended) = mpsc::channel();
        let Self { device, dialect, counts, transport, .. } = self;
        let dispatch = Dispatch { dialect, counts, handler: handler.clone(), schedule };
        let rings = transport.start(&device, &dispatch, (keep, place.to_path_buf()), &ends)?;
        // With rings, forgets and interrupts alone come over the device.
        let readers = Arc::new(Readers::new(if rings { 1 } else { keep }));
        transport.reads(&readers);
        device::start(&device, &dispatch, &readers, &ends)?;
        drop((device, dispatch, ends));
        let mut ended = ended.into_iter();
        let first = ended.next();
        handler.over();
        first.into_iter().chain(ended).collect()
    }
}

/// `transport`, unless mounts that map users are `wanted` of a kernel that has none.
fn may_map(
    wanted: bool,
    flags: u32,
    flags2: u32,
    transport: Transport,
) -> std::result::Result<Transport, String> {
    let offered = flags & abi::FUSE_INIT_EXT != 0 && flags2 & abi::FUSE2_ALLOW_IDMAP != 0;
    if wanted && !offered {
        return Err("idmap: this kernel has no idmapped mounts of FUSE (Linux 6.12 has)".into());
    }
    Ok(transport)
}

fn init_zero() -> abi::InitOut {
    abi::InitOut::new_zeroed()
}

/// The wanted flags that the kernel offers.
fn agree(offered: u32, wanted: Wanted) -> u32 {
    let Wanted { writeback, shared, below, .. } = wanted;
    let mut agreed = 0;
    let cache = writeback.then_some(("WRITEBACK_CACHE", abi::FUSE_WRITEBACK_CACHE));
    let locks = if shared { &LOCKS[..] } else { &[] };
    for (name, flag) in WANTED.into_iter().chain(cache).chain(locks.iter().copied()) {
        if offered & flag == 0 {
            tracing::info!(name, "the kernel does not offer this");
        }
        agreed |= offered & flag;
    }
    if below { agreed & !abi::FUSE_EXPORT_SUPPORT } else { agreed }
}

/// Says in an answer to INIT what of the second word of flags is agreed on.
fn agree_more(out: &mut abi::InitOut, wanted: &Wanted, ring: bool, offered: u32) {
    // Files that append past the kernel's cache can be mapped.
    let maps = wanted.shared && offered & abi::FUSE2_DIRECT_IO_ALLOW_MMAP != 0;
    for (agreed, flag) in [
        (ring, abi::FUSE2_OVER_IO_URING),
        (maps, abi::FUSE2_DIRECT_IO_ALLOW_MMAP),
        (wanted.idmap, abi::FUSE2_ALLOW_IDMAP),
    ] {
        if agreed {
            out.flags |= abi::FUSE_INIT_EXT;
            out.flags2 |= flag;
        }
    }
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

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
