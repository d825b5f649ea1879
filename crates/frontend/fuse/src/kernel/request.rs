//! One message of the kernel, taken apart. What does not fit its own lengths is [`Malformed`];
//! nothing here panics or allocates by what a message says.

use super::abi::{self, InHeader};
use siftfs_base::Timestamp;
use siftfs_proto::{Credentials, SetAttr, SetTime};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A message shorter than its kind, a name without its end, lengths that contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

type Parsed<T> = Result<T, Malformed>;

/// What was agreed in INIT and changes how messages read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Dialect {
    /// SETXATTR has flags of its own.
    pub(crate) setxattr_ext: bool,
}

/// A request, borrowed from the buffer it was read into.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    /// Number that its answer carries.
    pub(crate) unique: u64,
    /// The node it is about.
    pub(crate) node: u64,
    /// The calling thread and its user.
    pub(crate) cred: Credentials,
    /// What is asked for.
    pub(crate) op: Operation<'a>,
}

/// What the kernel asks for. Node ids, modes and flags are as it sent them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget {
        count: u64,
    },
    BatchForget(Forgets<'a>),
    GetAttr {
        /// For a call on an open file; with the writeback cache a write(2) comes next.
        by_handle: bool,
    },
    Statx,
    SetAttr {
        set: SetAttr,
    },
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MakeNode {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    MakeDir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    RemoveDir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_dir: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        node: u64,
        name: &'a [u8],
    },
    Open {
        flags: u32,
        kill_priv: bool,
    },
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: u32,
    },
    TmpFile {
        mode: u32,
        umask: u32,
        flags: u32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
        /// Past the kernel's cache.
        direct: bool,
    },
    Write {
        handle: u64,
        offset: u64,
        data: &'a [u8],
        kill_priv: bool,
        /// Of the open file and of this call together.
        flags: u32,
        /// Past the kernel's cache.
        direct: bool,
        /// The kernel sends pages of its cache: the caller is not the writer.
        cached: bool,
    },
    StatFs,
    /// close(2) of a descriptor, perhaps of one of several for its handle.
    Flush {
        handle: u64,
        /// Whose locks of bytes end.
        owner: u64,
    },
    GetLock {
        handle: u64,
        owner: u64,
        lock: FileLock,
    },
    SetLock {
        handle: u64,
        owner: u64,
        lock: FileLock,
        /// By flock(2).
        whole: bool,
        wait: bool,
    },
    /// The caller of another request, which is under way, has got a signal.
    Interrupt {
        unique: u64,
    },
    Release {
        handle: u64,
    },
    ReleaseDir {
        handle: u64,
    },
    Fsync {
        datasync: bool,
    },
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        kill_setgid: bool,
    },
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    OpenDir,
    ReadDir {
        handle: u64,
        cookie: u64,
        size: u32,
        plus: bool,
    },
    Allocate {
        handle: u64,
        offset: u64,
        len: u64,
        mode: u32,
    },
    Seek {
        offset: u64,
        whence: u32,
    },
    Copy {
        offset: u64,
        to_node: u64,
        to_handle: u64,
        to_offset: u64,
        len: u64,
        flags: u64,
    },
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        flags2: u32,
    },
    Destroy,
    Ioctl {
        handle: u64,
        command: u32,
        input: &'a [u8],
    },
    /// A kind that SiftFS does not serve.
    Unknown {
        opcode: u32,
    },
}

/// A lock, as the kernel sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileLock {
    pub(crate) first: u64,
    /// The last byte that is locked.
    pub(crate) last: u64,
    pub(crate) kind: u32,
    pub(crate) pid: u32,
}

/// Nodes that the kernel forgets in one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Forgets<'a>(&'a [u8]);

impl Forgets<'_> {
    /// Node id and references of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let one = |bytes: &[u8]| abi::ForgetOne::read_from_bytes(bytes).ok();
        let all = self.0.chunks_exact(size_of::<abi::ForgetOne>()).filter_map(one);
        all.map(|f| (f.node, f.count))
    }
}

