//! Atomic sections of programs on the mount, by F2FS's ioctls, as SQLite sends them.
//!
//! A section belongs to the open file that started it: what is written through that one goes into
//! the section, and what is read through it shows the section. Pages that the kernel wrote to its
//! cache and sends later name no writer, so those of the file go into the section as well, whoever
//! wrote them.
//!
//! The kernel's cache has what the section's owner wrote, and shows it to every reader. Programs
//! that take locks do not look as long as the owner has its lock. So a section ends before a lock
//! of its owner can go to another process: with ABORT, and with FLUSH, which the kernel sends at
//! every close(2) and at a process's end, before it drops POSIX locks. Both are answered when the
//! kernel has dropped its pages of the file and has taken its size from us again (rule R26). A
//! thread of its own sees to that: for pages the kernel waits, and for the size perhaps as well.

use crate::convert::node;
use crate::invalidator::Then;
use crate::kernel::reply::Answer;
use crate::mountinfo::MountEntry;
use crate::own_mount::{self, Resetting, Size};
use crate::pages::Want;
use crate::privileges::{self, owns};
use crate::server::Server;
use siftfs_base::{Error, InodeNr, Result, Timestamp, errno};
use siftfs_proto::commands::{ABORT, COMMIT, FEATURES, START};
use siftfs_proto::{
    Attr, Completion, Credentials, DirEntry, FileKind, Handle, Reply, Request, SectionId, WriteData,
};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use zerocopy::IntoBytes;

/// Of the features: sections.
const ATOMIC_WRITE: u32 = 0x4;

/// How often the kernel is made to drop pages of a section that ends while more are coming.
const ROUNDS: u32 = 16;
/// How long such a page is waited for each time.
const PAGE_ON_ITS_WAY: Duration = Duration::from_millis(1);

/// Is this ioctl one of ours?
pub(crate) fn is_ours(command: u32) -> bool {
    matches!(command, FEATURES | START | COMMIT | ABORT)
}

/// The sections of a mount.
#[derive(Default)]
pub(crate) struct Sections {
    table: Mutex<HashMap<InodeNr, Section>>,
    /// How many there are. While there is none, reads, writes and closes have nothing to look up.
    count: AtomicUsize,
    /// Handles that have started one. Until they are released the daemon has their files open, too:
    /// a database has a section in each of its commits.
    starters: Mutex<HashSet<Handle>>,
    /// Where the mount is, once it is served.
    entry: OnceLock<MountEntry>,
    resetting: Arc<Resetting>,
}

struct Section {
    id: SectionId,
    handle: Handle,
    /// The process that started it, 0 if it cannot be known.
    process: u32,
    /// One past the last byte that was written.
    end: u64,
    /// The file was truncated: its size is the file's own again.
    resized: bool,
    /// The kernel may have bytes of it in its cache, or its size.
    known: bool,
    /// The kernel was told attributes since the last write: without its writeback cache it asks for
    /// size and times after each write, and so would ask after the commit as well.
    told: bool,
    /// The kernel may have pages that were read as they are without it.
    stale: bool,
    /// Why it cannot be committed: pages came that it could not take.
    failed: Option<i32>,
    /// Pages of the kernel's that are on their way into it.
    arriving: u32,
    /// Pages of the kernel's that came so far.
    arrived: u64,
    /// It is ending: what follows then.
    ending: Option<Vec<Then>>,
}

/// Where pages of the kernel's cache go.
enum Taken {
    Into(SectionId),
    /// Nowhere: the section ends.
    Lost,
}

