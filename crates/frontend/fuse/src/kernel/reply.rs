//! Answers: one message, one writev(2).

use super::abi::{self, OutHeader};
use super::owing::Owing;
use super::readers::answering;
use super::ring::desk::{Desk, nothing};
use crate::kernel::convert::{kind_bits, node};
use siftfs_base::{Error, Result, Timestamp};
use siftfs_proto::{Attr, Blocks, DirEntry, FileKind, Handle, HeldLock, LockKind, StatFs};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromZeros, IntoBytes};

/// How long the kernel may trust what an answer tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Valid {
    /// A name.
    pub(crate) names: Duration,
    /// Attributes.
    pub(crate) attributes: Duration,
}

impl Valid {
    /// No other writer exists, and the kernel knows what its own requests change.
    pub(crate) const ALONE: Self = Self::both(Duration::from_secs(24 * 3600));

    /// Another writer may change all of it at any moment.
    pub(crate) const NEVER: Self = Self::both(Duration::ZERO);

    /// Both as long.
    pub(crate) const fn both(time: Duration) -> Self {
        Self { names: time, attributes: time }
    }

    /// How long these attributes may be trusted. What a file's holder shows counts for no time.
    fn of(&self, attr: &Attr) -> Duration {
        if attr.held { Duration::ZERO } else { self.attributes }
    }
}

/// Does close(2) send FLUSH? With the writeback cache the kernel sends it in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    /// For a handle that may have an atomic section, or locks that we keep.
    Sent,
    Left,
    /// As `Sent`, and the kernel keeps no pages of what is read and written through it.
    Direct,
}

/// What the kernel does with an open file: it keeps cached pages over the open.
fn open_flags(flush: Flush) -> u32 {
    match flush {
        Flush::Sent => abi::FOPEN_KEEP_CACHE,
        Flush::Direct => abi::FOPEN_KEEP_CACHE | abi::FOPEN_DIRECT_IO,
        Flush::Left => abi::FOPEN_KEEP_CACHE | abi::FOPEN_NOFLUSH,
    }
}

/// The kernel caches a directory's entries, and drops them when it changes the directory itself.
/// A kernel that does without OPENDIR takes the same flags.
const OPEN_DIR_FLAGS: u32 = abi::FOPEN_KEEP_CACHE | abi::FOPEN_CACHE_DIR;

/// What a request is answered with when it succeeds.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Entry(Attr),
    /// The name does not exist, and the kernel may remember it.
    Missing,
    Attr(Attr),
    Statx(Attr),
    Opened(Handle, Flush),
    /// The kernel drops what it has cached of the file, and close(2) sends no FLUSH.
    OpenedAnew(Handle),
    OpenedDir(Handle),
    Created(Attr, Handle, Flush),
    Data(Vec<u8>),
    Blocks(Blocks),
    Written(u32),
    Offset(u64),
    /// A lock that is in the way, if there is one.
    Lock(Option<HeldLock>),
    /// What an ioctl(2) gives back.
    Ioctl(Vec<u8>),
    /// Bytes that an extended attribute or the list of them takes.
    XattrSize(u32),
    Statfs(StatFs),
    /// The protocol that is spoken from here on.
    Init(Box<abi::InitOut>),
}

/// The connection's writing end.
pub(crate) struct Channel {
    device: Arc<OwnedFd>,
}

impl Channel {
    pub(crate) fn new(device: Arc<OwnedFd>) -> Self {
        Self { device }
    }

