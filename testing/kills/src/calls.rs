//! Requests of the file protocol as system calls below one directory.
//!
//! A worker's model is a file system of its own. Its root is the worker's directory; its directory
//! [`SHARED`] is one that all workers have, in which each sees only the names that begin with its
//! own prefix.

use crate::posix::{attr_of, file_type, flags_of, get_xattr, list_xattrs, set_attr};
use crate::unnamed;
use crate::ways::{self, How};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::{Errno, ReadWriteFlags};
use siftfs_base::InodeNr;
use siftfs_client::{Entry, Publish, Source};
use siftfs_model::{Model, Op};
use siftfs_proto::{
    Allocate, FileKind, Handle, Level, PublishEntry, PublishSource, ROOT_INO, RenameMode, Reply,
    Request, Seek, SetAttr, XattrMode,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The model's number of the directory that all workers have.
pub const SHARED: InodeNr = 3;
/// The shared directory's name in the model's root.
pub const SHARED_NAME: &[u8] = b"shared";
/// Longest name in it, the prefix not included.
const SHARED_NAME_MAX: usize = 200;
/// Where a worker's model lies.
#[derive(Clone, Debug)]
pub struct Place {
    /// The mounted directory.
    pub mount: PathBuf,
    /// The worker's number.
    pub worker: usize,
    /// The command.
    pub siftfs: PathBuf,
}

/// An inode, by a name of it or by an open handle of the model's.
#[derive(Clone, Debug)]
enum Target {
    Path(PathBuf),
    Handle(u64),
}

/// What is to be called; paths are those before the operation.
#[derive(Clone, Debug)]
enum Call {
    Nothing,
    Create(PathBuf, u16),
    MakeDir(PathBuf, u16),
    MakeNode(PathBuf, FileKind, u16, u32),
    Symlink(Vec<u8>, PathBuf),
    Link(PathBuf, PathBuf),
    /// A file without a name, in this directory.
    Unnamed(PathBuf, u16),
    /// The file of this handle gets its first name.
    LinkUnnamed(u64, PathBuf),
    Unlink(PathBuf),
    RemoveDir(PathBuf),
    Rename(PathBuf, PathBuf, RenameMode),
    /// In this directory; a descriptor in it is a handle of the model's.
    Publish(PathBuf, Vec<PublishEntry>, Level),
    Open(PathBuf, bool),
    Release(u64),
    Stat(PathBuf),
    Lookup(PathBuf),
    ReadLink(PathBuf),
    Read(Target, u64, u32),
    Write(Target, u64, Vec<u8>, bool),
    Fsync(Target, bool),
    Allocate(Target, Allocate, u64, u64),
    Seek(Target, u64, Seek),
    Resize(Target, u64),
    SetAttr(PathBuf, SetAttr),
    GetXattr(PathBuf, Vec<u8>),
    ListXattr(PathBuf),
    SetXattr(PathBuf, Vec<u8>, Vec<u8>, XattrMode),
    RemoveXattr(PathBuf, Vec<u8>),
    Command(&'static str),
}

/// A request that was fitted to what a program can ask a kernel for, ready to be called.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The request that the call carries out.
    pub request: Request,
    call: Call,
    fresh: u64,
    /// How a write is carried out, where there are several ways.
    pub how: How,
}

/// What a write promises when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// Nothing.
    None,
    /// As after fdatasync.
    Data,
    /// As after fsync.
    All,
}

/// An errno, or what else went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The kernel's answer.
    Errno(i32),
    /// A command's.
    Command(String),
}

impl From<Errno> for Refused {
    fn from(e: Errno) -> Self {
        Self::Errno(e.raw_os_error())
    }
}

impl Place {
    /// The worker's own directory.
    pub fn own(&self) -> PathBuf {
        self.mount.join(format!("worker-{}", self.worker))
    }

    /// The directory that all have.
    pub fn shared(&self) -> PathBuf {
        self.mount.join("shared")
    }

    /// Before the worker's names in it.
    pub fn prefix(&self) -> Vec<u8> {
        format!("{}.", self.worker).into_bytes()
    }

