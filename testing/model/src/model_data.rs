//! Operations on a file's bytes.

use crate::model::{Effects, Fresh, Model, Node, Outcome};
use siftfs_base::InodeNr;
use siftfs_proto::compound::Access;
use siftfs_proto::{Allocate, FileKind, Handle, Reply, Request, Seek, Ticket};

/// What a caller without CAP_FSETID leaves behind: no setuid, no setgid of an executable, no
/// `security.capability`.
pub(crate) fn kill_privileges(node: &mut Node) {
    if node.is_dir() {
        return;
    }
    node.perm &= !0o4000;
    if node.perm & 0o010 != 0 {
        node.perm &= !0o2000;
    }
    node.xattrs.remove(b"security.capability".as_slice());
}

impl Model {
    fn regular(&mut self, ino: InodeNr) -> Result<&mut Node, i32> {
        let node = self.get_mut(ino)?;
        match node.kind {
            FileKind::Regular => Ok(node),
            FileKind::Directory => Err(libc::EISDIR),
            _ => Err(libc::EINVAL),
        }
    }

    pub(crate) fn exec_data(&mut self, req: &Request, fresh: Fresh, fx: &mut Effects) -> Outcome {
        let (ino, times) = match req {
            Request::Open { ino, times, .. } => (*ino, *times),
            Request::Write { file, times, .. }
            | Request::Append { file, times, .. }
            | Request::WriteBack { file, times, .. }
            | Request::Allocate { file, times, .. } => (self.target(*file)?, *times),
            _ => return self.exec_timed(req, fresh, fx),
        };
        let mtime = self.regular(ino)?.mtime;
        let outcome = self.exec_timed(req, fresh, fx)?;
        if !times {
            self.get_mut(ino)?.mtime = mtime;
        }
        Ok(outcome)
    }

    /// An operation that moves the times as the call does.
    fn exec_timed(&mut self, req: &Request, fresh: Fresh, fx: &mut Effects) -> Outcome {
        match req {
            Request::Open { .. } => self.open(req, fresh, fx),
            Request::Hold { ino } => {
                self.get_mut(*ino)?.opens += 1;
                self.handles.insert(fresh.handle, *ino);
                Ok(Reply::Opened { handle: Handle(fresh.handle) })
            }
            Request::Release { handle } => {
                let ino = self.handles.remove(&handle.0).ok_or(libc::EBADF)?;
                self.get_mut(ino)?.opens -= 1;
                Ok(Reply::Done)
            }
            Request::Read { file, offset, len } => {
                let ino = self.target(*file)?;
                let node = self.regular(ino)?;
                node.atime = None;
                Ok(Reply::Data(node.content.read(*offset, u64::from(*len))))
            }
            Request::Write { file, offset, data, append, kill_priv, .. } => {
                let ino = self.target(*file)?;
                let node = self.regular(ino)?;
                let size = node.content.size();
                let at = if *append { size } else { *offset };
                node.content.write(at, &data.clone().into_bytes());
                node.mtime = None;
                if *kill_priv && !data.is_empty() {
                    kill_privileges(node);
                }
                if !data.is_empty() {
                    // What lies between the end of the file and the write becomes the file's, too.
                    self.bytes_changed(ino, at.min(size), at + data.len() as u64);
                }
                fx.nodes.push(ino);
                Ok(Reply::Written { len: u32::try_from(data.len()).map_err(|_| libc::EINVAL)? })
            }
            // The kernel of a model is told of each size: it knows the end.
            Request::Append { file, end, data, kill_priv, times } => {
                let (file, offset, data) = (*file, *end, data.clone());
                let (append, kill_priv, times) = (false, *kill_priv, *times);
                let write = Request::Write { file, offset, data, append, kill_priv, times };
                self.exec_timed(&write, fresh, fx)
            }
            Request::WriteBack { file, offset, data, .. } => {
                let ino = self.target(*file)?;
                let node = self.regular(ino)?;
                node.content.write(*offset, &data.clone().into_bytes());
                node.mtime = None;
                // Which of the bytes count as changed depends on what is cached: the generator
                // sends no pages of files with sections.
                self.bytes_changed(ino, *offset, *offset + data.len() as u64);
                fx.nodes.push(ino);
                Ok(Reply::Written { len: u32::try_from(data.len()).map_err(|_| libc::EINVAL)? })
            }
            Request::Fsync { file, .. } => self.get(self.target(*file)?).map(|_| Reply::Done),
            Request::Stage { file, .. } => {
                self.get(self.target(*file)?).map(|_| Reply::Ticket(Ticket(fresh.handle)))
            }
            Request::Allocate { file, mode, offset, len, .. } => {
                self.allocate(self.target(*file)?, *mode, *offset, *len, fx)
            }
            Request::Seek { file, offset, whence } => {
                self.seek(self.target(*file)?, *offset, *whence)
            }
            other => unreachable!("not a data operation: {other:?}"),
        }
    }

