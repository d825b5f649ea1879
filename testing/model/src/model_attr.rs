//! Operations on attributes and extended attributes.

use crate::model::{Effects, KnownTime, Model, Outcome};
use crate::model_acl::{self, is_acl};
use crate::model_data::kill_privileges;
use siftfs_base::InodeNr;
use siftfs_proto::{FileKind, Reply, Request, SetAttr, SetTime, XattrMode};

fn known(set: SetTime) -> KnownTime {
    match set {
        SetTime::Now => None,
        SetTime::At(time) => Some(time),
    }
}

impl Model {
    pub(crate) fn exec_attr(&mut self, req: &Request, fx: &mut Effects) -> Outcome {
        match req {
            Request::GetAttr { file } => {
                let ino = self.target(*file)?;
                Ok(Reply::Attr(self.get(ino)?.attr(ino)))
            }
            Request::SetAttr { file, set, .. } => self.set_attr(self.target(*file)?, set, fx),
            Request::GetXattr { file, name } => {
                let value = self.get(self.target(*file)?)?.xattrs.get(name).ok_or(libc::ENODATA)?;
                Ok(Reply::Data(value.clone()))
            }
            Request::ListXattr { file } => {
                let node = self.get(self.target(*file)?)?;
                Ok(Reply::Names(node.xattrs.keys().cloned().collect()))
            }
            Request::SetXattr { file, name, value, kill_setgid, .. } if is_acl(name) => {
                let ino = self.target(*file)?;
                model_acl::set(self.get_mut(ino)?, name, value, *kill_setgid)?;
                fx.nodes.push(ino);
                Ok(Reply::Done)
            }
            Request::SetXattr { file, name, value, mode, .. } => {
                let ino = self.target(*file)?;
                let there = self.get(ino)?.xattrs.contains_key(name);
                match (mode, there) {
                    (XattrMode::Create, true) => return Err(libc::EEXIST),
                    (XattrMode::Replace, false) => return Err(libc::ENODATA),
                    _ => {}
                }
                self.get_mut(ino)?.xattrs.insert(name.clone(), value.clone());
                fx.nodes.push(ino);
                Ok(Reply::Done)
            }
            Request::RemoveXattr { file, name, .. } => {
                let ino = self.target(*file)?;
                let old = self.get_mut(ino)?.xattrs.remove(name);
                if old.is_none() && !is_acl(name) {
                    return Err(libc::ENODATA);
                }
                fx.nodes.push(ino);
                Ok(Reply::Done)
            }
            other => unreachable!("not an attribute operation: {other:?}"),
        }
    }

    fn set_attr(&mut self, ino: InodeNr, set: &SetAttr, fx: &mut Effects) -> Outcome {
        let node = self.get_mut(ino)?;
        if set.size.is_some() {
            match node.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(libc::EISDIR),
                _ => return Err(libc::EINVAL),
            }
        }
        if let Some(size) = set.size {
            self.size_was_set(ino);
            let node = self.get_mut(ino)?;
            if size > node.content.size() {
                fx.extended = Some(ino);
            }
            node.content.resize(size);
            node.mtime = None;
        }
        let node = self.get_mut(ino)?;
        // chown by any user, root included, takes setuid and setgid away.
        if set.kill_priv || set.uid.is_some() || set.gid.is_some() {
            kill_privileges(node);
        }
        if set.kill_setgid && !node.is_dir() {
            node.perm &= !0o2000;
        }
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        if let Some(perm) = set.perm {
            node.perm = perm & 0o7777;
            model_acl::follow_mode(node);
        }
        if let Some(time) = set.atime {
            node.atime = known(time);
        }
        if let Some(time) = set.mtime {
            node.mtime = known(time);
        }
        fx.nodes.push(ino);
        Ok(Reply::Attr(node.attr(ino)))
    }
}
