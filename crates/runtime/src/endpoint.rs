//! The Runtime's endpoint of the file protocol: each request becomes calls on the state.

use crate::data::file::Input;
use crate::namespace::acl::is_acl;
use crate::namespace::entries::NewInode;
use crate::namespace::kinds::{kind_of, kind_of_entry, mode_of};
use crate::operations::sections::Commit;
use crate::runtime::Runtime;
use crate::staging::proof::Durable;
use crate::state::State;
use crate::state::step::Step;
use siftfs_base::{BLOCK_BYTES, Error, InodeNr, Result, Timestamp, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Allocate, Attr, Completion, Credentials, DirEntry, FileKind, FileService, Handle,
    MAX_FILE_SIZE, ROOT_INO, RenameMode, Reply, Request, SectionId, SessionId, SetAttr, Target,
    WriteData,
};

/// Longest symbolic link target in bytes: one block with its terminator.
const TARGET_MAX: usize = BLOCK_BYTES as usize - 1;

impl FileService for Runtime {
    fn call(&self, session: SessionId, cred: &Credentials, req: Request) -> Result<Reply> {
        use Request as R;
        match req {
            R::Lookup { parent, name } => self.look_up(parent, &name),
            R::Forget { ino, count } => self.forget(ino, count),
            R::GetAttr { ino } => self.query(|st| st.attr(ino)).map(Reply::Attr),
            R::SetAttr { ino, set } => self.set_attr(ino, &set, true),
            R::ReadLink { ino } => self.read_link(ino),
            R::MakeNode { parent, name, kind, perm, rdev } => {
                self.make(cred, parent, &name, mode_of(kind) | perm & 0o7777, rdev, &[])
            }
            R::MakeDir { parent, name, perm } => {
                let mode = mode_of(FileKind::Directory) | perm & 0o7777;
                self.make(cred, parent, &name, mode, 0, &[])
            }
            R::Symlink { parent, name, target } => self.symlink(cred, parent, &name, &target),
            R::Link { ino, parent, name } => self.mutate(|st| {
                let time = st.now();
                st.may_link(ino, parent)?;
                st.link(ino, parent, &name, time)?;
                Ok(st.entry(ino)?)
            }),
            R::Unlink { parent, name } => self.mutate(|st| {
                let time = st.now();
                st.may_remove(cred, parent, &name)?;
                st.may_take(parent, &name)?;
                st.unlink(parent, &name, time).map(|_| Reply::Done)
            }),
            R::RemoveDir { parent, name } => self.mutate(|st| {
                let time = st.now();
                st.may_remove(cred, parent, &name)?;
                st.may_take(parent, &name)?;
                st.remove_dir(parent, &name, time).map(|_| Reply::Done)
            }),
            R::Rename { parent, name, new_parent, new_name, mode } => self.mutate(|st| {
                let time = st.now();
                st.may_rename(cred, (parent, &name), (new_parent, &new_name))?;
                let (from, to) = ((parent, &*name), (new_parent, &*new_name));
                st.may_move(from, to)?;
                match mode {
                    RenameMode::Whiteout | RenameMode::WhiteoutNoReplace => {
                        st.rename_leaving_whiteout(cred, from, to, mode, time)?;
                    }
                    _ => st.rename(from, to, mode, time)?,
                }
                Ok(Reply::Done)
            }),
            R::Create { parent, name, perm } => {
                self.create_open(session, cred, parent, &name, perm)
            }
            R::TmpFile { parent, perm, exclusive } => {
                self.create_unnamed(session, cred, parent, (perm, exclusive))
            }
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
            R::Fsync { ino, datasync } => self.fsync(ino, datasync).map(acknowledged),
            R::Stage { ino, datasync } => {
                self.draw_staged(session, ino, datasync).map(Reply::Ticket)
            }
            R::Barrier => self.draw_barrier(session).map(Reply::Ticket),
            R::Poll { ticket } => match self.poll(session, ticket)? {
                Some(proof) => Ok(durable(proof)),
                None => Ok(Reply::Durable(false)),
            },
            R::Wait { ticket, timeout } => self.wait(session, ticket, timeout).map(acknowledged),
            R::EndSession => self.end_session(session),
            R::Allocate { file, mode, offset, len } => {
                self.allocate(cred, (session, file), mode, (offset, len), true)
            }
            R::Seek { file, offset, whence } => {
                let file = (session, file);
                let sought = self.query(|st| {
                    let ino = st.target(file, Access::Read)?;
                    st.seek(ino, offset, whence)
                });
                sought.map(Reply::Offset)
            }
            R::OpenDir { ino } => self.open_dir(session, ino),
            R::ReadDir { handle, cookie, max_bytes, plus } => self
                .query(|st| st.read_dir((session, handle), cookie, max_bytes, plus))
                .map(Reply::Dir),
            R::GetXattr { ino, name } => self.query(|st| st.get_xattr(ino, &name)).map(Reply::Data),
            R::ListXattr { ino } => self.query(|st| st.list_xattrs(ino)).map(Reply::Names),
            R::SetXattr { ino, name, value, kill_setgid, .. } if is_acl(&name) => {
                self.mutate(|st| {
                    st.may_set_xattr(ino, &name, false)?;
                    st.set_acl(ino, &name, &value, kill_setgid).map(|()| Reply::Done)
                })
            }
            R::SetXattr { ino, name, value, mode, .. } => self.mutate(|st| {
                st.may_set_xattr(ino, &name, false)?;
                st.set_xattr(ino, &name, &value, mode).map(|()| Reply::Done)
            }),
            R::RemoveXattr { ino, name } if is_acl(&name) => self.mutate(|st| {
                st.may_set_xattr(ino, &name, true)?;
                st.remove_acl(ino, &name).map(|()| Reply::Done)
            }),
            R::RemoveXattr { ino, name } => self.remove_xattr(ino, &name, true),
            R::GetFlags { ino } => self.query(|st| st.flags(ino)).map(Reply::Flags),
            R::SetFlags { ino, flags } => self.change_flags(ino, flags).map(|()| Reply::Done),
            R::Publish { base, entries, level, rights } => {
                self.publish(session, (cred, &rights), base, &entries, level)
            }
            R::SectionStart { file } => self.start_section(session, cred, file).map(Reply::Section),
            R::SectionWrite { section, offset, data } => {
                self.write_section(session, section, offset, &data)
            }
            R::SectionRead { section, offset, len } => {
                self.read_section(session, section, offset, len)
            }
            R::SectionCommit { sections, durable } => {
                self.commit_together(session, cred, &sections, (durable, true))
            }
            R::SectionAbort { section } => {
                self.abort_section(session, section).map(|()| Reply::Done)
            }
            R::Compound(compound) => self.compound(session, cred, &compound).map(Reply::Compounded),
            R::StatFs => self.query(|st| Ok(Reply::Statfs(st.stat_fs()))),
            R::SyncAll => self.sync_all().map(acknowledged),
            R::Checkpoint => self.checkpoint_all().map(|report| Reply::Checkpoint(report.into())),
            R::Trim { start, len, least } => self.trim(start, len, least).map(Reply::Trimmed),
            R::Status => self.status().map(|status| Reply::Status(Box::new(status))),
        }
    }

