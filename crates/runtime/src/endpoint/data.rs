//! Requests about open files: their data, and the entries of open directories.

use super::Call;
use crate::data::file::Input;
use crate::namespace::attributes::drop_capabilities;
use crate::namespace::kinds::{kind_of, kind_of_entry};
use crate::namespace::unchecked::take_privileges;
use crate::session::{readers, recall};
use crate::state::leases::readers::{Reader, Whose};
use crate::state::room::{ALLOCATE_PIECE, fill_up};
use crate::state::step::Step;
use crate::state::tree::pools;
use crate::state::tree::references::SessionId;
use crate::state::{Metadata, State, Tree};
use siftfs_base::{BLOCK_BYTES, Error, InodeNr, Result, Timestamp, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Allocate, Attr, DirEntry, FileKind, Handle, LeaseId, MAX_FILE_SIZE, ROOT_INO, Reply, Request,
    Target, WriteData,
};

/// Where a write goes.
#[derive(Clone, Copy)]
enum Place {
    At(u64),
    End,
    /// To the end, if that is one in which the session's kernel may believe.
    Believed(u64),
}

impl Call<'_> {
    /// Carries out a request about an open file.
    pub(super) fn data(&self, req: Request) -> Result<Reply> {
        use Request as R;
        match req {
            R::Open { ino, access, truncate: false, .. } => self.open_file(ino, access),
            R::Open { ino, access, truncate: true, kill_priv, times, .. } => {
                self.open_emptied(ino, access, kill_priv, times)
            }
            R::Hold { ino } => self.hold(ino),
            R::Release { handle } => self.release(handle),
            R::Read { file, offset, len } => self.read_data(file, offset, len),
            R::Write { file, offset, data, append, kill_priv, times } => {
                let place = if append { Place::End } else { Place::At(offset) };
                self.write_data(file, place, data, (kill_priv, times))
            }
            R::Append { .. } if !self.session.has_pages() => Err(errno(libc::EPERM)),
            R::Append { file, end, data, kill_priv, times } => {
                self.write_data(file, Place::Believed(end), data, (kill_priv, times))
            }
            R::WriteBack { file, offset, data, times } => {
                self.write_back(file, offset, data, times)
            }
            R::Allocate { file, mode, offset, len, times } => {
                self.allocate(file, mode, (offset, len), times)
            }
            R::Seek { file, offset, whence } => {
                let sought = self.query(|st| {
                    let ino = st.metadata.tree.target((self.session.id, file), Access::Read)?;
                    st.metadata.tree.seek(ino, offset, whence)
                });
                sought.map(Reply::Offset)
            }
            R::OpenDir { ino } => self.open_dir(ino),
            R::ReadDir { handle, cookie, max_bytes, plus } => {
                let handle = (self.session.id, handle);
                let read = |st: &mut State| {
                    let tree = &mut st.metadata.tree;
                    let opened = tree.inodes.references.opened(handle.0, handle.1.0);
                    // The attributes of an entry are looked up in the directory.
                    let searched = match opened.filter(|_| plus) {
                        Some(dir) => self.who().may_search(tree, dir.ino),
                        None => Ok(()),
                    };
                    let plus = match searched {
                        // The kernel asks for them unasked.
                        Err(Error::Posix(libc::EACCES)) if self.session.is_machine() => false,
                        may => may.map(|()| plus)?,
                    };
                    let mut shown = Vec::new();
                    let now = st.metadata.log.time.boot_ns();
                    let (tree, leases) = (&mut st.metadata.tree, &mut st.leases);
                    let mut entries = tree.read_dir(handle, cookie, max_bytes, plus, |ino| {
                        let look = leases.look(handle.0, ino, now);
                        shown.extend(look.as_ref().ok().and_then(|s| Some((ino, (*s)?))));
                        look.is_ok()
                    })?;
                    self.doing.show_entries(st, &mut entries, &shown);
                    Ok(entries)
                };
                self.query(read).map(Reply::Dir)
            }
            other => unreachable!("a request of another kind: {other:?}"),
        }
    }

    /// A handle that only names the inode.
    fn hold(&self, ino: InodeNr) -> Result<Reply> {
        self.query(|st| {
            st.metadata.tree.load(ino)?;
            Ok(Reply::Opened { handle: st.metadata.tree.open(ino, self.session.id, None) })
        })
    }

    fn open_dir(&self, ino: InodeNr) -> Result<Reply> {
        self.query(|st| {
            st.metadata.tree.load_dir(ino)?;
            self.who().may_list(&mut st.metadata.tree, ino)?;
            Ok(Reply::Opened { handle: st.metadata.tree.open(ino, self.session.id, Access::Read) })
        })
    }

    fn open_file(&self, ino: InodeNr, access: Access) -> Result<Reply> {
        let write = access.writes();
        self.query(|st| {
            if write && st.metadata.log.config.read_only {
                return Err(errno(libc::EROFS));
            }
            let tree = &mut st.metadata.tree;
            tree.load(ino)?;
            tree.is_file(ino)?;
            match self.who().may_open_by(tree, ino, access, false) {
                // Another machine reads what it executes.
                Err(Error::Posix(libc::EACCES))
                    if access == Access::Read && self.session.is_machine() =>
                {
                    self.who().may_execute(tree, ino)?;
                }
                may => may?,
            }
            tree.may_open(ino, write, false)?;
            Ok(Reply::Opened { handle: tree.open(ino, self.session.id, access) })
        })
    }

    fn open_emptied(
        &self,
        ino: InodeNr,
        access: Access,
        kill_priv: bool,
        times: bool,
    ) -> Result<Reply> {
        self.runtime.mutate(&self.doing, |st| {
            let time = st.metadata.log.now();
            st.metadata.tree.is_file(ino)?;
            self.who().may_open_by(&mut st.metadata.tree, ino, access, true)?;
            st.metadata.tree.may_open(ino, access.writes(), true)?;
            st.timed(ino, self.moves(times), |st| {
                st.set_size(ino, 0, time)?;
                self.take_privileges(st, ino, kill_priv)
            })?;
            Ok(Reply::Opened { handle: st.metadata.tree.open(ino, self.session.id, access) })
        })
    }

    /// A change of the file's bytes takes set-id bits and capabilities away: as the kernel says, or
    /// as the caller's rights say.
    pub(super) fn take_privileges(&self, st: &mut State, ino: InodeNr, asked: bool) -> Step<()> {
        match self.who().0 {
            None if asked => st.metadata.kill_privileges(ino),
            // A kernel asks for the capabilities' end itself, unless it believes that there are
            // none. Another one may have given them since.
            None if st.sharing.has_others(self.session.id) => {
                drop_capabilities(&mut st.metadata, ino)
            }
            None => Ok(()),
            Some(caller) => take_privileges(&mut st.metadata, caller, ino),
        }
    }

    fn release(&self, handle: Handle) -> Result<Reply> {
        let (session, mut st) = (self.session.id, self.runtime.lock());
        if !st.metadata.tree.inodes.close(handle.0, session) {
            return Err(errno(libc::EBADF));
        }
        if !st.leases.direct.readers.is_empty() {
            drop(st);
            // Nothing more is granted for it: what was keeps the inode until it has ended.
            readers::end(self.runtime, Whose::Handle(Reader { session, handle }));
            st = self.runtime.lock();
        }
        let orphan = st.metadata.tree.inodes.has_to_free();
        drop(st);
        let waits = !self.session.is_kernel();
        self.runtime.file_locks.close(self.session.id, handle.0, waits);
        if orphan { self.runtime.run_evictions() } else { Ok(Reply::Done) }
    }

    fn read_data(&self, file: Target, offset: u64, len: u32) -> Result<Reply> {
        self.query_step(|st| {
            let ino = match len {
                // Settles what others hold of the file, for one that is only written, too.
                0 => st.metadata.tree.target_for((self.session.id, file), |a| a.is_some())?,
                _ => st.metadata.tree.target((self.session.id, file), Access::Read)?,
            };
            let end = offset.saturating_add(len.into()).div_ceil(BLOCK_BYTES);
            st.leases.direct.touch_blocks(ino, offset / BLOCK_BYTES, end)?;
            st.read(ino, offset, len)
        })
    }

    fn write_data(
        &self,
        file: Target,
        place: Place,
        mut data: WriteData,
        (kill_priv, times): (bool, bool),
    ) -> Result<Reply> {
        u32::try_from(data.len()).map_err(|_| errno(libc::EINVAL))?;
        self.runtime.mutate(&self.doing, |st| {
            let ino = st.metadata.tree.target((self.session.id, file), Access::Write)?;
            st.metadata.tree.load(ino)?;
            let size = st.metadata.tree.node(ino).size;
            let (ends, session) = (&mut st.metadata.tree.inodes.ends, self.session.id);
            let at = match place {
                Place::At(offset) => offset,
                Place::End => size,
                Place::Believed(end) => ends.place(session, ino, end, size),
            };
            if !matches!(place, Place::At(_)) {
                data.move_to(at);
            }
            let now = st.metadata.log.now();
            if matches!(place, Place::Believed(_)) {
                // Where a kernel writes past its cache it says whether set-id bits go, and leaves
                // capabilities to the file system.
                drop_capabilities(&mut st.metadata, ino)?;
            }
            self.write_at(st, (ino, at), &mut data, (kill_priv, times), now)?;
            if !matches!(place, Place::At(_))
                && let Some(origin) = self.doing.origin()
            {
                origin.appended(at);
            }
            if let Place::Believed(end) = place
                && at != end
            {
                let ends = &mut st.metadata.tree.inodes.ends;
                ends.moved(session, ino, (end, data.len() as u64), at);
            }
            Ok(())
        })?;
        let len = u32::try_from(data.len()).map_err(|_| errno(libc::EINVAL))?;
        Ok(Reply::Written { len })
    }

    /// What the holder of a write lease has written, and nobody else has seen.
    pub(super) fn write_leased(
        &self,
        lease: LeaseId,
        offset: u64,
        mut data: WriteData,
        time: Option<Timestamp>,
    ) -> Result<(InodeNr, Reply)> {
        u32::try_from(data.len()).map_err(|_| errno(libc::EINVAL))?;
        let (ino, last) = self.runtime.mutate(&self.doing, |st| {
            let ino = self.use_lease(st, lease)?;
            let end = offset.saturating_add(data.len() as u64).div_ceil(BLOCK_BYTES);
            st.leases.direct.touch_blocks(ino, offset / BLOCK_BYTES, end)?;
            let size = st.metadata.tree.attr(ino)?.size;
            if offset > size {
                // The rest of the block of the end becomes zeros.
                let (first, end) = (size / BLOCK_BYTES, size.div_ceil(BLOCK_BYTES));
                st.leases.direct.touch_blocks(ino, first, end)?;
            }
            if self.session.lends {
                let State { metadata: Metadata { tree, log }, .. } = st;
                pools::note(tree, log.config.pools, self.session.id, ino);
            }
            let now = st.metadata.log.now();
            let at = match time {
                Some(time) => time.min(now).max(st.metadata.tree.attr(ino)?.mtime),
                None => now,
            };
            let write =
                |st: &mut State| self.write_at(st, (ino, offset), &mut data, (false, true), at);
            Ok((ino, self.taking_in(st, write)?))
        })?;
        let len = u32::try_from(data.len()).map_err(|_| errno(libc::EINVAL))?;
        if last {
            recall::tell_all(self.runtime, self.session.id);
            return Ok((ino, Reply::WrittenLast { len }));
        }
        Ok((ino, Reply::Written { len }))
    }

    /// Writes what the session has answered already, if it lends: what it has set aside may be used
    /// for it. Returns whether it was.
    fn taking_in(&self, st: &mut State, write: impl FnOnce(&mut State) -> Step<()>) -> Step<bool> {
        if !self.session.lends {
            return write(st).map(|()| false);
        }
        fill_up(&mut st.metadata);
        st.metadata.log.reserves.begin(self.session.id);
        let written = write(st);
        let used = st.metadata.log.reserves.end();
        written.map(|()| used)
    }

    /// Writes as much as the largest file takes; a caller that comes back for the rest gets EFBIG.
    fn write_at(
        &self,
        st: &mut State,
        (ino, at): (InodeNr, u64),
        data: &mut WriteData,
        (kill_priv, times): (bool, bool),
        time: Timestamp,
    ) -> Step<()> {
        st.metadata.tree.may_write(ino, at)?;
        match MAX_FILE_SIZE.checked_sub(at) {
            None | Some(0) if !data.is_empty() => return Err(errno(libc::EFBIG).into()),
            room => data.truncate(room.unwrap_or(0)),
        }
        // First, so that an operation that must be tried again has not written yet.
        let times = self.moves(times);
        st.timed(ino, times, |st| self.take_privileges(st, ino, kill_priv))?;
        let privileged = st.metadata.tree.privileged(self.cred);
        st.timed(ino, times, |st| st.write(ino, at, Input::of(data), privileged, time))
    }

    /// Pages of the kernel's cache.
    fn write_back(
        &self,
        file: Target,
        offset: u64,
        mut data: WriteData,
        times: bool,
    ) -> Result<Reply> {
        if !self.session.has_pages() {
            return Err(errno(libc::EPERM));
        }
        let len = u32::try_from(data.len()).map_err(|_| errno(libc::EINVAL))?;
        // The kernel joins pages of several write(2). Those up to the largest file size are kept;
        // if there are more, all of those calls get EFBIG.
        let room = MAX_FILE_SIZE.checked_sub(offset).filter(|room| *room > 0);
        let room = room.ok_or(errno(libc::EFBIG))?;
        let fits = data.len() as u64 <= room;
        data.truncate(room);
        self.runtime.mutate(&self.doing, |st| {
            let time = self.moves(times).then(|| st.metadata.log.now());
            let privileged = st.metadata.tree.privileged(self.cred);
            let ino = st.metadata.tree.target((self.session.id, file), Access::Write)?;
            if self.session.is_machine() {
                st.metadata.tree.load(ino)?;
                st.metadata.tree.may_write(ino, offset)?;
                // A store through a mapping takes nothing away, and that needs both rights.
                if st.metadata.tree.target((self.session.id, file), Access::Both).is_err() {
                    st.timed(ino, true, |st| self.take_privileges(st, ino, true))?;
                }
            }
            st.write_back(ino, offset, Input::of(&mut data), privileged, time)
        })?;
        if fits { Ok(Reply::Written { len }) } else { Err(errno(libc::EFBIG)) }
    }

    /// fallocate(2), in pieces that a transaction holds: a piece that is tried again starts over.
    fn allocate(
        &self,
        file: Target,
        mode: Allocate,
        (offset, len): (u64, u64),
        times: bool,
    ) -> Result<Reply> {
        let zero = matches!(mode, Allocate::ZeroRange | Allocate::ZeroRangeKeepSize);
        let end = offset.checked_add(len).ok_or_else(|| errno(libc::EFBIG))?;
        let mut at = offset;
        loop {
            let stop = if zero { end.min((at / ALLOCATE_PIECE + 1) * ALLOCATE_PIECE) } else { end };
            self.runtime.mutate(&self.doing, |st| {
                let time = st.metadata.log.now();
                let ino = st.metadata.tree.target((self.session.id, file), Access::Write)?;
                st.metadata.tree.may_allocate(ino, mode)?;
                let privileged = st.metadata.tree.privileged(self.cred);
                let times = self.moves(times);
                st.timed(ino, times, |st| self.take_privileges(st, ino, false))?;
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
    /// Can the inode be opened to read and write its bytes?
    fn is_file(&mut self, ino: InodeNr) -> Result<()> {
        self.load(ino)?;
        match kind_of(self.node(ino).inode.mode) {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(errno(libc::EISDIR)),
            FileKind::Symlink => Err(errno(libc::ELOOP)),
            _ => Err(errno(libc::ENXIO)),
        }
    }

    fn read_dir(
        &mut self,
        (session, handle): (SessionId, Handle),
        cookie: u64,
        max_bytes: u32,
        plus: bool,
        mut is_told: impl FnMut(InodeNr) -> bool,
    ) -> Result<Vec<DirEntry>> {
        let opened = self.inodes.references.opened(session, handle.0);
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
            // Those of a file that another session holds alone are asked for one by one.
            for entry in entries.iter_mut().filter(|entry| is_told(entry.ino)) {
                entry.attr = self.entry_attr(ino, entry)?;
            }
            // Counted only when nothing can fail any more.
            for entry in entries.iter().filter(|e| e.attr.is_some()) {
                self.inodes.references.looked_up(session, entry.ino);
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
