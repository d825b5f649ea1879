//! The only module that names the `fuser` crate: kernel requests in, replies out.

use crate::convert::{
    allocate_mode, inode, kind_of_mode, node, perm_of_mode, rename_mode, request_time, seek,
    system_time, unexpected, xattr_mode,
};
use crate::server::{DirCursor, Server, check_xattr_name};
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, SessionACL, TimeOrNow, WriteFlags,
};
use siftfs_base::{Error, Result};
use siftfs_proto::{
    Attr, Credentials, DirEntry, FileKind, Handle, Reply, Request, SetAttr, SetTime,
};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A session with the kernel.
pub(crate) type KernelSession = fuser::Session<Adapter>;

/// How long the kernel may trust names and attributes: no other writer exists, and it knows
/// what its own requests change.
const TTL: Duration = Duration::from_secs(24 * 3600);
/// Largest read or write the kernel sends, in bytes.
pub(crate) const MAX_IO: u32 = 1 << 20;

/// What we want from the kernel, each only where it has it. Not among them, on purpose: the
/// writeback cache (size and times would move into the kernel), POSIX and flock locks (the
/// kernel keeps both, interruptibly), ACLs and DONT_MASK (the kernel applies the umask), and
/// automatic invalidation (the kernel's cache cannot be stale).
const WANTED: [InitFlags; 9] = [
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_MAX_PAGES,
];

/// Speaks the kernel's protocol for a [`Server`].
pub(crate) struct Adapter {
    server: Arc<Server>,
}

impl Adapter {
    /// A session over an already mounted `/dev/fuse` descriptor; waits for the kernel's INIT.
    pub(crate) fn session(
        server: Arc<Server>,
        device: OwnedFd,
        allow_other: bool,
        threads: usize,
    ) -> io::Result<KernelSession> {
        let acl = if allow_other { SessionACL::All } else { SessionACL::Owner };
        let mut config = Config::default();
        config.acl = acl;
        config.n_threads = Some(threads);
        KernelSession::from_fd(Self { server }, device, acl, config)
    }

    fn reply_entry(&self, result: Result<Attr>, reply: ReplyEntry) {
        match result {
            Ok(a) => reply.entry(&TTL, &file_attr(&a), generation(&a)),
            Err(e) => reply.error(code(&e)),
        }
    }

    fn reply_opened(&self, result: Result<Handle>, reply: ReplyOpen) {
        match result {
            Ok(h) => reply.opened(FileHandle(h.0), open_flags()),
            Err(e) => reply.error(code(&e)),
        }
    }

    fn fsync_any(&self, req: &fuser::Request, ino: INodeNo, datasync: bool, reply: ReplyEmpty) {
        match inode(ino.0) {
            Err(e) => reply.error(code(&e)),
            Ok(ino) => {
                let done = Box::new(move |result: Result<Reply>| {
                    reply_empty(result.map(|_| ()), reply);
                });
                self.server.fsync(cred(req), ino, datasync, done);
            }
        }
    }
}

fn cred(req: &fuser::Request) -> Credentials {
    Credentials { uid: req.uid(), gid: req.gid(), pid: req.pid() }
}

fn code(e: &Error) -> Errno {
    if !matches!(e, Error::Posix(_)) {
        tracing::error!(error = %e, "request failed");
    }
    Errno::from_i32(e.errno())
}

fn generation(a: &Attr) -> Generation {
    Generation(u64::from(a.generation))
}

/// The kernel keeps cached pages over an open, and close(2) sends no FLUSH.
fn open_flags() -> FopenFlags {
    FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH
}

fn reply_empty(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(code(&e)),
    }
}

fn reply_attr(result: Result<Attr>, reply: ReplyAttr) {
    match result {
        Ok(a) => reply.attr(&TTL, &file_attr(&a)),
        Err(e) => reply.error(code(&e)),
    }
}

/// getxattr and listxattr: size 0 asks for the size.
fn reply_xattr(result: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result {
        Err(e) => reply.error(code(&e)),
        Ok(v) => match u32::try_from(v.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&v),
            _ => reply.error(Errno::ERANGE),
        },
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
    }
}

fn file_attr(a: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(node(a.ino)),
        size: a.size,
        blocks: a.blocks,
        atime: system_time(a.atime),
        mtime: system_time(a.mtime),
        ctime: system_time(a.ctime),
        crtime: system_time(a.crtime),
        kind: file_type(a.kind),
        perm: a.perm,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        blksize: 4096,
        flags: 0,
    }
}