    fn open(&mut self, req: &Request, fresh: Fresh, fx: &mut Effects) -> Outcome {
        let Request::Open { ino, access, truncate, kill_priv, .. } = req else {
            unreachable!("not an open: {req:?}")
        };
        let node = self.regular(*ino)?;
        node.opens += 1;
        if *truncate {
            node.content.resize(0);
            node.mtime = None;
            if *kill_priv {
                kill_privileges(node);
            }
            fx.nodes.push(*ino);
        }
        if *truncate {
            self.size_was_set(*ino);
        }
        self.handles.insert(fresh.handle, *ino);
        if *access != Access::Both {
            self.accesses.insert(fresh.handle, *access);
        }
        Ok(Reply::Opened { handle: Handle(fresh.handle) })
    }

    fn allocate(
        &mut self,
        ino: InodeNr,
        mode: Allocate,
        offset: u64,
        len: u64,
        fx: &mut Effects,
    ) -> Outcome {
        let node = self.regular(ino)?;
        if len == 0 {
            return Err(libc::EINVAL);
        }
        let end = offset.checked_add(len).ok_or(libc::EFBIG)?;
        let size = node.content.size();
        match mode {
            Allocate::Grow | Allocate::KeepSize => {}
            Allocate::PunchHole | Allocate::ZeroRange | Allocate::ZeroRangeKeepSize => {
                node.content.zero(offset, end.min(size));
            }
        }
        if matches!(mode, Allocate::Grow | Allocate::ZeroRange) && end > size {
            node.content.resize(end);
            fx.extended = Some(ino);
        }
        node.mtime = None;
        fx.nodes.push(ino);
        if matches!(mode, Allocate::PunchHole | Allocate::ZeroRange | Allocate::ZeroRangeKeepSize) {
            self.bytes_changed(ino, offset, end);
        }
        if matches!(mode, Allocate::Grow | Allocate::ZeroRange) && end > size {
            self.bytes_changed(ino, size, end);
        }
        Ok(Reply::Done)
    }

    /// The model keeps no holes: it takes every page that was never written, or zeroed whole, as
    /// one. [`crate::compare::seek_is_sane`] judges another answer.
    fn seek(&mut self, ino: InodeNr, offset: u64, whence: Seek) -> Outcome {
        let content = &self.regular(ino)?.content;
        if offset >= content.size() {
            return Err(libc::ENXIO);
        }
        let mut at = offset;
        while at < content.size() {
            let page = at / crate::content::PAGE;
            if content.page(page).is_some() == (whence == Seek::Data) {
                return Ok(Reply::Offset(at));
            }
            at = (page + 1) * crate::content::PAGE;
        }
        match whence {
            Seek::Data => Err(libc::ENXIO),
            Seek::Hole => Ok(Reply::Offset(content.size())),
        }
    }
}