impl Sections {
    fn table(&self) -> MutexGuard<'_, HashMap<InodeNr, Section>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn starters(&self) -> MutexGuard<'_, HashSet<Handle>> {
        self.starters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn none(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// The mount is served at `entry`.
    pub(crate) fn serve(&self, entry: &MountEntry) {
        assert!(self.entry.set(entry.clone()).is_ok(), "a mount is served once");
    }

    /// Does thread `pid` have the kernel drop a file's pages, and take its size from us?
    pub(crate) fn resets(&self, pid: u32) -> bool {
        self.resetting.has(pid)
    }

    fn started(&self, ino: InodeNr, id: SectionId, handle: Handle, process: u32) {
        let section = Section {
            id,
            handle,
            process,
            end: 0,
            resized: false,
            known: false,
            told: true,
            stale: false,
            failed: None,
            arriving: 0,
            arrived: 0,
            ending: None,
        };
        let mut table = self.table();
        let before = table.insert(ino, section);
        assert!(before.is_none(), "a file has one section");
        self.count.store(table.len(), Ordering::SeqCst);
    }

    fn remove(&self, ino: InodeNr, id: SectionId) -> Option<Section> {
        self.remove_if(ino, |section| section.id == id)
    }

    fn remove_if(&self, ino: InodeNr, so: impl FnOnce(&Section) -> bool) -> Option<Section> {
        let mut table = self.table();
        let found = if table.get(&ino).is_some_and(so) { table.remove(&ino) } else { None };
        self.count.store(table.len(), Ordering::SeqCst);
        found
    }

    /// The section that `handle` has, if it is not ending.
    fn of(&self, ino: InodeNr, handle: Handle) -> Option<SectionId> {
        if self.none() {
            return None;
        }
        let table = self.table();
        let ours = |s: &&Section| s.handle == handle && s.ending.is_none();
        table.get(&ino).filter(ours).map(|s| s.id)
    }

    /// The section of the file, if process `process` started it and it is not ending.
    pub(crate) fn started_by(&self, ino: InodeNr, process: u32) -> Option<SectionId> {
        let table = self.table();
        let theirs = |s: &&Section| s.process == process && process != 0 && s.ending.is_none();
        table.get(&ino).filter(theirs).map(|s| s.id)
    }

    /// Why the file's section cannot be committed.
    fn failed(&self, ino: InodeNr) -> Option<i32> {
        self.table().get(&ino).and_then(|s| s.failed)
    }

    /// Has `handle` a section that has not ended?
    pub(crate) fn has(&self, ino: InodeNr, handle: Handle) -> bool {
        !self.none() && self.table().get(&ino).is_some_and(|s| s.handle == handle)
    }

    /// As [`Sections::of`], for a read. What another handle reads into the kernel's cache will be
    /// old after the commit.
    fn of_read(&self, ino: InodeNr, handle: Handle, direct: bool) -> Option<SectionId> {
        if self.none() {
            return None;
        }
        let mut table = self.table();
        let section = table.get_mut(&ino)?;
        if section.handle == handle && section.ending.is_none() {
            return Some(section.id);
        }
        section.stale |= !direct;
        None
    }

    /// As [`Sections::of`], for a write, whose bytes the kernel may have already.
    fn of_write(&self, ino: InodeNr, handle: Handle) -> Option<SectionId> {
        if self.none() {
            return None;
        }
        let mut table = self.table();
        let section = table.get_mut(&ino)?;
        if section.handle != handle || section.ending.is_some() {
            return None;
        }
        section.known = true;
        Some(section.id)
    }

    fn wrote(&self, ino: InodeNr, id: SectionId, end: u64) {
        if let Some(section) = self.table().get_mut(&ino).filter(|s| s.id == id) {
            section.end = section.end.max(end);
            section.told = false;
        }
    }

    /// Pages of the kernel's cache have come. [`Sections::taken`] follows.
    fn take(&self, ino: InodeNr) -> Option<Taken> {
        if self.none() {
            return None;
        }
        let mut table = self.table();
        let section = table.get_mut(&ino)?;
        section.arriving += 1;
        section.arrived += 1;
        section.known = true;
        Some(if section.ending.is_some() { Taken::Lost } else { Taken::Into(section.id) })
    }

    /// They are in the section, or `failed` says why not.
    fn taken(&self, ino: InodeNr, failed: Option<i32>) {
        if let Some(section) = self.table().get_mut(&ino) {
            section.arriving = section.arriving.saturating_sub(1);
            section.failed = section.failed.or(failed);
            section.told = true;
        }
    }

    /// Has the kernel drop all pages of a file, and take its size, and this time of change if the
    /// times are its own; on a thread that nothing waits for.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub(crate) fn refresh(&self, attr: &Attr, size: Size, mtime: Option<Timestamp>) -> Result<()> {
        let Some(entry) = self.entry.get() else { return Ok(()) };
        let file = (node(attr.ino), attr.generation);
        let reset = own_mount::reset(entry, file, (size, mtime), self.resetting.clone());
        reset.map(drop).map_err(|e| errno(e.raw_os_error().unwrap_or(libc::EIO)))
    }

    /// The file's size was set.
    pub(crate) fn resized(&self, ino: InodeNr) {
        if !self.none()
            && let Some(section) = self.table().get_mut(&ino)
        {
            section.resized = true;
        }
    }

    /// The kernel has one size of a file for everybody: with a section it is the one that the
    /// section's owner made.
    pub(crate) fn show_attr(&self, attr: &mut Attr) {
        if let Some(section) = self.table().get_mut(&attr.ino) {
            section.told = true;
            if section.ending.is_none() && !section.resized {
                attr.size = attr.size.max(section.end);
            }
        }
    }

    /// An answer as the kernel is to have it.
    pub(crate) fn show(&self, answer: &mut Answer) {
        if self.none() {
            return;
        }
        if let Answer::Entry(attr) | Answer::Attr(attr) | Answer::Statx(attr) = answer {
            self.show_attr(attr);
        }
    }

    /// An entry of a directory as the kernel is to have it.
    pub(crate) fn show_entry<T>(&self, entry: &DirEntry, then: impl FnOnce(&DirEntry) -> T) -> T {
        if self.none() || entry.attr.is_none() {
            return then(entry);
        }
        let mut shown = entry.clone();
        shown.attr.iter_mut().for_each(|attr| self.show_attr(attr));
        then(&shown)
    }

    /// The handle of the file's section, if close(2) by thread `pid` of any descriptor of the file
    /// drops the locks of the process that started it.
    fn ended_by(&self, ino: InodeNr, pid: u32) -> Option<Handle> {
        if self.none() {
            return None;
        }
        let (handle, process) = self.table().get(&ino).map(|s| (s.handle, s.process))?;
        takes_locks(process, pid).then_some(handle)
    }

    /// The section ends, and then follows `then`; which is given back if `handle` has none. The
    /// first to say so is told what the section's number is, and whether the kernel has anything of
    /// it.
    fn end(
        &self,
        ino: InodeNr,
        handle: Handle,
        then: Then,
    ) -> std::result::Result<Option<(SectionId, bool)>, Then> {
        let mut table = self.table();
        let section = match table.get_mut(&ino) {
            Some(section) if section.handle == handle => section,
            _ => return Err(then),
        };
        if let Some(waiting) = &mut section.ending {
            waiting.push(then);
            return Ok(None);
        }
        section.ending = Some(vec![then]);
        Ok(Some((section.id, section.known)))
    }

    /// How many of the kernel's pages came so far, and are any on their way?
    fn arrived(&self, ino: InodeNr) -> (u64, bool) {
        self.table().get(&ino).map_or((0, false), |s| (s.arrived, s.arriving > 0))
    }
}

/// Does close(2) by thread `pid` take the locks of process `starter` away? Not if it is another
/// process's, and that one is there: its own end closes its own descriptors. If nobody knows, it
/// does. What would compare the tables of descriptors, kcmp(2), waits for an exec(2) under way, and
/// that one for our answer.
fn takes_locks(starter: u32, pid: u32) -> bool {
    match privileges::thread_group(pid) {
        Some(process) => process == starter || !privileges::is_running(starter),
        None => true,
    }
}

/// A section that is ending. Dropped, it has ended.
struct Ending {
    server: Arc<Server>,
    ino: InodeNr,
    id: SectionId,
    /// It left the table already.
    section: Option<Section>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Self { server, ino, id, section } = self;
        // From here on what comes is the file's. The next section is refused until this one ends.
        let ended = section.take().or_else(|| server.sections.remove(*ino, *id));
        // It may have been committed a moment before.
        let _ = server.done(&Credentials::default(), Request::SectionAbort { section: *id });
        for then in ended.and_then(|s| s.ending).into_iter().flatten() {
            then();
        }
    }
}

