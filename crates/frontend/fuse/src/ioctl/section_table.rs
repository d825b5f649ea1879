//! Which files of a mount have an atomic section, and in which phase each is. Whatever happens to a
//! section is decided here, under one lock; `sections.rs` has what follows from it.

use crate::kernel::convert::node;
use crate::kernel::reply::Answer;
use crate::mount::mountinfo::MountEntry;
use crate::pages::invalidator::Then;
use crate::pages::own_mount::{self, NewTime, Reset, Resetting, Size};
use crate::serve::caller;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::{Attr, DirEntry, Handle, SectionId};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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

/// A file's section.
pub(crate) struct Section {
    phase: Phase,
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
    pub(crate) told: bool,
    /// The kernel may have pages that were read as they are without it.
    pub(crate) stale: bool,
    /// Why it cannot be committed: pages came that it could not take.
    failed: Option<i32>,
    /// Pages of the kernel's that are on their way into it.
    arriving: u32,
    /// Pages of the kernel's that came so far.
    arrived: u64,
}

/// What a section has come to. A file that is not in the table has none.
enum Phase {
    /// A [`Place`] is kept for it while the Runtime is asked for it. For everybody else the file
    /// has none yet, but that no other one can be started.
    Starting,
    /// It can be written, read and committed.
    Open(SectionId),
    /// It ends: what follows then. It leaves the table by [`Sections::remove`] alone.
    Ending(SectionId, Vec<Then>),
}

impl Section {
    fn new(handle: Handle, process: u32) -> Self {
        Self {
            phase: Phase::Starting,
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
        }
    }

    /// Its number, once the Runtime has it.
    fn id(&self) -> Option<SectionId> {
        match self.phase {
            Phase::Starting => None,
            Phase::Open(id) | Phase::Ending(id, _) => Some(id),
        }
    }

    /// Its number, if it is not ending either.
    fn open(&self) -> Option<SectionId> {
        match self.phase {
            Phase::Open(id) => Some(id),
            Phase::Starting | Phase::Ending(..) => None,
        }
    }

    /// No more of the kernel's pages came than this many, and none is on its way.
    pub(crate) fn is_quiet(&self, arrived: u64) -> bool {
        self.arriving == 0 && self.arrived == arrived
    }

    /// What waits for its end.
    pub(crate) fn waiting(self) -> Vec<Then> {
        match self.phase {
            Phase::Ending(_, waiting) => waiting,
            Phase::Starting | Phase::Open(_) => Vec::new(),
        }
    }
}

/// The place of a file's next section, which nobody else can take or give up. Dropped, it is free
/// again.
#[must_use]
pub(crate) struct Place<'a> {
    sections: &'a Sections,
    ino: InodeNr,
}

impl Place<'_> {
    /// The Runtime has made the section.
    pub(crate) fn started(self, id: SectionId) {
        if let Some(section) = self.sections.table().get_mut(&self.ino) {
            section.phase = Phase::Open(id);
        }
        // From here on the place is the section's: it may have ended by now, and another's be kept.
        std::mem::forget(self);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // As long as there is this place, there is no other, and so the section is in this phase.
        let unused = |section: &Section| matches!(section.phase, Phase::Starting);
        self.sections.take_out(self.ino, unused);
    }
}

/// Where pages of the kernel's cache go.
pub(crate) enum Taken {
    Into(SectionId),
    /// Nowhere: the section ends.
    Lost,
}

impl Sections {
    fn table(&self) -> MutexGuard<'_, HashMap<InodeNr, Section>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn starters(&self) -> MutexGuard<'_, HashSet<Handle>> {
        self.starters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn none(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Where the mount is served, if it is.
    pub(crate) fn place(&self) -> Option<(&MountEntry, Arc<Resetting>)> {
        Some((self.entry.get()?, self.resetting.clone()))
    }

    /// The mount is served at `entry`.
    pub(crate) fn serve(&self, entry: &MountEntry) {
        assert!(self.entry.set(entry.clone()).is_ok(), "a mount is served once");
    }

    /// The threads that have the kernel drop what it has of a file.
    pub(crate) fn resetting(&self) -> Arc<Resetting> {
        self.resetting.clone()
    }

    /// Does thread `pid` have the kernel drop a file's pages, and take its size from us?
    pub(crate) fn resets(&self, pid: u32) -> bool {
        self.resetting.has(pid)
    }

    /// May the kernel take the ctime that thread `pid`, one of ours, has it take?
    ///
    /// # Errors
    /// It has one of its own that is as young.
    pub(crate) fn takes_ctime(&self, pid: u32) -> Result<()> {
        match self.resetting.is_overtaken(pid) {
            true => Err(errno(own_mount::OVERTAKEN)),
            false => Ok(()),
        }
    }

    /// Keeps the place of a section that `handle` is to have, if the file has none.
    pub(crate) fn keep_place(
        &self,
        ino: InodeNr,
        handle: Handle,
        process: u32,
    ) -> Option<Place<'_>> {
        let mut table = self.table();
        match table.entry(ino) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(vacant) => drop(vacant.insert(Section::new(handle, process))),
        }
        self.count.store(table.len(), Ordering::SeqCst);
        Some(Place { sections: self, ino })
    }

    fn take_out(&self, ino: InodeNr, so: impl FnOnce(&Section) -> bool) -> Option<Section> {
        let mut table = self.table();
        let found = if table.get(&ino).is_some_and(so) { table.remove(&ino) } else { None };
        self.count.store(table.len(), Ordering::SeqCst);
        found
    }

    /// The section has ended.
    pub(crate) fn remove(&self, ino: InodeNr, id: SectionId) -> Option<Section> {
        self.take_out(ino, |section| section.id() == Some(id))
    }