    fn send(&self, unique: u64, error: i32, body: &[&[u8]]) {
        let bytes: usize = body.iter().map(|b| b.len()).sum();
        let len = u32::try_from(size_of::<OutHeader>() + bytes).unwrap_or(u32::MAX);
        let header = OutHeader { len, error, unique };
        let few: [IoSlice<'_>; 3];
        let many: Vec<IoSlice<'_>>;
        let part = |i: usize| IoSlice::new(body.get(i).copied().unwrap_or_default());
        let parts = if body.len() < 3 {
            few = [IoSlice::new(header.as_bytes()), part(0), part(1)];
            few.get(..=body.len()).unwrap_or(&few)
        } else {
            let header = std::iter::once(IoSlice::new(header.as_bytes()));
            many = header.chain((0..body.len()).map(part)).collect();
            &many
        };
        loop {
            match rustix::io::writev(&*self.device, parts) {
                Err(rustix::io::Errno::INTR) => {}
                // The caller was killed meanwhile, or the mount is gone.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) | Ok(_) => return,
                Err(error) => {
                    tracing::error!(%error, unique, "the kernel refused an answer");
                    return;
                }
            }
        }
    }
}

/// Says an answer's body to `send`, in one or more parts.
pub(crate) fn encode(answer: &Answer, valid: Valid, send: impl FnOnce(&[&[u8]])) {
    match answer {
        Answer::Done => send(&[]),
        Answer::Entry(a) => send(&[entry(a, valid).as_bytes()]),
        Answer::Missing => {
            let mut none = abi::EntryOut::new_zeroed();
            (none.entry_valid, none.entry_valid_nsec) = parts(valid.names);
            send(&[none.as_bytes()]);
        }
        Answer::Attr(a) => {
            let mut out = abi::AttrOut::new_zeroed();
            (out.attr_valid, out.attr_valid_nsec) = parts(valid.of(a));
            out.attr = attr(a);
            send(&[out.as_bytes()]);
        }
        Answer::Statx(a) => send(&[statx(a, valid).as_bytes()]),
        Answer::Opened(h, flush) => send(&[open(*h, open_flags(*flush)).as_bytes()]),
        Answer::OpenedAnew(h) => send(&[open(*h, abi::FOPEN_NOFLUSH).as_bytes()]),
        Answer::OpenedDir(h) => send(&[open(*h, OPEN_DIR_FLAGS).as_bytes()]),
        Answer::Created(a, h, flush) => {
            send(&[entry(a, valid).as_bytes(), open(*h, open_flags(*flush)).as_bytes()]);
        }
        Answer::Data(d) => send(&[d]),
        Answer::Blocks(b) => {
            let parts: Vec<&[u8]> = b.parts().collect();
            send(&parts);
        }
        Answer::Written(size) => {
            let out = abi::WriteOut { size: *size, padding: 0 };
            send(&[out.as_bytes()]);
        }
        Answer::Offset(offset) => send(&[abi::OffsetOut { offset: *offset }.as_bytes()]),
        Answer::Lock(held) => send(&[file_lock(*held).as_bytes()]),
        Answer::Ioctl(bytes) => send(&[abi::IoctlOut::new_zeroed().as_bytes(), bytes]),
        Answer::XattrSize(size) => {
            let out = abi::XattrSizeOut { size: *size, padding: 0 };
            send(&[out.as_bytes()]);
        }
        Answer::Statfs(s) => send(&[statfs(s).as_bytes()]),
        Answer::Init(out) => send(&[out.as_bytes()]),
    }
}

impl Answer {
    /// Does the kernel learn attributes of files by it? Entries of a directory may bring theirs.
    pub(crate) fn may_have_attributes(&self) -> bool {
        matches!(self, Self::Entry(_) | Self::Attr(_) | Self::Statx(_) | Self::Data(_))
    }
}

/// An answer and how long it holds, or the errno of a request that failed.
pub(crate) type Outcome = std::result::Result<(Answer, Valid), i32>;

/// How an answer reaches the kernel.
pub(crate) enum Way {
    /// The answer is written to `/dev/fuse`.
    Device(Arc<Channel>),
    /// The answer is committed by the thread whose ring the request came by.
    Ring(Arc<Desk>),
}

impl Way {
    fn answer(self, unique: u64, outcome: Outcome) {
        if matches!(self, Self::Device(_)) {
            answering(unique);
        }
        match (self, outcome) {
            (Self::Device(channel), Ok((answer, valid))) => {
                encode(&answer, valid, |body| channel.send(unique, 0, body));
            }
            (Self::Device(channel), Err(errno)) => channel.send(unique, -errno, &[]),
            (Self::Ring(desk), outcome) => desk.answer(unique, outcome),
        }
    }
}

/// The right and the duty to answer one request, exactly once, from any thread. Dropped without
/// an answer it says EIO, so that no program waits for ever.
pub(crate) struct Token {
    way: Option<Way>,
    unique: u64,
    valid: Valid,
    /// What it waits for, if there may be other front ends.
    owing: Option<Arc<Owing>>,
    /// Called when the answer has to wait; what it gives is kept until the answer is sent.
    held_back: Option<HeldBack>,
    /// Dropped when the answer is sent.
    kept: Option<Box<dyn Send>>,
}

/// Called when an answer has to wait.
pub(crate) type HeldBack = Box<dyn FnOnce() -> Box<dyn Send> + Send>;

impl Token {
    pub(crate) fn new(way: Way, unique: u64) -> Self {
        let (owing, held_back, kept) = (None, None, None);
        Self { way: Some(way), unique, valid: Valid::ALONE, owing, held_back, kept }
    }

