//! Operations on names: lookup, creation, removal, links, rename, directory reading.

use crate::model::{Effects, Fresh, Model, Node, Outcome};
use siftfs_base::InodeNr;
use siftfs_proto::{Credentials, DirEntry, FileKind, Handle, RenameMode, Reply, Request};

/// Longest name in bytes.
const NAME_MAX: usize = 255;
/// Longest target of a symbolic link in bytes.
const TARGET_MAX: usize = 4095;

type Step<T> = Result<T, i32>;

pub(crate) fn check_name(name: &[u8]) -> Step<()> {
    if name.len() > NAME_MAX { Err(libc::ENAMETOOLONG) } else { Ok(()) }
}

/// What a new inode gets from its directory: group, setgid, access control lists.
fn inherit(node: &mut Node, dir: &mut Node, umask: u16) {
    if dir.perm & 0o2000 != 0 {
        node.gid = dir.gid;
        if node.is_dir() {
            node.perm |= 0o2000;
        }
    }
    crate::model_acl::inherit(node, dir, umask);
}

impl Model {
    pub(crate) fn exec_name(
        &mut self,
        cred: &Credentials,
        req: &Request,
        fresh: Fresh,
        fx: &mut Effects,
    ) -> Outcome {
        match req {
            Request::Lookup { parent, name } => {
                check_name(name)?;
                let ino = *self.dir(*parent)?.entries.get(name).ok_or(libc::ENOENT)?;
                Ok(Reply::Entry(self.entry(ino)?))
            }
            Request::Forget { ino, count } => {
                if let Ok(node) = self.get_mut(*ino) {
                    node.refs = node.refs.saturating_sub(*count);
                }
                Ok(Reply::Done)
            }
            Request::ReadLink { ino } => {
                let node = self.get_mut(*ino)?;
                if node.kind != FileKind::Symlink {
                    return Err(libc::EINVAL);
                }
                node.atime = None;
                Ok(Reply::Data(node.target.clone()))
            }
            Request::Link { ino, parent, name } => self.link(*ino, *parent, name, fx),
            Request::Unlink { parent, name } => self.unlink(cred, *parent, name, fx),
            Request::RemoveDir { parent, name } => self.remove_dir(cred, *parent, name, fx),
            Request::Rename { parent, name, new_parent, new_name, mode } => {
                self.rename(cred, (*parent, name), (*new_parent, new_name), *mode, fx)
            }
            Request::OpenDir { ino } => {
                self.dir(*ino)?;
                self.get_mut(*ino)?.opens += 1;
                self.handles.insert(fresh.handle, *ino);
                Ok(Reply::Opened { handle: Handle(fresh.handle) })
            }
            Request::ReadDir { handle, cookie, .. } => self.read_dir(*handle, *cookie),
            Request::TmpFile { parent, perm, .. } => {
                self.make_unnamed(cred, *parent, *perm, fresh, fx)
            }
            _ => self.exec_create(cred, req, fresh, fx),
        }
    }