    /// An fsync, or a wait for a ticket, whose flush another thread runs is answered by that one.
    /// After a read has been answered, its thread reads ahead of a sequential reader.
    fn submit(&self, session: SessionId, cred: &Credentials, req: Request, done: Completion) {
        if let Request::Fsync { ino, datasync } = req {
            return self.fsync_then(ino, datasync, |result| done(result.map(acknowledged)));
        }
        if let Request::Wait { ticket, timeout: None } = req {
            return self.wait_then(session, ticket, |result| done(result.map(acknowledged)));
        }
        let read = if let Request::Read { file, .. } = req { Some(file) } else { None };
        done(self.call(session, cred, req));
        if let Some(file) = read {
            // Not reported: a read that asks for these pages fails again and reports it.
            let plan = self.query(|st| {
                let ino = st.target((session, file), Access::Read)?;
                st.ahead(ino)
            });
            let _ = plan.and_then(|plan| plan.map_or(Ok(false), |plan| self.fill_ahead(&plan)));
        }
    }
}

/// The answer to a caller that asked for durability.
fn acknowledged(_proof: Durable) -> Reply {
    Reply::Done
}

/// The answer to a caller that asked whether something is durable.
fn durable(_proof: Durable) -> Reply {
    Reply::Durable(true)
}

impl Runtime {
    /// A request that changes nothing durable.
    fn query<T>(&self, op: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        self.query_step(op)
    }

    /// As [`Runtime::query`], one try.
    fn query_step<T, E>(
        &self,
        op: impl FnOnce(&mut State) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut st = self.lock();
        let result = op(&mut st);
        st.shrink_caches(self.seq.oldest_unwritten());
        result
    }

    fn look_up(&self, parent: InodeNr, name: &[u8]) -> Result<Reply> {
        self.query(|st| {
            let ino = match name {
                b"." => parent,
                b".." => st.parent_of_dir(parent)?,
                _ => st.lookup_node(parent, name)?,
            };
            st.entry(ino)
        })
    }

    fn forget(&self, ino: InodeNr, count: u64) -> Result<Reply> {
        let orphan = {
            let mut st = self.lock();
            st.inodes.forget(ino, count);
            st.inodes.has_to_free()
        };
        if orphan { self.run_evictions() } else { Ok(Reply::Done) }
    }

