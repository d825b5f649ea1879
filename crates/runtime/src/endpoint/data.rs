//! Requests about open files: their data, and the entries of open directories.

use crate::data::file::Input;
use crate::namespace::acl::is_acl;
use crate::namespace::kinds::kind_of_entry;
use crate::runtime::Runtime;
use crate::state::Tree;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Allocate, Attr, Credentials, DirEntry, FileKind, Handle, MAX_FILE_SIZE, ROOT_INO, Reply,
    Request, SessionId, Target, WriteData,
};

impl Runtime {
    /// Carries out a request about an open file.
    pub(super) fn call_data(
        &self,
        session: SessionId,
        cred: &Credentials,
        req: Request,
    ) -> Result<Reply> {
        use Request as R;
        match req {
            R::Open { ino, access, truncate, kill_priv } => {
                self.open_file(session, ino, (access, truncate), (kill_priv, true))
            }
            R::Release { handle } => self.release(session, handle),
            R::Read { file, offset, len } => self.read_data((session, file), offset, len),
            R::Write { file, offset, data, append, kill_priv } => {
                let offset = (!append).then_some(offset);
                self.write_data(cred, (session, file), offset, data, (kill_priv, true))
            }
            R::Untimed(change) => self.untimed(session, cred, *change),
            R::WriteBack { file, offset, data, times } => {
                self.write_back(cred, (session, file), offset, data, times)
            }
            R::Allocate { file, mode, offset, len } => {
                self.allocate(cred, (session, file), mode, (offset, len), true)
            }
            R::Seek { file, offset, whence } => {
                let file = (session, file);
                let sought = self.query(|st| {
                    let ino = st.metadata.tree.target(file, Access::Read)?;
                    st.metadata.tree.seek(ino, offset, whence)
                });
                sought.map(Reply::Offset)
            }
            R::OpenDir { ino } => self.open_dir(session, ino),
            R::ReadDir { handle, cookie, max_bytes, plus } => self
                .query(|st| st.metadata.tree.read_dir((session, handle), cookie, max_bytes, plus))
                .map(Reply::Dir),
            other => unreachable!("a request of another kind: {other:?}"),
        }
    }

    /// A change of data by a kernel that owns the times.
    fn untimed(&self, session: SessionId, cred: &Credentials, change: Request) -> Result<Reply> {
        match change {
            Request::Open { ino, access, truncate, kill_priv } => {
                self.open_file(session, ino, (access, truncate), (kill_priv, false))
            }
            Request::Write { file, offset, data, append, kill_priv } => {
                let offset = (!append).then_some(offset);
                self.write_data(cred, (session, file), offset, data, (kill_priv, false))
            }
            Request::Allocate { file, mode, offset, len } => {
                self.allocate(cred, (session, file), mode, (offset, len), false)
            }
            Request::SectionCommit { sections, durable } => {
                self.commit_together(session, cred, &sections, (durable, false))
            }
            Request::SetAttr { ino, set } => self.set_attr(ino, &set, false),
            Request::RemoveXattr { ino, name } if !is_acl(&name) => {
                self.remove_xattr(ino, &name, false)
            }
            _ => Err(errno(libc::EINVAL)),
        }
    }

    fn open_dir(&self, session: SessionId, ino: InodeNr) -> Result<Reply> {
        self.query(|st| {
            st.metadata.tree.load_dir(ino)?;
            Ok(Reply::Opened { handle: st.metadata.tree.open(ino, session, Access::Read) })
        })
    }

    fn open_file(
        &self,
        session: SessionId,
        ino: InodeNr,
        (access, truncate): (Access, bool),
        (kill, times): (bool, bool),
    ) -> Result<Reply> {
        let write = access.writes();
        if !truncate {
            return self.query(|st| {
                if write && st.metadata.log.config.read_only {
                    return Err(errno(libc::EROFS));
                }
                st.metadata.tree.load(ino)?;
                if st.metadata.tree.node(ino).inode.is_dir() {
                    return Err(errno(libc::EISDIR));
                }
                st.metadata.tree.may_open(ino, write, false)?;
                Ok(Reply::Opened { handle: st.metadata.tree.open(ino, session, access) })
            });
        }
        self.mutate(|st| {
            let time = st.metadata.log.now();
            st.metadata.tree.may_open(ino, write, true)?;
            st.timed(ino, times, |st| {
                st.set_size(ino, 0, time)?;
                if kill { st.metadata.kill_privileges(ino) } else { Ok(()) }
            })?;
            Ok(Reply::Opened { handle: st.metadata.tree.open(ino, session, access) })
        })
    }

    fn release(&self, session: SessionId, handle: Handle) -> Result<Reply> {
        let orphan = {
            let mut st = self.lock();
            if !st.metadata.tree.inodes.close(handle.0, session) {
                return Err(errno(libc::EBADF));
            }
            st.metadata.tree.inodes.has_to_free()
        };
        if orphan { self.run_evictions() } else { Ok(Reply::Done) }
    }

    fn read_data(&self, file: (SessionId, Target), offset: u64, len: u32) -> Result<Reply> {
        self.drive(libc::EIO, || {
            self.query_step(|st| {
                let ino = st.metadata.tree.target(file, Access::Read)?;
                st.read(ino, offset, len)
            })
        })
    }

