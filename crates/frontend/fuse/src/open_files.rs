//! Files that are open for writing: with which flags, and what the kernel may hold of them that the
//! server does not know.
//!
//! Only a file that is open for writing can have pages in the kernel that are newer than the
//! server's: a shared mapping keeps its descriptor open, so RELEASE comes after the last munmap(2).
//! And only what is read into the kernel's cache while somebody writes past that cache can be
//! older.

use siftfs_base::{InodeNr, RangeSet};
use siftfs_proto::Handle;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const O_ACCMODE: u32 = libc::O_ACCMODE.cast_unsigned();
const O_RDONLY: u32 = libc::O_RDONLY.cast_unsigned();
const O_RDWR: u32 = libc::O_RDWR.cast_unsigned();
const O_DIRECT: u32 = libc::O_DIRECT.cast_unsigned();
const O_SYNC: u32 = libc::O_SYNC.cast_unsigned();
const PAGE: u64 = 4096;
/// Ranges that are remembered of one file; with more, all of it counts.
const RANGES: usize = 256;

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

/// The files of a mount that are open for writing.
#[derive(Default)]
pub(crate) struct OpenFiles {
    table: Mutex<Table>,
    /// Files with a descriptor that writes past the kernel's cache: without one, reads and writes
    /// have nothing to note.
    direct: AtomicUsize,
}

#[derive(Default)]
struct Table {
    handles: HashMap<Handle, Opened>,
    inodes: HashMap<InodeNr, Writers>,
}

struct Opened {
    ino: InodeNr,
    flags: u32,
}

/// All handles of one inode that are open for writing.
#[derive(Default)]
struct Writers {
    handles: u32,
    /// Those through which the file can be mapped and stored to.
    mappers: u32,
    /// Those that write past the kernel's cache.
    direct: u32,
    /// Bytes that the kernel may have cached since a direct writer was there.
    cached: RangeSet,
    /// Bytes whose pages are being dropped.
    dropping: Vec<(u64, u64)>,
}

/// Byte range `[start, end)` in whole pages.
fn pages(offset: u64, len: u64) -> (u64, u64) {
    let end = offset.saturating_add(len.max(1));
    (offset / PAGE * PAGE, end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX))
}

impl Writers {
    fn note_cached(&mut self, (start, end): (u64, u64)) {
        if self.cached.ranges() >= RANGES {
            self.cached.insert(0, u64::MAX);
        }
        self.cached.insert(start, end);
    }
}

impl OpenFiles {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `handle` of `ino` was opened; of those that only read nothing is kept.
    pub(crate) fn note(&self, handle: Handle, ino: InodeNr, flags: u32) {
        if !writes(flags) {
            return;
        }
        let mut table = self.table();
        table.handles.insert(handle, Opened { ino, flags });
        let writers = table.inodes.entry(ino).or_default();
        writers.handles += 1;
        writers.mappers += u32::from(flags & O_ACCMODE == O_RDWR);
        if flags & O_DIRECT != 0 {
            self.add_direct(writers);
        }
    }

    fn add_direct(&self, writers: &mut Writers) {
        writers.direct += 1;
        if writers.direct == 1 {
            self.direct.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// `handle` is being released.
    pub(crate) fn remove(&self, handle: Handle) {
        let mut table = self.table();
        let Some(Opened { ino, flags }) = table.handles.remove(&handle) else { return };
        let Entry::Occupied(mut entry) = table.inodes.entry(ino) else { return };
        let writers = entry.get_mut();
        writers.handles -= 1;
        writers.mappers -= u32::from(flags & O_ACCMODE == O_RDWR);
        if flags & O_DIRECT != 0 {
            writers.direct -= 1;
            if writers.direct == 0 {
                self.direct.fetch_sub(1, Ordering::SeqCst);
                writers.cached.clear();
            }
        }
        if writers.handles == 0 {
            entry.remove();
        }
    }

    /// What `handle` was opened with; 0 if it was not opened for writing.
    pub(crate) fn flags(&self, handle: Handle) -> u32 {
        self.table().handles.get(&handle).map_or(0, |o| o.flags)
    }

    /// Has anybody opened `ino` for writing?
    pub(crate) fn is_written(&self, ino: InodeNr) -> bool {
        self.table().inodes.contains_key(&ino)
    }

    /// May the kernel hold dirty pages of `ino`? It writes through, so only stores through a shared
    /// mapping stay with it, and who maps a file to store to it has opened it to read and write.
    pub(crate) fn may_be_dirty(&self, ino: InodeNr) -> bool {
        self.table().inodes.get(&ino).is_some_and(|w| w.mappers > 0)
    }

    /// Every file that is open for writing, once.
    pub(crate) fn inodes(&self) -> Vec<InodeNr> {
        let mut inodes: Vec<InodeNr> = self.table().inodes.keys().copied().collect();
        inodes.sort_unstable();
        inodes
    }

    /// The kernel is about to have these bytes in its cache, as they are now. To be called before
    /// they are read or written.
    pub(crate) fn note_cached(&self, ino: InodeNr, offset: u64, len: u64) {
        if self.direct.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(writers) = self.table().inodes.get_mut(&ino)
            && writers.direct > 0
        {
            writers.note_cached(pages(offset, len));
        }
    }

    /// These bytes were written past the kernel's cache through `handle`. The pages to be dropped
    /// before the write is answered, if the kernel may have read them meanwhile:
    /// [`OpenFiles::dropped`] when that is done.
    pub(crate) fn written_past(
        &self,
        ino: InodeNr,
        handle: Handle,
        offset: u64,
        len: u64,
    ) -> Option<(u64, u64)> {
        let (start, end) = pages(offset, len);
        let mut table = self.table();
        let Table { handles, inodes } = &mut *table;
        let writers = inodes.get_mut(&ino)?;
        // O_DIRECT can be set later than open(2), unseen: what was read before may be anything.
        if let Some(opened) = handles.get_mut(&handle)
            && opened.flags & O_DIRECT == 0
        {
            opened.flags |= O_DIRECT;
            self.add_direct(writers);
            writers.cached.insert(0, u64::MAX);
        }
        let dropping = writers.dropping.iter().any(|(s, e)| *s < end && start < *e);
        if !dropping && !writers.cached.overlaps(start, end) {
            return None;
        }
        writers.cached.remove(start, end);
        writers.dropping.push((start, end));
        Some((start, end))
    }

    /// The kernel has dropped the pages that [`OpenFiles::written_past`] told.
    pub(crate) fn dropped(&self, ino: InodeNr, pages: (u64, u64)) {
        if let Some(writers) = self.table().inodes.get_mut(&ino)
            && let Some(at) = writers.dropping.iter().position(|p| *p == pages)
        {
            writers.dropping.swap_remove(at);
        }
    }
}

#[cfg(test)]
#[path = "open_files_tests.rs"]
mod tests;