    /// The section has ended, if `so` says so of it.
    pub(crate) fn remove_if(
        &self,
        ino: InodeNr,
        id: SectionId,
        so: impl FnOnce(&Section) -> bool,
    ) -> Option<Section> {
        self.take_out(ino, |section| section.id() == Some(id) && so(section))
    }

    /// The section was committed: it has ended, unless another thread is about to end it.
    pub(crate) fn remove_committed(&self, ino: InodeNr, id: SectionId) -> Option<Section> {
        self.take_out(ino, |section| section.open() == Some(id))
    }

    /// The section that `handle` has, if it is not ending.
    pub(crate) fn of(&self, ino: InodeNr, handle: Handle) -> Option<SectionId> {
        if self.none() {
            return None;
        }
        let table = self.table();
        table.get(&ino).filter(|s| s.handle == handle).and_then(Section::open)
    }

    /// The section of the file, if process `process` started it and it is not ending.
    pub(crate) fn started_by(&self, ino: InodeNr, process: u32) -> Option<SectionId> {
        let table = self.table();
        let theirs = |s: &&Section| s.process == process && process != 0;
        table.get(&ino).filter(theirs).and_then(Section::open)
    }

    /// Why the file's section cannot be committed.
    pub(crate) fn failed(&self, ino: InodeNr) -> Option<i32> {
        self.table().get(&ino).and_then(|s| s.failed)
    }

    /// Has `handle` a section that has not ended?
    pub(crate) fn has(&self, ino: InodeNr, handle: Handle) -> bool {
        let its = |s: &Section| s.handle == handle && s.id().is_some();
        !self.none() && self.table().get(&ino).is_some_and(its)
    }

    /// As [`Sections::of`], for a read. What another handle reads into the kernel's cache will be
    /// old after the commit.
    pub(crate) fn of_read(&self, ino: InodeNr, handle: Handle, direct: bool) -> Option<SectionId> {
        if self.none() {
            return None;
        }
        let mut table = self.table();
        let section = table.get_mut(&ino)?;
        match section.open() {
            Some(id) if section.handle == handle => Some(id),
            _ => {
                section.stale |= !direct;
                None
            }
        }
    }

    /// As [`Sections::of`], for a write, whose bytes the kernel may have already.
    pub(crate) fn of_write(&self, ino: InodeNr, handle: Handle) -> Option<SectionId> {
        if self.none() {
            return None;
        }
        let mut table = self.table();
        let section = table.get_mut(&ino).filter(|s| s.handle == handle)?;
        let id = section.open()?;
        section.known = true;
        Some(id)
    }

    pub(crate) fn wrote(&self, ino: InodeNr, id: SectionId, end: u64) {
        if let Some(section) = self.table().get_mut(&ino).filter(|s| s.id() == Some(id)) {
            section.end = section.end.max(end);
            section.told = false;
        }
    }

    /// Pages of the kernel's cache have come. [`Sections::taken`] follows.
    pub(crate) fn take(&self, ino: InodeNr) -> Option<Taken> {
        if self.none() {
            return None;
        }
        let mut table = self.table();
        let section = table.get_mut(&ino)?;
        let taken = match section.phase {
            Phase::Starting => return None,
            Phase::Open(id) => Taken::Into(id),
            Phase::Ending(..) => Taken::Lost,
        };
        section.arriving += 1;
        section.arrived += 1;
        section.known = true;
        Some(taken)
    }

    /// They are in the section, or `failed` says why not.
    pub(crate) fn taken(&self, ino: InodeNr, failed: Option<i32>) {
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
    pub(crate) fn refresh(&self, attr: &Attr, size: Size, time: Option<NewTime>) -> Result<Reset> {
        let Some(entry) = self.entry.get() else { return Ok(Reset::NoPlace) };
        let file = (node(attr.ino), attr.generation);
        let reset = own_mount::reset(entry, file, (size, time), self.resetting.clone());
        reset.map_err(|e| errno(e.raw_os_error().unwrap_or(libc::EIO)))
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
            if section.open().is_some() && !section.resized {
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
    pub(crate) fn ended_by(&self, ino: InodeNr, pid: u32) -> Option<Handle> {
        if self.none() {
            return None;
        }
        let there = |s: &&Section| s.id().is_some();
        let table = self.table();
        let (handle, process) = table.get(&ino).filter(there).map(|s| (s.handle, s.process))?;
        drop(table);
        takes_locks(process, pid).then_some(handle)
    }

    /// The section ends, and then follows `then`; which is given back if `handle` has none. The
    /// first to say so is told what the section's number is, and whether the kernel has anything of
    /// it.
    pub(crate) fn end(
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
        match &mut section.phase {
            Phase::Starting => Err(then),
            Phase::Ending(_, waiting) => {
                waiting.push(then);
                Ok(None)
            }
            Phase::Open(id) => {
                let id = *id;
                section.phase = Phase::Ending(id, vec![then]);
                Ok(Some((id, section.known)))
            }
        }
    }

    /// How many of the kernel's pages came so far, and are any on their way?
    pub(crate) fn arrived(&self, ino: InodeNr) -> (u64, bool) {
        self.table().get(&ino).map_or((0, false), |s| (s.arrived, s.arriving > 0))
    }
}

/// Does close(2) by thread `pid` take the locks of process `starter` away? Not if it is another
/// process's, and that one is there: its own end closes its own descriptors. If nobody knows, it
/// does. What would compare the tables of descriptors, kcmp(2), waits for an exec(2) under way, and
/// that one for our answer.
pub(crate) fn takes_locks(starter: u32, pid: u32) -> bool {
    match caller::thread_group(pid) {
        Some(process) => process == starter || !caller::is_running(starter),
        None => true,
    }
}

#[cfg(test)]
#[path = "section_table_tests.rs"]
mod tests;