/// The rest of a message.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Parsed<T> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Malformed)?;
        self.0 = rest;
        Ok(value)
    }

    /// Bytes up to the next NUL, which is taken too.
    fn name(&mut self) -> Parsed<&'a [u8]> {
        let end = self.0.iter().position(|b| *b == 0).ok_or(Malformed)?;
        let (name, rest) = self.0.split_at_checked(end).ok_or(Malformed)?;
        self.0 = rest.get(1..).ok_or(Malformed)?;
        Ok(name)
    }

    fn bytes(&mut self, len: u32) -> Parsed<&'a [u8]> {
        let len = usize::try_from(len).map_err(|_| Malformed)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// The number and kind of a message, if it is at least that long: what a refusal needs.
pub(crate) fn header(message: &[u8]) -> Parsed<InHeader> {
    InHeader::read_from_prefix(message).map(|(h, _)| h).map_err(|_| Malformed)
}

/// Takes one message apart; `message` is exactly what one read returned.
pub(crate) fn parse<'a>(message: &'a [u8], dialect: Dialect) -> Parsed<Message<'a>> {
    let mut rest = Rest(message);
    let h: InHeader = rest.take()?;
    if usize::try_from(h.len) != Ok(message.len()) {
        return Err(Malformed);
    }
    let op = match h.opcode {
        abi::SETXATTR => set_xattr(&mut rest, dialect)?,
        opcode => match names(opcode, &mut rest)? {
            Some(op) => op,
            None => match files(opcode, &mut rest)? {
                Some(op) => op,
                None => match locks(opcode, &mut rest)? {
                    Some(op) => op,
                    None => whole(opcode, &mut rest)?,
                },
            },
        },
    };
    let cred = Credentials { uid: h.uid, gid: h.gid, pid: h.pid, ..Credentials::default() };
    Ok(Message { unique: h.unique, node: h.node, cred, op })
}

/// Requests on file data, which come most often.
fn files<'a>(opcode: u32, rest: &mut Rest<'a>) -> Parsed<Option<Operation<'a>>> {
    use Operation as O;
    Ok(Some(match opcode {
        abi::READ => {
            let r: abi::ReadIn = rest.take()?;
            // Only reads and writes past the cache say whose locks they respect. O_DIRECT alone
            // does not tell: a file opened with it can be mapped.
            let direct = r.read_flags & abi::FUSE_READ_LOCKOWNER != 0;
            O::Read { handle: r.handle, offset: r.offset, size: r.size, direct }
        }
        abi::WRITE => {
            let w: abi::WriteIn = rest.take()?;
            let kill_priv = w.write_flags & abi::FUSE_WRITE_KILL_SUIDGID != 0;
            let direct = w.write_flags & abi::FUSE_WRITE_LOCKOWNER != 0;
            let (handle, offset, flags) = (w.handle, w.offset, w.flags);
            let cached = w.write_flags & abi::FUSE_WRITE_CACHE != 0;
            O::Write { handle, offset, data: rest.bytes(w.size)?, kill_priv, flags, direct, cached }
        }
        abi::OPEN => {
            let o: abi::OpenIn = rest.take()?;
            let kill_priv = o.open_flags & abi::FUSE_OPEN_KILL_SUIDGID != 0;
            O::Open { flags: o.flags, kill_priv }
        }
        abi::FLUSH => {
            let f: abi::FlushIn = rest.take()?;
            O::Flush { handle: f.handle, owner: f.lock_owner }
        }
        abi::RELEASE => O::Release { handle: rest.take::<abi::ReleaseIn>()?.handle },
        abi::FSYNC | abi::FSYNCDIR => {
            let f: abi::FsyncIn = rest.take()?;
            O::Fsync { datasync: f.flags & abi::FUSE_FSYNC_FDATASYNC != 0 }
        }
        abi::OPENDIR => O::OpenDir,
        abi::RELEASEDIR => O::ReleaseDir { handle: rest.take::<abi::ReleaseIn>()?.handle },
        abi::READDIR | abi::READDIRPLUS => {
            let r: abi::ReadIn = rest.take()?;
            let plus = opcode == abi::READDIRPLUS;
            O::ReadDir { handle: r.handle, cookie: r.offset, size: r.size, plus }
        }
        abi::FALLOCATE => {
            let f: abi::FallocateIn = rest.take()?;
            O::Allocate { handle: f.handle, offset: f.offset, len: f.len, mode: f.mode }
        }
        abi::LSEEK => {
            let l: abi::LseekIn = rest.take()?;
            O::Seek { offset: l.offset, whence: l.whence }
        }
        abi::COPY_FILE_RANGE => {
            let c: abi::CopyFileRangeIn = rest.take()?;
            let (to_node, to_handle, to_offset) = (c.node_out, c.handle_out, c.offset_out);
            let (offset, len, flags) = (c.offset_in, c.len, c.flags);
            O::Copy { offset, to_node, to_handle, to_offset, len, flags }
        }
        _ => return Ok(None),
    }))
}

