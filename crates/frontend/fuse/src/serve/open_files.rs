//! Files that are open for writing: by which users and with which flags, and what the kernel may
//! hold of them that the server does not know.
//!
//! Only a file that is open for writing can have pages in the kernel that are newer than the
//! server's: closing and unmapping write them back, and a shared mapping keeps its descriptor open,
//! so RELEASE comes after the last munmap(2).

use crate::serve::caller::boot_ns;
use crate::serve::stale::Cached;
use siftfs_base::{Error, InodeNr, errno};
use siftfs_proto::{Credentials, Handle};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const O_ACCMODE: u32 = libc::O_ACCMODE.cast_unsigned();
const O_RDONLY: u32 = libc::O_RDONLY.cast_unsigned();
const O_RDWR: u32 = libc::O_RDWR.cast_unsigned();
const O_DIRECT: u32 = libc::O_DIRECT.cast_unsigned();
const O_SYNC: u32 = libc::O_SYNC.cast_unsigned();
/// The kernel's own flag of an open(2) by execve(2).
const TO_EXECUTE: u32 = 0x20;

/// What a write owes before it is answered, by the flags of its descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owed {
    Nothing,
    /// As after fdatasync.
    Data,
    /// As after fsync.
    All,
}

impl Owed {
    pub(crate) fn by(flags: u32) -> Self {
        match flags & O_SYNC {
            0 => Self::Nothing,
            O_SYNC => Self::All,
            _ => Self::Data,
        }
    }
}

/// Is the file opened for writing?
pub(crate) fn writes(flags: u32) -> bool {
    flags & O_ACCMODE != O_RDONLY
}

/// Does each write(2) go to the end of the file?
pub(crate) fn appends(flags: u32) -> bool {
    writes(flags) && flags & libc::O_APPEND.cast_unsigned() != 0
}

/// Is the file opened to be read and written?
pub(crate) fn reads_and_writes(flags: u32) -> bool {
    flags & O_ACCMODE == O_RDWR
}

/// The files of a mount that are open for writing.
pub(crate) struct OpenFiles {
    /// The kernel keeps back what write(2) brings.
    writeback: bool,
    table: Mutex<Table>,
    /// Files that have a direct writer: while there is none, the reads and writes of the mount
    /// have nothing to note.
    direct: AtomicUsize,
    /// Files that are sealed.
    sealed: AtomicUsize,
    /// What a syncfs(2) of the daemon's own was told of pages that could not be written: an errno.
    lost: AtomicI32,
}

#[derive(Default)]
struct Table {
    handles: HashMap<Handle, Opened>,
    files: HashMap<InodeNr, File>,
    /// Files that were opened to be executed. A program's is open as long as it runs.
    programs: HashMap<Handle, InodeNr>,
}

/// Who opened a file to write it.
#[derive(Clone)]
pub(crate) struct Opener {
    pub(crate) handle: Handle,
    pub(crate) cred: Credentials,
    /// When, in nanoseconds since the machine began.
    pub(crate) at: u64,
}

struct Opened {
    ino: InodeNr,
    flags: u32,
}

/// A file with at least one handle opened for writing, or with pages that are still being dropped.
#[derive(Default)]
struct File {
    /// Each handle with its opener: pages that the kernel writes back carry no credentials.
    openers: Vec<Opener>,
    /// Handles through which the file can be mapped and stored to.
    mappers: u32,
    /// Handles that write past the kernel's cache.
    direct: u32,
    cached: Cached,
    lost: Option<Lost>,
    /// The file has become immutable: write(2) is to be refused.
    sealed: bool,
    /// The daemon has it open, too.
    kept: bool,
}

impl File {
    fn is_open(&self) -> bool {
        !self.openers.is_empty()
    }
}

/// Pages that the kernel sent and that could not be written. The kernel marks them clean and tells
/// the next fsync(2) or close(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Requests that failed since the file was first opened for writing.
    pub(crate) times: u64,
    /// Why the last one did.
    pub(crate) error: Error,
    /// No write(2) has been told since.
    untold: bool,
}

/// What follows for a file from the release of a handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    /// The file, if that was the last handle opened for writing.
    pub(crate) last: Option<InodeNr>,
    /// The file, if the daemon need not have it open any more.
    pub(crate) let_go: Option<InodeNr>,
}