    /// The answer waits for what the request owes to other front ends.
    pub(crate) fn shared(mut self) -> Self {
        self.owing = Some(Arc::default());
        self
    }

    /// Where that is noted; none for a mount without other front ends.
    pub(crate) fn owing(&self) -> Option<Arc<Owing>> {
        self.owing.clone()
    }

    /// The answer holds as long as `valid` says.
    pub(crate) fn holds(mut self, valid: Valid) -> Self {
        self.valid = valid;
        self
    }

    /// `kept` is dropped when the answer is sent.
    pub(crate) fn keeps(mut self, kept: Box<dyn Send>) -> Self {
        self.kept = Some(kept);
        self
    }

    /// `act` is called if the answer has to wait.
    pub(crate) fn when_held_back(mut self, act: HeldBack) -> Self {
        self.held_back = Some(act);
        self
    }

    /// Answers. An error that is not a plain errno is the volume's trouble and is logged.
    pub(crate) fn send(mut self, result: Result<Answer>) {
        let Some(way) = self.way.take() else { return };
        let outcome = result.map_err(|e| {
            if !matches!(e, Error::Posix(_)) {
                tracing::error!(error = %e, "request failed");
            }
            e.errno()
        });
        let unique = self.unique;
        let owed = self.owing.take().map(|owing| owing.take()).unwrap_or_default();
        if owed.is_settled() {
            return way.answer(unique, outcome.map(|answer| (answer, self.valid)));
        }
        // What it tells may have changed when it is sent.
        let outcome = outcome.map(|answer| (answer, Valid::NEVER));
        let held = self.held_back.take().map(|act| act());
        owed.then(Box::new(move || {
            way.answer(unique, outcome);
            drop(held);
        }));
    }

    /// The request is of a kind without answers.
    pub(crate) fn none(mut self) {
        if let Some(way @ Way::Ring(_)) = self.way.take() {
            way.answer(self.unique, nothing());
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some(way) = self.way.take() {
            tracing::error!(unique = self.unique, "a request was dropped without an answer");
            way.answer(self.unique, Err(libc::EIO));
        }
    }
}

/// A directory's entries as READDIR and READDIRPLUS answer them.
pub(crate) struct DirBuffer {
    bytes: Vec<u8>,
    limit: usize,
    plus: bool,
    valid: Valid,
}

impl DirBuffer {
    /// At most `limit` bytes, whose attributes hold as long as `valid` says.
    pub(crate) fn new(limit: u32, plus: bool, valid: Valid) -> Self {
        let limit = usize::try_from(limit.min(super::MAX_IO)).unwrap_or(0);
        Self { bytes: Vec::with_capacity(limit), limit, plus, valid }
    }

    /// Bytes left.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len())
    }

    /// Appends an entry; false, and nothing happens, if it has no room.
    pub(crate) fn add(&mut self, e: &DirEntry) -> bool {
        const HEAD: usize = size_of::<abi::Dirent>();
        let Ok(name_len) = u32::try_from(e.name.len()) else { return false };
        let len = (HEAD + e.name.len()).next_multiple_of(8);
        let before = if self.plus { size_of::<abi::EntryOut>() } else { 0 };
        let end = self.bytes.len() + before + len;
        if end > self.limit {
            return false;
        }
        debug_assert_eq!(before + len, DirEntry::size(e.name.len(), self.plus));
        if self.plus {
            // "." and ".." come without attributes: the kernel reads their numbers only.
            let told = |attr| entry(attr, self.valid);
            let entry = e.attr.as_ref().map_or_else(abi::EntryOut::new_zeroed, told);
            self.bytes.extend_from_slice(entry.as_bytes());
        }
        let kind = kind_bits(e.kind) >> 12;
        let head = abi::Dirent { ino: node(e.ino), cookie: e.cookie, name_len, kind };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(&e.name);
        self.bytes.resize(end, 0);
        true
    }