impl Server {
    /// F2FS's ioctls on `handle` of `ino`.
    pub(crate) fn section_ioctl(
        self: &Arc<Self>,
        cred: &Credentials,
        (ino, handle): (InodeNr, Handle),
        command: u32,
        answer: Completion,
    ) {
        match command {
            START => self.start_section(cred, (ino, handle), answer),
            COMMIT => self.commit_section(cred, (ino, handle), answer),
            ABORT => self.abort_section((ino, handle), answer),
            _ => answer(self.entry(cred, Request::GetAttr { ino }).and_then(
                |attr| match attr.kind {
                    FileKind::Regular => Ok(Reply::Data(ATOMIC_WRITE.as_bytes().to_vec())),
                    _ => Err(errno(libc::ENOTTY)),
                },
            )),
        }
    }

    /// The kernel's dirty pages of the file are written before: they are no part of the section.
    fn start_section(
        self: &Arc<Self>,
        cred: &Credentials,
        (ino, handle): (InodeNr, Handle),
        answer: Completion,
    ) {
        if !crate::open_files::reads_and_writes(self.open_files.flags(handle)) {
            return answer(Err(errno(libc::EBADF)));
        }
        match self.entry(cred, Request::GetAttr { ino }) {
            Ok(attr) if owns(cred, &attr) => {}
            Ok(_) => return answer(Err(errno(libc::EACCES))),
            Err(e) => return answer(Err(e)),
        }
        let process = privileges::thread_group(cred.pid).unwrap_or(0);
        let (server, caller) = (self.clone(), cred.clone());
        let start = move |written: bool| {
            if !written {
                return answer(Err(errno(libc::EAGAIN)));
            }
            // One that was committed may not have left yet.
            if server.sections.table().contains_key(&ino) {
                return answer(Err(errno(libc::EBUSY)));
            }
            let started = server.call(&caller, Request::SectionStart { file: ino.into() });
            answer(started.and_then(|reply| match reply {
                Reply::Section(id) => {
                    server.sections.started(ino, id, handle, process);
                    Ok(Reply::Data(Vec::new()))
                }
                _ => Err(crate::convert::unexpected("section")),
            }));
        };
        self.sections.starters().insert(handle);
        self.when_written_again(ino, Box::new(start));
    }