/// Locks, and the end of waits for them.
fn locks<'a>(opcode: u32, rest: &mut Rest<'a>) -> Parsed<Option<Operation<'a>>> {
    use Operation as O;
    if opcode == abi::INTERRUPT {
        return Ok(Some(O::Interrupt { unique: rest.take::<abi::InterruptIn>()?.unique }));
    }
    if !matches!(opcode, abi::GETLK | abi::SETLK | abi::SETLKW) {
        return Ok(None);
    }
    let l: abi::LockIn = rest.take()?;
    let abi::FileLock { first, last, kind, pid } = l.lock;
    let (handle, owner, lock) = (l.handle, l.owner, FileLock { first, last, kind, pid });
    let whole = l.flags & abi::FUSE_LK_FLOCK != 0;
    Ok(Some(match opcode {
        abi::GETLK => O::GetLock { handle, owner, lock },
        _ => O::SetLock { handle, owner, lock, whole, wait: opcode == abi::SETLKW },
    }))
}

/// Requests on names.
fn names<'a>(opcode: u32, rest: &mut Rest<'a>) -> Parsed<Option<Operation<'a>>> {
    use Operation as O;
    Ok(Some(match opcode {
        abi::LOOKUP => O::Lookup { name: rest.name()? },
        abi::SYMLINK => O::Symlink { name: rest.name()?, target: rest.name()? },
        abi::MKNOD => {
            let m: abi::MknodIn = rest.take()?;
            O::MakeNode { name: rest.name()?, mode: m.mode, umask: m.umask, rdev: m.rdev }
        }
        abi::MKDIR => {
            let m: abi::MkdirIn = rest.take()?;
            O::MakeDir { name: rest.name()?, mode: m.mode, umask: m.umask }
        }
        abi::UNLINK => O::Unlink { name: rest.name()? },
        abi::RMDIR => O::RemoveDir { name: rest.name()? },
        abi::RENAME => {
            let r: abi::RenameIn = rest.take()?;
            let (name, new_name) = (rest.name()?, rest.name()?);
            O::Rename { name, new_dir: r.new_dir, new_name, flags: 0 }
        }
        abi::RENAME2 => {
            let r: abi::Rename2In = rest.take()?;
            let (name, new_name) = (rest.name()?, rest.name()?);
            O::Rename { name, new_dir: r.new_dir, new_name, flags: r.flags }
        }
        abi::LINK => {
            let l: abi::LinkIn = rest.take()?;
            O::Link { node: l.node, name: rest.name()? }
        }
        abi::CREATE => {
            let c: abi::CreateIn = rest.take()?;
            O::Create { name: rest.name()?, mode: c.mode, umask: c.umask, flags: c.flags }
        }
        abi::TMPFILE => {
            let c: abi::CreateIn = rest.take()?;
            O::TmpFile { mode: c.mode, umask: c.umask, flags: c.flags }
        }
        abi::GETXATTR => {
            let g: abi::GetXattrIn = rest.take()?;
            O::GetXattr { name: rest.name()?, size: g.size }
        }
        abi::REMOVEXATTR => O::RemoveXattr { name: rest.name()? },
        _ => return Ok(None),
    }))
}