    /// The answer.
    pub(crate) fn done(self) -> Answer {
        Answer::Data(self.bytes)
    }
}

/// What stat(2) calls the preferred size of reads, in bytes. The C library reads a directory with a
/// buffer of this size, of 32 KiB at least, and the kernel asks the daemon for a buffer's entries
/// at a time. The first time it asks for their attributes as well, so that programs that read a
/// directory to its end before they look at its entries find them known. Those cost more than the
/// names, so that a large directory has them for its first thousand entries alone.
fn block_size(a: &Attr) -> u32 {
    const BLOCK: u32 = 4096;
    match a.kind {
        FileKind::Directory if a.size > u64::from(LARGE_DIRECTORY) => 16 * LARGE_DIRECTORY,
        _ => BLOCK,
    }
}

/// A directory of more bytes has more entries with attributes than the usual 32 KiB hold.
const LARGE_DIRECTORY: u32 = 16 << 10;

fn attr(a: &Attr) -> abi::Attr {
    abi::Attr {
        ino: node(a.ino),
        size: a.size,
        blocks: a.blocks,
        atime: a.atime.sec,
        mtime: a.mtime.sec,
        ctime: a.ctime.sec,
        atime_nsec: a.atime.nsec,
        mtime_nsec: a.mtime.nsec,
        ctime_nsec: a.ctime.nsec,
        mode: kind_bits(a.kind) | u32::from(a.perm),
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        block_size: block_size(a),
        flags: 0,
    }
}

/// Seconds and nanoseconds.
fn parts(time: Duration) -> (u64, u32) {
    (time.as_secs(), time.subsec_nanos())
}

fn entry(a: &Attr, valid: Valid) -> abi::EntryOut {
    let (entry_valid, entry_valid_nsec) = parts(valid.names);
    let (attr_valid, attr_valid_nsec) = parts(valid.of(a));
    abi::EntryOut {
        node: node(a.ino),
        generation: u64::from(a.generation),
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr: attr(a),
    }
}

fn open(handle: Handle, open_flags: u32) -> abi::OpenOut {
    abi::OpenOut { handle: handle.0, open_flags, backing: 0 }
}

fn file_lock(held: Option<HeldLock>) -> abi::FileLock {
    let number = |kind: i32| u32::try_from(kind).expect("a small number");
    let Some(HeldLock { kind, range, pid }) = held else {
        return abi::FileLock { kind: number(libc::F_UNLCK), ..abi::FileLock::new_zeroed() };
    };
    let kind = match kind {
        LockKind::Read => number(libc::F_RDLCK),
        LockKind::Write => number(libc::F_WRLCK),
    };
    abi::FileLock { first: range.first(), last: range.last(), kind, pid }
}

fn statx(a: &Attr, valid: Valid) -> abi::StatxOut {
    let (attr_valid, attr_valid_nsec) = parts(valid.of(a));
    let time = |t: Timestamp| abi::StatxTime { sec: t.sec, nsec: t.nsec, reserved: 0 };
    let kind_and_perm = kind_bits(a.kind) | u32::from(a.perm);
    let device = u64::from(a.rdev);
    abi::StatxOut {
        attr_valid,
        attr_valid_nsec,
        mask: abi::STATX_BASIC_AND_BTIME,
        block_size: block_size(a),
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        mode: u16::try_from(kind_and_perm).unwrap_or(0),
        ino: node(a.ino),
        size: a.size,
        blocks: a.blocks,
        atime: time(a.atime),
        btime: time(a.crtime),
        ctime: time(a.ctime),
        mtime: time(a.mtime),
        rdev_major: rustix::fs::major(device),
        rdev_minor: rustix::fs::minor(device),
        ..abi::StatxOut::new_zeroed()
    }
}

fn statfs(s: &StatFs) -> abi::StatfsOut {
    abi::StatfsOut {
        blocks: s.blocks,
        free: s.free,
        available: s.available,
        files: s.files,
        files_free: s.files_free,
        block_size: s.block_size,
        name_max: s.name_max,
        fragment_size: s.block_size,
        ..abi::StatfsOut::new_zeroed()
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