    fn commit_section(
        self: &Arc<Self>,
        cred: &Credentials,
        (ino, handle): (InodeNr, Handle),
        answer: Completion,
    ) {
        match self.sections.of(ino, handle) {
            Some(id) => self.commit_sections(cred, vec![(ino, id)], true, answer),
            None => answer(Err(errno(libc::EINVAL))),
        }
    }

    /// Commits sections together. Under the writeback cache their last bytes may still be in the
    /// kernel.
    pub(crate) fn commit_sections(
        self: &Arc<Self>,
        cred: &Credentials,
        sections: Vec<(InodeNr, SectionId)>,
        durable: bool,
        answer: Completion,
    ) {
        let (server, caller) = (self.clone(), cred.clone());
        let files = sections.iter().map(|(ino, _)| *ino).collect();
        let commit = move |written: bool| {
            let failed = sections.iter().find_map(|(ino, _)| server.sections.failed(*ino));
            let ids = sections.iter().map(|(_, id)| *id).collect();
            let commit = Request::SectionCommit { sections: ids, durable };
            let committed = match failed {
                _ if !written => Err(errno(libc::EAGAIN)),
                Some(failed) => Err(errno(failed)),
                None => server.done(&caller, server.timed(commit)),
            };
            if let Err(e) = committed {
                return answer(Err(e));
            }
            let mut then: Then = Box::new(move || answer(Ok(Reply::Data(Vec::new()))));
            for (ino, id) in sections {
                then = server.committed(ino, id, then);
            }
            then();
        };
        match self.writes_back() {
            true => self.when_all_written(files, Want::Keep, Box::new(commit)),
            false => commit(true),
        }
    }

