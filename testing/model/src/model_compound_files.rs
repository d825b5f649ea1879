//! What the steps of a compound do to a file's bytes and attributes.

use crate::model_access::{READ, WRITE};
use crate::model_compound::{Held, Run};
use crate::model_data::kill_privileges;
use siftfs_base::InodeNr;
use siftfs_proto::compound::{FileArg, NewAttributes, Step, Width};
use siftfs_proto::{FileKind, MAX_FILE_SIZE, Request, SetAttr, SetTime, WriteData};

impl Run<'_> {
    pub(crate) fn regular(&self, ino: InodeNr) -> Result<(), i32> {
        match self.model.get(ino)?.kind {
            FileKind::Regular => Ok(()),
            _ => Err(libc::EINVAL),
        }
    }

    pub(crate) fn change_bytes(&mut self, step: &Step) -> Result<Held, i32> {
        match step {
            Step::Write { file, offset, data } => {
                let ino = self.file(file, WRITE)?;
                let (offset, data) = (self.number(offset)?, self.bytes(data)?);
                self.write(ino, offset, &data)?;
                Ok(Held::Number(data.len() as u64, Width::U64))
            }
            Step::Append { file, data } => {
                let ino = self.file(file, WRITE)?;
                let data = self.bytes(data)?;
                let end = self.model.get(ino)?.content.size();
                self.write(ino, end, &data)?;
                Ok(Held::Number(end, Width::U64))
            }
            Step::SetSize { file, size } => {
                let ino = self.file(file, WRITE)?;
                let size = self.number(size)?;
                self.regular(ino)?;
                if size > MAX_FILE_SIZE {
                    return Err(libc::EFBIG);
                }
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                self.model.exec_attr(
                    &Request::SetAttr { file: ino.into(), set, times: true },
                    &mut self.fx,
                )?;
                self.bytes_were_changed(ino)?;
                Ok(Held::None)
            }
            other => unreachable!("does not set bytes or size: {other:?}"),
        }
    }

    fn write(&mut self, ino: InodeNr, offset: u64, data: &[u8]) -> Result<(), i32> {
        self.regular(ino)?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_FILE_SIZE) {
            return Err(libc::EFBIG);
        }
        if data.is_empty() {
            return Ok(());
        }
        let data = WriteData::copy_of(offset, data);
        let req = Request::write(ino, offset, data);
        self.model.exec_data(&req, self.fresh, &mut self.fx)?;
        self.bytes_were_changed(ino)
    }

    /// A caller without CAP_FSETID takes privileges away; setgid also where the group may not
    /// execute, unless it is the caller's.
    pub(crate) fn bytes_were_changed(&mut self, ino: InodeNr) -> Result<(), i32> {
        let asker = self.asker;
        let node = self.model.get_mut(ino)?;
        if !asker.rights.keeps_set_id {
            kill_privileges(node);
            if !asker.is_in(node.gid) {
                node.perm &= !0o2000;
            }
        }
        self.changed(ino);
        Ok(())
    }

    /// Steps that find something in the file and put something else there, as long.
    pub(crate) fn change_in_place(&mut self, step: &Step) -> Result<Held, i32> {
        match step {
            Step::Patch { file, offset, data } => {
                let data = self.bytes(data)?;
                let (ino, offset) = (self.file(file, READ | WRITE)?, self.number(offset)?);
                let old = self.there(ino, offset, data.len())?;
                self.write(ino, offset, &data)?;
                Ok(Held::Bytes(old))
            }
            Step::Add { file, offset, width, addend } => {
                let (ino, offset) = (self.file(file, READ | WRITE)?, self.number(offset)?);
                let old = self.there(ino, offset, width.bytes())?;
                let old = old.iter().rev().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
                let new = old.wrapping_add(self.number(addend)?).to_le_bytes();
                self.write(ino, offset, &new[..width.bytes()])?;
                Ok(Held::Number(old, *width))
            }
            Step::CompareAndSet { file, offset, expected, new } => {
                let (expected, new) = (self.bytes(expected)?, self.bytes(new)?);
                if expected.len() != new.len() {
                    return Err(libc::EINVAL);
                }
                let (ino, offset) = (self.file(file, READ | WRITE)?, self.number(offset)?);
                if self.there(ino, offset, new.len())? != expected {
                    return Err(libc::ECANCELED);
                }
                self.write(ino, offset, &new)?;
                Ok(Held::None)
            }
            other => unreachable!("does not change in place: {other:?}"),
        }
    }

    fn there(&mut self, ino: InodeNr, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        self.regular(ino)?;
        let bytes = self.bytes_of(ino, offset, len as u64)?;
        if bytes.len() == len { Ok(bytes) } else { Err(libc::EINVAL) }
    }

    pub(crate) fn set_attributes(
        &mut self,
        file: &FileArg,
        new: &NewAttributes,
    ) -> Result<Held, i32> {
        let ino = self.file(file, 0)?;
        self.may_set(ino, new)?;
        if *new == NewAttributes::default() {
            return Ok(Held::None);
        }
        let asker = self.asker;
        let before = self.model.get(ino)?.gid;
        let gid = new.gid.unwrap_or(before);
        let (keeps_id, gets_id) = (asker.lends(before), asker.lends(gid));
        let perm = new.perm.map(|perm| if gets_id { perm } else { perm & !0o2000 });
        let NewAttributes { uid, gid, atime, mtime, .. } = *new;
        let kill_setgid = (uid.is_some() || gid.is_some()) && !keeps_id;
        let set = SetAttr { perm, uid, gid, atime, mtime, kill_setgid, ..SetAttr::default() };
        self.model
            .exec_attr(&Request::SetAttr { file: ino.into(), set, times: true }, &mut self.fx)?;
        self.changed(ino);
        Ok(Held::None)
    }

    /// chmod(2), chown(2), utimensat(2).
    fn may_set(&self, ino: InodeNr, new: &NewAttributes) -> Result<(), i32> {
        let (asker, node) = (self.asker, self.model.get(ino)?);
        if new.perm.is_some() && node.kind == FileKind::Symlink {
            return Err(libc::EOPNOTSUPP);
        }
        let is_owner = asker.cred.uid == node.uid;
        let keeps_owner = new.uid.is_none_or(|uid| is_owner && uid == node.uid);
        let own_group = new.gid.is_none_or(|gid| is_owner && (gid == node.gid || asker.is_in(gid)));
        if !(asker.rights.gives_away || keeps_owner && own_group) {
            return Err(libc::EPERM);
        }
        if asker.owns(node) {
            return Ok(());
        }
        if (new.uid.is_some() || new.gid.is_some()) && asker.takes_bits(node) {
            return Err(libc::EPERM);
        }
        let times = [new.atime, new.mtime];
        if new.perm.is_some() || times.iter().any(|t| matches!(t, Some(SetTime::At(_)))) {
            return Err(libc::EPERM);
        }
        match times.iter().any(Option::is_some) {
            true => asker.may(node, WRITE),
            false => Ok(()),
        }
    }
}
