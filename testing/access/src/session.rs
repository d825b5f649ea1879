//! The requests of the same calls, in a session of the caller.

use crate::draw::{Ask, Mode, Who, acl_bytes, value_of};
use siftfs_base::Timestamp;
use siftfs_base::{Error, InodeNr};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Attr, Credentials, FileKind, FileService, Handle, Opening, ROOT_INO, RenameMode, Reply,
    Request, Rights, SetAttr, SetTime, Target, XattrMode,
};

type Said = Result<(), i32>;
type Asked<T> = Result<T, i32>;

/// How a session is opened for a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// For that caller alone.
    ForOne,
    /// For a machine's users: each call brings its caller.
    ForAll,
}

/// How a session of this caller is opened.
pub fn opening(who: &Who, speaks: Speaks, links_all: bool) -> Opening {
    match speaks {
        Speaks::ForOne => Opening::user(who.uid, who.gid, rights(who, links_all)),
        Speaks::ForAll => Opening::machine(),
    }
}

/// The caller that its calls bring: one that is believed, or root in the place of one that is not.
pub fn brought(who: &Who, speaks: Speaks, links_all: bool) -> Credentials {
    let nobody = Credentials { pid: 1, ..Credentials::default() };
    match speaks {
        Speaks::ForOne => nobody,
        Speaks::ForAll => {
            let rights = Some(Box::new(rights(who, links_all)));
            Credentials { uid: who.uid, gid: who.gid, rights, ..nobody }
        }
    }
}

fn rights(who: &Who, links_all: bool) -> Rights {
    Rights {
        groups: who.groups.clone(),
        gives_away: who.can(0),
        overrides_access: who.can(1),
        reads_all: who.can(2),
        owns_all: who.can(3),
        keeps_set_id: who.can(4),
        sets_fixed: who.can(9),
        administers: who.can(21),
        makes_devices: who.can(27),
        sets_capabilities: who.can(31),
        links_all,
        file_size: None,
        running: Vec::new(),
    }
}

/// A session, as a program with a path would use it.
pub struct Program<'a> {
    /// Its end of the protocol.
    pub service: &'a dyn FileService,
    /// The caller that each call brings.
    pub cred: Credentials,
    /// Files are named by their inodes' numbers, as a kernel does it, and not by handles.
    pub by_number: bool,
}