    /// The section has been committed: it leaves the table, and the kernel is to forget what it was
    /// told meanwhile before `then`.
    fn committed(self: &Arc<Self>, ino: InodeNr, id: SectionId, then: Then) -> Then {
        // If another thread ends it meanwhile, that is what takes it out.
        let ended = |s: &Section| s.id == id && s.ending.is_none();
        let removed = self.sections.remove_if(ino, ended);
        let (stale, told) = removed.map_or((false, true), |s| (s.stale, s.told));
        if !stale && !told && !self.writes_back() {
            return then;
        }
        let server = self.clone();
        Box::new(move || {
            // Times, and perhaps the size, are others than the kernel may have been told meanwhile.
            let invalidator = server.invalidator.clone();
            let forget: Then = Box::new(move || invalidator.forget_attributes(ino, then));
            if stale { server.pages(ino, Want::Drop, forget) } else { forget() }
        })
    }

    fn abort_section(self: &Arc<Self>, (ino, handle): (InodeNr, Handle), answer: Completion) {
        if self.sections.of(ino, handle).is_none() {
            return answer(Err(errno(libc::EINVAL)));
        }
        let then = Box::new(move || answer(Ok(Reply::Data(Vec::new()))));
        self.end_section(ino, handle, then);
    }

    /// close(2) of a descriptor of `ino`, by thread `pid`. With any of them a process loses all its
    /// locks on the file; one that inherited a copy takes nothing from the process that has the
    /// section.
    pub(crate) fn flush(self: &Arc<Self>, ino: InodeNr, pid: u32, then: Then) {
        match self.sections.ended_by(ino, pid) {
            Some(handle) => self.end_section(ino, handle, then),
            None => then(),
        }
    }

    /// `handle` of `ino` is being released.
    pub(crate) fn release_sections(&self, ino: InodeNr, handle: Handle) {
        if self.sections.starters().remove(&handle) {
            self.let_go(ino);
        }
    }

    /// Ends the section of `handle` without a trace, and then calls `then`: at once if it has none.
    pub(crate) fn end_section(self: &Arc<Self>, ino: InodeNr, handle: Handle, then: Then) {
        let (id, known) = match self.sections.end(ino, handle, then) {
            Ok(Some(first)) => first,
            Ok(None) => return,
            Err(then) => return then(),
        };
        let mut ending = Ending { server: self.clone(), ino, id, section: None };
        if !known && !self.writes_back() {
            return drop(ending);
        }
        let body = move || {
            ending.section = ending.server.reset(ino, id);
            drop(ending);
        };
        // Without a thread the section ends all the same, and the kernel keeps what it has.
        if let Err(error) = std::thread::Builder::new().name("siftfs-abort".into()).spawn(body) {
            tracing::error!(%error, ino, "no thread for the end of a section: the kernel keeps pages");
        }
    }

