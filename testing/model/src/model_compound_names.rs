//! What the steps of a compound do to names.

use crate::model::Fresh;
use crate::model_access::{CHANGE, READ, SEARCH, WRITE};
use crate::model_compound::{Held, How, Run};
use crate::model_names::check_name;
use siftfs_base::InodeNr;
use siftfs_proto::compound::{Access, FileArg};
use siftfs_proto::{FileKind, RenameMode, Request};

type Name = (InodeNr, Vec<u8>);

impl Run<'_> {
    /// The directory and the last name of a path. Every directory on the way must be searched.
    fn walk(&self, path: &[u8]) -> Result<Name, i32> {
        let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let (Some(last), false) = (names.last(), path.starts_with(b"/")) else {
            return Err(libc::EINVAL);
        };
        let mut dir = self.base;
        self.asker.may(self.model.dir(dir)?, SEARCH)?;
        for name in &names[..names.len() - 1] {
            check_name(name)?;
            dir = self.model.child(dir, name).ok_or(libc::ENOENT)?;
            if self.model.get(dir)?.kind == FileKind::Symlink {
                return Err(libc::ELOOP);
            }
            self.asker.may(self.model.dir(dir)?, SEARCH)?;
        }
        check_name(last)?;
        match *last {
            b"" | b"." | b".." => Err(libc::EINVAL),
            _ => Ok((dir, last.to_vec())),
        }
    }

    /// What has the name, if it is no directory.
    fn bound(&self, name: &Name) -> Result<Option<InodeNr>, i32> {
        match self.model.child(name.0, &name.1) {
            Some(ino) if self.model.get(ino)?.is_dir() => Err(libc::EISDIR),
            bound => Ok(bound),
        }
    }

    fn found(&self, path: &[u8]) -> Result<(Name, InodeNr), i32> {
        let name = self.walk(path)?;
        let ino = self.bound(&name)?.ok_or(libc::ENOENT)?;
        Ok((name, ino))
    }

    /// The directory's names may be changed, and it still has a name.
    fn may_change(&self, dir: InodeNr) -> Result<(), i32> {
        let node = self.model.dir(dir)?;
        self.asker.may(node, CHANGE)?;
        if node.nlink == 0 { Err(libc::ENOENT) } else { Ok(()) }
    }

    /// This name of the file may be taken away.
    fn may_take(&self, dir: InodeNr, ino: InodeNr) -> Result<(), i32> {
        self.asker.may(self.model.dir(dir)?, CHANGE)?;
        match self.asker.rights.owns_all {
            true => Ok(()),
            false => self.model.check_sticky(self.asker.cred, dir, ino),
        }
    }

    pub(crate) fn lookup(&self, path: &[u8]) -> Result<Held, i32> {
        Ok(Held::File(self.found(path)?.1, How::Found))
    }

    pub(crate) fn open(
        &mut self,
        path: &[u8],
        access: Access,
        truncate: bool,
    ) -> Result<Held, i32> {
        let (_, ino) = self.found(path)?;
        let node = self.model.get(ino)?;
        match node.kind {
            FileKind::Regular => {}
            FileKind::Symlink => return Err(libc::ELOOP),
            _ => return Err(libc::EINVAL),
        }
        if truncate && !access.writes() {
            return Err(libc::EINVAL);
        }
        let wanted = match access {
            Access::Read => READ,
            Access::Write => WRITE,
            Access::Both => READ | WRITE,
        };
        self.asker.may(node, wanted)?;
        let fresh = self.next_fresh();
        let req = Request::Open {
            ino,
            access,
            truncate,
            kill_priv: false,
            times: true,
            beside_lease: false,
        };
        self.model.exec_data(&req, fresh, &mut self.fx)?;
        if truncate {
            self.bytes_were_changed(ino)?;
        }
        Ok(Held::File(ino, How::Open(fresh.handle, access)))
    }

    pub(crate) fn create(&mut self, path: &[u8], perm: u16) -> Result<Held, i32> {
        let (parent, name) = self.walk(path)?;
        if self.model.child(parent, &name).is_some() {
            return Err(libc::EEXIST);
        }
        self.may_change(parent)?;
        // A setgid directory gives its group, and an executable its group's id.
        let dir = self.model.get(parent)?;
        let foreign = dir.perm & 0o2000 != 0 && !self.asker.lends(dir.gid);
        let perm = if foreign && perm & 0o2010 == 0o2010 { perm & !0o2000 } else { perm };
        let fresh: Fresh = self.next_fresh();
        let req = Request::Create { parent, name, perm };
        self.model.exec_name(self.asker.cred, &req, fresh, &mut self.fx)?;
        // No entry is answered.
        self.model.get_mut(fresh.ino)?.refs -= 1;
        self.changed(fresh.ino);
        Ok(Held::File(fresh.ino, How::Open(fresh.handle, Access::Both)))
    }

    /// A step that changes something changed this file.
    pub(crate) fn changed(&mut self, ino: InodeNr) {
        self.files.insert(ino);
        self.changing += 1;
    }

    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8], replace: bool) -> Result<Held, i32> {
        let (from_name, to_name) = (self.walk(from)?, self.walk(to)?);
        let ino = self.bound(&from_name)?.ok_or(libc::ENOENT)?;
        if !replace && self.model.child(to_name.0, &to_name.1).is_some() {
            return Err(libc::EEXIST);
        }
        let displaced = self.bound(&to_name)?;
        if from_name == to_name {
            return Ok(Held::None);
        }
        // rename(2) of one name of a file to another does nothing, for any caller.
        if displaced == Some(ino) {
            return Ok(Held::None);
        }
        self.may_take(from_name.0, ino)?;
        self.may_change(to_name.0)?;
        if let Some(displaced) = displaced {
            self.may_take(to_name.0, displaced)?;
            self.files.insert(displaced);
        }
        // The sticky bit was asked for already: of what the caller may, not of who it is.
        let root = siftfs_proto::Credentials::default();
        let (from, to) = ((from_name.0, &*from_name.1), (to_name.0, &*to_name.1));
        self.model.rename(&root, from, to, RenameMode::Replace, &mut self.fx)?;
        self.changed(ino);
        Ok(Held::None)
    }

    pub(crate) fn link(&mut self, file: &FileArg, to: &[u8]) -> Result<Held, i32> {
        let ino = self.file(file, 0)?;
        let to = self.walk(to)?;
        if self.model.child(to.0, &to.1).is_some() {
            return Err(libc::EEXIST);
        }
        let node = self.model.get(ino)?;
        // proc(5), protected_hardlinks.
        if !self.asker.rights.links_all && !self.asker.owns(node) {
            let takes_id = node.perm & 0o4000 != 0 || node.perm & 0o2010 == 0o2010;
            let special = node.kind != FileKind::Regular || takes_id;
            if special || self.asker.may(node, READ | WRITE).is_err() {
                return Err(libc::EPERM);
            }
        }
        self.may_change(to.0)?;
        self.model.link(ino, to.0, &to.1, &mut self.fx)?;
        // No entry is answered.
        self.model.get_mut(ino)?.refs -= 1;
        self.changed(ino);
        Ok(Held::None)
    }

    pub(crate) fn unlink(&mut self, path: &[u8]) -> Result<Held, i32> {
        let ((dir, name), ino) = self.found(path)?;
        self.may_take(dir, ino)?;
        let root = siftfs_proto::Credentials::default();
        self.model.unlink(&root, dir, &name, &mut self.fx)?;
        self.changed(ino);
        Ok(Held::None)
    }
}