    fn entry(&self, model: &Model, dir: InodeNr, name: &[u8]) -> Option<PathBuf> {
        if dir == SHARED {
            let name = [&*self.prefix(), name].concat();
            return Some(self.shared().join(OsStr::from_bytes(&name)));
        }
        Some(self.path(model, dir)?.join(OsStr::from_bytes(name)))
    }

    /// A path of `ino`, if it has one.
    fn path(&self, model: &Model, ino: InodeNr) -> Option<PathBuf> {
        match ino {
            ROOT_INO => Some(self.own()),
            SHARED => Some(self.shared()),
            _ => {
                let (dir, name) = model.names_of(ino).into_iter().next()?;
                self.entry(model, dir, &name)
            }
        }
    }

    fn target(&self, model: &Model, ino: InodeNr) -> Option<Target> {
        let path = self.path(model, ino).map(Target::Path);
        let open = || model.handles().find(|(_, i)| *i == ino).map(|(h, _)| Target::Handle(h));
        path.or_else(open)
    }

    /// The call for `op` on a tree in state `model`, with the request that it carries out; `None`
    /// if a program has no such call, or the operation would change what the workers share.
    pub fn prepare(&self, model: &Model, op: &Op) -> Option<Prepared> {
        let mut request = fit(model, op.request()?.clone())?;
        if guards_what_is_shared(&request) {
            return None;
        }
        let call = self.call(model, &mut request)?;
        Some(Prepared { request, call, fresh: op.fresh().handle, how: How::Call })
    }

    fn call(&self, model: &Model, request: &mut Request) -> Option<Call> {
        let named = |ino: InodeNr| if ino == SHARED { None } else { self.path(model, ino) };
        let inode = |of: &siftfs_proto::Target| model.target(*of).ok();
        Some(match request {
            Request::Lookup { parent, name } => Call::Lookup(self.name(model, *parent, name)?),
            Request::Forget { .. } => Call::Nothing,
            Request::GetAttr { file } if inode(file)? == ROOT_INO => return None,
            Request::GetAttr { file } => Call::Stat(named(inode(file)?)?),
            Request::SetAttr { file, set, .. } => match set.size {
                Some(size) => Call::Resize(self.file(model, inode(file)?)?, size),
                None => Call::SetAttr(named(inode(file)?)?, set.clone()),
            },
            Request::ReadLink { ino } => Call::ReadLink(named(*ino)?),
            Request::MakeNode { parent, name, kind, perm, rdev } => {
                Call::MakeNode(self.name(model, *parent, name)?, *kind, *perm, *rdev)
            }
            Request::MakeDir { parent, name, perm } => {
                // mkdir(2) knows no setgid bit.
                *perm &= 0o1777;
                Call::MakeDir(self.name(model, *parent, name)?, *perm)
            }
            Request::Symlink { parent, name, target } => {
                Call::Symlink(target.clone(), self.name(model, *parent, name)?)
            }
            Request::Link { ino, parent, name } => match self.target(model, *ino)? {
                Target::Path(_) => Call::Link(named(*ino)?, self.name(model, *parent, name)?),
                Target::Handle(handle) => {
                    Call::LinkUnnamed(handle, self.name(model, *parent, name)?)
                }
            },
            Request::TmpFile { parent: p, perm, .. } => Call::Unnamed(self.path(model, *p)?, *perm),
            Request::Unlink { parent, name } => Call::Unlink(self.name(model, *parent, name)?),
            Request::RemoveDir { parent, name } => {
                Call::RemoveDir(self.name(model, *parent, name)?)
            }
            Request::Rename { parent, name, new_parent, new_name, mode } => Call::Rename(
                self.name(model, *parent, name)?,
                self.name(model, *new_parent, new_name)?,
                *mode,
            ),
            Request::Publish { base, entries, level, .. } => {
                let shares = |path: &[u8]| path.split(|b| *b == b'/').next() == Some(SHARED_NAME);
                let path = |entry: &PublishEntry| match &entry.source {
                    PublishSource::Path(path) => shares(path),
                    PublishSource::Open(_) => false,
                };
                // The names there have a prefix that these paths do not have.
                if *base == SHARED || entries.iter().any(|e| path(e) || shares(&e.to)) {
                    return None;
                }
                Call::Publish(self.path(model, *base)?, entries.clone(), *level)
            }
            Request::Create { parent, name, perm } => {
                Call::Create(self.name(model, *parent, name)?, *perm)
            }
            Request::SyncAll => Call::Command("sync"),
            Request::Checkpoint => Call::Command("checkpoint"),
            other => self.call_for_data(model, other)?,
        })
    }

