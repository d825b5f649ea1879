//! Decisions between the kernel's requests and the file protocol's.

use crate::ioctl::section_table::Sections;
use crate::kernel::MAX_IO;
use crate::kernel::bounds::CALLS;
use crate::kernel::convert::node;
use crate::kernel::notify::Notifier;
use crate::kernel::owing::owe;
use crate::locks::waits::LockWaits;
use crate::logs::tokens::Tokens;
use crate::mount::mountinfo::MountEntry;
use crate::mount::switch::Switch;
use crate::pages::invalidator::Invalidator;
use crate::pages::own_mount::{self, Written};
use crate::pages::unserved::Unserved;
use crate::serve::agreed::Agreed;
use crate::serve::caller;
use crate::serve::calls::Calls;
use crate::serve::copied_up::CopiedUp;
use crate::serve::kernel_times::KernelTimes;
use crate::serve::open_files::{Closed, OpenFiles, Owed, appends, reads_and_writes};
use crate::serve::privileges::Announced;
use crate::serve::timers::Timers;
use crate::serve::told::Shares;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Allocate, Attr, Completion, Credentials, DirEntry, FileKind, FileService, Handle,
    MAX_FILE_SIZE, Reply, Request, Seek, SetAttr, WriteData,
};
use std::io;
use std::sync::Arc;

/// Most bytes of entries asked for at a time ([`DirEntry::size`]): nobody else has the file system
/// while they are read.
const DIR_BYTES: u32 = 32 << 10;
/// The same of entries with attributes, whose inodes may have to be read first.
const DIR_PLUS_BYTES: u32 = 8 << 10;
/// Longest name, in bytes.
const MAX_NAME: usize = 255;
/// Bytes of data that one copy request moves at most, so that it does not keep its reader long.
const COPY_BYTES: u64 = 16 << 20;

/// One mount's requests.
pub(crate) struct Server {
    pub(crate) service: Arc<dyn FileService>,
    pub(crate) agreed: Agreed,
    /// The mount itself asks for synchronous writes.
    pub(crate) synchronous: bool,
    pub(crate) open_files: Arc<OpenFiles>,
    pub(crate) announced: Announced,
    pub(crate) copied_up: CopiedUp,
    pub(crate) invalidator: Arc<Invalidator>,
    /// Calls that wait for the kernel.
    pub(crate) calls: Arc<Calls>,
    /// Requests for locks that wait.
    pub(crate) lock_waits: Arc<LockWaits>,
    pub(crate) timers: Timers,
    pub(crate) sections: Sections,
    pub(crate) operations: Switch,
    /// Of files whose times the kernel owns.
    pub(crate) kernel_times: Arc<KernelTimes>,
    pub(crate) shares: Shares,
    /// The own threads that ask while the session may be lost.
    pub(crate) unserved: Arc<Unserved>,
    /// Of programs that ask for private logs.
    pub(crate) tokens: Arc<Tokens>,
}

impl Server {
    pub(crate) fn new(service: Arc<dyn FileService>, agreed: Agreed) -> Self {
        let open_files = Arc::new(OpenFiles::new(agreed.writeback));
        Self {
            service,
            agreed,
            synchronous: false,
            tokens: Arc::new(Tokens::new(open_files.clone())),
            open_files,
            announced: Announced::default(),
            copied_up: CopiedUp::default(),
            invalidator: Arc::default(),
            calls: Arc::new(Calls::of(CALLS)),
            lock_waits: Arc::default(),
            timers: Timers::default(),
            sections: Sections::default(),
            operations: Switch::new(true),
            kernel_times: Arc::default(),
            shares: Shares::new(agreed.shared, agreed.private_logs),
            unserved: Arc::default(),
        }
    }

    /// As if every file were opened with O_SYNC, if `synchronous`.
    pub(crate) fn with_sync(self, synchronous: bool) -> Self {
        Self { synchronous, ..self }
    }

    /// Are SiftFS's own operations there?
    pub(crate) fn with_operations(self, on: bool) -> Self {
        Self { operations: Switch::new(on), ..self }
    }

    /// From here on the kernel can be asked for what it caches on the mount `entry`.
    ///
    /// # Errors
    /// When a thread that asks cannot be started.
    pub(crate) fn start_invalidator(
        &self,
        notifier: Notifier,
        entry: &MountEntry,
    ) -> io::Result<()> {
        self.sections.serve(entry);
        self.invalidator.start(notifier, entry.clone(), self.open_files.clone())
    }

