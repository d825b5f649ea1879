//! A program's log in mapped memory (`docs/design/private-logs.md`, "The byte log").

use std::fs::File;
use std::io;

use siftfs_base::{Error, Result};

use super::mapping::{Mapping, Wish};
use super::open::{Way, cannot_map, is_dax, map_dax};
use super::{BytePromise, lines};

/// A file that holds a program's log, mapped by that program. The one who maps it stores to it
/// alone: what it held before, and what others store, is never read here.
///
/// The mapping needs no descriptor. A file that is made shorter is an error of
/// [`LogMemory::persist`], but for the moment between its look and its stores (rule R41).
pub struct LogMemory {
    memory: Mapping,
    way: Way,
    promise: BytePromise,
}

impl LogMemory {
    /// Are the file's pages persistent memory, as the kernel says?
    pub fn is_persistent(file: &File) -> bool {
        is_dax(file)
    }

    /// Maps the file, which has `len` bytes with all of their blocks, once it is proved that it
    /// keeps its contents over a power cut (rule R43). Which promise holds then is in the result.
    ///
    /// # Errors
    /// `Refused` if it is not on a file system with DAX, its length is another one, it cannot be
    /// mapped, or its pages cannot be made writable.
    pub fn persistent(file: &File, len: usize) -> Result<Self> {
        if !is_dax(file) {
            return Err(Error::Refused("the log is not on a file system with DAX".into()));
        }
        check_len(file, len)?;
        let (memory, promise, way) = map_dax(file, THE_LOG.as_ref(), len, true)?;
        Self { memory, way, promise }.populated()
    }

    /// Maps the file, which has `len` bytes. Nothing survives a power cut.
    ///
    /// # Errors
    /// `Refused` if its length is another one, it cannot be mapped, or its pages cannot be made
    /// writable.
    pub fn volatile(file: &File, len: usize) -> Result<Self> {
        check_len(file, len)?;
        let wish = Wish { writable: true, sync: false, populated: true };
        let memory = Mapping::of(file, len, wish).map_err(|e| cannot_map(THE_LOG.as_ref(), &e))?;
        let way = Way::Lines(lines::detect());
        Self { memory, way, promise: BytePromise::Volatile }.populated()
    }

    /// A kernel that cannot say whether pages may be written, before they are, is not relied on.
    fn populated(self) -> Result<Self> {
        let refused = |e| Error::Refused(format!("the log's pages cannot be written: {e}"));
        self.memory.populate(0, self.memory.len()).map_err(refused)?;
        Ok(self)
    }

    /// Which promise holds.
    pub fn promise(&self) -> BytePromise {
        self.promise
    }

    /// Stores `bytes` at `at`, and returns when they are persistent as the promise says. A power
    /// cut before that may keep any of the aligned words of 8 bytes.
    ///
    /// # Errors
    /// The file has become shorter, or its file system or medium failed: nothing is known of the
    /// bytes, and the log is of no use any more.
    ///
    /// # Panics
    /// If they do not lie within the log.
    pub fn persist(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.memory.populate(at, bytes.len())?;
        let line = if let Way::Lines(line) = &self.way { *line } else { None };
        self.memory.store(at, bytes, line);
        lines::fence();
        match &self.way {
            Way::Msync => self.memory.sync(at, bytes.len()),
            Way::Lines(_) | Way::ReadBack(_) => Ok(()),
        }
    }
}

/// What is mapped, in messages: its program knows no name of it.
const THE_LOG: &str = "a private log";

fn check_len(file: &File, len: usize) -> Result<()> {
    let cannot = |e: io::Error| Error::Refused(format!("cannot look at {THE_LOG}: {e}"));
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() || usize::try_from(metadata.len()) != Ok(len) {
        let has = metadata.len();
        return Err(Error::Refused(format!("{THE_LOG} has {has} bytes instead of {len}")));
    }
    Ok(())
}

#[cfg(test)]
#[path = "log_memory_tests.rs"]
mod tests;