    /// A call on the data or the attributes of a file.
    fn call_for_data(&self, model: &Model, request: &Request) -> Option<Call> {
        let file = |ino: InodeNr| self.file(model, ino);
        let inode = |of: &siftfs_proto::Target| model.target(*of).ok();
        let data = |of| file(inode(of)?);
        let attributed = |of| {
            let ino = inode(of)?;
            let kind = model.node(ino)?.kind;
            let has = matches!(kind, FileKind::Regular | FileKind::Directory);
            if has && ino != SHARED { self.path(model, ino) } else { None }
        };
        Some(match request {
            Request::Open { ino, truncate, .. } => match file(*ino)? {
                Target::Path(path) => Call::Open(path, *truncate),
                Target::Handle(_) => return None,
            },
            Request::Release { handle } => Call::Release(handle.0),
            Request::Read { file: of, offset, len } => Call::Read(data(of)?, *offset, *len),
            Request::Write { file: of, offset, data: bytes, append, .. } => {
                Call::Write(data(of)?, *offset, bytes.clone().into_bytes(), *append)
            }
            Request::Fsync { file: of, datasync } => match model.node(inode(of)?)?.kind {
                FileKind::Regular | FileKind::Directory => {
                    Call::Fsync(self.target(model, inode(of)?)?, *datasync)
                }
                _ => return None,
            },
            Request::Allocate { file: of, mode, offset, len, .. } => {
                Call::Allocate(data(of)?, *mode, *offset, *len)
            }
            Request::Seek { file: of, offset, whence } => Call::Seek(data(of)?, *offset, *whence),
            Request::GetXattr { file: of, name } => Call::GetXattr(attributed(of)?, name.clone()),
            Request::ListXattr { file: of } => Call::ListXattr(attributed(of)?),
            Request::SetXattr { file: of, name, value, mode, .. } => {
                Call::SetXattr(attributed(of)?, name.clone(), value.clone(), *mode)
            }
            Request::RemoveXattr { file: of, name, .. } => {
                Call::RemoveXattr(attributed(of)?, name.clone())
            }
            _ => return None,
        })
    }

    fn file(&self, model: &Model, ino: InodeNr) -> Option<Target> {
        let regular = model.node(ino)?.kind == FileKind::Regular;
        if regular { self.target(model, ino) } else { None }
    }

    /// The path of a name; `None` for that of the shared directory, and for one too long in it.
    fn name(&self, model: &Model, dir: InodeNr, name: &[u8]) -> Option<PathBuf> {
        let shared = (dir, name) == (ROOT_INO, SHARED_NAME);
        if shared || (dir == SHARED && name.len() > SHARED_NAME_MAX) {
            return None;
        }
        self.entry(model, dir, name)
    }
}

/// Does it change the rights of the worker's own directory? In the model that is above the shared
/// one, and so whatever is synced there owes them (rule R17); on the volume it lies beside it.
fn guards_what_is_shared(request: &Request) -> bool {
    let root = siftfs_proto::Target::Inode(ROOT_INO);
    match request {
        Request::SetAttr { file: of, set, .. } if *of == root => {
            set.perm.is_some() || set.uid.is_some() || set.gid.is_some()
        }
        Request::SetXattr { file: of, name, .. } | Request::RemoveXattr { file: of, name, .. }
            if *of == root =>
        {
            [b"system.".as_slice(), b"security."].iter().any(|kind| name.starts_with(kind))
        }
        _ => false,
    }
}

