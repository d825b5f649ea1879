//! Atomic sections of programs on the mount, by F2FS's ioctls, as SQLite sends them.
//!
//! A section belongs to the open file that started it: what is written through that one goes into
//! the section, and what is read through it shows the section. Pages that the kernel wrote to its
//! cache and sends later name no writer, so all pages of the file go into the section, also those
//! that another program wrote.
//!
//! The kernel's cache has what the section's owner wrote, and shows it to every reader. Programs
//! that take locks do not look as long as the owner has its lock. So a section ends before a lock
//! of its owner can go to another process: with ABORT, and with FLUSH, which the kernel sends at
//! every close(2) and at a process's end, before it drops POSIX locks. Both are answered when the
//! kernel has dropped its pages of the file and has taken its size from us again (rule R26). A
//! thread of its own sees to that: for pages the kernel waits, and for the size perhaps as well.

use crate::ioctl::section_table::{Section, Taken};
use crate::kernel::convert::node;
use crate::pages::invalidator::Then;
use crate::pages::opener::Want;
use crate::pages::own_mount::{self, Reset, Size};
use crate::serve::caller::{self, owns};
use crate::serve::server::{Place, Server};
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::commands::{ABORT, COMMIT, FEATURES, START};
use siftfs_proto::{
    Completion, Credentials, FileKind, Handle, Reply, Request, SectionId, WriteData,
};
use std::sync::Arc;
use std::sync::mpsc::channel;
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
        ended.map(Section::waiting).into_iter().flatten().for_each(|then| then());
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
            _ => answer(self.entry(cred, Request::GetAttr { file: ino.into() }).and_then(|attr| {
                match attr.kind {
                    FileKind::Regular => Ok(Reply::Data(ATOMIC_WRITE.as_bytes().to_vec())),
                    _ => Err(errno(libc::ENOTTY)),
                }
            })),
        }
    }

    /// The kernel's dirty pages of the file are written before: they are no part of the section.
    fn start_section(
        self: &Arc<Self>,
        cred: &Credentials,
        (ino, handle): (InodeNr, Handle),
        answer: Completion,
    ) {
        if !crate::serve::open_files::reads_and_writes(self.open_files.flags(handle)) {
            return answer(Err(errno(libc::EBADF)));
        }
        match self.entry(cred, Request::GetAttr { file: ino.into() }) {
            Ok(attr) if owns(cred, &attr) => {}
            Ok(_) => return answer(Err(errno(libc::EACCES))),
            Err(e) => return answer(Err(e)),
        }
        let process = caller::thread_group(cred.pid).unwrap_or(0);
        let (server, caller) = (self.clone(), cred.clone());
        let start = move |written: bool| {
            if !written {
                return answer(Err(errno(libc::EAGAIN)));
            }
            // One that was committed may not have left yet.
            let Some(place) = server.sections.keep_place(ino, handle, process) else {
                return answer(Err(errno(libc::EBUSY)));
            };
            let started = server.call(&caller, Request::SectionStart { file: ino.into() });
            answer(started.and_then(Reply::section).map(|id| {
                place.started(id);
                Reply::Data(Vec::new())
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
            let times = server.agreed.moves_times();
            let commit = Request::SectionCommit { sections: ids, durable, times };
            let committed = match failed {
                _ if !written => Err(errno(libc::EAGAIN)),
                Some(failed) => Err(errno(failed)),
                None => server.done(&caller, commit),
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
        match self.agreed.writeback {
            true => self.when_all_written(files, Want::Keep, Box::new(commit)),
            false => commit(true),
        }
    }

    /// The section has been committed: it leaves the table, and the kernel is to forget what it was
    /// told meanwhile before `then`.
    fn committed(self: &Arc<Self>, ino: InodeNr, id: SectionId, then: Then) -> Then {
        // If another thread ends it meanwhile, that is what takes it out.
        let removed = self.sections.remove_committed(ino, id);
        let (stale, told) = removed.map_or((false, true), |s| (s.stale, s.told));
        if !stale && !told && !self.agreed.writeback {
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
            self.invalidator.let_go(ino);
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
        if !known && !self.agreed.writeback {
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
            let attr =
                self.entry(&Credentials::default(), Request::GetAttr { file: ino.into() }).ok()?;
            let size = if self.agreed.writeback { Size::Ours(attr.size) } else { Size::Asked };
            let reset = match self.sections.place() {
                Some((entry, resetting)) => {
                    let file = (node(ino), attr.generation);
                    own_mount::reset(entry, file, (size, None), resetting)
                }
                None => Ok(Reset::NoPlace),
            };
            match reset {
                // Detached: it has no place any more where a file could be opened.
                Ok(Reset::NoPlace) => self.reset_by_notice(ino),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, ino, "a section's end: the kernel is told by notice");
                    self.reset_by_notice(ino);
                }
            }
            let quiet = |s: &Section| s.is_quiet(before);
            if let Some(section) = self.sections.remove_if(ino, id, quiet) {
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
        at: Place,
        data: WriteData,
        kill_priv: bool,
    ) -> Result<(u32, bool)> {
        let offset = at.offset;
        let Some(section) = self.sections.of_write(ino, handle) else {
            return Ok((self.write(cred, ino, at, data, kill_priv)?, false));
        };
        self.carry_out_announced(cred, ino)?;
        if kill_priv {
            self.kill_privileges(cred, ino, false)?;
        }
        let end = offset.saturating_add(data.len() as u64);
        let write = Request::SectionWrite { section, offset, data: data.clone() };
        match self.call(cred, write).and_then(Reply::written) {
            Ok(len) => {
                self.sections.wrote(ino, section, end);
                Ok((len, true))
            }
            // It ended meanwhile.
            Err(Error::Posix(libc::EINVAL)) => Ok((self.write(cred, ino, at, data, false)?, false)),
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
