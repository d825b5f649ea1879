//! The scratch file: leaves for which memory has no room. What it says is believed only if it has
//! the checksum that was kept in memory, and its file has no name: nobody reads it after this
//! process.

use super::entry::Entry;
use super::leaf::{Entries, LEAF_BLOCKS};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use siftfs_base::{Error, Result, corrupt, crc32c};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of a leaf in the file.
pub(super) const SLOT_BYTES: usize = LEAF_BLOCKS * 4;

/// The file grows by multiples of this, in bytes.
const STEP: u64 = 1 << 20;

/// Where a leaf is in the file, and what tells its bytes from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    pub slot: u32,
    crc: u32,
    /// Drawn for each write: what was read before another write has another one.
    turn: u32,
}

pub(super) struct Spill {
    pub(super) file: File,
}

/// Slots of the file, which are the leaves' from when their blocks are unlike until they are alike.
#[derive(Default)]
pub(super) struct Slots {
    free: Vec<u32>,
    /// One past the last that was ever used.
    end: u32,
    /// Bytes that the file has.
    bytes: u64,
    turn: u32,
}

fn failed(op: &'static str, place: Range<u64>, error: &io::Error) -> Error {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    Error::Io { op, offset: place.start, len: place.end - place.start, errno }
}

fn place(slot: u32) -> Range<u64> {
    let start = u64::from(slot) * SLOT_BYTES as u64;
    start..start + SLOT_BYTES as u64
}

impl Spill {
    /// An empty file without a name, in this folder, which its owner alone may read.
    ///
    /// # Errors
    /// Refused: the folder is not there, or no file can be made in it.
    pub fn create(folder: &Path) -> Result<Self> {
        let refused =
            |e: io::Error| Error::Refused(format!("no scratch file in {}: {e}", folder.display()));
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(Self { file: file.into() }),
            Err(_) => Self::create_and_unlink(folder).map_err(refused),
        }
    }

    /// For file systems that know no files without names.
    fn create_and_unlink(folder: &Path) -> io::Result<Self> {
        let name = folder.join(format!(".siftfs-scratch-{}", uuid::Uuid::new_v4()));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&name)?;
        std::fs::remove_file(&name)?;
        Ok(Self { file })
    }

    /// Writes a leaf. Durability is not asked for.
    ///
    /// # Errors
    /// I/O: what the slot has is not known.
    pub fn write(&self, slot: u32, entries: &Entries, slots: &mut Slots) -> Result<Saved> {
        let mut bytes = [0; SLOT_BYTES];
        let words = bytes.as_chunks_mut().0.iter_mut();
        words.zip(entries).for_each(|(word, entry)| *word = entry.to_bytes());
        let written = self.file.write_all_at(&bytes, place(slot).start);
        written.map_err(|e| failed("write", place(slot), &e))?;
        slots.turn = slots.turn.wrapping_add(1);
        Ok(Saved { slot, crc: crc32c(&bytes), turn: slots.turn })
    }

    /// Reads a leaf.
    ///
    /// # Errors
    /// I/O, also if the file has become too short. Corrupt: its bytes are not those that were
    /// written.
    pub fn read(&self, saved: Saved) -> Result<Box<Entries>> {
        let mut bytes = [0; SLOT_BYTES];
        let (slot, place) = (saved.slot, place(saved.slot));
        let read = self.file.read_exact_at(&mut bytes, place.start);
        read.map_err(|e| failed("read", place, &e))?;
        if crc32c(&bytes) != saved.crc {
            let what = format!("slot {slot} of the permission table's scratch file");
            return Err(corrupt(what, "its bytes are not those that were written"));
        }
        let mut entries = Box::new([Entry::FREE; LEAF_BLOCKS]);
        let words = bytes.as_chunks().0.iter();
        entries.iter_mut().zip(words).for_each(|(entry, word)| *entry = Entry::from_bytes(*word));
        Ok(entries)
    }

    /// Gives the file these bytes, so that a write to them needs no more room.
    fn grow(&self, bytes: Range<u64>) -> Result<()> {
        let len = bytes.end - bytes.start;
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), bytes.start, len) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(e) => return Err(failed("write", bytes, &e.into())),
        }
        let zeros = [0; SLOT_BYTES];
        for at in bytes.clone().step_by(SLOT_BYTES) {
            let written = self.file.write_all_at(&zeros, at);
            written.map_err(|e| failed("write", bytes.clone(), &e))?;
        }
        Ok(())
    }
}

impl Slots {
    /// Makes sure that `more` slots can be taken, with memory to note that they are free again. The
    /// file has room for all slots from when there are more of them than `frames`: until then no
    /// leaf leaves memory.
    ///
    /// # Errors
    /// I/O, `ENOSPC` among them: the file has no room for them.
    pub fn reserve(&mut self, more: usize, frames: usize, spill: &Spill) -> Result<()> {
        let new = more.saturating_sub(self.free.len());
        self.free.reserve(self.used() + new);
        if self.used() + more <= frames {
            return Ok(());
        }
        let end = u64::from(self.end) + new as u64;
        let bytes = (end * SLOT_BYTES as u64).next_multiple_of(STEP);
        if bytes > self.bytes {
            spill.grow(self.bytes..bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }

    /// A slot, of those that were reserved.
    pub fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }

    /// The slot is no leaf's any more.
    pub fn release(&mut self, slot: u32) {
        assert!(slot < self.end, "no slot of the file");
        self.free.push(slot);
    }

    /// How many leaves have one.
    pub fn used(&self) -> usize {
        usize::try_from(self.end).unwrap_or(usize::MAX) - self.free.len()
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.free.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
#[path = "spill_tests.rs"]
mod tests;