    pub(crate) fn run_evictions(&self) -> Result<Reply> {
        match self.mutate(|_| Ok(())) {
            Err(Error::Posix(libc::EROFS)) | Ok(()) => Ok(Reply::Done),
            Err(e) => Err(e),
        }
    }

    fn read_link(&self, ino: InodeNr) -> Result<Reply> {
        self.query(|st| {
            st.load(ino)?;
            let node = st.inodes.get(&ino).expect("just loaded");
            if !node.inode.is_symlink() {
                return Err(errno(libc::EINVAL));
            }
            st.fs.symlink_read(&mut st.meta, &node.inode).map(Reply::Data)
        })
    }

    fn make(
        &self,
        cred: &Credentials,
        parent: InodeNr,
        name: &[u8],
        mode: u16,
        rdev: u32,
        target: &[u8],
    ) -> Result<Reply> {
        self.mutate(|st| {
            let ino = st.make(cred, parent, name, mode, rdev, target)?;
            Ok(st.entry(ino)?)
        })
    }

    fn symlink(
        &self,
        cred: &Credentials,
        parent: InodeNr,
        name: &[u8],
        target: &[u8],
    ) -> Result<Reply> {
        if target.is_empty() {
            return Err(errno(libc::ENOENT));
        }
        if target.len() > TARGET_MAX || target.contains(&0) {
            return Err(errno(libc::ENAMETOOLONG));
        }
        self.make(cred, parent, name, mode_of(FileKind::Symlink) | 0o777, 0, target)
    }

    fn create_open(
        &self,
        session: SessionId,
        cred: &Credentials,
        parent: InodeNr,
        name: &[u8],
        perm: u16,
    ) -> Result<Reply> {
        self.mutate(|st| {
            let mode = mode_of(FileKind::Regular) | perm & 0o7777;
            let ino = st.make(cred, parent, name, mode, 0, &[])?;
            let handle = st.open(ino, session, Access::Both);
            let Reply::Entry(attr) = st.entry(ino)? else { unreachable!("entry answers Entry") };
            Ok(Reply::Created { attr, handle })
        })
    }

    fn open_dir(&self, session: SessionId, ino: InodeNr) -> Result<Reply> {
        self.query(|st| {
            st.load_dir(ino)?;
            Ok(Reply::Opened { handle: st.open(ino, session, Access::Read) })
        })
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

    fn set_attr(&self, ino: InodeNr, set: &SetAttr, times: bool) -> Result<Reply> {
        let attr = self.mutate(|st| {
            st.may_set_attr(ino, set)?;
            st.timed(ino, times, |st| st.set_attr(ino, set))?;
            Ok(st.attr(ino)?)
        });
        attr.map(Reply::Attr)
    }

    fn remove_xattr(&self, ino: InodeNr, name: &[u8], times: bool) -> Result<Reply> {
        self.mutate(|st| {
            st.may_set_xattr(ino, name, true)?;
            st.timed(ino, times, |st| st.remove_xattr(ino, name)).map(|()| Reply::Done)
        })
    }

    fn commit_together(
        &self,
        session: SessionId,
        cred: &Credentials,
        sections: &[SectionId],
        (durable, times): (bool, bool),
    ) -> Result<Reply> {
        let privileged = self.lock().privileged(cred);
        let commit = Commit { session, sections, durable, times, privileged };
        self.commit_sections(&commit).map(|()| Reply::Done)
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
                if write && st.config.read_only {
                    return Err(errno(libc::EROFS));
                }
                st.load(ino)?;
                if st.node(ino).inode.is_dir() {
                    return Err(errno(libc::EISDIR));
                }
                st.may_open(ino, write, false)?;
                Ok(Reply::Opened { handle: st.open(ino, session, access) })
            });
        }
        self.mutate(|st| {
            let time = st.now();
            st.may_open(ino, write, true)?;
            st.timed(ino, times, |st| {
                st.set_size(ino, 0, time)?;
                if kill { st.kill_privileges(ino) } else { Ok(()) }
            })?;
            Ok(Reply::Opened { handle: st.open(ino, session, access) })
        })
    }

    fn release(&self, session: SessionId, handle: Handle) -> Result<Reply> {
        let orphan = {
            let mut st = self.lock();
            if !st.inodes.close(handle.0, session) {
                return Err(errno(libc::EBADF));
            }
            st.inodes.has_to_free()
        };
        if orphan { self.run_evictions() } else { Ok(Reply::Done) }
    }

    /// What belongs to the session goes with it: its tickets mean nothing any more, its sections
    /// are aborted, its handles closed.
    fn end_session(&self, session: SessionId) -> Result<Reply> {
        self.sessions.end(session);
        let orphan = {
            let mut st = self.lock();
            st.sections.end_all(session);
            st.inodes.close_all(session);
            st.inodes.has_to_free()
        };
        if orphan { self.run_evictions() } else { Ok(Reply::Done) }
    }

    fn read_data(&self, file: (SessionId, Target), offset: u64, len: u32) -> Result<Reply> {
        self.drive(libc::EIO, || {
            self.query_step(|st| {
                let ino = st.target(file, Access::Read)?;
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
            let ino = st.target(file, Access::Write)?;
            st.load(ino)?;
            let time = st.now();
            let at = offset.unwrap_or(st.node(ino).size);
            st.may_write(ino, at)?;
            // Writes up to the largest file size; a caller that comes back for the rest gets EFBIG.
            match MAX_FILE_SIZE.checked_sub(at) {
                None | Some(0) if !data.is_empty() => return Err(errno(libc::EFBIG).into()),
                room => data.truncate(room.unwrap_or(0)),
            }
            // First, so that an operation that must be tried again has not written yet.
            if kill_priv {
                st.timed(ino, times, |st| st.kill_privileges(ino))?;
            }
            let privileged = st.privileged(cred);
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
            let time = times.then(|| st.now());
            let privileged = st.privileged(cred);
            let ino = st.target(file, Access::Write)?;
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
                let time = st.now();
                let ino = st.target(file, Access::Write)?;
                st.may_allocate(ino, mode)?;
                let privileged = st.privileged(cred);
                st.timed(ino, times, |st| st.allocate(ino, mode, at, stop - at, privileged, time))
            })?;
            at = stop;
            if at >= end {
                return Ok(Reply::Done);
            }
        }
    }
}