    pub(crate) fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        let (result, owed) = self.service.call_owing(cred, req);
        owe(owed);
        result
    }

    /// As [`Server::call`], with the answer on whatever thread has it.
    pub(crate) fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        self.service.submit(cred, req, done);
    }

    pub(crate) fn done(&self, cred: &Credentials, req: Request) -> Result<()> {
        self.call(cred, req)?.done()
    }

    pub(crate) fn entry(&self, cred: &Credentials, req: Request) -> Result<Attr> {
        self.call(cred, req)?.attr()
    }

    pub(crate) fn opened(&self, cred: &Credentials, req: Request) -> Result<Handle> {
        self.call(cred, req)?.opened()
    }

    /// A file was opened.
    pub(crate) fn opened_by(&self, cred: &Credentials, handle: Handle, ino: InodeNr, flags: u32) {
        let mut flags = flags;
        if let Some(known) = self.shares.known.as_ref().filter(|known| known.is_shared()) {
            known.opened(ino);
            if appends(flags) {
                flags |= libc::O_DIRECT.cast_unsigned();
            }
        }
        self.open_files.opened(&self.agreed.opener(cred), handle, ino, flags);
    }

    pub(crate) fn release(&self, cred: &Credentials, handle: Handle) -> Result<()> {
        let Closed { last, let_go } = self.open_files.closed(handle);
        self.tokens.released(handle);
        if let Some(ino) = last {
            // What was announced was no write.
            self.announced.take_all(ino);
        }
        if let Some(ino) = let_go {
            self.invalidator.let_go(ino);
        }
        self.done(cred, Request::Release { handle })
    }

    /// Attributes of every file that is open for writing, each once. One may be closed meanwhile
    /// and its number be another inode's, which may be of any kind.
    pub(crate) fn open_for_writing(&self) -> Vec<Attr> {
        let cred = Credentials::default();
        let attr = |ino: InodeNr| self.entry(&cred, Request::GetAttr { file: ino.into() }).ok();
        let attrs = self.open_files.inodes().into_iter().filter_map(attr);
        attrs.filter(|attr| attr.kind == FileKind::Regular).collect()
    }

    pub(crate) fn data(&self, cred: &Credentials, req: Request) -> Result<Vec<u8>> {
        self.call(cred, req)?.data()
    }

    /// fsync(2), on the reader's own thread, which costs no hand-over: another reads meanwhile.
    pub(crate) fn fsync(&self, cred: &Credentials, ino: InodeNr, datasync: bool, done: Completion) {
        self.submit(cred, Request::Fsync { file: ino.into(), datasync }, done);
    }

    /// read(2), on the reader's own thread, which may read ahead once it has answered.
    pub(crate) fn read(
        &self,
        cred: &Credentials,
        (ino, handle): (InodeNr, Handle),
        (offset, size): (u64, u32),
        direct: bool,
        done: Completion,
    ) {
        let len = size.min(MAX_IO);
        if !direct {
            self.open_files.note_cached(ino, offset, u64::from(len));
            self.shares.note_pages(ino);
        }
        if let Some(read) = self.read_section(cred, (ino, handle), (offset, len), direct) {
            return done(read);
        }
        self.submit(cred, Request::Read { file: ino.into(), offset, len }, done);
    }

    /// Opens a file, and truncates it if the flags say so.
    pub(crate) fn open(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        flags: u32,
        kill_priv: bool,
    ) -> Result<Handle> {
        let truncate = flags & libc::O_TRUNC.cast_unsigned() != 0;
        let (write, kill_priv) = (crate::serve::open_files::writes(flags), kill_priv && truncate);
        let (mut bits, mut setgid) = (false, None);
        if kill_priv {
            let attr = self.entry(cred, Request::GetAttr { file: ino.into() })?;
            bits = caller::has_bits(cred, &attr);
            setgid = caller::takes_setgid(cred, &attr).then_some(attr);
        }
        if write && (truncate || flags & libc::O_APPEND.cast_unsigned() == 0) {
            self.refuse_append_only(cred, ino)?;
        }
        if truncate {
            self.sections.resized(ino);
        }
        let access = match write {
            false => Access::Read,
            // A kernel that keeps back what is written reads a page before it writes a part of it,
            // also for a program that may only write.
            true if self.agreed.writeback || reads_and_writes(flags) => Access::Both,
            true => Access::Write,
        };
        let times = self.agreed.moves_times();
        let beside_lease = write && self.tokens.is_held_by(cred.pid, ino);
        let request = Request::Open { ino, access, truncate, kill_priv, times, beside_lease };
        let handle = self.opened(cred, request)?;
        self.opened_by(cred, handle, ino, flags);
        if let Some(attr) = setgid {
            let set = SetAttr { kill_setgid: true, ..SetAttr::default() };
            if let Err(e) = self.take_away(cred, &attr, set) {
                let _ = self.release(cred, handle);
                return Err(e);
            }
        }
        if bits {
            self.invalidator.forget_now(ino);
        }
        Ok(handle)
    }

    /// Writes pages of the kernel's cache; returns their length.
    pub(crate) fn write_pages(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        offset: u64,
        data: WriteData,
    ) -> Result<u32> {
        let account = self.open_files.account(ino);
        let cred = account.as_ref().unwrap_or(cred);
        if self.agreed.writeback {
            self.carry_out_with_pages(cred, ino)?;
        }
        if let Some(len) = self.take_pages(cred, ino, offset, &data) {
            return Ok(len);
        }
        let times = !self.agreed.writeback;
        self.call(cred, Request::WriteBack { file: ino.into(), offset, data, times })?.written()
    }

    /// Has the kernel send the dirty pages of a file, and waits for them. The file is closed when
    /// what is returned is dropped.
    ///
    /// # Errors
    /// Why pages could not be written, or not be asked for: a rename fails then, and the old file
    /// stays rather than giving way to half of the new one.
    pub(crate) fn write_back(&self, entry: &MountEntry, ino: InodeNr) -> Result<Written> {
        let attr = self.entry(&Credentials::default(), Request::GetAttr { file: ino.into() })?;
        let before = self.open_files.lost(ino).map_or(0, |l| l.times);
        let written = own_mount::write_back(entry, node(ino), attr.generation);
        match self.open_files.lost(ino) {
            Some(lost) if lost.times != before => Err(lost.error),
            _ => written.map_err(|e| {
                tracing::warn!(ino, error = %e, "a file's dirty pages could not be asked for");
                errno(e.raw_os_error().unwrap_or(libc::EIO))
            }),
        }
    }

    /// The inode number behind a name, without a reference that would have to be given back.
    pub(crate) fn number_of(
        &self,
        cred: &Credentials,
        parent: InodeNr,
        name: &[u8],
    ) -> Option<InodeNr> {
        let found = self.entry(cred, Request::Lookup { parent, name: name.to_vec() }).ok()?;
        self.forget(cred, found.ino, 1);
        Some(found.ino)
    }

    /// On whose account a write to `ino` takes its blocks.
    pub(crate) fn payer(&self, cred: &Credentials, ino: InodeNr) -> Credentials {
        let account = if self.agreed.idmap { self.open_files.account(ino) } else { None };
        account.unwrap_or_else(|| cred.clone())
    }

    /// Writes `data`, all of it unless the largest size comes in between; returns how much.
    pub(crate) fn write(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        Place { offset, append }: Place,
        data: WriteData,
        kill_priv: bool,
    ) -> Result<u32> {
        match append && kill_priv {
            // Past its cache the kernel asks for the end of set-id bits, looks at no group, and
            // does not note that they are gone: it would execute the file with them.
            true => self.before_change(cred, ino)?,
            false => self.carry_out_announced(cred, ino)?,
        }
        let (file, times) = (ino.into(), self.agreed.moves_times());
        let write = match append {
            true => Request::Append { file, end: offset, data, kill_priv, times },
            false => Request::Write { file, offset, data, append, kill_priv, times },
        };
        self.call(&self.payer(cred, ino), write)?.written()
    }

    pub(crate) fn owed(&self, flags: u32) -> Owed {
        if self.synchronous { Owed::All } else { Owed::by(flags) }
    }

    /// After a change of `ino` that the kernel sends no FSYNC for, through `handle`: what its flags
    /// promise.
    fn pay(&self, cred: &Credentials, ino: InodeNr, handle: Handle) -> Result<()> {
        match self.owed(self.open_files.flags(handle)) {
            Owed::Nothing => Ok(()),
            owed => {
                self.done(cred, Request::Fsync { file: ino.into(), datasync: owed == Owed::Data })
            }
        }
    }

    /// fallocate(2).
    pub(crate) fn allocate(
        &self,
        cred: &Credentials,
        (ino, handle): (InodeNr, Handle),
        mode: Allocate,
        (offset, len): (u64, u64),
    ) -> Result<()> {
        self.before_change(cred, ino)?;
        let times = self.agreed.moves_times();
        let allocate = Request::Allocate { file: ino.into(), mode, offset, len, times };
        self.done(&self.payer(cred, ino), allocate)?;
        self.pay(cred, ino, handle)
    }

    /// lseek(2) for data or a hole.
    pub(crate) fn seek(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        offset: u64,
        whence: Seek,
    ) -> Result<u64> {
        if i64::try_from(offset).is_err() {
            return Err(errno(libc::ENXIO));
        }
        self.call(cred, Request::Seek { file: ino.into(), offset, whence })?.offset()
    }

    /// copy_file_range(2): as far as the source goes and [`COPY_BYTES`] of data at most; returns
    /// how far it came. Holes stay holes. The kernel holds both files' locks, has written back what
    /// it cached of them and drops what it cached of the target afterwards.
    pub(crate) fn copy(&self, cred: &Credentials, r: &CopyRange) -> Result<u32> {
        self.before_change(cred, r.to)?;
        let size = settled_size(self, cred, r.from)?;
        let room = MAX_FILE_SIZE.checked_sub(r.to_offset).filter(|room| *room > 0);
        let len = r.len.min(u64::from(u32::MAX)).min(room.ok_or(errno(libc::EFBIG))?);
        let asked = r.offset.checked_add(len).ok_or(errno(libc::EOVERFLOW))?;
        // The kernel asks for nothing beyond the end that it knows. Its writeback cache may hold
        // the bytes between our end and its own, but none of this range: that is a hole.
        let ends_later = self.agreed.writeback && self.open_files.may_be_dirty(r.from);
        let end = if ends_later { asked } else { size.min(asked) };
        let (mut at, mut data) = (r.offset, 0);
        while at < end && data < COPY_BYTES {
            match self.copy_piece(cred, r, at, end) {
                Ok((next, bytes)) => (at, data) = (next, data + bytes),
                // What was copied counts; the caller comes back for the error.
                Err(_) if at > r.offset => break,
                Err(e) => return Err(e),
            }
        }
        if at > r.offset {
            self.pay(cred, r.to, r.to_handle)?;
        }
        u32::try_from(at.saturating_sub(r.offset)).map_err(|_| errno(libc::EIO))
    }

    /// Copies the hole or some of the data at `at`; returns where it ends and its bytes of data.
    fn copy_piece(
        &self,
        cred: &Credentials,
        r: &CopyRange,
        at: u64,
        end: u64,
    ) -> Result<(u64, u64)> {
        let to = r.to_offset + (at - r.offset);
        let data = match self.seek(cred, r.from, at, Seek::Data) {
            Err(Error::Posix(libc::ENXIO)) => end,
            other => other?.min(end),
        };
        if data > at {
            self.copy_hole(cred, r.to, to, data - at)?;
            return Ok((data, 0));
        }
        let hole = self.seek(cred, r.from, at, Seek::Hole)?.min(end);
        let len = u32::try_from(hole.saturating_sub(at)).unwrap_or(u32::MAX).min(MAX_IO);
        let bytes = self.data(cred, Request::Read { file: r.from.into(), offset: at, len })?;
        if bytes.is_empty() {
            return Err(errno(libc::EIO));
        }
        let written = self.write(cred, r.to, Place::at(to), bytes.into(), false)?;
        Ok((at + u64::from(written), u64::from(written)))
    }

    fn copy_hole(&self, cred: &Credentials, ino: InodeNr, offset: u64, len: u64) -> Result<()> {
        let (size, times) = (settled_size(self, cred, ino)?, self.agreed.moves_times());
        if offset < size {
            let (mode, len) = (Allocate::PunchHole, len.min(size - offset));
            self.done(cred, Request::Allocate { file: ino.into(), mode, offset, len, times })?;
        }
        if offset + len > size {
            let set = SetAttr { size: Some(offset + len), ..SetAttr::default() };
            self.entry(cred, Request::SetAttr { file: ino.into(), set, times })?;
        }
        Ok(())
    }

    /// Fills a directory buffer: `add` returns false, and takes nothing, when it is full.
    pub(crate) fn read_dir(
        &self,
        cred: &Credentials,
        dir: DirCursor,
        add: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        let DirCursor { dir, mut cookie, plus, mut room } = dir;
        let opened = match dir {
            Dir::Open(handle) => OpenDir { server: self, handle, close: false },
            Dir::Node(ino) => {
                let handle = self.opened(cred, Request::OpenDir { ino })?;
                OpenDir { server: self, handle, close: true }
            }
        };
        let handle = opened.handle;
        let most = if plus { DIR_PLUS_BYTES } else { DIR_BYTES };
        let mut any = false;
        // Less than that holds few names, if any.
        while !any || room >= DirEntry::size(MAX_NAME, plus) {
            let max_bytes = u32::try_from(room).unwrap_or(most).min(most);
            let req = Request::ReadDir { handle, cookie, max_bytes, plus };
            let entries = match self.call(cred, req).and_then(Reply::entries) {
                Ok(entries) => entries,
                // What was read counts; the kernel comes back for the error.
                Err(_) if any => return Ok(()),
                Err(e) => return Err(e),
            };
            if entries.is_empty() {
                return Ok(());
            }
            for (i, entry) in entries.iter().enumerate() {
                if !add(entry) {
                    self.forget_entries(cred, entries.get(i..).unwrap_or_default());
                    return Ok(());
                }
                any = true;
                cookie = entry.cookie;
                room = room.saturating_sub(DirEntry::size(entry.name.len(), plus));
            }
        }
        Ok(())
    }

    /// Gives back the references of entries that the kernel never saw.
    fn forget_entries(&self, cred: &Credentials, entries: &[DirEntry]) {
        for e in entries {
            if e.attr.is_some() && e.name != b"." && e.name != b".." {
                self.forget(cred, e.ino, 1);
            }
        }
    }

    pub(crate) fn forget(&self, cred: &Credentials, ino: InodeNr, count: u64) {
        let known = self.shares.known.as_ref().filter(|known| known.watches(ino));
        let at = known.map(|known| known.moment());
        if let Err(error) = self.call(cred, Request::Forget { ino, count }) {
            tracing::warn!(ino, count, %error, "forget failed");
        }
        if let (Some(known), Some(at)) = (known, at)
            && !knows(self, ino)
        {
            known.forgotten(ino, at);
        }
    }

    /// The value of an extended attribute.
    pub(crate) fn get_xattr(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        name: Vec<u8>,
    ) -> Result<Vec<u8>> {
        self.agreed.check_xattr_name(&name)?;
        self.data(cred, Request::GetXattr { file: ino.into(), name })
    }

    /// Names as listxattr(2) returns them: each ended by NUL, `trusted.` for root only.
    pub(crate) fn list_xattr(&self, cred: &Credentials, ino: InodeNr) -> Result<Vec<u8>> {
        let names = self.call(cred, Request::ListXattr { file: ino.into() })?.names()?;
        let mut out = Vec::new();
        let trusted = self.agreed.sees_trusted(cred);
        for name in names {
            let hidden = name.starts_with(b"trusted.") && !trusted;
            if !hidden && self.agreed.check_xattr_name(&name).is_ok() {
                out.extend_from_slice(&name);
                out.push(0);
            }
        }
        Ok(out)
    }
}