/// Attributes of which only number and type count.
fn bare_attr(ino: u64, kind: FileKind) -> FileAttr {
    let zero = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: zero,
        mtime: zero,
        ctime: zero,
        crtime: zero,
        kind: file_type(kind),
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn set_time(t: TimeOrNow) -> SetTime {
    match t {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(t) => SetTime::At(request_time(t)),
    }
}

fn bytes(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            if config.add_capabilities(flag).is_err() {
                tracing::info!(?flag, "the kernel does not offer this");
            }
        }
        if let Err(nearest) = config.set_max_write(MAX_IO) {
            tracing::info!(nearest, "another size of the largest write");
        }
        if let Err(nearest) = config.set_max_background(64) {
            tracing::info!(nearest, "another number of background requests");
        }
        Ok(())
    }

    fn lookup(&self, req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let result = inode(parent.0).and_then(|parent| {
            self.server.entry(&cred(req), Request::Lookup { parent, name: bytes(name) })
        });
        match result {
            // An entry without a node: the kernel remembers that the name does not exist.
            Err(Error::Posix(libc::ENOENT)) => {
                reply.entry(&TTL, &bare_attr(0, FileKind::Regular), Generation(0));
            }
            other => self.reply_entry(other, reply),
        }
    }

    fn forget(&self, req: &fuser::Request, ino: INodeNo, count: u64) {
        if let Ok(ino) = inode(ino.0) {
            self.server.forget(&cred(req), ino, count);
        }
    }

    fn getattr(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        _fh: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let result =
            inode(ino.0).and_then(|ino| self.server.entry(&cred(req), Request::GetAttr { ino }));
        reply_attr(result, reply);
    }

    fn setattr(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            perm: mode.map(perm_of_mode),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(request_time),
            kill_priv: false,
        };
        let result = inode(ino.0).and_then(|ino| self.server.set_attr(&cred(req), ino, set));
        reply_attr(result, reply);
    }

    fn readlink(&self, req: &fuser::Request, ino: INodeNo, reply: ReplyData) {
        let result =
            inode(ino.0).and_then(|ino| self.server.data(&cred(req), Request::ReadLink { ino }));
        match result {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(code(&e)),
        }
    }

    fn mknod(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let result = inode(parent.0).and_then(|parent| {
            let (kind, perm) = (kind_of_mode(mode)?, perm_of_mode(mode));
            let name = bytes(name);
            self.server.entry(&cred(req), Request::MakeNode { parent, name, kind, perm, rdev })
        });
        self.reply_entry(result, reply);
    }

    fn mkdir(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let result = inode(parent.0).and_then(|parent| {
            let (name, perm) = (bytes(name), perm_of_mode(mode));
            self.server.entry(&cred(req), Request::MakeDir { parent, name, perm })
        });
        self.reply_entry(result, reply);
    }

    fn unlink(&self, req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = inode(parent.0).and_then(|parent| {
            self.server.done(&cred(req), Request::Unlink { parent, name: bytes(name) })
        });
        reply_empty(result, reply);
    }

    fn rmdir(&self, req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = inode(parent.0).and_then(|parent| {
            self.server.done(&cred(req), Request::RemoveDir { parent, name: bytes(name) })
        });
        reply_empty(result, reply);
    }

    fn symlink(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let result = inode(parent.0).and_then(|parent| {
            let (name, target) = (bytes(link_name), bytes(target.as_os_str()));
            self.server.entry(&cred(req), Request::Symlink { parent, name, target })
        });
        self.reply_entry(result, reply);
    }

    fn rename(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            let request = Request::Rename {
                parent: inode(parent.0)?,
                name: bytes(name),
                new_parent: inode(newparent.0)?,
                new_name: bytes(newname),
                mode: rename_mode(flags.bits())?,
            };
            self.server.done(&cred(req), request)
        };
        reply_empty(rename(), reply);
    }

    fn link(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let link = || {
            let (ino, parent) = (inode(ino.0)?, inode(newparent.0)?);
            self.server.entry(&cred(req), Request::Link { ino, parent, name: bytes(newname) })
        };
        self.reply_entry(link(), reply);
    }

    fn open(&self, req: &fuser::Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let result = inode(ino.0).and_then(|ino| {
            let cred = cred(req);
            let write = flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
            let truncate = flags.0 & libc::O_TRUNC != 0;
            let kill_priv = truncate && cred.uid != 0;
            let handle =
                self.server.opened(&cred, Request::Open { ino, write, truncate, kill_priv })?;
            if write {
                self.server.note_writer(handle, ino);
            }
            Ok(handle)
        });
        self.reply_opened(result, reply);
    }

    fn create(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let result = inode(parent.0).and_then(|parent| {
            let (name, perm) = (bytes(name), perm_of_mode(mode));
            self.server.call(&cred(req), Request::Create { parent, name, perm })
        });
        match result {
            Ok(Reply::Created { attr, handle }) => {
                if flags & libc::O_ACCMODE != libc::O_RDONLY {
                    self.server.note_writer(handle, attr.ino);
                }
                let (ttl, made) = (&TTL, file_attr(&attr));
                let fh = FileHandle(handle.0);
                reply.created(ttl, &made, generation(&attr), fh, open_flags());
            }
            Ok(_) => reply.error(code(&unexpected("created"))),
            Err(e) => reply.error(code(&e)),
        }
    }

    fn read(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let result = inode(ino.0)
            .and_then(|ino| self.server.data(&cred(req), Request::Read { ino, offset, len: size }));
        match result {
            Ok(data) => reply.data(&data),
            Err(e) => reply.error(code(&e)),
        }
    }

    /// The kernel's offset counts for O_APPEND too: it takes it from the size it knows while it
    /// holds the inode's lock, nobody else writes, and a large direct append arrives as several
    /// requests in any order.
    fn write(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let result = inode(ino.0).and_then(|ino| {
            let kill_priv = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
            let data = data.to_vec();
            let request = Request::Write { ino, offset, data, append: false, kill_priv };
            self.server.call(&cred(req), request)
        });
        match result {
            Ok(Reply::Written { len }) => reply.written(len),
            Ok(_) => reply.error(code(&unexpected("written"))),
            Err(e) => reply.error(code(&e)),
        }
    }

    fn flush(
        &self,
        _req: &fuser::Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // "Not implemented" also tells older kernels never to ask again.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        req: &fuser::Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let handle = Handle(fh.0);
        reply_empty(self.server.release(&cred(req), handle), reply);
    }

    fn fsync(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        _fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync_any(req, ino, datasync, reply);
    }

    fn fsyncdir(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        _fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync_any(req, ino, datasync, reply);
    }

    fn opendir(&self, req: &fuser::Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let result =
            inode(ino.0).and_then(|ino| self.server.opened(&cred(req), Request::OpenDir { ino }));
        self.reply_opened(result, reply);
    }

    fn readdir(
        &self,
        req: &fuser::Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let cursor = DirCursor { handle: Handle(fh.0), cookie: offset, plus: false };
        let result = self.server.read_dir(&cred(req), cursor, &mut |e: &DirEntry| {
            let name = OsStr::from_bytes(&e.name);
            !reply.add(INodeNo(node(e.ino)), e.cookie, file_type(e.kind), name)
        });
        match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(code(&e)),
        }
    }

    fn readdirplus(
        &self,
        req: &fuser::Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let cursor = DirCursor { handle: Handle(fh.0), cookie: offset, plus: true };
        let result = self.server.read_dir(&cred(req), cursor, &mut |e: &DirEntry| {
            let name = OsStr::from_bytes(&e.name);
            // "." and ".." may come without attributes; the kernel takes only their numbers.
            let attr = match &e.attr {
                Some(a) => file_attr(a),
                None => bare_attr(node(e.ino), e.kind),
            };
            let generation = e.attr.as_ref().map_or(Generation(0), generation);
            !reply.add(attr.ino, e.cookie, name, &TTL, &attr, generation)
        });
        match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(code(&e)),
        }
    }

    fn releasedir(
        &self,
        req: &fuser::Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let handle = Handle(fh.0);
        reply_empty(self.server.done(&cred(req), Request::Release { handle }), reply);
    }

    fn statfs(&self, req: &fuser::Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.server.call(&cred(req), Request::StatFs) {
            Ok(Reply::Statfs(s)) => reply.statfs(
                s.blocks,
                s.free,
                s.available,
                s.files,
                s.files_free,
                s.block_size,
                s.name_max,
                s.block_size,
            ),
            Ok(_) => reply.error(code(&unexpected("statfs"))),
            Err(e) => reply.error(code(&e)),
        }
    }

    fn setxattr(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let set = || {
            let (ino, name, mode) = (inode(ino.0)?, bytes(name), xattr_mode(flags)?);
            check_xattr_name(&name)?;
            let value = value.to_vec();
            self.server.done(&cred(req), Request::SetXattr { ino, name, value, mode })
        };
        reply_empty(set(), reply);
    }

    fn getxattr(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let result =
            inode(ino.0).and_then(|ino| self.server.get_xattr(&cred(req), ino, bytes(name)));
        reply_xattr(result, size, reply);
    }

    fn listxattr(&self, req: &fuser::Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let result = inode(ino.0).and_then(|ino| self.server.list_xattr(&cred(req), ino));
        reply_xattr(result, size, reply);
    }

    fn removexattr(&self, req: &fuser::Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = || {
            let (ino, name) = (inode(ino.0)?, bytes(name));
            check_xattr_name(&name)?;
            self.server.done(&cred(req), Request::RemoveXattr { ino, name })
        };
        reply_empty(remove(), reply);
    }

    fn fallocate(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocate = || {
            let (ino, mode) = (inode(ino.0)?, allocate_mode(mode)?);
            self.server.done(&cred(req), Request::Allocate { ino, mode, offset, len: length })
        };
        reply_empty(allocate(), reply);
    }

    fn lseek(
        &self,
        req: &fuser::Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let look = || {
            let (ino, whence) = (inode(ino.0)?, seek(whence)?);
            let offset = u64::try_from(offset).map_err(|_| Error::Posix(libc::ENXIO))?;
            match self.server.call(&cred(req), Request::Seek { ino, offset, whence })? {
                Reply::Offset(at) => i64::try_from(at).map_err(|_| Error::Posix(libc::EOVERFLOW)),
                _ => Err(unexpected("offset")),
            }
        };
        match look() {
            Ok(at) => reply.offset(at),
            Err(e) => reply.error(code(&e)),
        }
    }

    fn ioctl(
        &self,
        _req: &fuser::Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: fuser::IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: fuser::ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }
}