    fn write_data(
        &self,
        cred: &Credentials,
        file: (SessionId, Target),
        offset: Option<u64>,
        mut data: WriteData,
        (kill_priv, times): (bool, bool),
    ) -> Result<Reply> {
        u32::try_from(data.len()).map_err(|_| errno(libc::EINVAL))?;
        self.mutate(|st| {
            let ino = st.metadata.tree.target(file, Access::Write)?;
            st.metadata.tree.load(ino)?;
            let time = st.metadata.log.now();
            let at = offset.unwrap_or(st.metadata.tree.node(ino).size);
            st.metadata.tree.may_write(ino, at)?;
            // Writes up to the largest file size; a caller that comes back for the rest gets EFBIG.
            match MAX_FILE_SIZE.checked_sub(at) {
                None | Some(0) if !data.is_empty() => return Err(errno(libc::EFBIG).into()),
                room => data.truncate(room.unwrap_or(0)),
            }
            // First, so that an operation that must be tried again has not written yet.
            if kill_priv {
                st.timed(ino, times, |st| st.metadata.kill_privileges(ino))?;
            }
            let privileged = st.metadata.tree.privileged(cred);
            st.timed(ino, times, |st| st.write(ino, at, Input::of(&mut data), privileged, time))
        })?;
        let len = u32::try_from(data.len()).map_err(|_| errno(libc::EINVAL))?;
        Ok(Reply::Written { len })
    }

    /// Pages of the kernel's cache.
    fn write_back(
        &self,
        cred: &Credentials,
        file: (SessionId, Target),
        offset: u64,
        mut data: WriteData,
        times: bool,
    ) -> Result<Reply> {
        let len = u32::try_from(data.len()).map_err(|_| errno(libc::EINVAL))?;
        // The kernel joins pages of several write(2). Those up to the largest file size are kept;
        // if there are more, all of those calls get EFBIG.
        let room = MAX_FILE_SIZE.checked_sub(offset).filter(|room| *room > 0);
        let room = room.ok_or(errno(libc::EFBIG))?;
        let fits = data.len() as u64 <= room;
        data.truncate(room);
        self.mutate(|st| {
            let time = times.then(|| st.metadata.log.now());
            let privileged = st.metadata.tree.privileged(cred);
            let ino = st.metadata.tree.target(file, Access::Write)?;
            st.write_back(ino, offset, Input::of(&mut data), privileged, time)
        })?;
        if fits { Ok(Reply::Written { len }) } else { Err(errno(libc::EFBIG)) }
    }

    /// fallocate(2), in pieces that a transaction holds: a piece that is tried again starts over.
    fn allocate(
        &self,
        cred: &Credentials,
        file: (SessionId, Target),
        mode: Allocate,
        (offset, len): (u64, u64),
        times: bool,
    ) -> Result<Reply> {
        const PIECE: u64 = 64 << 20;
        let zero = matches!(mode, Allocate::ZeroRange | Allocate::ZeroRangeKeepSize);
        let end = offset.checked_add(len).ok_or_else(|| errno(libc::EFBIG))?;
        let mut at = offset;
        loop {
            let stop = if zero { end.min((at / PIECE + 1) * PIECE) } else { end };
            self.mutate(|st| {
                let time = st.metadata.log.now();
                let ino = st.metadata.tree.target(file, Access::Write)?;
                st.metadata.tree.may_allocate(ino, mode)?;
                let privileged = st.metadata.tree.privileged(cred);
                st.timed(ino, times, |st| st.allocate(ino, mode, at, stop - at, privileged, time))
            })?;
            at = stop;
            if at >= end {
                return Ok(Reply::Done);
            }
        }
    }
}

impl Tree {
    fn read_dir(
        &mut self,
        (session, handle): (SessionId, Handle),
        cookie: u64,
        max_bytes: u32,
        plus: bool,
    ) -> Result<Vec<DirEntry>> {
        let opened = self.inodes.opened(handle.0, session);
        let ino = opened.ok_or_else(|| errno(libc::EBADF))?.ino;
        self.load_dir(ino)?;
        let mut entries: Vec<DirEntry> = Vec::new();
        let mut untyped = Vec::new();
        let mut bytes = 0usize;
        let node = self.inodes.get(&ino).expect("just loaded");
        self.fs.dir_iterate(&mut self.meta, &node.inode, cookie, &mut |e| {
            // Entries with one hash share a cookie: they go into one answer together.
            let size = DirEntry::size(e.name.len(), plus);
            let cost = size * (e.tied + 1);
            let tied_to_last = entries.last().is_some_and(|l| l.cookie == e.cookie);
            if !entries.is_empty() && !tied_to_last && bytes + cost > max_bytes as usize {
                return false;
            }
            bytes += size;
            let kind = kind_of_entry(e.ftype);
            if kind.is_none() {
                untyped.push(entries.len());
            }
            entries.push(DirEntry {
                ino: e.ino,
                cookie: e.cookie,
                kind: kind.unwrap_or(FileKind::Regular),
                name: e.name.to_vec(),
                attr: None,
            });
            true
        })?;
        for i in untyped {
            entries[i].kind = self.attr(entries[i].ino)?.kind;
        }
        if plus {
            for entry in &mut entries {
                entry.attr = self.entry_attr(ino, entry)?;
            }
            // Counted only when nothing can fail any more.
            for entry in entries.iter().filter(|e| e.attr.is_some()) {
                self.inodes.looked_up(entry.ino);
            }
        }
        Ok(entries)
    }

    fn entry_attr(&mut self, dir: InodeNr, entry: &DirEntry) -> Result<Option<Attr>> {
        if entry.name == b"." || entry.name == b".." {
            return Ok(None);
        }
        let attr = self.attr(entry.ino)?;
        let node = self.node_mut(entry.ino);
        if node.inode.is_dir() || node.inode.nlink == 1 {
            node.parent = Some(dir);
        }
        debug_assert!(entry.ino != ROOT_INO);
        Ok(Some(attr))
    }
}