/// The request as root's kernel would send it: no privileges are given up, but a file's setuid and
/// setgid bits by a chown.
fn fit(model: &Model, mut request: Request) -> Option<Request> {
    // Programs write; what the kernel makes of it is its own.
    if let Request::WriteBack { file, offset, data, .. } = request {
        request = Request::write(file, offset, data);
    }
    match &mut request {
        Request::Write { kill_priv, .. } | Request::Open { kill_priv, .. } => *kill_priv = false,
        Request::SetXattr { kill_setgid, .. } => *kill_setgid = false,
        Request::SetAttr { file, set, .. } => {
            let kind = model.node(model.target(*file).ok()?)?.kind;
            let chown = set.uid.is_some() || set.gid.is_some();
            set.kill_priv = chown && kind == FileKind::Regular;
            let plain = [FileKind::Regular, FileKind::Directory, FileKind::Symlink];
            if chown && !plain.contains(&kind) {
                return None;
            }
        }
        _ => {}
    }
    Some(request)
}

/// Files that a worker holds open, by the model's handles.
#[derive(Default)]
pub struct Handles(BTreeMap<u64, OwnedFd>);

impl Handles {
    /// Closes all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Closes one.
    pub fn close(&mut self, handle: u64) {
        self.0.remove(&handle);
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None is open.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest handle.
    pub fn first(&self) -> Option<Handle> {
        self.0.keys().next().copied().map(Handle)
    }

    /// Gives names to files, some of which are open here.
    fn publish(
        &self,
        dir: &Path,
        entries: &[PublishEntry],
        level: Level,
    ) -> Result<Reply, Refused> {
        let entry = |PublishEntry { source, to, replace }: &PublishEntry| {
            let source = match source {
                PublishSource::Path(path) => Source::Path(path.clone()),
                PublishSource::Open(handle) => {
                    let fd = self.0.get(&handle.0).ok_or(Errno::BADF)?;
                    Source::Descriptor(fd.as_raw_fd().cast_unsigned())
                }
            };
            Ok(Entry { source, to: to.clone(), replace: *replace })
        };
        let entries = entries.iter().map(entry).collect::<Result<_, Errno>>()?;
        let dir = open(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let done = siftfs_client::publish(dir.as_fd(), &Publish { entries, level });
        done.map(|()| Reply::Done)
            .map_err(|e| Refused::Errno(e.raw_os_error().unwrap_or(libc::EIO)))
    }

    fn with<T>(
        &self,
        target: &Target,
        flags: OFlags,
        work: impl FnOnce(&OwnedFd) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        match target {
            Target::Handle(handle) => work(self.0.get(handle).ok_or(Errno::BADF)?),
            Target::Path(path) => work(&open(path, flags)?),
        }
    }
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
}

impl Prepared {
    /// Carries it out. `promise` is asked of a write.
    ///
    /// # Errors
    /// What the kernel or the command answered.
    pub fn run(
        &self,
        place: &Place,
        handles: &mut Handles,
        promise: Promise,
    ) -> Result<Reply, Refused> {
        match &self.call {
            Call::Nothing => Ok(Reply::Done),
            Call::Create(path, perm) => self.create(path, *perm, handles),
            Call::Unnamed(dir, perm) => {
                let (fd, attr) = unnamed::make(dir, *perm)?;
                handles.0.insert(self.fresh, fd);
                Ok(Reply::Created { attr, handle: Handle(self.fresh) })
            }
            Call::LinkUnnamed(handle, path) => {
                unnamed::link(handles.0.get(handle).ok_or(Errno::BADF)?, path)
            }
            Call::Publish(dir, entries, level) => handles.publish(dir, entries, *level),
            Call::Open(path, truncate) => {
                let flags = if *truncate { OFlags::TRUNC } else { OFlags::empty() };
                handles.0.insert(self.fresh, open(path, OFlags::RDWR | flags)?);
                Ok(Reply::Opened { handle: Handle(self.fresh) })
            }
            Call::Release(handle) => {
                handles.0.remove(handle).ok_or(Errno::BADF)?;
                Ok(Reply::Done)
            }
            Call::Command(name) => command(place, name),
            _ => self.run_on_names().unwrap_or_else(|| self.run_on_data(handles, promise)),
        }
    }

    /// Does the call write through a descriptor that stays open, so that a kernel that keeps pages
    /// back has no reason to send them?
    pub fn stays_open(&self) -> bool {
        matches!(&self.call, Call::Write(Target::Handle(_), ..))
    }

    /// Is the call about a file without a name, by a descriptor?
    pub fn is_of_a_nameless_file(&self) -> bool {
        match &self.call {
            Call::LinkUnnamed(..) => true,
            Call::Read(target, ..)
            | Call::Write(target, ..)
            | Call::Fsync(target, ..)
            | Call::Allocate(target, ..)
            | Call::Seek(target, ..)
            | Call::Resize(target, ..) => matches!(target, Target::Handle(_)),
            _ => false,
        }
    }

    /// A stranger tries to take privileges away from the file that a call on data is about.
    ///
    /// # Errors
    /// What was taken.
    pub fn stranger(&self) -> Result<(), Refused> {
        match &self.call {
            Call::Stat(path) | Call::Resize(Target::Path(path), _) => ways::stranger(path),
            _ => Ok(()),
        }
    }

    /// For a difference: which part of the path of a call on data is there a moment later.
    pub fn look_again(&self) -> String {
        let (Call::Read(Target::Path(path), ..)
        | Call::Write(Target::Path(path), ..)
        | Call::Fsync(Target::Path(path), _)
        | Call::Allocate(Target::Path(path), ..)
        | Call::Seek(Target::Path(path), ..)
        | Call::Resize(Target::Path(path), _)
        | Call::Open(path, _)
        | Call::Stat(path)) = &self.call
        else {
            return String::new();
        };
        let missing = path.ancestors().filter(|p| rustix::fs::lstat(*p).is_err()).last();
        match missing {
            Some(part) => format!("; a moment later {} is not there", part.display()),
            None => format!("; a moment later {} is there", path.display()),
        }
    }

    fn create(&self, path: &Path, perm: u16, handles: &mut Handles) -> Result<Reply, Refused> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(perm.into()))?;
        let attr = attr_of(&rustix::fs::fstat(&fd)?);
        handles.0.insert(self.fresh, fd);
        Ok(Reply::Created { attr, handle: Handle(self.fresh) })
    }