    fn exec_create(
        &mut self,
        cred: &Credentials,
        req: &Request,
        fresh: Fresh,
        fx: &mut Effects,
    ) -> Outcome {
        let (parent, name, mut node) = match req {
            Request::MakeNode { parent, name, kind, perm, rdev } => {
                let mut node = Node::new(*kind, *perm & 0o7777, cred.uid, cred.gid);
                if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
                    node.rdev = *rdev;
                }
                (*parent, name, node)
            }
            Request::MakeDir { parent, name, perm } => {
                let node = Node::new(FileKind::Directory, *perm & 0o7777, cred.uid, cred.gid);
                (*parent, name, node)
            }
            Request::Symlink { parent, name, target } => {
                if target.len() > TARGET_MAX {
                    return Err(libc::ENAMETOOLONG);
                }
                let mut node = Node::new(FileKind::Symlink, 0o777, cred.uid, cred.gid);
                node.target = target.clone();
                (*parent, name, node)
            }
            Request::Create { parent, name, perm } => {
                let node = Node::new(FileKind::Regular, *perm & 0o7777, cred.uid, cred.gid);
                (*parent, name, node)
            }
            other => unreachable!("not a name operation: {other:?}"),
        };
        check_name(name)?;
        self.check_free(parent, name)?;
        inherit(&mut node, self.get_mut(parent)?, cred.umask);
        node.parent = if node.is_dir() { parent } else { 0 };
        node.nlink = if node.is_dir() { 2 } else { 1 };
        let make_dir = node.is_dir();
        assert!(self.nodes.insert(fresh.ino, node).is_none(), "a number is used once");
        self.bind(parent, name, fresh.ino, make_dir, fx);
        fx.nodes.push(fresh.ino);
        let attr = self.entry(fresh.ino)?;
        if !matches!(req, Request::Create { .. }) {
            return Ok(Reply::Entry(attr));
        }
        self.handles.insert(fresh.handle, fresh.ino);
        self.get_mut(fresh.ino)?.opens += 1;
        Ok(Reply::Created { attr, handle: Handle(fresh.handle) })
    }

    /// A regular file without a name; its directory does not change.
    fn make_unnamed(
        &mut self,
        cred: &Credentials,
        parent: InodeNr,
        perm: u16,
        fresh: Fresh,
        fx: &mut Effects,
    ) -> Outcome {
        let mut node = Node::new(FileKind::Regular, perm & 0o7777, cred.uid, cred.gid);
        if self.dir(parent)?.nlink == 0 {
            return Err(libc::ENOENT);
        }
        inherit(&mut node, self.get_mut(parent)?, cred.umask);
        (node.linkable, node.opens) = (true, 1);
        assert!(self.nodes.insert(fresh.ino, node).is_none(), "a number is used once");
        fx.nodes.push(fresh.ino);
        let attr = self.entry(fresh.ino)?;
        self.handles.insert(fresh.handle, fresh.ino);
        Ok(Reply::Created { attr, handle: Handle(fresh.handle) })
    }

    /// A name may be made here: the directory exists (and is not removed), the name does not.
    fn check_free(&self, parent: InodeNr, name: &[u8]) -> Step<()> {
        let dir = self.dir(parent)?;
        if dir.entries.contains_key(name) {
            return Err(libc::EEXIST);
        }
        if dir.nlink == 0 { Err(libc::ENOENT) } else { Ok(()) }
    }

    /// Enters a name; `subdir` counts the child's `..`.
    fn bind(&mut self, dir: InodeNr, name: &[u8], ino: InodeNr, subdir: bool, fx: &mut Effects) {
        let node = self.nodes.get_mut(&dir).expect("the directory was checked");
        node.entries.insert(name.to_vec(), ino);
        node.mtime = None;
        node.nlink += u32::from(subdir);
        fx.names.push((dir, name.to_vec()));
        fx.nodes.push(dir);
    }

    /// Removes a name; `subdir` uncounts the child's `..`.
    fn unbind(&mut self, dir: InodeNr, name: &[u8], subdir: bool, fx: &mut Effects) {
        let node = self.nodes.get_mut(&dir).expect("the directory was checked");
        node.entries.remove(name);
        node.mtime = None;
        node.nlink -= u32::from(subdir);
        fx.names.push((dir, name.to_vec()));
        fx.nodes.push(dir);
    }

    pub(crate) fn link(
        &mut self,
        ino: InodeNr,
        parent: InodeNr,
        name: &[u8],
        fx: &mut Effects,
    ) -> Outcome {
        check_name(name)?;
        let node = self.get(ino)?;
        if node.is_dir() {
            return Err(libc::EPERM);
        }
        if node.nlink == 0 && !node.linkable {
            return Err(libc::ENOENT);
        }
        self.check_free(parent, name)?;
        let node = self.get_mut(ino)?;
        node.nlink += 1;
        node.linkable = false;
        self.bind(parent, name, ino, false, fx);
        fx.nodes.push(ino);
        Ok(Reply::Entry(self.entry(ino)?))
    }

    /// In a sticky directory only the owner of the file, of the directory, or root may remove.
    pub(crate) fn check_sticky(&self, cred: &Credentials, dir: InodeNr, ino: InodeNr) -> Step<()> {
        let (d, n) = (self.get(dir)?, self.get(ino)?);
        let sticky = d.perm & 0o1000 != 0 && cred.uid != 0;
        if sticky && cred.uid != d.uid && cred.uid != n.uid { Err(libc::EPERM) } else { Ok(()) }
    }

    pub(crate) fn unlink(
        &mut self,
        cred: &Credentials,
        parent: InodeNr,
        name: &[u8],
        fx: &mut Effects,
    ) -> Outcome {
        check_name(name)?;
        let ino = *self.dir(parent)?.entries.get(name).ok_or(libc::ENOENT)?;
        self.check_sticky(cred, parent, ino)?;
        if self.get(ino)?.is_dir() {
            return Err(libc::EISDIR);
        }
        self.unbind(parent, name, false, fx);
        self.drop_link(ino, fx);
        Ok(Reply::Done)
    }

    fn drop_link(&mut self, ino: InodeNr, fx: &mut Effects) {
        let node = self.nodes.get_mut(&ino).expect("a name leads to an inode");
        node.nlink = if node.is_dir() { 0 } else { node.nlink - 1 };
        fx.nodes.push(ino);
    }

    fn remove_dir(
        &mut self,
        cred: &Credentials,
        parent: InodeNr,
        name: &[u8],
        fx: &mut Effects,
    ) -> Outcome {
        check_name(name)?;
        let ino = *self.dir(parent)?.entries.get(name).ok_or(libc::ENOENT)?;
        self.check_sticky(cred, parent, ino)?;
        let node = self.get(ino)?;
        if !node.is_dir() {
            return Err(libc::ENOTDIR);
        }
        if !node.entries.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.unbind(parent, name, true, fx);
        self.drop_link(ino, fx);
        Ok(Reply::Done)
    }

    pub(crate) fn rename(
        &mut self,
        cred: &Credentials,
        from: (InodeNr, &[u8]),
        to: (InodeNr, &[u8]),
        mode: RenameMode,
        fx: &mut Effects,
    ) -> Outcome {
        check_name(from.1)?;
        check_name(to.1)?;
        self.dir(to.0)?;
        let ino = *self.dir(from.0)?.entries.get(from.1).ok_or(libc::ENOENT)?;
        let old = self.get(to.0)?.entries.get(to.1).copied();
        self.check_rename(from.0, ino, to.0, old, mode)?;
        if old == Some(ino) {
            return Ok(Reply::Done);
        }
        self.check_sticky(cred, from.0, ino)?;
        if let Some(old) = old {
            self.check_sticky(cred, to.0, old)?;
        }
        if mode == RenameMode::Exchange {
            self.exchange(from, ino, to, old.expect("checked"), fx);
            return Ok(Reply::Done);
        }
        let moved_dir = self.get(ino)?.is_dir();
        if let Some(old) = old {
            self.check_replace(moved_dir, old)?;
            self.unbind(to.0, to.1, self.get(old)?.is_dir(), fx);
            self.drop_link(old, fx);
            fx.replaced_by.push(ino);
        } else if self.get(to.0)?.nlink == 0 {
            return Err(libc::ENOENT);
        }
        self.unbind(from.0, from.1, moved_dir, fx);
        self.bind(to.0, to.1, ino, moved_dir, fx);
        self.set_parent(ino, to.0);
        fx.nodes.push(ino);
        Ok(Reply::Done)
    }

    fn set_parent(&mut self, ino: InodeNr, parent: InodeNr) {
        if let Some(node) = self.nodes.get_mut(&ino)
            && node.is_dir()
        {
            node.parent = parent;
        }
    }

    /// What does not depend on what the target is: flags, and directories into themselves.
    fn check_rename(
        &self,
        from: InodeNr,
        ino: InodeNr,
        to: InodeNr,
        old: Option<InodeNr>,
        mode: RenameMode,
    ) -> Step<()> {
        match (mode, old) {
            // No program of the generator leaves whiteouts.
            (RenameMode::Whiteout | RenameMode::WhiteoutNoReplace, _) => return Err(libc::EINVAL),
            (RenameMode::NoReplace, Some(_)) => return Err(libc::EEXIST),
            (RenameMode::Exchange, None) => return Err(libc::ENOENT),
            _ => {}
        }
        if self.get(ino)?.is_dir() && self.is_inside(to, ino) {
            return Err(libc::EINVAL);
        }
        match old {
            Some(old) if self.get(old)?.is_dir() && self.is_inside(from, old) => {
                Err(if mode == RenameMode::Exchange { libc::EINVAL } else { libc::ENOTEMPTY })
            }
            _ => Ok(()),
        }
    }

    /// A directory replaces only an empty directory, anything else only what is no directory.
    fn check_replace(&self, moved_dir: bool, old: InodeNr) -> Step<()> {
        let old = self.get(old)?;
        match (moved_dir, old.is_dir()) {
            (true, false) => Err(libc::ENOTDIR),
            (false, true) => Err(libc::EISDIR),
            (true, true) if !old.entries.is_empty() => Err(libc::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    fn exchange(
        &mut self,
        from: (InodeNr, &[u8]),
        ino: InodeNr,
        to: (InodeNr, &[u8]),
        other: InodeNr,
        fx: &mut Effects,
    ) {
        let dirs = [ino, other].map(|i| self.nodes.get(&i).is_some_and(Node::is_dir));
        self.unbind(from.0, from.1, dirs[0], fx);
        self.unbind(to.0, to.1, dirs[1], fx);
        self.bind(from.0, from.1, other, dirs[1], fx);
        self.bind(to.0, to.1, ino, dirs[0], fx);
        self.set_parent(ino, to.0);
        self.set_parent(other, from.0);
        fx.nodes.extend([ino, other]);
    }

    /// Cookies are positions in the sorted list of names, `.` and `..` first. Reference counts
    /// of `plus` are not modelled: drivers ask without it.
    fn read_dir(&mut self, handle: Handle, cookie: u64) -> Outcome {
        let ino = *self.handles.get(&handle.0).ok_or(libc::EBADF)?;
        let node = self.get_mut(ino)?;
        node.atime = None;
        let parent = node.parent;
        let mut all = vec![(b".".to_vec(), ino), (b"..".to_vec(), parent)];
        all.extend(node.entries.iter().map(|(n, i)| (n.clone(), *i)));
        let skip = usize::try_from(cookie).unwrap_or(usize::MAX);
        let list = all.into_iter().enumerate().skip(skip).map(|(at, (name, ino))| DirEntry {
            ino,
            cookie: at as u64 + 1,
            kind: self.nodes.get(&ino).map_or(FileKind::Directory, |n| n.kind),
            name,
            attr: None,
        });
        Ok(Reply::Dir(list.collect()))
    }
}