/// Requests on inodes and on the mount.
fn whole<'a>(opcode: u32, rest: &mut Rest<'a>) -> Parsed<Operation<'a>> {
    use Operation as O;
    Ok(match opcode {
        abi::GETATTR => {
            let g: abi::GetAttrIn = rest.take()?;
            O::GetAttr { by_handle: g.flags & abi::FUSE_GETATTR_FH != 0 }
        }
        abi::STATX => O::Statx,
        abi::SETATTR => O::SetAttr { set: set_attr(&rest.take()?) },
        abi::READLINK => O::ReadLink,
        abi::FORGET => O::Forget { count: rest.take::<abi::ForgetIn>()?.count },
        abi::BATCH_FORGET => {
            let b: abi::BatchForgetIn = rest.take()?;
            let each = u32::try_from(size_of::<abi::ForgetOne>()).map_err(|_| Malformed)?;
            O::BatchForget(Forgets(rest.bytes(b.count.checked_mul(each).ok_or(Malformed)?)?))
        }
        abi::STATFS => O::StatFs,
        abi::LISTXATTR => O::ListXattr { size: rest.take::<abi::GetXattrIn>()?.size },
        abi::INIT => {
            let i: abi::InitIn = rest.take()?;
            let (max_readahead, flags) = (i.max_readahead, i.flags);
            let flags2 = match flags & abi::FUSE_INIT_EXT {
                0 => 0,
                _ => rest.take::<abi::InitExt>()?.flags2,
            };
            O::Init { major: i.major, minor: i.minor, max_readahead, flags, flags2 }
        }
        abi::DESTROY => O::Destroy,
        abi::IOCTL => {
            let i: abi::IoctlIn = rest.take()?;
            let (handle, command) = (i.handle, i.command);
            O::Ioctl { handle, command, input: rest.bytes(i.in_size)? }
        }
        opcode => O::Unknown { opcode },
    })
}

fn set_xattr<'a>(rest: &mut Rest<'a>, dialect: Dialect) -> Parsed<Operation<'a>> {
    let s: abi::SetXattrIn = rest.take()?;
    let extra = match dialect.setxattr_ext {
        true => rest.take::<abi::SetXattrExt>()?.extra_flags,
        false => 0,
    };
    let kill_setgid = extra & abi::FUSE_SETXATTR_ACL_KILL_SGID != 0;
    let name = rest.name()?;
    Ok(Operation::SetXattr { name, value: rest.bytes(s.size)?, flags: s.flags, kill_setgid })
}

/// A time as sent: all of 64 bits, both ways; the Runtime keeps the nearest that ext4 can.
fn time(sec: i64, nsec: u32) -> Timestamp {
    Timestamp { sec, nsec: nsec.min(999_999_999) }
}

fn set_attr(s: &abi::SetAttrIn) -> SetAttr {
    let has = |flag: u32| s.valid & flag != 0;
    let set_time = |field: u32, now: u32, at: Timestamp| {
        has(field).then(|| if has(now) { SetTime::Now } else { SetTime::At(at) })
    };
    let atime = time(s.atime, s.atime_nsec);
    let mtime = time(s.mtime, s.mtime_nsec);
    SetAttr {
        perm: has(abi::FATTR_MODE).then(|| crate::kernel::convert::perm_of_mode(s.mode)),
        uid: has(abi::FATTR_UID).then_some(s.uid),
        gid: has(abi::FATTR_GID).then_some(s.gid),
        size: has(abi::FATTR_SIZE).then_some(s.size),
        atime: set_time(abi::FATTR_ATIME, abi::FATTR_ATIME_NOW, atime),
        mtime: set_time(abi::FATTR_MTIME, abi::FATTR_MTIME_NOW, mtime),
        ctime: has(abi::FATTR_CTIME).then(|| time(s.ctime, s.ctime_nsec)),
        kill_priv: has(abi::FATTR_KILL_SUIDGID),
        kill_setgid: false,
        keep_priv: false,
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