    fn run_on_names(&self) -> Option<Result<Reply, Refused>> {
        let mode = |perm: u16| Mode::from_raw_mode(perm.into());
        let done = match &self.call {
            Call::MakeDir(path, perm) => {
                rustix::fs::mkdir(path, mode(*perm)).and_then(|()| entry(path))
            }
            Call::MakeNode(path, kind, perm, rdev) => {
                rustix::fs::mknodat(CWD, path, file_type(*kind), mode(*perm), u64::from(*rdev))
                    .and_then(|()| entry(path))
            }
            Call::Symlink(target, path) => {
                rustix::fs::symlink(OsStr::from_bytes(target), path).and_then(|()| entry(path))
            }
            Call::Link(old, new) => {
                rustix::fs::linkat(CWD, old, CWD, new, AtFlags::empty()).and_then(|()| entry(new))
            }
            Call::Unlink(path) => rustix::fs::unlink(path).map(|()| Reply::Done),
            Call::RemoveDir(path) => rustix::fs::rmdir(path).map(|()| Reply::Done),
            Call::Rename(old, new, mode) => {
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                    RenameMode::Whiteout => RenameFlags::WHITEOUT,
                    RenameMode::WhiteoutNoReplace => {
                        RenameFlags::WHITEOUT.union(RenameFlags::NOREPLACE)
                    }
                };
                rustix::fs::renameat_with(CWD, old, CWD, new, flags).map(|()| Reply::Done)
            }
            Call::Stat(path) => rustix::fs::lstat(path).map(|s| Reply::Attr(attr_of(&s))),
            Call::Lookup(path) => entry(path),
            Call::ReadLink(path) => {
                rustix::fs::readlink(path, Vec::new()).map(|t| Reply::Data(t.into_bytes()))
            }
            Call::SetAttr(path, set) => set_attr(path, set),
            Call::GetXattr(path, name) => get_xattr(path, name).map(Reply::Data),
            Call::ListXattr(path) => list_xattrs(path).map(Reply::Names),
            Call::SetXattr(path, name, value, mode) => {
                let flags = match mode {
                    XattrMode::Set => XattrFlags::empty(),
                    XattrMode::Create => XattrFlags::CREATE,
                    XattrMode::Replace => XattrFlags::REPLACE,
                };
                rustix::fs::lsetxattr(path, name.as_slice(), value, flags).map(|()| Reply::Done)
            }
            Call::RemoveXattr(path, name) => {
                rustix::fs::lremovexattr(path, name.as_slice()).map(|()| Reply::Done)
            }
            _ => return None,
        };
        Some(done.map_err(Refused::from))
    }

    fn run_on_data(&self, handles: &Handles, promise: Promise) -> Result<Reply, Refused> {
        let write = OFlags::WRONLY;
        match &self.call {
            Call::Read(target, offset, len) => handles.with(target, OFlags::RDONLY, |fd| {
                let mut buf = vec![0; *len as usize];
                let got = rustix::io::pread(fd, &mut buf, *offset)?;
                buf.truncate(got);
                Ok(Reply::Data(buf))
            }),
            Call::Write(Target::Path(path), offset, data, false) if self.how != How::Call => {
                self.how.write(path, *offset, data, promise)
            }
            Call::Write(target, offset, data, append) => handles.with(target, write, |fd| {
                let mut flags = match promise {
                    Promise::None => ReadWriteFlags::empty(),
                    Promise::Data => ReadWriteFlags::DSYNC,
                    Promise::All => ReadWriteFlags::SYNC,
                };
                flags.set(ReadWriteFlags::APPEND, *append);
                let len = rustix::io::pwritev2(fd, &[IoSlice::new(data)], *offset, flags)?;
                if let Some(rest @ [_, ..]) = data.get(len..) {
                    return Err(short((fd.as_fd(), *offset, flags), len, rest));
                }
                Ok(Reply::Written { len: u32::try_from(len).map_err(|_| Errno::OVERFLOW)? })
            }),
            Call::Fsync(target, datasync) => handles.with(target, OFlags::RDONLY, |fd| {
                match datasync {
                    true => rustix::fs::fdatasync(fd)?,
                    false => rustix::fs::fsync(fd)?,
                }
                Ok(Reply::Done)
            }),
            Call::Allocate(target, mode, offset, len) => handles.with(target, write, |fd| {
                rustix::fs::fallocate(fd, flags_of(*mode), *offset, *len)?;
                Ok(Reply::Done)
            }),
            Call::Seek(target, offset, whence) => handles.with(target, OFlags::RDONLY, |fd| {
                let from = match whence {
                    Seek::Data => SeekFrom::Data(*offset),
                    Seek::Hole => SeekFrom::Hole(*offset),
                };
                Ok(Reply::Offset(rustix::fs::seek(fd, from)?))
            }),
            Call::Resize(target, size) => handles.with(target, write, |fd| {
                rustix::fs::ftruncate(fd, *size)?;
                Ok(Reply::Attr(attr_of(&rustix::fs::fstat(fd)?)))
            }),
            other => unreachable!("{other:?} is no call on data"),
        }
    }
}