/// The size of a file, of which nobody has anything that others have not seen.
fn settled_size(server: &Server, cred: &Credentials, ino: InodeNr) -> Result<u64> {
    let get = || server.entry(cred, Request::GetAttr { file: ino.into() });
    let attr = get()?;
    if !attr.held {
        return Ok(attr.size);
    }
    // What its holder shows is no answer to a call that goes by it.
    server.data(cred, Request::Read { file: ino.into(), offset: 0, len: 0 })?;
    get().map(|attr| attr.size)
}

/// May the kernel of `server` know the inode?
pub(crate) fn knows(server: &Server, ino: InodeNr) -> bool {
    server.service.has_looked_up(ino)
}

/// Where a write goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    /// The offset is the end that the kernel knows.
    pub(crate) append: bool,
}

impl Place {
    /// Nowhere else.
    pub(crate) fn at(offset: u64) -> Self {
        Self { offset, append: false }
    }
}

/// What copy_file_range(2) copies.
pub(crate) struct CopyRange {
    pub(crate) from: InodeNr,
    pub(crate) offset: u64,
    pub(crate) to: InodeNr,
    pub(crate) to_handle: Handle,
    pub(crate) to_offset: u64,
    /// Bytes at most.
    pub(crate) len: u64,
}

/// Where a directory is being read.
pub(crate) struct DirCursor {
    pub(crate) dir: Dir,
    /// Cookie of the last entry seen; 0 at the start.
    pub(crate) cookie: u64,
    /// With attributes.
    pub(crate) plus: bool,
    /// Bytes of the answer ([`DirEntry::size`]).
    pub(crate) room: usize,
}

/// The directory that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dir {
    /// The kernel opened it.
    Open(Handle),
    /// The kernel does without OPENDIR. It holds the inode as long as a program has it open.
    Node(InodeNr),
}

/// A directory's handle, for one request or for longer.
struct OpenDir<'a> {
    server: &'a Server,
    handle: Handle,
    close: bool,
}

impl Drop for OpenDir<'_> {
    fn drop(&mut self) {
        let handle = self.handle;
        if self.close
            && let Err(error) =
                self.server.done(&Credentials::default(), Request::Release { handle })
        {
            tracing::warn!(%error, "a directory's handle could not be given back");
        }
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