impl OpenFiles {
    /// None are open. With `writeback` the kernel keeps back what write(2) brings.
    pub(crate) fn new(writeback: bool) -> Self {
        let (direct, sealed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { writeback, table: Mutex::default(), direct, sealed, lost: AtomicI32::new(0) }
    }

    /// A syncfs(2) of the daemon's own was told of pages that could not be written. The kernel
    /// tells nobody who opens the mount from then on.
    pub(crate) fn note_lost(&self, errno: i32) {
        self.lost.store(errno, Ordering::Relaxed);
    }

    /// What was noted, for those that ask in the daemon's place; once.
    pub(crate) fn take_lost(&self) -> Option<i32> {
        Some(self.lost.swap(0, Ordering::Relaxed)).filter(|errno| *errno != 0)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `handle` of `ino` was opened by `cred`. Handles that only read are not kept, but those of
    /// programs.
    pub(crate) fn opened(&self, cred: &Credentials, handle: Handle, ino: InodeNr, flags: u32) {
        if flags & TO_EXECUTE != 0 {
            self.table().programs.insert(handle, ino);
        }
        if !writes(flags) {
            return;
        }
        let opener = Opener { handle, cred: cred.clone(), at: boot_ns() };
        let mut table = self.table();
        table.handles.insert(handle, Opened { ino, flags });
        let file = table.files.entry(ino).or_default();
        file.openers.push(opener);
        file.mappers += u32::from(reads_and_writes(flags));
        if flags & O_DIRECT != 0 {
            self.add_direct(file);
        }
    }

    fn add_direct(&self, file: &mut File) {
        file.direct += 1;
        if file.direct == 1 {
            self.direct.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// `handle` is being released: what follows for its file.
    pub(crate) fn closed(&self, handle: Handle) -> Closed {
        let mut table = self.table();
        table.programs.remove(&handle);
        let Some(Opened { ino, flags }) = table.handles.remove(&handle) else {
            return Closed::default();
        };
        let Entry::Occupied(mut entry) = table.files.entry(ino) else { return Closed::default() };
        let file = entry.get_mut();
        file.openers.retain(|opener| opener.handle != handle);
        file.mappers -= u32::from(reads_and_writes(flags));
        if flags & O_DIRECT != 0 {
            file.direct -= 1;
            if file.direct == 0 {
                self.direct.fetch_sub(1, Ordering::SeqCst);
                file.cached.clear();
            }
        }
        let let_go = file.kept && !self.holds_back(file);
        file.kept &= !let_go;
        let last = !file.is_open();
        if last {
            file.lost = None;
            self.set_sealed(file, false);
            if !file.cached.is_waited_for() {
                entry.remove();
            }
        }
        Closed { last: last.then_some(ino), let_go: let_go.then_some(ino) }
    }

    /// The daemon has `ino` open. False if it need not: the kernel can have no pages of it that it
    /// has not sent, or not any more.
    pub(crate) fn keep(&self, ino: InodeNr) -> bool {
        let mut table = self.table();
        let Some(file) = table.files.get_mut(&ino).filter(|f| self.holds_back(f)) else {
            return false;
        };
        file.kept = true;
        true
    }

    /// What `handle` was opened with; 0 if it was not opened for writing.
    pub(crate) fn flags(&self, handle: Handle) -> u32 {
        self.table().handles.get(&handle).map_or(0, |o| o.flags)
    }

    /// The handles of `ino` that are opened for writing.
    pub(crate) fn openers(&self, ino: InodeNr) -> Vec<Opener> {
        self.table().files.get(&ino).map_or_else(Vec::new, |file| file.openers.clone())
    }

    /// Is `ino` open for writing?
    pub(crate) fn is_written(&self, ino: InodeNr) -> bool {
        self.table().files.get(&ino).is_some_and(File::is_open)
    }

    /// Those of the files from which a program runs: the kernel lets nobody open them to write.
    pub(crate) fn running(&self, files: &BTreeSet<InodeNr>) -> Vec<InodeNr> {
        let table = self.table();
        let running: BTreeSet<InodeNr> = table.programs.values().copied().collect();
        running.intersection(files).copied().collect()
    }

    /// Is any file open for writing?
    pub(crate) fn any(&self) -> bool {
        !self.table().handles.is_empty()
    }

    /// Every file that is open for writing, once.
    pub(crate) fn inodes(&self) -> Vec<InodeNr> {
        let table = self.table();
        let open = table.files.iter().filter(|(_, file)| file.is_open());
        let mut inodes: Vec<InodeNr> = open.map(|(ino, _)| *ino).collect();
        inodes.sort_unstable();
        inodes
    }

    /// May the kernel hold pages of `ino` that it has not sent yet? Where it writes through, only
    /// stores through a shared mapping stay with it, and a program that maps a file to store to it
    /// has opened it to read and write.
    pub(crate) fn may_be_dirty(&self, ino: InodeNr) -> bool {
        self.table().files.get(&ino).is_some_and(|file| self.holds_back(file))
    }

    fn holds_back(&self, file: &File) -> bool {
        if self.writeback { file.is_open() } else { file.mappers > 0 }
    }

    /// The credentials with which the kernel's pages of this file are written: root's if root has
    /// it open for writing, else those of a user who has; `None` if the file is not open for
    /// writing.
    pub(crate) fn account(&self, ino: InodeNr) -> Option<Credentials> {
        let table = self.table();
        let openers = table.files.get(&ino)?.openers.iter();
        openers.map(|opener| &opener.cred).min_by_key(|cred| cred.uid != 0).cloned()
    }

    /// Has this user the file open for writing?
    pub(crate) fn is_opened_by(&self, ino: InodeNr, uid: u32) -> bool {
        let table = self.table();
        table.files.get(&ino).is_some_and(|f| f.openers.iter().any(|opener| opener.cred.uid == uid))
    }

    /// Pages of this file could not be written. Is the caller the first to say so since a write(2)
    /// was told?
    pub(crate) fn failed(&self, ino: InodeNr, error: &Error) -> bool {
        let mut table = self.table();
        let Some(file) = table.files.get_mut(&ino).filter(|f| f.is_open()) else { return false };
        let before = file.lost.take();
        let times = before.as_ref().map_or(0, |l| l.times) + 1;
        file.lost = Some(Lost { times, error: error.clone(), untold: true });
        before.is_none_or(|l| !l.untold)
    }

    /// Why pages of this file could not be written, if no write(2) has been told: this one is.
    pub(crate) fn tell(&self, ino: InodeNr) -> Option<Error> {
        let mut table = self.table();
        let lost = table.files.get_mut(&ino)?.lost.as_mut()?;
        std::mem::take(&mut lost.untold).then(|| lost.error.clone())
    }

    /// GETATTR with a handle, under the writeback cache: a write(2) to `ino` comes next. (fstat(2)
    /// and reads ask without one, or not at all.)
    ///
    /// # Errors
    /// Why that write is to be refused.
    pub(crate) fn refuse_write(&self, ino: InodeNr) -> Result<(), Error> {
        match self.tell(ino) {
            Some(error) => Err(error),
            None if self.is_sealed(ino) => Err(errno(libc::EPERM)),
            None => Ok(()),
        }
    }

    /// `ino` is empty. Whatever was lost of it is not in it any more, so that no write(2) is to be
    /// told. fsync(2) is told by the kernel all the same.
    pub(crate) fn emptied(&self, ino: InodeNr) {
        if let Some(lost) = self.table().files.get_mut(&ino).and_then(|f| f.lost.as_mut()) {
            lost.untold = false;
        }
    }

    /// What of this file could not be written while it has been open.
    pub(crate) fn lost(&self, ino: InodeNr) -> Option<Lost> {
        self.table().files.get(&ino)?.lost.clone()
    }

    /// The kernel is about to have these bytes in its cache, as they are now. To be called before
    /// they are read or written.
    pub(crate) fn note_cached(&self, ino: InodeNr, offset: u64, len: u64) {
        if self.direct.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(file) = self.table().files.get_mut(&ino)
            && file.direct > 0
        {
            file.cached.note(offset, len);
        }
    }

    /// These bytes were written past the kernel's cache through `handle`. Does the kernel have to
    /// drop its pages of the file before the write is answered, because it may have read some
    /// meanwhile? If so, [`OpenFiles::dropped`] follows.
    pub(crate) fn written_past(&self, ino: InodeNr, handle: Handle, offset: u64, len: u64) -> bool {
        let mut table = self.table();
        let Table { handles, files, .. } = &mut *table;
        let Some(file) = files.get_mut(&ino) else { return false };
        // O_DIRECT can be set later than open(2), unseen: what was read before may be anything.
        if let Some(opened) = handles.get_mut(&handle)
            && opened.flags & O_DIRECT == 0
        {
            opened.flags |= O_DIRECT;
            self.add_direct(file);
            file.cached.note_all();
        }
        file.cached.written_past(offset, len)
    }

    /// The kernel has dropped its pages, for one write.
    pub(crate) fn dropped(&self, ino: InodeNr) {
        let mut table = self.table();
        let Entry::Occupied(mut entry) = table.files.entry(ino) else {
            panic!("a file stays while pages are dropped")
        };
        entry.get_mut().cached.dropped();
        if !entry.get().is_open() && !entry.get().cached.is_waited_for() {
            entry.remove();
        }
    }

    /// `ino` is immutable from now on, or not any more. Is it one that write(2) reaches all the
    /// same, through a descriptor from before?
    pub(crate) fn seal(&self, ino: InodeNr, sealed: bool) -> bool {
        let mut table = self.table();
        let Some(file) = table.files.get_mut(&ino).filter(|f| f.is_open()) else { return false };
        self.set_sealed(file, sealed);
        sealed
    }

    fn set_sealed(&self, file: &mut File, sealed: bool) {
        match (file.sealed, sealed) {
            (false, true) => drop(self.sealed.fetch_add(1, Ordering::SeqCst)),
            (true, false) => drop(self.sealed.fetch_sub(1, Ordering::SeqCst)),
            _ => {}
        }
        file.sealed = sealed;
    }

    /// All that are sealed.
    pub(crate) fn sealed(&self) -> Vec<InodeNr> {
        if self.sealed.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let table = self.table();
        table.files.iter().filter(|(_, file)| file.sealed).map(|(ino, _)| *ino).collect()
    }

    /// Has `ino` become immutable while it has been open for writing?
    pub(crate) fn is_sealed(&self, ino: InodeNr) -> bool {
        self.table().files.get(&ino).is_some_and(|f| f.sealed)
    }
}

#[cfg(test)]
#[path = "open_files_tests.rs"]
mod tests;