impl State {
    /// An `Entry` reply counts one reference for `Forget`.
    pub(crate) fn entry(&mut self, ino: InodeNr) -> Result<Reply> {
        let attr = self.attr(ino)?;
        self.inodes.looked_up(ino);
        Ok(Reply::Entry(attr))
    }

    /// May this caller use the blocks that are held back for root?
    pub(crate) fn privileged(&self, cred: &Credentials) -> bool {
        let (uid, gid) = self.fs.reserved_ids();
        cred.uid == 0 || cred.uid == uid || gid != 0 && cred.gid == gid
    }

    /// The inode of a session's request for data that reads or writes it.
    pub(crate) fn target(
        &self,
        (session, file): (SessionId, Target),
        wanted: Access,
    ) -> Result<InodeNr> {
        let handle = match file {
            Target::Inode(ino) => return Ok(ino),
            Target::Open(handle) => handle,
        };
        let opened = self.inodes.opened(handle.0, session);
        let may = |access: Access| {
            (access.reads() || !wanted.reads()) && (access.writes() || !wanted.writes())
        };
        let opened = opened.filter(|opened| may(opened.access));
        opened.map(|opened| opened.ino).ok_or_else(|| errno(libc::EBADF))
    }

    pub(crate) fn open(&mut self, ino: InodeNr, session: SessionId, access: Access) -> Handle {
        Handle(self.inodes.open(ino, session, access))
    }

    fn make(
        &mut self,
        cred: &Credentials,
        parent: InodeNr,
        name: &[u8],
        mode: u16,
        rdev: u32,
        target: &[u8],
    ) -> Step<InodeNr> {
        self.load_dir(parent)?;
        self.may_insert(parent)?;
        let is_dir = kind_of(mode) == FileKind::Directory;
        let (mode, gid) = self.inherit(parent, mode, cred.gid, is_dir);
        let (mode, xattrs) = self.inherit_acls(parent, mode, cred.umask)?;
        let time = self.now();
        let uid = cred.uid;
        let new = NewInode { number: None, mode, uid, gid, rdev, target, xattrs: &xattrs };
        self.create(parent, name, &new, time)
    }

    fn rename_leaving_whiteout(
        &mut self,
        cred: &Credentials,
        from: (InodeNr, &[u8]),
        to: (InodeNr, &[u8]),
        mode: RenameMode,
        time: Timestamp,
    ) -> Step<()> {
        self.load_dir(from.0)?;
        let whiteout = mode_of(FileKind::CharDevice);
        let (whiteout, gid) = self.inherit(from.0, whiteout, cred.gid, false);
        let (whiteout, xattrs) = self.inherit_acls(from.0, whiteout, cred.umask)?;
        let (uid, xattrs) = (cred.uid, xattrs.as_slice());
        let new = NewInode { number: None, mode: whiteout, uid, gid, rdev: 0, target: &[], xattrs };
        self.rename_and_create(from, to, mode, &new, time)
    }

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