    /// Has the kernel drop its pages of a file whose section ends, and take its size from us. Dirty
    /// ones come here before, and get lost. Of what comes meanwhile the kernel must not keep
    /// anything either, because it takes it for written: the section leaves the table, and is
    /// returned, when no more came.
    fn reset(&self, ino: InodeNr, id: SectionId) -> Option<Section> {
        for _ in 0..ROUNDS {
            let (before, _) = self.sections.arrived(ino);
            let attr = self.entry(&Credentials::default(), Request::GetAttr { ino }).ok()?;
            let size = if self.writes_back() { Size::Ours(attr.size) } else { Size::Asked };
            let reset = match self.sections.entry.get() {
                Some(entry) => {
                    let file = (node(ino), attr.generation);
                    own_mount::reset(entry, file, (size, None), self.sections.resetting.clone())
                }
                None => Ok(false),
            };
            match reset {
                Ok(true) => {}
                // Detached: it has no place any more where a file could be opened.
                Ok(false) => self.reset_by_notice(ino),
                Err(error) => {
                    tracing::error!(%error, ino, "a section's end: the kernel is told by notice");
                    self.reset_by_notice(ino);
                }
            }
            let quiet = |s: &Section| s.id == id && s.arriving == 0 && s.arrived == before;
            if let Some(section) = self.sections.remove_if(ino, quiet) {
                return Some(section);
            }
            let (_, arriving) = self.sections.arrived(ino);
            if arriving {
                std::thread::sleep(PAGE_ON_ITS_WAY);
            }
        }
        None
    }

    fn reset_by_notice(&self, ino: InodeNr) {
        let (tell, told) = channel();
        let invalidator = self.invalidator.clone();
        let dropped = Box::new(move || {
            let tell = move || tell.send(()).expect("listens below");
            invalidator.forget_attributes(ino, Box::new(tell));
        });
        self.pages(ino, Want::Drop, dropped);
        let _ = told.recv();
    }

    /// read(2) through `handle`, if a section answers it.
    pub(crate) fn read_section(
        &self,
        cred: &Credentials,
        (ino, handle): (InodeNr, Handle),
        (offset, len): (u64, u32),
        direct: bool,
    ) -> Option<Result<Reply>> {
        let section = self.sections.of_read(ino, handle, direct)?;
        match self.call(cred, Request::SectionRead { section, offset, len }) {
            // It ended meanwhile.
            Err(Error::Posix(libc::EINVAL)) => None,
            other => Some(other),
        }
    }

    /// As [`Server::write`], by `handle`: into its section if it has one. Was it?
    pub(crate) fn write_by(
        &self,
        cred: &Credentials,
        (ino, handle): (InodeNr, Handle),
        offset: u64,
        data: WriteData,
        kill_priv: bool,
    ) -> Result<(u32, bool)> {
        let Some(section) = self.sections.of_write(ino, handle) else {
            return Ok((self.write(cred, ino, offset, data, kill_priv)?, false));
        };
        self.carry_out_announced(cred, ino)?;
        if kill_priv {
            self.kill_privileges(cred, ino, false)?;
        }
        let end = offset.saturating_add(data.len() as u64);
        let write = Request::SectionWrite { section, offset, data: data.clone() };
        match self.call(cred, write) {
            Ok(Reply::Written { len }) => {
                self.sections.wrote(ino, section, end);
                Ok((len, true))
            }
            Ok(_) => Err(crate::convert::unexpected("written")),
            // It ended meanwhile.
            Err(Error::Posix(libc::EINVAL)) => {
                Ok((self.write(cred, ino, offset, data, false)?, false))
            }
            Err(e) => Err(e),
        }
    }

    /// Pages of the kernel's cache, if the file has a section that takes them. It takes all: a page
    /// that is refused would make close(2) fail before the kernel says FLUSH. If it has no room for
    /// them it cannot be committed any more.
    pub(crate) fn take_pages(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        offset: u64,
        data: &WriteData,
    ) -> Option<u32> {
        let taken = self.sections.take(ino)?;
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let Taken::Into(section) = taken else {
            self.sections.taken(ino, None);
            return Some(len);
        };
        let write = Request::SectionWrite { section, offset, data: data.clone() };
        let result = self.call(cred, write);
        let committed = matches!(result, Err(Error::Posix(libc::EINVAL)));
        if result.is_ok() {
            self.sections.wrote(ino, section, offset.saturating_add(data.len() as u64));
        }
        let failed = if committed { None } else { result.err().map(|e| e.errno()) };
        self.sections.taken(ino, failed);
        (!committed).then_some(len)
    }
}

#[cfg(test)]
#[path = "sections_tests.rs"]
mod tests;