impl Program<'_> {
    fn ask(&self, req: Request) -> Asked<Reply> {
        self.service.call(&self.cred, req).map_err(|e: Error| e.errno())
    }

    fn attr(&self, req: Request) -> Asked<Attr> {
        match self.ask(req)? {
            Reply::Entry(attr) | Reply::Attr(attr) => Ok(attr),
            Reply::Created { attr, .. } => Ok(attr),
            other => panic!("no attributes: {other:?}"),
        }
    }

    fn opened(&self, req: Request) -> Asked<Handle> {
        match self.ask(req)? {
            Reply::Opened { handle } => Ok(handle),
            other => panic!("no handle: {other:?}"),
        }
    }

    /// The directory and the last name of a path.
    fn parent(&self, path: &str) -> Asked<(InodeNr, Vec<u8>)> {
        let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut dir = ROOT_INO;
        for next in dirs.split('/').filter(|next| !next.is_empty()) {
            let found = self.attr(Request::Lookup { parent: dir, name: next.into() })?;
            if found.kind != FileKind::Directory {
                return Err(libc::ENOTDIR);
            }
            dir = found.ino;
        }
        // A path's walk ends with the right to search its last directory.
        self.attr(Request::Lookup { parent: dir, name: b".".to_vec() })?;
        Ok((dir, name.into()))
    }

    /// What a path names. A symbolic link at its end is not followed.
    pub fn find(&self, path: &str) -> Asked<Attr> {
        let (parent, name) = self.parent(path)?;
        self.attr(Request::Lookup { parent, name })
    }

    fn hold(&self, path: &str) -> Asked<Target> {
        let ino = self.find(path)?.ino;
        match self.by_number {
            true => Ok(ino.into()),
            false => self.opened(Request::Hold { ino }).map(Target::from),
        }
    }

    fn open(&self, path: &str, access: Access, truncate: bool) -> Asked<Handle> {
        let found = self.find(path)?;
        match found.kind {
            FileKind::Symlink => return Err(libc::ELOOP),
            FileKind::Directory if access.writes() || truncate => return Err(libc::EISDIR),
            FileKind::Directory => return self.opened(Request::OpenDir { ino: found.ino }),
            _ => {}
        }
        let (ino, kill_priv, times) = (found.ino, false, true);
        self.opened(Request::Open { ino, access, truncate, kill_priv, times, beside_lease: false })
    }

    /// Makes the call.
    pub fn call(&self, ask: &Ask) -> Said {
        match ask {
            Ask::Stat(path) => self.find(path).map(drop),
            Ask::ReadLink(path) => {
                let ino = self.find(path)?.ino;
                self.ask(Request::ReadLink { ino }).map(drop)
            }
            Ask::Create(path, perm) => {
                let ((parent, name), perm) = (self.parent(path)?, *perm);
                self.ask(Request::Create { parent, name, perm }).map(drop)
            }
            Ask::MakeDir(path, perm) => {
                let ((parent, name), perm) = (self.parent(path)?, *perm);
                self.ask(Request::MakeDir { parent, name, perm }).map(drop)
            }
            Ask::MakePipe(path, perm) => self.make(path, FileKind::Fifo, *perm, 0),
            Ask::MakeDevice(path) => self.make(path, FileKind::CharDevice, 0o600, 0x105),
            Ask::Symlink(path) => {
                let (parent, name) = self.parent(path)?;
                self.ask(Request::Symlink { parent, name, target: b"f".to_vec() }).map(drop)
            }
            Ask::Unnamed(path) => {
                let found = self.find(path)?;
                if found.kind != FileKind::Directory {
                    return Err(libc::ENOTDIR);
                }
                let (parent, perm, exclusive) = (found.ino, 0o600, false);
                self.ask(Request::TmpFile { parent, perm, exclusive }).map(drop)
            }
            Ask::Link(from, to) => {
                let (ino, (parent, name)) = (self.find(from)?.ino, self.parent(to)?);
                self.ask(Request::Link { ino, parent, name }).map(drop)
            }
            Ask::Unlink(path) => {
                let (parent, name) = self.parent(path)?;
                self.ask(Request::Unlink { parent, name }).map(drop)
            }
            Ask::RemoveDir(path) => {
                let (parent, name) = self.parent(path)?;
                self.ask(Request::RemoveDir { parent, name }).map(drop)
            }
            Ask::Rename(from, to, mode) => {
                let ((parent, name), (new_parent, new_name)) =
                    (self.parent(from)?, self.parent(to)?);
                let mode = match mode {
                    Mode::Replace => RenameMode::Replace,
                    Mode::NoReplace => RenameMode::NoReplace,
                    Mode::Exchange => RenameMode::Exchange,
                };
                self.ask(Request::Rename { parent, name, new_parent, new_name, mode }).map(drop)
            }
            other => self.files(other),
        }
    }

    fn make(&self, path: &str, kind: FileKind, perm: u16, rdev: u32) -> Said {
        let (parent, name) = self.parent(path)?;
        self.ask(Request::MakeNode { parent, name, kind, perm, rdev }).map(drop)
    }

    fn files(&self, ask: &Ask) -> Said {
        match ask {
            Ask::Open { path, read, write, truncate } => {
                let access = match (read, write) {
                    (true, true) => Access::Both,
                    (false, true) => Access::Write,
                    _ => Access::Read,
                };
                self.open(path, access, *truncate).map(drop)
            }
            Ask::List(path) => {
                let found = self.find(path)?;
                match found.kind {
                    FileKind::Directory => self.ask(Request::OpenDir { ino: found.ino }).map(drop),
                    _ => Err(libc::ENOTDIR),
                }
            }
            Ask::Write(path) => {
                let handle = self.open(path, Access::Write, false)?;
                let file = match self.by_number {
                    true => self.find(path)?.ino.into(),
                    false => Target::from(handle),
                };
                self.ask(Request::write(file, 0, b"w".to_vec())).map(drop)
            }
            Ask::Chmod(path, perm) => {
                self.set(path, SetAttr { perm: Some(*perm), ..SetAttr::default() })
            }
            Ask::Chown(path, uid, gid) => {
                self.set(path, SetAttr { uid: *uid, gid: *gid, ..SetAttr::default() })
            }
            Ask::Times(path, now) => {
                let time = match now {
                    true => SetTime::Now,
                    false => SetTime::At(Timestamp { sec: 1_000_000_000, nsec: 5 }),
                };
                let (atime, mtime) = (Some(time), Some(time));
                self.set(path, SetAttr { atime, mtime, ..SetAttr::default() })
            }
            Ask::Truncate(path, size) => {
                match self.find(path)?.kind {
                    FileKind::Directory => return Err(libc::EISDIR),
                    FileKind::Regular => {}
                    _ => return Err(libc::EINVAL),
                }
                self.set(path, SetAttr { size: Some(*size), ..SetAttr::default() })
            }
            other => self.attributes(other),
        }
    }

    fn set(&self, path: &str, set: SetAttr) -> Said {
        let file = self.hold(path)?;
        self.ask(Request::SetAttr { file, set, times: true }).map(drop)
    }

    fn attributes(&self, ask: &Ask) -> Said {
        match ask {
            Ask::GetXattr(path, name) => {
                let (file, name) = (self.hold(path)?, name.as_bytes().to_vec());
                self.ask(Request::GetXattr { file, name }).map(drop)
            }
            Ask::SetXattr(path, name) => self.set_xattr(path, name, value_of(name)),
            Ask::SetAcl(path, list) => {
                self.set_xattr(path, "system.posix_acl_access", acl_bytes(list))
            }
            Ask::RemoveXattr(path, name) => {
                let (file, name) = (self.hold(path)?, name.as_bytes().to_vec());
                self.ask(Request::RemoveXattr { file, name, times: true }).map(drop)
            }
            Ask::ListXattr(path) => {
                let file = self.hold(path)?;
                self.ask(Request::ListXattr { file }).map(drop)
            }
            Ask::SetFlags(path, wanted) => {
                let file = self.hold(path)?;
                let flags = match self.ask(Request::GetFlags { file })? {
                    Reply::Flags(flags) => flags,
                    other => panic!("no flags: {other:?}"),
                };
                let flags = flags & !siftfs_proto::flags::SETTABLE | wanted;
                self.ask(Request::SetFlags { file, flags }).map(drop)
            }
            other => unreachable!("a call about names or data: {other:?}"),
        }
    }

    fn set_xattr(&self, path: &str, name: &str, value: Vec<u8>) -> Said {
        let (file, name) = (self.hold(path)?, name.as_bytes().to_vec());
        let (mode, kill_setgid) = (XattrMode::Set, false);
        self.ask(Request::SetXattr { file, name, value, mode, kill_setgid }).map(drop)
    }
}