/// A write that came to an end before its end. The kernel sends what crosses a page in parts: where
/// one is refused behind another, such as one of a file without a name whose server died between
/// the two, only the next write is told why, and that is the answer here. It is wrong to end for no
/// reason.
fn short(
    (fd, offset, flags): (BorrowedFd<'_>, u64, ReadWriteFlags),
    written: usize,
    rest: &[u8],
) -> Refused {
    match rustix::io::pwritev2(fd, &[IoSlice::new(rest)], offset + written as u64, flags) {
        Err(errno) => errno.into(),
        Ok(more) => Refused::Command(format!(
            "a write of {} bytes ended after {written}, and the rest, of {more}, was taken then",
            written + rest.len()
        )),
    }
}

pub(crate) fn entry(path: &Path) -> Result<Reply, Errno> {
    rustix::fs::lstat(path).map(|stat| Reply::Entry(attr_of(&stat)))
}

fn command(place: &Place, name: &str) -> Result<Reply, Refused> {
    let run = Command::new(&place.siftfs).arg(name).arg(&place.mount).output();
    let out = run.map_err(|e| Refused::Command(format!("siftfs {name}: {e}")))?;
    if out.status.success() {
        return Ok(Reply::Done);
    }
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    Err(Refused::Command(format!("siftfs {name}: {}: {said}", out.status)))
}
